//! Holds the cluster's lock while Mend works on volumes, and prepares servers that will receive shards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attached::Teller;
use repair::{NodeId, StripeId};
use store_api::{CatalogError, StoreChange, StoreError};
use tokio::sync::{Mutex, MutexGuard, Notify, Semaphore};
use tokio::task::AbortHandle;

use super::state::Shared;
use super::turn::Turn;
use crate::blocks::VolumeName;
use crate::error::AskError;
use crate::listing::ServerId;
use crate::lock::Lock;
use crate::master::MasterClient;

/// The number of volumes that are claimed at the same time. To prepare a server, Mend may have to compare large
/// indexes, or to wait for servers that do not answer; in the recovery of a whole server, other claims must not wait
/// for that. The number is small so that repairs start at a steady rate instead of all at once.
const CLAIMS_AT_ONCE: usize = 4;
/// The name of the lock's holder, as `weed shell` shows it.
const NAME: &str = "mend";
/// Why work on another volume must wait; see [`Turn`].
const OTHERS_TURN: &str = "Mend has held the lock for over a minute; to let other clients take it, Mend begins no work on \
    other volumes until it has released the lock for 2 s, but for a minute at most";
/// How long a coordinator that shuts down waits for the ends of upkeep operations, which may have unmounted shards
/// for a moment.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The cluster-wide lock of SeaweedFS, and the stripes for which Mend holds it.
pub(super) struct ClusterLock {
    master: MasterClient,
    teller: Teller,
    claims: Arc<Mutex<Claims>>,
    /// Signalled when an upkeep operation ends.
    upkeep_ended: Notify,
    /// A permit for each volume that may be claimed at the same time.
    pub claiming: Semaphore,
}

/// The right to change a volume's files and mounts on servers, for as long as Mend keeps the lock under which the
/// operation began. Once that lock was lost, another client may have changed the volume, so
/// [`ClusterLock::check`] refuses the operation from then on, also after Mend has taken the lock again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    stripe: StripeId,
    /// See [`Claims::tenure`]; 0 if the stripe was not claimed.
    tenure: u64,
}

#[cfg(test)]
impl Hold {
    pub fn of_tenure(tenure: u64) -> Self {
        Self { stripe: StripeId("c_5".to_owned()), tenure }
    }
}

#[derive(Default)]
struct Claims {
    lock: Option<Arc<Lock>>,
    /// The number of times that Mend has taken the lock.
    tenure: u64,
    /// Stripes for whose repairs the lock is held, with the nodes whose metadata files were compared since.
    stripes: BTreeMap<StripeId, BTreeSet<NodeId>>,
    /// Stripes whose files or mounts are being fixed on some server, with the number of operations in
    /// progress that began under the present lock.
    upkeep: BTreeMap<StripeId, usize>,
    turn: Turn,
    /// The task that reports the loss of the lock.
    guard: Option<AbortHandle>,
    /// Whether the coordinator shuts down, so that nothing begins any more.
    is_closed: bool,
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
        let _permit = self.lock.claiming.acquire().await.expect("it is never closed");
        let (volume, is_at_risk) = self.volume_of(stripe)?;
        let (hold, is_new) =
            self.lock.claim(stripe, volume, is_at_risk).await.map_err(|error| taken(error.to_string()))?;
        // Prepare without the lock on `claims`: servers may be slow.
        let ready = async {
            self.known.refresh(volume).await.map_err(taken)?;
            for &node in nodes {
                self.prepare(&hold, volume, node).await?;
            }
            self.lock.check(&hold).await.map_err(taken)
        };
        let ready = ready.await;
        // Keep a claim that existed before this call.
        if ready.is_err() && is_new {
            self.lock.release(stripe).await;
        }
        ready
    }

    /// Takes the lock if necessary, to fix the files or mounts of a volume's servers. Also lists the volume
    /// again while the lock is held. The caller must pass the result to [`ClusterLock::end_upkeep`].
    ///
    /// # Errors
    /// [`StoreError::Taken`] if another client holds the lock.
    pub(super) async fn begin_upkeep(self: &Arc<Self>, stripe: &StripeId) -> Result<Hold, StoreError> {
        let taken = |why: String| StoreError::Taken { stripe: stripe.clone(), why };
        let (volume, is_at_risk) = self.volume_of(stripe)?;
        let hold = self.lock.begin_upkeep(stripe, volume, is_at_risk).await;
        let hold = hold.map_err(|error| taken(error.to_string()))?;
        let known = self.known.refresh(volume).await;
        if let Err(why) = known {
            self.lock.end_upkeep(hold).await;
            return Err(taken(why));
        }
        Ok(hold)
    }

    /// Prepares a node's server for a shard of a volume, during upkeep of the volume.
    ///
    /// # Errors
    /// [`StoreError::Unfit`] if the server cannot be prepared.
    pub(super) async fn prepare_for_upkeep(
        self: &Arc<Self>,
        hold: &Hold,
        node: NodeId,
    ) -> Result<(), StoreError> {
        let (volume, _) = self.volume_of(&hold.stripe)?;
        self.prepare(hold, volume, node).await
    }

    /// Returns a stripe's volume, and whether the volume cannot lose another shard.
    fn volume_of(&self, stripe: &StripeId) -> Result<(u32, bool), CatalogError> {
        let state = self.known.state();
        let volume = state.view.volume_of(stripe);
        let volume = volume.ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        Ok((volume, state.view.is_at_risk(volume)))
    }

    /// Prepares a node's server for shards of a volume.
    async fn prepare(self: &Arc<Self>, hold: &Hold, volume: u32, node: NodeId) -> Result<(), StoreError> {
        let stripe = &hold.stripe;
        let server = self.known.state().view.nodes().server(node).cloned();
        let ready = match &server {
            Some(server) => self.make_ready(hold, volume, (node, server)).await,
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
        hold: &Hold,
        volume: u32,
        (node, server): (NodeId, &ServerId),
    ) -> Result<(), String> {
        let stripe = &hold.stripe;
        let name: VolumeName = stripe.0.parse().map_err(|_| format!("{stripe} is not a volume"))?;
        let serves = {
            let state = self.known.state();
            if let Some(why) = state.folders.difference(server) {
                return Err(why.to_owned());
            }
            state.view.volumes().serves(volume, server)
        };
        if !serves {
            self.check_journal(&name, server).await?;
        }
        // A repair that is planned again claims its stripe again.
        if !self.lock.has_prepared(hold, node).await {
            self.complete(hold, &name, server, serves).await?;
            self.lock.note_prepared(hold, node).await;
        }
        Ok(())
    }
}

impl ClusterLock {
    pub fn new(master: MasterClient, teller: Teller) -> Self {
        let claims = Arc::default();
        Self { master, teller, claims, upkeep_ended: Notify::new(), claiming: Semaphore::new(CLAIMS_AT_ONCE) }
    }

    /// Takes the lock, if it is not held, and claims this stripe for a repair. Also returns whether the claim is
    /// new.
    ///
    /// # Errors
    /// [`AskError`], also if somebody else has the lock.
    pub async fn claim(
        &self,
        stripe: &StripeId,
        volume: u32,
        is_at_risk: bool,
    ) -> Result<(Hold, bool), AskError> {
        let mut claims = self.hold(stripe, volume, is_at_risk).await?;
        let is_new = !claims.stripes.contains_key(stripe);
        claims.stripes.entry(stripe.clone()).or_default();
        Ok((claims.claimed(stripe), is_new))
    }

    /// Whether a node was prepared under this claim.
    async fn has_prepared(&self, hold: &Hold, node: NodeId) -> bool {
        let claims = self.claims.lock().await;
        claims.covers(hold) && claims.stripes.get(&hold.stripe).is_some_and(|nodes| nodes.contains(&node))
    }

    async fn note_prepared(&self, hold: &Hold, node: NodeId) {
        let mut claims = self.claims.lock().await;
        if claims.covers(hold)
            && let Some(nodes) = claims.stripes.get_mut(&hold.stripe)
        {
            nodes.insert(node);
        }
    }

    /// Whether a repair has claimed a stripe, and the coordinator does not shut down.
    pub async fn is_repairing(&self) -> bool {
        let claims = self.claims.lock().await;
        !claims.is_closed && !claims.stripes.is_empty()
    }

    /// Whether the coordinator shuts down.
    pub async fn is_closed(&self) -> bool {
        self.claims.lock().await.is_closed
    }

    /// Returns the right to work on a stripe that a repair has claimed. If none has, or the claim was lost,
    /// [`check`](Self::check) refuses the result.
    pub async fn claimed(&self, stripe: &StripeId) -> Hold {
        self.claims.lock().await.claimed(stripe)
    }

    /// Takes the lock, if it is not held, to fix files or mounts on a server of this stripe.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub async fn begin_upkeep(
        &self,
        stripe: &StripeId,
        volume: u32,
        is_at_risk: bool,
    ) -> Result<Hold, AskError> {
        Ok(self.hold(stripe, volume, is_at_risk).await?.begin_upkeep(stripe))
    }

    /// Ends one upkeep operation, successful or not. Releases the lock if nothing else needs it.
    pub async fn end_upkeep(&self, hold: Hold) {
        let mut claims = self.claims.lock().await;
        claims.end_upkeep(hold);
        claims.release_if_unused().await;
        self.upkeep_ended.notify_waiters();
    }

    /// Takes the lock unless it is already held. Refuses work on another volume when it is other clients' turn, except
    /// on one that cannot lose another shard (`is_at_risk`).
    async fn hold(
        &self,
        stripe: &StripeId,
        volume: u32,
        is_at_risk: bool,
    ) -> Result<MutexGuard<'_, Claims>, AskError> {
        let mut claims = self.claims.lock().await;
        if claims.is_closed {
            return Err(AskError::Locked { holder: "the coordinator is shutting down".to_owned() });
        }
        let is_held = claims.lock.as_ref().is_some_and(|lock| lock.check().is_ok());
        if !is_held {
            let lost = claims.drop_lock();
            self.teller.tell(lost.into_iter().map(StoreChange::ClaimLost).collect());
        }
        if !claims.has(stripe) && !claims.turn.may_begin(Instant::now(), is_at_risk) {
            return Err(AskError::Locked { holder: OTHERS_TURN.to_owned() });
        }
        if !is_held {
            let lock = Arc::new(Lock::take(&self.master, NAME, &format!("repairs volume {volume}")).await?);
            claims.guard = Some(
                tokio::spawn(guard(Arc::clone(&self.claims), self.teller.clone(), Arc::clone(&lock)))
                    .abort_handle(),
            );
            claims.lock = Some(lock);
            claims.tenure += 1;
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

    /// Ends all claims and releases the lock, for good: nothing begins any more. Upkeep operations in progress get
    /// some time to end, since they may have unmounted shards that they mount again. Operations that take
    /// longer may change nothing from then on.
    pub async fn close(&self) {
        self.close_within(END_LIMIT).await;
    }

    async fn close_within(&self, limit: Duration) {
        self.claims.lock().await.is_closed = true;
        if tokio::time::timeout(limit, self.upkeep_ends()).await.is_err() {
            tracing::warn!("shutting down although SeaweedFS's servers have not answered some requests");
        }
        let mut claims = self.claims.lock().await;
        claims.stripes.clear();
        claims.upkeep.clear();
        claims.release_if_unused().await;
    }

    /// Waits until no upkeep operation is in progress.
    async fn upkeep_ends(&self) {
        loop {
            let ended = self.upkeep_ended.notified();
            if self.claims.lock().await.upkeep.is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// Checks that the lock under which an operation began is still held, and that Mend holds it for the
    /// operation's stripe.
    ///
    /// # Errors
    /// The reason for the failure, as text.
    pub async fn check(&self, hold: &Hold) -> Result<(), String> {
        let claims = self.claims.lock().await;
        match &claims.lock {
            Some(lock) if claims.covers(hold) => lock.check().map_err(|error| error.to_string()),
            _ => Err("the cluster's lock was lost".to_owned()),
        }
    }
}

impl Claims {
    /// Whether the lock is held for this stripe.
    fn has(&self, stripe: &StripeId) -> bool {
        self.stripes.contains_key(stripe) || self.upkeep.contains_key(stripe)
    }

    /// Whether an operation began under the present lock, and is still in progress or claimed.
    fn covers(&self, hold: &Hold) -> bool {
        hold.tenure == self.tenure && self.has(&hold.stripe)
    }

    fn claimed(&self, stripe: &StripeId) -> Hold {
        let tenure = if self.stripes.contains_key(stripe) { self.tenure } else { 0 };
        Hold { stripe: stripe.clone(), tenure }
    }

    fn begin_upkeep(&mut self, stripe: &StripeId) -> Hold {
        *self.upkeep.entry(stripe.clone()).or_default() += 1;
        Hold { stripe: stripe.clone(), tenure: self.tenure }
    }

    /// Ends one operation. Operations that began under an earlier lock have ended with that lock.
    fn end_upkeep(&mut self, hold: Hold) {
        if hold.tenure != self.tenure {
            return;
        }
        if let Some(times) = self.upkeep.get_mut(&hold.stripe) {
            *times -= 1;
            if *times == 0 {
                self.upkeep.remove(&hold.stripe);
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
        self.upkeep.clear();
        std::mem::take(&mut self.stripes).into_keys().collect()
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

    fn stripe() -> StripeId {
        StripeId("c_5".to_owned())
    }

    /// Forgets the present lock and takes the next one, which another client may have had in between.
    fn lose_and_take(claims: &mut Claims) {
        claims.forget_lock();
        claims.tenure += 1;
    }

    #[test]
    fn an_operation_that_outlives_its_lock_neither_acts_nor_ends_another_under_the_next_lock() {
        let mut claims = Claims { tenure: 1, ..Claims::default() };
        let first = claims.begin_upkeep(&stripe());
        assert!(claims.covers(&first));
        claims.forget_lock();
        assert!(!claims.has(&stripe()) && !claims.covers(&first));
        claims.tenure += 1;
        let second = claims.begin_upkeep(&stripe());
        assert!(claims.covers(&second) && !claims.covers(&first), "the volume may have changed in between");
        claims.end_upkeep(first);
        assert!(claims.covers(&second), "one of two operations has ended");
        claims.end_upkeep(second);
        assert!(!claims.has(&stripe()));
    }

    #[test]
    fn a_lost_claim_is_not_replaced_by_upkeep_of_the_same_stripe() {
        let mut claims = Claims { tenure: 1, ..Claims::default() };
        claims.stripes.insert(stripe(), BTreeSet::new());
        let claimed = claims.claimed(&stripe());
        assert!(claims.covers(&claimed));
        lose_and_take(&mut claims);
        let upkeep = claims.begin_upkeep(&stripe());
        let late = claims.claimed(&stripe());
        assert!(claims.covers(&upkeep) && !claims.covers(&claimed) && !claims.covers(&late));
    }

    fn lock() -> ClusterLock {
        let master = MasterClient::new(Vec::new(), crate::security::Security::plain());
        ClusterLock::new(master, Teller::start().expect("a thread"))
    }

    #[tokio::test]
    async fn after_the_end_nothing_begins_and_late_operations_may_not_act() {
        let lock = lock();
        let late = lock.claims.lock().await.begin_upkeep(&stripe());
        lock.close_within(Duration::ZERO).await;
        assert!(!lock.claims.lock().await.covers(&late), "it took too long");
        lock.end_upkeep(late).await;
        let refused = lock.begin_upkeep(&stripe(), 5, true).await.expect_err("the coordinator shuts down");
        assert!(refused.to_string().contains("shutting down"), "{refused}");
        let refused = lock.claim(&stripe(), 5, true).await.expect_err("the coordinator shuts down");
        assert!(refused.to_string().contains("shutting down"), "{refused}");
    }

    #[tokio::test]
    async fn the_end_waits_for_operations_that_may_have_unmounted_shards() {
        let lock = lock();
        let hold = lock.claims.lock().await.begin_upkeep(&stripe());
        let operation = async {
            while !lock.claims.lock().await.is_closed {
                tokio::task::yield_now().await;
            }
            assert!(lock.claims.lock().await.covers(&hold), "it may mount them again");
            lock.end_upkeep(hold).await;
        };
        // Without the end of the operation, this would not return.
        tokio::join!(lock.close_within(Duration::from_secs(3600)), operation);
    }
}
