//! Maintenance windows of helpers.
//!
//! Before the window ends, the blocks of a helper in maintenance are not rebuilt elsewhere, and no message
//! advises the operator to rebuild them.

use std::collections::BTreeMap;
use std::time::Duration;

use repair::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::Base;
use crate::error::NodeError;
use crate::nodes::registry::Registry;
use crate::out::Out;
use crate::records::recall;
use views::{HistoryEvent, MaintenanceRequest};

/// The prefix of the record keys of maintenance windows; the helper's name follows.
const PREFIX: &str = "maintenance/";
/// The longest maintenance window. After that time, the operator has probably forgotten to end it.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// A maintenance window, as the records store it.
#[derive(Serialize, Deserialize)]
struct Kept {
    until_unix_ms: u64,
}

/// The maintenance windows of nodes, which outlive connections and restarts of the coordinator.
#[derive(Default)]
pub(crate) struct MaintenanceWindows(BTreeMap<NodeId, Window>);

/// A maintenance window.
struct Window {
    /// The end of the window.
    until: Duration,
    /// The same as a time of the wall clock.
    until_unix_ms: u64,
}

impl MaintenanceWindows {
    /// Starts the maintenance window of a node, or moves its end.
    pub(crate) fn begin(
        &mut self,
        (base, registry): (&Base, &Registry),
        node: NodeId,
        request: MaintenanceRequest,
        out: &mut Out,
    ) -> Result<(), NodeError> {
        let (name, time) = (registry.name(node), Duration::from_millis(request.for_ms));
        if time.is_zero() || time > LONGEST {
            return Err(NodeError::MaintenanceTime { most: LONGEST });
        }
        let until_unix_ms = base.unix_ms.saturating_add(request.for_ms);
        self.0.insert(node, Window { until: base.now + time, until_unix_ms });
        out.keep_record(format!("{PREFIX}{name}"), &Kept { until_unix_ms });
        tracing::info!(helper = name, for_s = time.as_secs(), "maintenance begins");
        out.note(HistoryEvent::MaintenanceBegun { node: name, until_unix_ms });
        Ok(())
    }

    /// Ends the maintenance of a node. An absent node is recovered when its grace period is over.
    pub(crate) fn end(&mut self, registry: &Registry, node: NodeId, out: &mut Out) -> Result<(), NodeError> {
        if !self.forget(registry, node, out) {
            return Err(NodeError::NotInMaintenance(registry.name(node)));
        }
        let name = registry.name(node);
        tracing::info!(helper = name, "maintenance ends");
        out.note(HistoryEvent::MaintenanceEnded { node: name });
        Ok(())
    }

    /// Restores the windows that an earlier coordinator recorded.
    pub(crate) fn recall(
        &mut self,
        (base, registry): (&Base, &Registry),
        records: &[(String, Value)],
        out: &mut Out,
    ) {
        for (name, kept) in recall::<Kept>(records, PREFIX) {
            match (kept, registry.known(name)) {
                (Some(Kept { until_unix_ms }), Some(node)) => {
                    let left = Duration::from_millis(until_unix_ms.saturating_sub(base.unix_ms)).min(LONGEST);
                    self.0.insert(node, Window { until: left, until_unix_ms });
                }
                _ => out.forget_record(format!("{PREFIX}{name}")),
            }
        }
    }

    /// Ends the maintenance windows that are over.
    pub(crate) fn expire(&mut self, base: &Base, registry: &Registry, out: &mut Out) {
        let over = self.0.iter().filter(|(_, window)| window.until <= base.now);
        for node in over.map(|(&node, _)| node).collect::<Vec<_>>() {
            self.end(registry, node, out).expect("the node is in maintenance");
        }
    }

    /// Ends the maintenance of a node without a history entry. Returns whether it was in maintenance.
    pub(super) fn forget(&mut self, registry: &Registry, node: NodeId, out: &mut Out) -> bool {
        let was = self.0.remove(&node).is_some();
        if was {
            out.forget_record(format!("{PREFIX}{}", registry.name(node)));
        }
        was
    }

    pub(crate) fn until_unix_ms(&self, node: NodeId) -> Option<u64> {
        self.0.get(&node).map(|window| window.until_unix_ms)
    }

    /// Returns the remaining maintenance time of a node.
    pub(crate) fn left(&self, base: &Base, node: NodeId) -> Option<Duration> {
        let left = self.0.get(&node)?.until.saturating_sub(base.now);
        Some(left).filter(|left| !left.is_zero())
    }
}
