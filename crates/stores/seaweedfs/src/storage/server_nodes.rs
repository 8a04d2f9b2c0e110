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
    /// The number of volumes on each server that are not erasure-coded, as last reported. Servers that have
    /// disconnected keep theirs.
    plain_volumes: BTreeMap<NodeId, usize>,
    is_plain_told: bool,
}

impl ServerNodes {
    /// Returns the connected servers without a node number.
    pub fn unnumbered(&self, connected: &BTreeMap<ServerId, Server>) -> Vec<ServerId> {
        connected.keys().filter(|id| !self.nodes.contains_key(*id)).cloned().collect()
    }

    /// Records the node number of a server.
    pub fn number(&mut self, server: ServerId, node: NodeId) {
        self.nodes.insert(server, node);
    }

    /// Forgets a node that was removed.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.retain(|_, other| *other != node);
        self.plain_volumes.remove(&node);
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
    /// volumes if these have changed.
    pub fn tell_service(&mut self, connected: &BTreeMap<ServerId, Server>) -> Vec<StoreChange> {
        let now: BTreeSet<NodeId> = connected.keys().filter_map(|id| self.node(id)).collect();
        let mut changes = self.service.update(now);
        let plain =
            connected.iter().filter_map(|(id, server)| Some((self.node(id)?, server.plain_volumes.len())));
        let mut now = self.plain_volumes.clone();
        now.extend(plain);
        now.retain(|_, volumes| *volumes > 0);
        if now != self.plain_volumes || !(self.is_plain_told || now.is_empty()) {
            self.is_plain_told = true;
            changes.push(StoreChange::Needed(
                now.iter().map(|(&node, &volumes)| (node, data(volumes))).collect(),
            ));
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
