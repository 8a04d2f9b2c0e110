//! The node numbers of volume servers. Pure: this module calls no server and stores nothing.

use std::collections::{BTreeMap, BTreeSet};

use attached::ServiceReport;
use repair::NodeId;
use store_api::{OtherData, StoreChange};

use crate::listing::{Server, ServerId};

/// The node numbers of volume servers, and which of them were last reported as in service.
#[derive(Default)]
pub(super) struct ServerNodes {
    /// Node IDs of volume servers, with or without a helper.
    nodes: BTreeMap<ServerId, NodeId>,
    service: ServiceReport,
    /// The volumes on each server that are not erasure-coded, as last reported. Servers that have disconnected
    /// keep theirs.
    plain_volumes: BTreeMap<NodeId, OtherData>,
    is_plain_told: bool,
}

impl ServerNodes {
    /// Returns the connected servers without a node number.
    pub fn unnumbered(&self, connected: &BTreeMap<ServerId, Server>) -> Vec<ServerId> {
        connected.keys().filter(|id| !self.nodes.contains_key(*id)).cloned().collect()
    }

    /// Records the node number of a server. Returns its former IDs: those that had this number until now.
    pub fn number(&mut self, server: ServerId, node: NodeId) -> Vec<ServerId> {
        let former = self.nodes.extract_if(.., |id, number| *number == node && *id != server);
        let former = former.map(|(id, _)| id).collect();
        self.nodes.insert(server, node);
        former
    }

    /// Forgets a node that was removed.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.retain(|_, other| *other != node);
        self.plain_volumes.remove(&node);
    }

    /// Loads the nodes that had other volumes when an earlier coordinator last saw them.
    pub fn recall_plain_volumes(&mut self, nodes: BTreeMap<NodeId, OtherData>) {
        self.plain_volumes = nodes;
    }

    /// Returns the nodes with volumes that are not erasure-coded.
    pub fn plain_volumes(&self) -> &BTreeMap<NodeId, OtherData> {
        &self.plain_volumes
    }

    /// Returns the server with this node ID.
    pub fn server(&self, node: NodeId) -> Option<&ServerId> {
        self.nodes.iter().find(|(_, other)| **other == node).map(|(server, _)| server)
    }

    /// Returns the node ID of a server.
    pub fn node(&self, server: &ServerId) -> Option<NodeId> {
        self.nodes.get(server).copied()
    }

    /// Returns the servers that connected or disconnected since the last report, and all servers with other
    /// volumes if these have changed. Servers in `partial` may have further volumes.
    pub fn tell_service(
        &mut self,
        connected: &BTreeMap<ServerId, Server>,
        partial: &BTreeSet<ServerId>,
    ) -> Vec<StoreChange> {
        let now: BTreeSet<NodeId> = connected.keys().filter_map(|id| self.node(id)).collect();
        let mut changes = self.service.update(now);
        let mut now = self.plain_volumes.clone();
        for (id, server) in connected.iter().filter(|(id, _)| !partial.contains(*id)) {
            let Some(node) = self.node(id) else { continue };
            match server.plain_volumes.len() {
                0 => drop(now.remove(&node)),
                volumes => drop(now.insert(node, data(volumes))),
            }
        }
        if now != self.plain_volumes || !(self.is_plain_told || now.is_empty()) {
            self.is_plain_told = true;
            changes.push(StoreChange::Needed(now.clone()));
            self.plain_volumes = now;
        }
        changes
    }

    /// Makes the next call of [`tell_service`](Self::tell_service) return everything, for a new listener.
    pub fn reset_service(&mut self) {
        self.service.reset();
        self.is_plain_told = false;
    }
}

fn data(volumes: usize) -> OtherData {
    OtherData {
        what: match volumes {
            1 => "1 volume that is not erasure-coded".to_owned(),
            several => format!("{several} volumes that are not erasure-coded"),
        },
        next_step: "move the volumes to other servers, for example with volumeServer.evacuate in weed shell"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ListedAddress;

    fn server(volumes: impl IntoIterator<Item = u32>) -> Server {
        Server {
            address: ListedAddress::of("10.0.0.1:8080", 0),
            data_center: "d".to_owned(),
            rack: "r".to_owned(),
            disks: BTreeMap::new(),
            free_volumes: 5,
            plain_volumes: volumes.into_iter().collect(),
        }
    }

    fn needed(changes: &[StoreChange]) -> Option<Vec<NodeId>> {
        changes.iter().find_map(|change| match change {
            StoreChange::Needed(nodes) => Some(nodes.keys().copied().collect()),
            _ => None,
        })
    }

    #[test]
    fn the_ordinary_volumes_of_a_server_that_is_down_are_known_after_a_restart() {
        let (id, node) = (ServerId("10.0.0.1:8080".to_owned()), NodeId(4));
        let mut before = ServerNodes::default();
        before.number(id.clone(), node);
        let none = BTreeSet::new();
        before.tell_service(&BTreeMap::from([(id.clone(), server([1, 2]))]), &none);
        let mut nodes = ServerNodes::default();
        nodes.recall_plain_volumes(before.plain_volumes().clone());
        assert_eq!(needed(&nodes.tell_service(&BTreeMap::new(), &none)), Some(vec![node]), "it is down");
        nodes.number(id.clone(), node);
        let partial = BTreeSet::from([id.clone()]);
        let told = nodes.tell_service(&BTreeMap::from([(id.clone(), server([]))]), &partial);
        assert_eq!(needed(&told), None, "its volumes are not listed yet");
        nodes.tell_service(&BTreeMap::from([(id.clone(), server([2]))]), &none);
        assert!(nodes.plain_volumes()[&node].what.starts_with("1 volume"));
        let told = nodes.tell_service(&BTreeMap::from([(id, server([]))]), &none);
        assert_eq!(needed(&told), Some(vec![]));
    }
}
