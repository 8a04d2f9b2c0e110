//! Helpers and servers by what mend.toml, the store and the connections say of them.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::{Network, RepairAfter};
use repair::NodeId;
use views::CapsRequest;

use crate::base::Base;
use crate::error::{NetworkError, NodeError};
use crate::facts::Facts;
use crate::nodes::Nodes;
use crate::nodes::absences::START_GRACE;
use crate::nodes::sorted;

impl<'a> Facts<'a> {
    /// Names of the nodes whose server is out of service, as the store says.
    pub(crate) fn servers_down(self) -> Vec<String> {
        let is_down = |node: NodeId| self.base.nature.tells_service && !self.stripes.picture.is_up(node);
        let down = self.nodes.names.iter().filter(|&(&node, _)| is_down(node));
        sorted(down.map(|(_, name)| name.clone()))
    }

    /// The end of a line about helpers: servers that are out of service or have no helper.
    pub(crate) fn servers_text(self) -> String {
        let (down, alone) = (self.servers_down(), self.nodes.servers_without_helper(self.base));
        let mut text = String::new();
        if !down.is_empty() {
            text += &format!("; servers out of service: {}", down.join(", "));
        }
        if !alone.is_empty() {
            text += &format!("; servers without a helper: {}", alone.join(", "));
        }
        text
    }

    pub(crate) fn check_cluster(self, cluster_id: &str) -> Result<(), String> {
        if cluster_id == self.base.settings.cluster_id {
            return Ok(());
        }
        Err(format!(
            "the helper's blocks belong to cluster {cluster_id}, and this is cluster {}; \
             give it the right folder, or the right coordinator",
            self.base.settings.cluster_id
        ))
    }

    /// How many are gone that hold something, and how many are there, if those are fewer.
    pub(crate) fn too_many_gone(self) -> Option<(usize, usize)> {
        let gone =
            self.nodes.absences.keys().filter(|&&node| self.stripes.picture.block_count(node) > 0).count();
        let there = self.nodes.live_helpers().count();
        (gone > there).then_some((gone, there))
    }
}

impl Nodes {
    /// Whether a node is one of the store's beside which no helper is to work.
    pub(crate) fn has_no_helper(&self, base: &Base, node: NodeId) -> bool {
        let named =
            |helpers: &BTreeSet<String>| self.names.get(&node).is_some_and(|name| helpers.contains(name));
        base.nature.tells_service && base.settings.helpers.as_ref().is_some_and(|helpers| !named(helpers))
    }

    /// Names of the helpers that are known and not connected.
    pub(crate) fn down_helpers(&self, base: &Base) -> Vec<String> {
        let is_down = |node: NodeId| !self.peers.contains_key(&node) && !self.has_no_helper(base, node);
        let down = self.names.iter().filter(|&(&node, _)| is_down(node));
        sorted(down.map(|(_, name)| name.clone()))
    }

    /// Names of the store's servers beside which no helper is to work.
    pub(crate) fn servers_without_helper(&self, base: &Base) -> Vec<String> {
        let alone = self.names.iter().filter(|&(&node, _)| self.has_no_helper(base, node));
        sorted(alone.map(|(_, name)| name.clone()))
    }

    /// A helper by its name, or by the address of the storage system's server that it is beside: a plug-in of that
    /// system knows no other name, and no helper's name looks like an address.
    pub(crate) fn node_named(&self, base: &Base, name: &str) -> Result<NodeId, NodeError> {
        let name = base.settings.beside.get(name).map_or(name, String::as_str);
        let found = self.names.iter().find(|(_, known)| *known == name).map(|(&node, _)| node);
        found.ok_or_else(|| NodeError::NoSuchNode { name: name.to_owned(), known: self.known_helpers() })
    }

    /// A cap for a rack that nobody is in would never hold anything back.
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

    /// Racks that helpers are in, or that mend.toml says something of.
    fn known_racks(&self, base: &Base) -> BTreeSet<String> {
        let Network { regions, trunks, .. } = &base.settings.network;
        let racks = self.topology.iter().filter_map(|(_, profile)| profile.rack.clone());
        let configured = regions.keys().chain(trunks.keys()).cloned();
        racks.chain(configured).collect()
    }

    /// How long a helper is still in maintenance.
    pub(crate) fn maintenance_left(&self, base: &Base, node: NodeId) -> Option<Duration> {
        let left = self.maintenance.get(&node)?.until.saturating_sub(base.now);
        Some(left).filter(|left| !left.is_zero())
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

    /// How long a helper may be gone.
    pub(crate) fn repair_after(&self, base: &Base) -> RepairAfter {
        self.repair_after_set.unwrap_or(base.settings.repair_after)
    }

    /// In what time the repair of a helper that is gone may begin by itself; `None` if it does not.
    pub(crate) fn due_in(&self, base: &Base, node: NodeId) -> Option<Duration> {
        let (absence, after) = (self.absences.get(&node)?, self.repair_after(base).time()?);
        let grace = after.saturating_sub(absence.lasts(base.now));
        let maintenance = self.maintenance_left(base, node).unwrap_or_default();
        // After a start of all machines at once, the last ones take longer to come than the coordinator.
        let start = START_GRACE.min(after).saturating_sub(base.now);
        Some(grace.max(maintenance).max(start))
    }

    /// How much longer a helper is waited for that is gone, out of a grace period of its own; `None` if somebody called its
    /// repair off.
    pub(crate) fn left_of_absence(&self, base: &Base, node: NodeId, grace: Duration) -> Option<Duration> {
        let absence = self.absences.get(&node).filter(|absence| !absence.cancelled)?;
        let start = START_GRACE.min(self.repair_after(base).time()?).saturating_sub(base.now);
        Some(grace.saturating_sub(absence.lasts(base.now)).max(start))
    }

    /// The rest of a grace period, or of a maintenance if that takes longer.
    pub(crate) fn left_of(&self, base: &Base, node: NodeId, grace: Duration) -> Option<Duration> {
        Some(grace.max(self.maintenance_left(base, node).unwrap_or_default()))
    }
}
