//! The facts that every machine may read and none changes.

use std::time::Duration;

use stores::Nature;

use crate::Settings;

/// The configuration, the store's nature, and the time of the event that is being handled.
pub(crate) struct Base {
    pub settings: Settings,
    pub nature: Nature,
    /// Since the start of the coordinator.
    pub now: Duration,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}
