//! Maintenance windows of helpers, and the settings that can be changed while the coordinator runs.
//!
//! Before the window ends, the blocks of a helper in maintenance are not rebuilt elsewhere, and no message
//! advises the operator to rebuild them.

use std::time::Duration;

use cluster::RepairAfter;
use repair::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::Base;
use crate::error::NodeError;
use crate::nodes::Nodes;
use crate::nodes::node::Maintenance;
use crate::nodes::registry::Registry;
use crate::out::Out;
use crate::records::recall;
use views::{HistoryEvent, MaintenanceRequest, SettingsRequest};

/// The prefix of the record keys of maintenance windows; the helper's name follows.
const PREFIX: &str = "maintenance/";
const REPAIR_AFTER_KEY: &str = "setting/repair-after";
/// The longest maintenance window. After that time, the operator has probably forgotten to end it.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// A maintenance window, as the records store it.
#[derive(Serialize, Deserialize)]
struct Kept {
    until_unix_ms: u64,
}

impl Nodes {
    /// Changes the settings and records them.
    pub(crate) fn change_settings(
        &mut self,
        base: &Base,
        request: &SettingsRequest,
        out: &mut Out,
    ) -> Result<(), NodeError> {
        if let Some(text) = &request.repair_after {
            self.repair_after_set = match text.as_str() {
                "default" => None,
                text => Some(text.parse::<RepairAfter>()?),
            };
            match self.repair_after_set {
                Some(after) => out.keep_record(REPAIR_AFTER_KEY.to_owned(), &after),
                None => out.forget_record(REPAIR_AFTER_KEY.to_owned()),
            }
            tracing::info!(repair_after = %self.repair_after(base), "settings changed");
        }
        Ok(())
    }
}

impl Registry {
    /// Starts the maintenance window of a node, or moves its end.
    pub(crate) fn maintain(
        &mut self,
        base: &Base,
        node: NodeId,
        request: MaintenanceRequest,
        out: &mut Out,
    ) -> Result<(), NodeError> {
        let (name, time) = (self.name(node), Duration::from_millis(request.for_ms));
        if time.is_zero() || time > LONGEST {
            return Err(NodeError::MaintenanceTime { most: LONGEST });
        }
        let until_unix_ms = base.unix_ms.saturating_add(request.for_ms);
        self.set_maintenance(node, Maintenance { until: base.now + time, until_unix_ms });
        out.keep_record(format!("{PREFIX}{name}"), &Kept { until_unix_ms });
        tracing::info!(helper = name, for_s = time.as_secs(), "maintenance begins");
        out.note(HistoryEvent::MaintenanceBegun { node: name, until_unix_ms });
        Ok(())
    }

    /// Ends the maintenance of a node. An absent node is recovered when its grace period is over.
    pub(crate) fn end_maintenance(&mut self, node: NodeId, out: &mut Out) -> Result<(), NodeError> {
        match self.drop_maintenance(node, out) {
            true => Ok(()),
            false => Err(NodeError::NotInMaintenance(self.name(node))),
        }
    }
}

impl Registry {
    pub(crate) fn recall_maintenance(&mut self, base: &Base, records: &[(String, Value)], out: &mut Out) {
        for (name, kept) in recall::<Kept>(records, PREFIX) {
            match (kept, self.known(name)) {
                (Some(Kept { until_unix_ms }), Some(node)) => {
                    let left = Duration::from_millis(until_unix_ms.saturating_sub(base.unix_ms)).min(LONGEST);
                    self.set_maintenance(node, Maintenance { until: left, until_unix_ms });
                }
                _ => out.forget_record(format!("{PREFIX}{name}")),
            }
        }
    }
}

impl Registry {
    fn set_maintenance(&mut self, node: NodeId, maintenance: Maintenance) {
        if let Some(node) = self.get_mut(node) {
            node.maintenance = Some(maintenance);
        }
    }

    /// Ends the maintenance of a node. Returns whether it was in maintenance.
    fn drop_maintenance(&mut self, node: NodeId, out: &mut Out) -> bool {
        let ends = self.forget_maintenance(node, out);
        if ends {
            let name = self.name(node);
            tracing::info!(helper = name, "maintenance ends");
            out.note(HistoryEvent::MaintenanceEnded { node: name });
        }
        ends
    }

    /// Ends the maintenance windows that are over.
    pub(crate) fn expire_maintenance(&mut self, base: &Base, out: &mut Out) {
        let is_over = |node: &NodeId| self.maintenance(*node).is_some_and(|it| it.until <= base.now);
        for node in self.ids().filter(is_over).collect::<Vec<_>>() {
            self.drop_maintenance(node, out);
        }
    }

    /// Ends the maintenance of a node without a history entry. Returns whether it was in maintenance.
    pub(super) fn forget_maintenance(&mut self, node: NodeId, out: &mut Out) -> bool {
        let ended = self.get_mut(node).and_then(|node| node.maintenance.take());
        if ended.is_some() {
            out.forget_record(format!("{PREFIX}{}", self.name(node)));
        }
        ended.is_some()
    }
}

impl Registry {
    pub(crate) fn maintenance_until_unix_ms(&self, node: NodeId) -> Option<u64> {
        self.maintenance(node).map(|maintenance| maintenance.until_unix_ms)
    }

    fn maintenance(&self, node: NodeId) -> Option<&Maintenance> {
        self.get(node)?.maintenance.as_ref()
    }

    /// Returns the remaining maintenance time of a node.
    pub(crate) fn maintenance_left(&self, base: &Base, node: NodeId) -> Option<Duration> {
        let left = self.maintenance(node)?.until.saturating_sub(base.now);
        Some(left).filter(|left| !left.is_zero())
    }
}

impl Nodes {
    /// Restores the settings that an earlier coordinator recorded.
    pub(crate) fn recall_settings(&mut self, records: &[(String, Value)]) {
        let set = records.iter().find(|(key, _)| key == REPAIR_AFTER_KEY);
        self.repair_after_set = set.and_then(|(_, value)| serde_json::from_value(value.clone()).ok());
    }
}
