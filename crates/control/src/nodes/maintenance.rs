//! Helpers that somebody works on, and the settings that can be changed while the coordinator runs.
//!
//! A helper in maintenance is not rebuilt elsewhere before that ends, and nobody is told to do so.

use std::time::Duration;

use cluster::RepairAfter;
use repair::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Control;
use crate::base::Base;
use crate::error::RequestError;
use crate::nodes::Nodes;
use crate::nodes::absences::recall;
use crate::nodes::registry::Registry;
use crate::out::Out;
use views::{HistoryEvent, MaintenanceRequest, NodeView, SettingsRequest, SettingsView};

/// Keys of helpers in maintenance begin with this; the name follows.
const PREFIX: &str = "maintenance/";
const REPAIR_AFTER_KEY: &str = "setting/repair-after";
/// Who works on a machine for longer has forgotten to say that it is done.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// A helper that somebody works on.
pub(crate) struct Maintenance {
    until: Duration,
    until_unix_ms: u64,
}

/// The same in the records.
#[derive(Serialize, Deserialize)]
struct Kept {
    until_unix_ms: u64,
}

impl Control {
    /// A helper is to be left alone from now on.
    pub(crate) fn maintain(
        &mut self,
        name: &str,
        request: MaintenanceRequest,
    ) -> Result<NodeView, RequestError> {
        self.storing.check_storage()?;
        let node = self.nodes.node_named(&self.base, name)?;
        let time = Duration::from_millis(request.for_ms);
        if time.is_zero() || time > LONGEST {
            return Err(RequestError::MaintenanceTime { most: LONGEST });
        }
        let until_unix_ms = self.base.unix_ms.saturating_add(request.for_ms);
        self.nodes.registry.set_maintenance(node, Maintenance { until: self.base.now + time, until_unix_ms });
        self.out.keep_record(format!("{PREFIX}{name}"), &Kept { until_unix_ms });
        tracing::info!(helper = name, for_s = time.as_secs(), "maintenance begins");
        self.out.note(HistoryEvent::MaintenanceBegun { node: name.to_owned(), until_unix_ms });
        self.answers().node_view(node)
    }

    /// It need not be left alone any more; one that is gone is repaired when its grace period is over.
    pub(crate) fn end_maintenance(&mut self, name: &str) -> Result<NodeView, RequestError> {
        let node = self.nodes.node_named(&self.base, name)?;
        if !self.nodes.registry.drop_maintenance(node, &mut self.out) {
            return Err(RequestError::NotInMaintenance(name.to_owned()));
        }
        self.answers().node_view(node)
    }

    pub(crate) fn change_settings(
        &mut self,
        request: &SettingsRequest,
    ) -> Result<SettingsView, RequestError> {
        self.storing.check_storage()?;
        if let Some(text) = &request.repair_after {
            self.nodes.repair_after_set = match text.as_str() {
                "default" => None,
                text => Some(text.parse::<RepairAfter>()?),
            };
            match self.nodes.repair_after_set {
                Some(after) => self.out.keep_record(REPAIR_AFTER_KEY.to_owned(), &after),
                None => self.out.forget_record(REPAIR_AFTER_KEY.to_owned()),
            }
            tracing::info!(repair_after = %self.nodes.repair_after(&self.base), "settings changed");
        }
        Ok(self.answers().settings_view())
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

    /// Ends what is over.
    pub(crate) fn expire_maintenance(&mut self, base: &Base, out: &mut Out) {
        let is_over = |node: &NodeId| self.maintenance(*node).is_some_and(|it| it.until <= base.now);
        for node in self.ids().filter(is_over).collect::<Vec<_>>() {
            self.drop_maintenance(node, out);
        }
    }

    /// Ends the maintenance of a node without a word. Returns whether it was in maintenance.
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

    /// How long a node is still in maintenance.
    pub(crate) fn maintenance_left(&self, base: &Base, node: NodeId) -> Option<Duration> {
        let left = self.maintenance(node)?.until.saturating_sub(base.now);
        Some(left).filter(|left| !left.is_zero())
    }
}

impl Nodes {
    /// Settings that an earlier coordinator kept.
    pub(crate) fn recall_settings(&mut self, records: &[(String, Value)]) {
        let set = records.iter().find(|(key, _)| key == REPAIR_AFTER_KEY);
        self.repair_after_set = set.and_then(|(_, value)| serde_json::from_value(value.clone()).ok());
    }
}
