//! Keeps removals of one connection to the coordinator from deleting blocks that the next connection lists.
//!
//! A coordinator that loses a connection forgets the removals that it requested. When the helper registers
//! again, the coordinator may take a listed block into use again. So a removal begins only during the
//! connection on which it was requested, and the helper registers only after all of them have ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::write_checks::WARN_EVERY;

/// The removals of all connections; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Removals(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    connection: u64,
    running: usize,
}

/// The removals of one connection.
#[derive(Clone)]
pub(crate) struct ConnectionRemovals {
    removals: Removals,
    connection: u64,
}

/// A running removal; dropping it marks the removal as ended.
pub(crate) struct Running(Removals);

impl Removals {
    /// Begins the next connection: drops removals that have not begun, and waits for the others. If the disk
    /// hangs, this waits until it works again, with a warning in the log.
    pub(crate) async fn next_connection(&self) -> ConnectionRemovals {
        let connection = {
            let mut state = self.state();
            state.connection += 1;
            state.connection
        };
        loop {
            let running = self.state().running;
            if running == 0 {
                return ConnectionRemovals { removals: self.clone(), connection };
            }
            if timeout(WARN_EVERY, self.0.ended.notified()).await.is_err() {
                tracing::warn!(
                    running,
                    "waiting for the disk to remove blocks before registering with the coordinator again"
                );
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionRemovals {
    /// Begins a removal; `None` if the connection has ended.
    pub(crate) fn begin(&self) -> Option<Running> {
        let mut state = self.removals.state();
        (state.connection == self.connection).then(|| {
            state.running += 1;
            Running(self.removals.clone())
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_new_connection_waits_for_removals_and_drops_those_that_have_not_begun() {
        let removals = Removals::default();
        let first = removals.next_connection().await;
        let running = [first.begin(), first.begin()].map(|running| running.expect("it has just begun"));
        let second = removals.next_connection();
        tokio::pin!(second);
        for running in running {
            assert!(timeout(Duration::from_millis(10), &mut second).await.is_err());
            assert!(first.begin().is_none(), "the connection has ended");
            drop(running);
        }
        let second = second.await;
        assert!(second.begin().is_some() && first.begin().is_none());
    }
}
