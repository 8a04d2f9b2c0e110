//! What every machine may look at, and none changes.

use std::time::Duration;

use store_api::StorePolicy;

use crate::Settings;

/// The configuration, the store's policy, and the time of the current event.
pub(crate) struct Base {
    pub settings: Settings,
    pub store: StorePolicy,
    /// Since the start of the coordinator.
    pub now: Duration,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}
