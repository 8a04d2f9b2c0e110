//! Makes servers drop their cached locations of volumes whose shards have moved, once no repair has to wait for that.
//!
//! A server does so when its shards of the volume are remounted, which takes several calls for each server. During the
//! recovery of a server these calls would compete with the repairs, so volumes wait until no repair has a claim, but not
//! for long. The cluster's lock is held for them meanwhile, so no other client sees a volume between two remounts.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use repair::StripeId;
use tokio::time::Instant;

use super::claims::{ClusterLock, Hold};
use super::state::Shared;
use crate::blocks::VolumeName;

/// How long a volume waits while other repairs go on. Until it is its turn, reads of its moved shards are slow, because
/// servers decode these shards.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The volumes that wait.
#[derive(Default)]
pub(super) struct Refreshes(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether a task takes volumes from the queue.
    is_served: bool,
}

struct Waiting {
    name: VolumeName,
    hold: Hold,
    since: Instant,
}

impl Queue {
    /// Adds a volume. If the volume waits already, returns its former hold: the lock of that one may have been lost.
    fn add(&mut self, name: VolumeName, hold: Hold, since: Instant) -> Option<Hold> {
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.name == name) {
            return Some(std::mem::replace(&mut waiting.hold, hold));
        }
        self.waiting.push_back(Waiting { name, hold, since });
        None
    }

    /// Returns the first volume if it is its turn at this time.
    fn next(&mut self, is_repairing: bool, now: Instant) -> Option<Waiting> {
        let is_due =
            |first: &Waiting| !is_repairing || now.saturating_duration_since(first.since) >= PATIENCE;
        if self.waiting.front().is_some_and(is_due) { self.waiting.pop_front() } else { None }
    }
}

impl Refreshes {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next volume whose turn it is. Returns `None` if none is left; the next one needs another task.
    async fn next(&self, lock: &ClusterLock) -> Option<Waiting> {
        loop {
            let is_repairing = lock.is_repairing().await;
            {
                let mut queue = self.queue();
                if let Some(next) = queue.next(is_repairing, Instant::now()) {
                    return Some(next);
                }
                if queue.waiting.is_empty() {
                    queue.is_served = false;
                    return None;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

impl Shared {
    /// If a stripe's volume is complete again after shards have moved, has its servers drop their cached locations soon. A
    /// repair publishes its blocks one by one, so that happens once.
    pub(super) async fn refresh_if_due(self: &Arc<Self>, stripe: &StripeId) {
        let due = self.known.state().next_to_refresh(stripe);
        let Some(name) = due else { return };
        let hold = match self.begin_upkeep(stripe).await {
            Ok(hold) => hold,
            Err(error) => {
                tracing::info!(volume = %name, %error, "servers may use stale locations of shards");
                return self.known.state().inspection.note_move(name.id());
            }
        };
        let (former, is_first) = {
            let mut queue = self.refreshes.queue();
            let former = queue.add(name, hold, Instant::now());
            (former, !std::mem::replace(&mut queue.is_served, true))
        };
        if let Some(hold) = former {
            self.lock.end_upkeep(hold).await;
        }
        if is_first {
            tokio::spawn(Arc::clone(self).refresh_waiting());
        }
    }

    async fn refresh_waiting(self: Arc<Self>) {
        while let Some(Waiting { name, hold, .. }) = self.refreshes.next(&self.lock).await {
            if !self.lock.is_closed().await {
                self.refresh_locations(&hold, &name).await;
            }
            self.lock.end_upkeep(hold).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(id: u32) -> VolumeName {
        VolumeName::new("c", id).expect("a name")
    }

    fn taken(queue: &mut Queue, is_repairing: bool, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| queue.next(is_repairing, now)).map(|waiting| waiting.name.id()).collect()
    }

    #[test]
    fn volumes_wait_while_repairs_go_on_but_not_for_long() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        for (id, at) in [(5, 0), (3, 10), (4, 20)] {
            assert!(queue.add(name(id), Hold::of_tenure(0), start + Duration::from_secs(at)).is_none());
        }
        let later = Hold::of_tenure(7);
        assert_eq!(queue.add(name(3), later.clone(), start), Some(Hold::of_tenure(0)), "it waits already");
        assert_eq!(queue.waiting[1].hold, later, "the first hold may be of a lock that was lost");
        assert!(taken(&mut queue, true, start + Duration::from_secs(29)).is_empty());
        assert_eq!(taken(&mut queue, true, start + Duration::from_secs(40)), [5, 3]);
        assert_eq!(taken(&mut queue, false, start + Duration::from_secs(41)), [4]);
        assert!(taken(&mut queue, false, start + Duration::from_secs(99)).is_empty());
    }
}
