//! Holds the cluster's lock while Mend works on volumes, and prepares servers that will receive shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use attached::Teller;
use repair::{NodeId, StripeId};
use store_api::{CatalogError, StoreChange, StoreError};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::AbortHandle;

use super::state::Shared;
use super::turn::Turn;
use crate::blocks::VolumeName;
use crate::error::AskError;
use crate::listing::ServerId;
use crate::lock::Lock;
use crate::master::MasterClient;

/// The name of the lock's holder, as `weed shell` shows it.
const NAME: &str = "mend";

/// The cluster-wide lock of SeaweedFS, and the stripes for which Mend holds it.
pub(super) struct ClusterLock {
    master: MasterClient,
    teller: Teller,
    claims: Arc<Mutex<Claims>>,
    /// Locked while a volume is being claimed, so that claims run one at a time.
    pub claiming: Mutex<()>,
}

#[derive(Default)]
struct Claims {
    lock: Option<Arc<Lock>>,
    /// Stripes for whose repairs the lock is held.
    stripes: BTreeSet<StripeId>,
    /// Stripes whose files or mounts are being fixed on some server, with the number of operations in
    /// progress.
    upkeep: BTreeMap<StripeId, usize>,
    /// Operations in progress that began under a lock that was lost. Their ends must not end operations of the same
    /// stripe that began under the present lock.
    outlived: BTreeMap<StripeId, usize>,
    turn: Turn,
    /// The task that reports the loss of the lock.
    guard: Option<AbortHandle>,
}

impl Shared {
    /// Takes the lock if necessary, and prepares these nodes for shards of a volume. Also lists the volume
    /// again while the lock is held.
    ///
    /// # Errors
    /// [`StoreError::Taken`] if another client holds the lock, [`StoreError::Unfit`] if a server cannot be
    /// prepared.
    pub async fn claim(self: &Arc<Self>, stripe: &StripeId, nodes: &[NodeId]) -> Result<(), StoreError> {
        let taken = |why: String| StoreError::Taken { stripe: stripe.clone(), why };
        let volume = self.known.state().view.volume_of(stripe);
        let volume = volume.ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        // Claim one volume at a time, so that repairs start at a steady rate instead of all at once.
        let _alone = self.lock.claiming.lock().await;
        let is_new = self.lock.claim(stripe, volume).await.map_err(|error| taken(error.to_string()))?;
        // Prepare without the lock on `claims`: servers may be slow.
        let ready = async {
            self.known.refresh(volume).await.map_err(taken)?;
            for &node in nodes {
                self.prepare(stripe, volume, node).await?;
            }
            self.lock.check(stripe).await.map_err(taken)
        };
        let ready = ready.await;
        // Keep a claim that existed before this call.
        if ready.is_err() && is_new {
            self.lock.release(stripe).await;
        }
        ready
    }

    /// Takes the lock if necessary, to fix the files or mounts of a volume's servers. Also lists the volume
    /// again while the lock is held.
    ///
    /// # Errors
    /// [`StoreError::Taken`] if another client holds the lock.
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

    /// Prepares a node's server for a shard of a volume, during upkeep of the volume.
    ///
    /// # Errors
    /// [`StoreError::Unfit`] if the server cannot be prepared.
    pub async fn prepare_for_upkeep(
        self: &Arc<Self>,
        stripe: &StripeId,
        node: NodeId,
    ) -> Result<(), StoreError> {
        let volume = self.known.state().view.volume_of(stripe);
        let volume = volume.ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        self.prepare(stripe, volume, node).await
    }

    /// Prepares a node's server for shards of a volume.
    async fn prepare(
        self: &Arc<Self>,
        stripe: &StripeId,
        volume: u32,
        node: NodeId,
    ) -> Result<(), StoreError> {
        let server = self.known.state().view.nodes().server(node).cloned();
        let ready = match &server {
            Some(server) => self.make_ready(stripe, volume, server).await,
            None => Err("it is not a volume server".to_owned()),
        };
        ready.map_err(|why| {
            let server = server.map_or_else(|| node.to_string(), |server| server.0);
            StoreError::Unfit { stripe: stripe.clone(), node, server, why }
        })
    }

    /// Copies the metadata files of a volume (`.ecx`, `.vif`, `.ecsum`) to a server whose copies are missing
    /// or differ from the majority. A server that has mounted shards of the volume keeps its own index
    /// (`.ecx`), since it has that file open.
    async fn make_ready(
        self: &Arc<Self>,
        stripe: &StripeId,
        volume: u32,
        server: &ServerId,
    ) -> Result<(), String> {
        let name: VolumeName = stripe.0.parse().map_err(|_| format!("{stripe} is not a volume"))?;
        let serves = self.known.state().view.volumes().serves(volume, server);
        self.complete(&name, server, serves).await
    }
}

impl ClusterLock {
    pub fn new(master: MasterClient, teller: Teller) -> Self {
        Self { master, teller, claims: Arc::default(), claiming: Mutex::default() }
    }

    /// Takes the lock, if it is not held, and claims this stripe for a repair. Returns whether the claim is
    /// new.
    ///
    /// # Errors
    /// [`AskError`], also if somebody else has the lock.
    pub async fn claim(&self, stripe: &StripeId, volume: u32) -> Result<bool, AskError> {
        Ok(self.hold(stripe, volume).await?.stripes.insert(stripe.clone()))
    }

    /// Takes the lock, if it is not held, to fix files or mounts on a server of this stripe.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub async fn begin_upkeep(&self, stripe: &StripeId, volume: u32) -> Result<(), AskError> {
        self.hold(stripe, volume).await?.begin_upkeep(stripe);
        Ok(())
    }

    /// Ends one upkeep operation, successful or not. Releases the lock if nothing else needs it.
    pub async fn end_upkeep(&self, stripe: &StripeId) {
        let mut claims = self.claims.lock().await;
        claims.end_upkeep(stripe);
        claims.release_if_unused().await;
    }

    /// Takes the lock unless it is already held. Refuses work on another volume when it is other clients' turn.
    async fn hold(&self, stripe: &StripeId, volume: u32) -> Result<MutexGuard<'_, Claims>, AskError> {
        let mut claims = self.claims.lock().await;
        let is_held = claims.lock.as_ref().is_some_and(|lock| lock.check().is_ok());
        if !is_held {
            let lost = claims.drop_lock();
            self.teller.tell(lost.into_iter().map(StoreChange::ClaimLost).collect());
        }
        if !claims.has(stripe) && !claims.turn.may_begin(Instant::now()) {
            let holder = "Mend has held the lock for a minute, and now lets other clients take it".to_owned();
            return Err(AskError::Locked { holder });
        }
        if !is_held {
            let lock = Arc::new(Lock::take(&self.master, NAME, &format!("repairs volume {volume}")).await?);
            claims.guard = Some(
                tokio::spawn(guard(Arc::clone(&self.claims), self.teller.clone(), Arc::clone(&lock)))
                    .abort_handle(),
            );
            claims.lock = Some(lock);
            claims.turn.begin(Instant::now());
        }
        Ok(claims)
    }

    /// Ends the claim of a stripe, and releases the lock if nothing else needs it.
    pub async fn release(&self, stripe: &StripeId) {
        let mut claims = self.claims.lock().await;
        claims.stripes.remove(stripe);
        claims.release_if_unused().await;
    }

    /// Ends all claims and releases the lock.
    pub async fn release_all(&self) {
        let mut claims = self.claims.lock().await;
        claims.stripes.clear();
        claims.upkeep.clear();
        claims.release_if_unused().await;
    }

    /// Checks that the lock is still held and that Mend holds it for this stripe.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub async fn check(&self, stripe: &StripeId) -> Result<(), String> {
        let claims = self.claims.lock().await;
        match &claims.lock {
            Some(lock) if claims.has(stripe) => lock.check().map_err(|error| error.to_string()),
            _ => Err("the cluster's lock was lost".to_owned()),
        }
    }
}

impl Claims {
    /// Whether the lock is held for this stripe.
    fn has(&self, stripe: &StripeId) -> bool {
        self.stripes.contains(stripe) || self.upkeep.contains_key(stripe)
    }

    fn begin_upkeep(&mut self, stripe: &StripeId) {
        *self.upkeep.entry(stripe.clone()).or_default() += 1;
    }

    /// Ends one operation. Of those that began under a lost lock and those under the present one, the former end
    /// first: so the present lock may be held for longer than necessary, but is never released too early.
    fn end_upkeep(&mut self, stripe: &StripeId) {
        let is_outlived = self.outlived.contains_key(stripe);
        let operations = if is_outlived { &mut self.outlived } else { &mut self.upkeep };
        if let Some(times) = operations.get_mut(stripe) {
            *times -= 1;
            if *times == 0 {
                operations.remove(stripe);
            }
        }
    }

    /// Drops the remains of a lost lock. Returns the stripes that were claimed under it.
    fn drop_lock(&mut self) -> BTreeSet<StripeId> {
        if let Some(guard) = self.guard.take() {
            guard.abort();
        }
        self.forget_lock()
    }

    /// Forgets a lost lock. Returns the stripes that were claimed under it.
    fn forget_lock(&mut self) -> BTreeSet<StripeId> {
        self.lock = None;
        self.turn.end(Instant::now());
        for (stripe, times) in std::mem::take(&mut self.upkeep) {
            *self.outlived.entry(stripe).or_default() += times;
        }
        std::mem::take(&mut self.stripes)
    }

    async fn release_if_unused(&mut self) {
        if !self.stripes.is_empty() || !self.upkeep.is_empty() {
            return;
        }
        if let Some(guard) = self.guard.take() {
            guard.abort();
            tokio::task::yield_now().await; // Lets the aborted task drop its reference.
        }
        // If another reference exists, the lock is released when that reference is dropped.
        if let Some(lock) = self.lock.take().and_then(Arc::into_inner) {
            lock.release().await;
        }
        self.turn.end(Instant::now());
    }
}

/// Waits until the lock is lost, and reports the stripes for which it was held.
async fn guard(claims: Arc<Mutex<Claims>>, teller: Teller, lock: Arc<Lock>) {
    let error = lock.lost().await;
    tracing::warn!(%error, "lost the cluster's lock");
    drop(lock);
    let stripes = {
        let mut claims = claims.lock().await;
        claims.guard = None;
        claims.forget_lock()
    };
    teller.tell(stripes.into_iter().map(StoreChange::ClaimLost).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_outlives_its_lock_does_not_end_one_under_the_next_lock() {
        let mut claims = Claims::default();
        let stripe = StripeId("c_5".to_owned());
        claims.begin_upkeep(&stripe);
        claims.forget_lock();
        assert!(!claims.has(&stripe));
        claims.begin_upkeep(&stripe);
        claims.end_upkeep(&stripe);
        assert!(claims.has(&stripe), "one of two operations has ended");
        claims.end_upkeep(&stripe);
        assert!(!claims.has(&stripe) && claims.outlived.is_empty());
    }
}
