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

impl Base {
    /// Refuses a helper whose blocks belong to another cluster.
    pub(crate) fn check_cluster(&self, cluster_id: &str) -> Result<(), String> {
        if cluster_id == self.settings.cluster_id {
            return Ok(());
        }
        Err(format!(
            "the helper's blocks belong to cluster {cluster_id}, and this is cluster {}; \
             give it the right folder, or the right coordinator",
            self.settings.cluster_id
        ))
    }
}
