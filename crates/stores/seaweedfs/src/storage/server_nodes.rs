//! The node numbers of volume servers. Pure: this module calls no server and stores nothing.

use std::collections::{BTreeMap, BTreeSet};

use attached::ServiceReport;
use repair::NodeId;
use store_api::StoreChange;

use crate::listing::{Server, ServerId};

/// The node numbers of volume servers, and which of them were last reported as in service.
#[derive(Default)]
pub(super) struct ServerNodes {
    /// Node IDs of volume servers, with or without a helper.
    nodes: BTreeMap<ServerId, NodeId>,
    service: ServiceReport,
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
    }

    /// Returns the server with this node ID.
    pub fn server(&self, node: NodeId) -> Option<&ServerId> {
        self.nodes.iter().find(|(_, other)| **other == node).map(|(server, _)| server)
    }

    /// Returns the node ID of a server.
    pub fn node(&self, server: &ServerId) -> Option<NodeId> {
        self.nodes.get(server).copied()
    }

    /// Returns the servers that connected or disconnected since the last report.
    pub fn tell_service(&mut self, connected: &BTreeMap<ServerId, Server>) -> Vec<StoreChange> {
        let now: BTreeSet<NodeId> = connected.keys().filter_map(|id| self.node(id)).collect();
        self.service.update(now)
    }

    /// Makes the next call of [`tell_service`](Self::tell_service) return all servers, for a new listener.
    pub fn reset_service(&mut self) {
        self.service.reset();
    }
}
