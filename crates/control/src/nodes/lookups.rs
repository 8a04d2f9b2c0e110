//! Lookup of nodes and racks by name, and the waiting time for absent helpers.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::{Network, RepairAfter};
use repair::NodeId;
use views::CapsRequest;

use crate::base::Base;
use crate::error::{NetworkError, NodeError};
use crate::nodes::outages::START_GRACE;
use crate::nodes::registry::Registry;
use crate::nodes::{Nodes, sorted};

impl Registry {
    /// Whether a node is a server of the store that has no helper by configuration.
    pub(crate) fn has_no_helper(&self, base: &Base, node: NodeId) -> bool {
        let named =
            |helpers: &BTreeSet<String>| self.get(node).is_some_and(|node| helpers.contains(&node.name));
        base.store.reports_service() && base.settings.helpers.as_ref().is_some_and(|helpers| !named(helpers))
    }

    /// Returns the names of the helpers that are not connected.
    pub(crate) fn down_helpers(&self, base: &Base) -> Vec<String> {
        let is_down = |node: NodeId| !self.is_up(node) && !self.has_no_helper(base, node);
        let down = self.named().filter(|&(node, _)| is_down(node));
        sorted(down.map(|(_, name)| name.to_owned()))
    }

    /// Returns the names of the helpers that mend.toml lists and that have never registered.
    pub(crate) fn never_registered(&self, base: &Base) -> Vec<String> {
        let known: BTreeSet<&str> = self.named().map(|(_, name)| name).collect();
        let listed = base.settings.helpers.iter().flatten();
        sorted(listed.filter(|name| !known.contains(name.as_str())).cloned())
    }

    /// Returns the names of the store's servers that have no helper by configuration.
    pub(crate) fn servers_without_helper(&self, base: &Base) -> Vec<String> {
        let alone = self.named().filter(|&(node, _)| self.has_no_helper(base, node));
        sorted(alone.map(|(_, name)| name.to_owned()))
    }
}

impl Nodes {
    /// Returns text for the operator: the command after which any helper may receive the blocks of a drained
    /// node.
    pub(crate) fn drain_to_any(&self, node: NodeId) -> String {
        format!("allow any helper to take the blocks (mend node drain {})", self.name(node))
    }

    /// Finds a helper by its name, or by the address of the storage system's server on its machine. Plug-ins
    /// of that system know only the address. No helper's name looks like an address, so the two cannot be
    /// confused.
    pub(crate) fn node_named(&self, base: &Base, name: &str) -> Result<NodeId, NodeError> {
        let name = base.settings.beside.get(name).map_or(name, String::as_str);
        self.registry
            .known(name)
            .ok_or_else(|| NodeError::NoSuchNode { name: name.to_owned(), known: self.known_helpers() })
    }

    /// Refuses a cap for an unknown rack, because such a cap would never limit anything.
    pub(crate) fn check_racks(&self, base: &Base, request: &CapsRequest) -> Result<(), NetworkError> {
        let known = self.known_racks(base);
        let is_unknown = |(rack, rate): &(&String, &u64)| **rate > 0 && !known.contains(*rack);
        match request.racks.iter().find(is_unknown) {
            Some((rack, _)) => {
                let known = known.into_iter().collect();
                Err(NetworkError::NoSuchRack { rack: rack.clone(), known })
            }
            None => Ok(()),
        }
    }

    /// Returns the racks that contain helpers or that mend.toml mentions.
    fn known_racks(&self, base: &Base) -> BTreeSet<String> {
        let Network { regions, trunks, .. } = &base.settings.network;
        let racks = self.topology.iter().filter_map(|(_, profile)| profile.rack.clone());
        let configured = regions.keys().chain(trunks.keys()).cloned();
        racks.chain(configured).collect()
    }

    pub(crate) fn nodes_named(&self, base: &Base, names: &[String]) -> Result<BTreeSet<NodeId>, NodeError> {
        if names.is_empty() {
            return Err(NodeError::NoNodes);
        }
        names.iter().map(|name| self.node_named(base, name)).collect()
    }

    pub(crate) fn knows_rack(&self, base: &Base, rack: &str) -> bool {
        let stands_there =
            |node| self.topology.get(node).is_some_and(|node| node.rack.as_deref() == Some(rack));
        base.settings.network.trunks.contains_key(rack) || self.live_helpers().any(stands_there)
    }

    /// Returns how long a helper may be absent before its blocks are rebuilt.
    pub(crate) fn repair_after(&self, base: &Base) -> RepairAfter {
        self.repair_after_set.unwrap_or(base.settings.repair_after)
    }

    /// Returns the time until an absent helper's recovery may start automatically; `None` if automatic
    /// recovery is off.
    pub(crate) fn due_in(&self, base: &Base, node: NodeId) -> Option<Duration> {
        let (outage, after) = (self.registry.outage(node)?, self.repair_after(base).time()?);
        let grace = after.saturating_sub(outage.lasts(base.now));
        let maintenance = self.maintenance.left(base, node).unwrap_or_default();
        // If all machines start at once, the last helpers connect some time after the start of the
        // coordinator.
        let start = START_GRACE.min(after).saturating_sub(base.now);
        Some(grace.max(maintenance).max(start))
    }

    /// Returns how much of `grace`, which may differ from the configured grace period, is left for an absent
    /// helper. `None` if an operator cancelled its recovery, or if automatic recovery is off.
    pub(crate) fn left_of_outage(&self, base: &Base, node: NodeId, grace: Duration) -> Option<Duration> {
        let outage = self.registry.outage(node).filter(|outage| !outage.cancelled)?;
        let start = START_GRACE.min(self.repair_after(base).time()?).saturating_sub(base.now);
        Some(grace.saturating_sub(outage.lasts(base.now)).max(start))
    }

    /// Returns the longer of a grace period and the rest of a maintenance window.
    pub(crate) fn left_of(&self, base: &Base, node: NodeId, grace: Duration) -> Option<Duration> {
        Some(grace.max(self.maintenance.left(base, node).unwrap_or_default()))
    }
}
