//! The cluster's lock while volumes are worked on, and what a server needs before it can have a shard.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use repair::{NodeId, StripeId};
use stores::seaweedfs::VolumeName;
use stores::{CatalogError, StoreChange, StoreError};
use tokio::task::AbortHandle;

use super::state::Shared;
use crate::error::AskError;
use crate::listing::ServerId;
use crate::lock::Lock;
use crate::server::{SmallFile, VolumeServer};

/// What the lock's holder is called; `weed shell` shows it.
const NAME: &str = "mend";
/// A server that has just been asked has this long to be found ready.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// The lock and the stripes that it is held for.
#[derive(Default)]
pub(super) struct Claims {
    lock: Option<Arc<Lock>>,
    stripes: BTreeSet<StripeId>,
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
        let volume = self.state().view.volume_of(stripe);
        let volume = volume.ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        // One after the other, so that repairs begin as fast as volumes are looked at and not all in one moment.
        let _alone = self.claiming.lock().await;
        let is_new = self.hold(stripe, volume).await.map_err(|error| taken(error.to_string()))?;
        // Servers may be slow, and others need not wait for them.
        let ready = async {
            self.refresh(volume).await.map_err(taken)?;
            for &node in nodes {
                self.prepare(stripe, volume, node).await?;
            }
            self.check_claim(stripe).await.map_err(taken)
        };
        let ready = ready.await;
        // An earlier claim stays as it is.
        if ready.is_err() && is_new {
            self.release(stripe).await;
        }
        ready
    }

    /// Takes the lock, if it is not held, and notes that it is held for this stripe; whether that is new.
    async fn hold(self: &Arc<Self>, stripe: &StripeId, volume: u32) -> Result<bool, AskError> {
        let mut claims = self.claims.lock().await;
        if claims.lock.as_ref().is_none_or(|lock| lock.check().is_err()) {
            let lost = claims.drop_lock();
            self.state().tell(lost.into_iter().map(StoreChange::ClaimLost).collect());
            let lock = Arc::new(Lock::take(&self.master, NAME, &format!("repairs volume {volume}")).await?);
            claims.guard = Some(tokio::spawn(guard(Arc::clone(self), Arc::clone(&lock))).abort_handle());
            claims.lock = Some(lock);
        }
        Ok(claims.stripes.insert(stripe.clone()))
    }

    /// Makes sure that a node's server can have shards of a volume.
    async fn prepare(&self, stripe: &StripeId, volume: u32, node: NodeId) -> Result<(), StoreError> {
        let server = self.state().view.server(node).cloned();
        let ready = match &server {
            Some(server) => self.make_ready(stripe, volume, server).await,
            None => Err("it is no volume server".to_owned()),
        };
        ready.map_err(|why| {
            let server = server.map_or_else(|| node.to_string(), |server| server.0);
            StoreError::Unfit { stripe: stripe.clone(), node, server, why }
        })
    }

    /// Has the small files of a volume brought to a server that does not have them whole. One that has mounted shards of
    /// it has them open, and keeps those.
    async fn make_ready(&self, stripe: &StripeId, volume: u32, server: &ServerId) -> Result<(), String> {
        let name: VolumeName = stripe.0.parse().map_err(|_| format!("{stripe} is no volume"))?;
        let (source, serves) = {
            let state = self.state();
            (state.view.source(volume, server), state.view.serves(volume, server))
        };
        if serves {
            return Ok(());
        }
        let connection = self.connect(server).await?;
        let source =
            source.ok_or_else(|| format!("nobody is connected who has the index of volume {name}"))?;
        let source = self.connect(&source).await?;
        let text = |error: AskError| error.to_string();
        if has_small_files(&connection, &source, &name).await.map_err(text)? {
            return Ok(());
        }
        tracing::info!(volume = %name, %server, from = %source.address(), "bringing its small files");
        let brought = connection.bring_small_files(&name, source.address(), 0);
        let brought = tokio::time::timeout(READY_LIMIT, brought).await;
        brought.map_err(|_| format!("it does not get the small files of volume {name}"))?.map_err(text)
    }

    /// Lets a volume go, and the lock with the last.
    pub async fn release(&self, stripe: &StripeId) {
        let mut claims = self.claims.lock().await;
        claims.stripes.remove(stripe);
        claims.release_if_unused().await;
    }

    /// Lets everything go.
    pub async fn let_go_of_all(&self) {
        let mut claims = self.claims.lock().await;
        claims.stripes.clear();
        claims.release_if_unused().await;
    }

    /// Whether a volume is ours for now.
    ///
    /// # Errors
    /// Why not, in words.
    pub async fn check_claim(&self, stripe: &StripeId) -> Result<(), String> {
        let claims = self.claims.lock().await;
        match &claims.lock {
            Some(lock) if claims.stripes.contains(stripe) => lock.check().map_err(|error| error.to_string()),
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
        std::mem::take(&mut self.stripes)
    }

    async fn release_if_unused(&mut self) {
        if !self.stripes.is_empty() {
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

/// Whether a server has the small files that another one has of a volume, and the index as long. What broke off while it
/// was brought is shorter, or lacks `.vif`, which comes after the index.
async fn has_small_files(
    server: &VolumeServer,
    source: &VolumeServer,
    name: &VolumeName,
) -> Result<bool, AskError> {
    if !server.has_small_file(name, SmallFile::Vif).await? {
        return Ok(false);
    }
    let wants_sums = source.has_small_file(name, SmallFile::Ecsum).await?;
    if wants_sums && !server.has_small_file(name, SmallFile::Ecsum).await? {
        return Ok(false);
    }
    // Last, as all of it comes: of a server that has the files and has mounted nothing, which is rare.
    let found = server.small_file_bytes(name, SmallFile::Ecx).await?;
    Ok(found.is_some_and(|bytes| bytes > 0) && found == source.small_file_bytes(name, SmallFile::Ecx).await?)
}

/// Says so when the lock is lost.
async fn guard(shared: Arc<Shared>, lock: Arc<Lock>) {
    let error = lock.lost().await;
    tracing::warn!(%error, "the cluster's lock is lost");
    drop(lock);
    let stripes = {
        let mut claims = shared.claims.lock().await;
        claims.guard = None;
        claims.lock = None;
        std::mem::take(&mut claims.stripes)
    };
    shared.state().tell(stripes.into_iter().map(StoreChange::ClaimLost).collect());
}
