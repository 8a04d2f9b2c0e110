//! Helpers and clients that are connected: what they say, and their leaving.

pub(crate) mod absences;
pub(crate) mod caps;
pub(crate) mod certificates;
pub(crate) mod continuation;
pub(crate) mod figures;
pub(crate) mod joining;
pub(crate) mod leaving;
pub(crate) mod maintenance;
pub(crate) mod network;

use std::collections::{BTreeMap, BTreeSet};

use cluster::RepairAfter;
use repair::wire::control::ToNode;
use repair::{NodeId, Topology};

use crate::ConnectionId;
use crate::nodes::absences::Absences;
use crate::nodes::caps::Capping;
use crate::nodes::certificates::Certificates;
use crate::nodes::figures::Figures;
use crate::nodes::leaving::Leaving;
use crate::nodes::maintenance::Maintenance;
use crate::out::Out;
use crate::signal::Signal;

/// Clients get numbers from here on, for as long as they are connected.
pub(crate) const FIRST_CLIENT: u32 = 1 << 31;

/// Helpers and clients: who they are, who is connected, and what each carries.
pub(crate) struct Nodes {
    /// Helpers by the name that the catalog has for them.
    pub names: BTreeMap<NodeId, String>,
    pub peers: BTreeMap<NodeId, Peer>,
    pub connections: BTreeMap<ConnectionId, NodeId>,
    pub next_client: u32,
    /// The nodes as the planner sees them; one is alive in there if and only if it is connected.
    pub topology: Topology,
    pub figures: Figures,
    pub capping: Capping,
    /// Helpers that are to be emptied, and get no blocks.
    pub leaving: Leaving,
    /// Helpers that the catalog knows and mend.toml does not.
    pub retired: BTreeSet<NodeId>,
    /// Helpers that are being forgotten.
    pub forgetting: BTreeSet<NodeId>,
    pub absences: Absences,
    pub maintenance: BTreeMap<NodeId, Maintenance>,
    /// How long a helper may be gone, if somebody has set it.
    pub repair_after_set: Option<RepairAfter>,
    pub certificates: Certificates,
    /// Whether the helpers that are expected have come, or had time to.
    pub settled: bool,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            names: BTreeMap::new(),
            peers: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_client: FIRST_CLIENT,
            topology: Topology::new(),
            figures: Figures::default(),
            capping: Capping::default(),
            leaving: Leaving::default(),
            retired: BTreeSet::new(),
            forgetting: BTreeSet::new(),
            absences: Absences::new(),
            maintenance: BTreeMap::new(),
            repair_after_set: None,
            certificates: Certificates::default(),
            settled: false,
        }
    }
}

/// Somebody who is connected.
pub(crate) struct Peer {
    pub connection: ConnectionId,
    pub kind: PeerKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerKind {
    Helper,
    Client,
    /// Only stripes that were described to the coordinator are its business.
    Plugin,
}

impl Nodes {
    /// The helper of this name.
    pub(crate) fn known(&self, name: &str) -> Option<NodeId> {
        self.names.iter().find(|(_, other)| *other == name).map(|(&node, _)| node)
    }

    /// A node was given a task. It counts until the node's next answer, so that jobs started together do not crowd one node.
    pub(crate) fn note_assigned(&mut self, node: NodeId) {
        if let Some(view) = self.topology.get_mut(node) {
            view.load += 1;
        }
    }

    pub(crate) fn note_load(&mut self, node: NodeId, free_bytes: u64, tasks: u32, out: &mut Out) {
        let is_helper = self.is_helper(node);
        if let Some(view) = self.topology.get_mut(node) {
            view.load = tasks;
            if is_helper {
                view.free_bytes = free_bytes;
            }
        }
        out.tell(Signal::Space(node));
    }
}

impl Nodes {
    /// Sends a message to a node, if it is connected.
    pub(crate) fn send(&self, node: NodeId, message: ToNode, out: &mut Out) {
        if let Some(peer) = self.peers.get(&node) {
            out.send(peer.connection, message);
        }
    }

    pub(crate) fn is_helper(&self, node: NodeId) -> bool {
        self.peers.get(&node).is_some_and(|peer| peer.kind == PeerKind::Helper)
    }

    /// Helpers that are connected.
    pub(crate) fn live_helpers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.peers.iter().filter(|(_, peer)| peer.kind == PeerKind::Helper).map(|(&node, _)| node)
    }

    /// Names of all helpers.
    pub(crate) fn known_helpers(&self) -> Vec<String> {
        sorted(self.names.values().cloned())
    }

    pub(crate) fn is_plugin(&self, client: NodeId) -> bool {
        self.peers.get(&client).is_some_and(|peer| peer.kind == PeerKind::Plugin)
    }

    pub(crate) fn name(&self, node: NodeId) -> String {
        self.topology.name(node)
    }
}

/// Names as people sort them.
pub(crate) fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    names.sort_by(|a, b| views::natural(a, b));
    names
}
