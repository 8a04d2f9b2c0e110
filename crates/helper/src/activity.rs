//! The activity of a helper, for its metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::Engine;
use crate::traffic::Traffic;

/// The state of a helper that its metrics show; cheap to clone. It outlives the connections to the coordinator, and the
/// daemon itself.
#[derive(Clone, Default)]
pub struct Activity {
    traffic: Traffic,
    /// The engine of the current connection to the coordinator.
    engine: Arc<Mutex<Option<Engine>>>,
}

impl Activity {
    /// Returns the counters of the helper's traffic.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Whether the helper is registered with the coordinator.
    pub fn is_registered(&self) -> bool {
        self.engine().is_some()
    }

    /// Returns the number of running jobs.
    pub fn jobs(&self) -> u32 {
        self.engine().as_ref().map_or(0, Engine::jobs)
    }

    /// Notes that the helper is registered, until the returned value is dropped.
    pub(crate) fn registered(&self, engine: &Engine) -> Registered {
        *self.engine() = Some(engine.clone());
        Registered(self.clone())
    }

    fn engine(&self) -> MutexGuard<'_, Option<Engine>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to the coordinator.
pub(crate) struct Registered(Activity);

impl Drop for Registered {
    fn drop(&mut self) {
        *self.0.engine() = None;
    }
}
