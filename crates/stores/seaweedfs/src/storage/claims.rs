//! The cluster's lock while volumes are worked on, and what a server needs before it can have a shard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use attached::Teller;
use repair::{NodeId, StripeId};
use store_api::{CatalogError, StoreChange, StoreError};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::AbortHandle;

use super::state::Shared;
use crate::blocks::VolumeName;
use crate::error::AskError;
use crate::listing::ServerId;
use crate::lock::Lock;
use crate::master::MasterClient;

/// What the lock's holder is called; `weed shell` shows it.
const NAME: &str = "mend";

/// The cluster's lock, and the stripes that it is held for.
pub(super) struct ClusterLock {
    master: MasterClient,
    teller: Teller,
    claims: Arc<Mutex<Claims>>,
    /// Held while a volume is claimed.
    pub claiming: Mutex<()>,
}

#[derive(Default)]
struct Claims {
    lock: Option<Arc<Lock>>,
    /// The stripes that are claimed for repairs.
    stripes: BTreeSet<StripeId>,
    /// The stripes whose servers are put right, and how often at once.
    upkeep: BTreeMap<StripeId, usize>,
    /// Tells when the lock is lost.
    guard: Option<AbortHandle>,
}

impl Shared {
    /// Takes the lock, if it is not held, and makes sure that these nodes can have shards of a volume. What is known of
    /// the volume is as new as the claim when this returns.
    ///
    /// # Errors
    /// [`StoreError::Taken`] if somebody else has the lock, [`StoreError::Unfit`] if a server cannot be made ready.
    pub async fn claim(self: &Arc<Self>, stripe: &StripeId, nodes: &[NodeId]) -> Result<(), StoreError> {
        let taken = |why: String| StoreError::Taken { stripe: stripe.clone(), why };
        let volume = self.known.state().view.volume_of(stripe);
        let volume = volume.ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        // One after the other, so that repairs begin as fast as volumes are looked at and not all in one moment.
        let _alone = self.lock.claiming.lock().await;
        let is_new = self.lock.claim(stripe, volume).await.map_err(|error| taken(error.to_string()))?;
        // Servers may be slow, and others need not wait for them.
        let ready = async {
            self.known.refresh(volume).await.map_err(taken)?;
            for &node in nodes {
                self.prepare(stripe, volume, node).await?;
            }
            self.lock.check(stripe).await.map_err(taken)
        };
        let ready = ready.await;
        // An earlier claim stays as it is.
        if ready.is_err() && is_new {
            self.lock.release(stripe).await;
        }
        ready
    }

    /// Takes the lock, if it is not held, to put a server of a volume right. What is known of the volume is as new as that.
    ///
    /// # Errors
    /// [`StoreError::Taken`] if somebody else has the lock.
    pub async fn begin_upkeep(self: &Arc<Self>, stripe: &StripeId) -> Result<(), StoreError> {
        let taken = |why: String| StoreError::Taken { stripe: stripe.clone(), why };
        let volume = self.known.state().view.volume_of(stripe);
        let volume = volume.ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        self.lock.begin_upkeep(stripe, volume).await.map_err(|error| taken(error.to_string()))?;
        let known = self.known.refresh(volume).await;
        if let Err(why) = known {
            self.lock.end_upkeep(stripe).await;
            return Err(taken(why));
        }
        Ok(())
    }

    /// Makes sure that a node's server can have shards of a volume.
    async fn prepare(
        self: &Arc<Self>,
        stripe: &StripeId,
        volume: u32,
        node: NodeId,
    ) -> Result<(), StoreError> {
        let server = self.known.state().view.nodes().server(node).cloned();
        let ready = match &server {
            Some(server) => self.make_ready(stripe, volume, server).await,
            None => Err("it is no volume server".to_owned()),
        };
        ready.map_err(|why| {
            let server = server.map_or_else(|| node.to_string(), |server| server.0);
            StoreError::Unfit { stripe: stripe.clone(), node, server, why }
        })
    }

    /// Has the small files of a volume brought to a server that does not have them as most others have. One that has mounted
    /// shards of it has its index open, and keeps that.
    async fn make_ready(
        self: &Arc<Self>,
        stripe: &StripeId,
        volume: u32,
        server: &ServerId,
    ) -> Result<(), String> {
        let name: VolumeName = stripe.0.parse().map_err(|_| format!("{stripe} is no volume"))?;
        let serves = self.known.state().view.volumes().serves(volume, server);
        self.complete(&name, server, serves).await
    }
}

impl ClusterLock {
    pub fn new(master: MasterClient, teller: Teller) -> Self {
        Self { master, teller, claims: Arc::default(), claiming: Mutex::default() }
    }

    /// Takes the lock, if it is not held, for a repair of this stripe; returns whether the stripe was not claimed yet.
    ///
    /// # Errors
    /// [`AskError`], also if somebody else has the lock.
    pub async fn claim(&self, stripe: &StripeId, volume: u32) -> Result<bool, AskError> {
        Ok(self.hold(volume).await?.stripes.insert(stripe.clone()))
    }

    /// Takes the lock, if it is not held, to put a server of this stripe right.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub async fn begin_upkeep(&self, stripe: &StripeId, volume: u32) -> Result<(), AskError> {
        *self.hold(volume).await?.upkeep.entry(stripe.clone()).or_default() += 1;
        Ok(())
    }

    /// The servers of a volume are as they should be, or not; the lock goes with the last that needs it.
    pub async fn end_upkeep(&self, stripe: &StripeId) {
        let mut claims = self.claims.lock().await;
        if let Some(times) = claims.upkeep.get_mut(stripe) {
            *times -= 1;
            if *times == 0 {
                claims.upkeep.remove(stripe);
            }
        }
        claims.release_if_unused().await;
    }

    /// Takes the lock, if it is not held.
    async fn hold(&self, volume: u32) -> Result<MutexGuard<'_, Claims>, AskError> {
        let mut claims = self.claims.lock().await;
        if claims.lock.as_ref().is_none_or(|lock| lock.check().is_err()) {
            let lost = claims.drop_lock();
            self.teller.tell(lost.into_iter().map(StoreChange::ClaimLost).collect());
            let lock = Arc::new(Lock::take(&self.master, NAME, &format!("repairs volume {volume}")).await?);
            claims.guard = Some(
                tokio::spawn(guard(Arc::clone(&self.claims), self.teller.clone(), Arc::clone(&lock)))
                    .abort_handle(),
            );
            claims.lock = Some(lock);
        }
        Ok(claims)
    }

    /// Lets a volume go, and the lock with the last.
    pub async fn release(&self, stripe: &StripeId) {
        let mut claims = self.claims.lock().await;
        claims.stripes.remove(stripe);
        claims.release_if_unused().await;
    }

    /// Lets everything go.
    pub async fn release_all(&self) {
        let mut claims = self.claims.lock().await;
        claims.stripes.clear();
        claims.upkeep.clear();
        claims.release_if_unused().await;
    }

    /// Whether a volume is ours for now.
    ///
    /// # Errors
    /// Why not, in words.
    pub async fn check(&self, stripe: &StripeId) -> Result<(), String> {
        let claims = self.claims.lock().await;
        match &claims.lock {
            Some(lock) if claims.stripes.contains(stripe) || claims.upkeep.contains_key(stripe) => {
                lock.check().map_err(|error| error.to_string())
            }
            _ => Err("the cluster's lock was lost".to_owned()),
        }
    }
}

impl Claims {
    /// Drops what is left of a lock that is not held any more; the stripes that it was held for.
    fn drop_lock(&mut self) -> BTreeSet<StripeId> {
        if let Some(guard) = self.guard.take() {
            guard.abort();
        }
        self.lock = None;
        self.upkeep.clear();
        std::mem::take(&mut self.stripes)
    }

    async fn release_if_unused(&mut self) {
        if !self.stripes.is_empty() || !self.upkeep.is_empty() {
            return;
        }
        if let Some(guard) = self.guard.take() {
            guard.abort();
            tokio::task::yield_now().await; // So that it drops its share.
        }
        // Whoever still has a share lets go when it drops it.
        if let Some(lock) = self.lock.take().and_then(Arc::into_inner) {
            lock.release().await;
        }
    }
}

/// Says so when the lock is lost.
async fn guard(claims: Arc<Mutex<Claims>>, teller: Teller, lock: Arc<Lock>) {
    let error = lock.lost().await;
    tracing::warn!(%error, "the cluster's lock is lost");
    drop(lock);
    let stripes = {
        let mut claims = claims.lock().await;
        claims.guard = None;
        claims.lock = None;
        claims.upkeep.clear();
        std::mem::take(&mut claims.stripes)
    };
    teller.tell(stripes.into_iter().map(StoreChange::ClaimLost).collect());
}
