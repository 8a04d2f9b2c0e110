//! Facts that every state machine may read and no state machine changes.

use std::time::Duration;

use store_api::StorePolicy;

use crate::settings::Settings;

/// The time after a start in which known helpers may reconnect before their blocks count as lost.
pub(crate) const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// The configuration, the store's policy, and the time of the current event.
pub(crate) struct Base {
    pub settings: Settings,
    pub store: StorePolicy,
    /// The time since the start of the coordinator.
    pub now: Duration,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

impl Base {
    /// Whether repairs are only announced, not run.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.settings.heal.is_some_and(|policy| policy.dry_run)
    }

    /// Drops a removed helper from the list of mend.toml's helpers.
    pub(crate) fn unlist(&mut self, name: &str) {
        if let Some(helpers) = &mut self.settings.helpers {
            helpers.remove(name);
        }
    }

    /// Checks that a helper's blocks belong to this cluster. Otherwise, the error is the reason for refusing
    /// the helper.
    pub(crate) fn check_cluster(&self, cluster_id: &str) -> Result<(), String> {
        if cluster_id == self.settings.cluster_id {
            return Ok(());
        }
        Err(format!(
            "the helper's blocks belong to cluster {cluster_id}, but this is cluster {}; in the helper's \
             mend.toml, set the right block folder or the right coordinator",
            self.settings.cluster_id
        ))
    }
}
