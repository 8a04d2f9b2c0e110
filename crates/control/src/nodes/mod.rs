//! Helpers and clients that are connected: what they say, and their leaving.

pub(crate) mod absences;
pub(crate) mod caps;
pub(crate) mod certificates;
pub(crate) mod figures;
pub(crate) mod joining;
pub(crate) mod leaving;
pub(crate) mod maintenance;
pub(crate) mod network;

use std::collections::{BTreeMap, BTreeSet};

use cluster::RepairAfter;
use repair::wire::control::{FromNode, ToNode};
use repair::{NodeId, Topology};

use crate::effect::Effect;
use crate::nodes::absences::Absences;
use crate::nodes::caps::Capping;
use crate::nodes::certificates::Certificates;
use crate::nodes::figures::Figures;
use crate::nodes::leaving::Leaving;
use crate::nodes::maintenance::Maintenance;
use crate::out::Out;
use crate::signal::Signal;
use crate::{ConnectionId, Control};

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

impl Control {
    pub(crate) fn welcome(&mut self, node: NodeId, connection: ConnectionId, peer: Peer) {
        self.nodes.peers.insert(node, peer);
        self.nodes.connections.insert(connection, node);
        if !self.base.nature.tells_service {
            self.stripes.picture.set_up(node, true);
        }
        self.nodes.send(node, ToNode::Registered { node }, &mut self.out);
    }

    pub(crate) fn hear(&mut self, connection: ConnectionId, message: FromNode) {
        let Some(&node) = self.nodes.connections.get(&connection) else { return };
        match message {
            FromNode::Report { job, epoch, report } => self.take_report(node, job, epoch, report),
            FromNode::Pong { free_bytes, tasks } => {
                self.nodes.note_load(node, free_bytes, tasks, &mut self.out)
            }
            FromNode::Seen { up, down } => self.nodes.note_seen(&self.base, node, [up, down], &mut self.out),
            FromNode::Unused { up, down } => self.nodes.note_unused(node, up, down),
            FromNode::Removed { block } => self.stripes.note_removed(node, &block, &mut self.out),
            FromNode::Verified { ask, block, result } => self.take_verified(node, ask, &block, result),
            FromNode::Verifying { ask } => self.out.questions.wait(node, ask, self.base.now),
            FromNode::Listed { ask, blocks, more: _ } => self.take_listed(node, ask, &blocks),
            FromNode::ListFailed { ask, problem } => self.take_unlisted(node, ask, &problem),
            FromNode::RemoveFailed { block, problem } => {
                self.stripes.note_stuck(around!(self), &self.jobs, node, block, &problem, &mut self.out)
            }
            FromNode::Open { tag, request } => self.open(node, tag, request),
            FromNode::Close { tag } => self.jobs.close(node, tag),
            FromNode::Described { ask, blocks, last } => self.take_described(node, ask, &blocks, last),
            FromNode::RegisterHelper { .. } | FromNode::RegisterClient { .. } | FromNode::Held { .. } => {
                self.lose(node, "it registered twice on one connection");
            }
        }
    }

    pub(crate) fn part(&mut self, connection: ConnectionId, why: &str) {
        self.storing.joining.remove(&connection);
        if let Some(&node) = self.nodes.connections.get(&connection) {
            self.lose(node, why);
        }
    }

    /// A node is gone.
    pub(crate) fn lose(&mut self, node: NodeId, why: &str) {
        let Some(peer) = self.nodes.peers.remove(&node) else { return };
        if peer.kind != PeerKind::Helper {
            tracing::info!(client = %self.nodes.name(node), why, "a client has left");
        }
        self.nodes.connections.remove(&peer.connection);
        self.out.push(Effect::Close { connection: peer.connection });
        if !self.base.nature.tells_service {
            self.stripes.picture.set_up(node, false);
        }
        if let Some(view) = self.nodes.topology.get_mut(node) {
            (view.alive, view.load) = (false, 0);
        }
        match peer.kind {
            PeerKind::Helper => self.lose_helper(node, why),
            PeerKind::Client | PeerKind::Plugin => self.lose_client(node),
        }
    }

    fn lose_helper(&mut self, node: NodeId, why: &str) {
        self.stripes.holdings.remove(&node);
        self.repairs.tell_node_lost(node);
        self.trust_returned(node);
        self.nodes.deal_caps(&self.base, &mut self.out);
        self.out.tell(Signal::Replicas(node));
        self.with_all_jobs(|job, topology, now| job.handle_node_lost(node, topology, now));
        for number in self.out.questions.drop_node(node) {
            self.repairs.looked(number, node, None, None);
        }
        self.scrub.skip_in_scrub(facts!(self), node, "it is down", &mut self.out);
        self.scrub.leave_out_of_checks(facts!(self), node, &mut self.out);
        self.nodes.note_gone(&self.base, node, why, &mut self.out);
    }

    fn lose_client(&mut self, node: NodeId) {
        let requests = self.jobs.clients.remove(&node).unwrap_or_default().requests;
        for id in requests.into_values() {
            if let Some(running) = self.jobs.running.get_mut(&id) {
                running.job.cancel();
                self.jobs.stirred.insert(id);
            }
        }
        self.jobs.orphan_puts(&self.base, node);
        self.drain_jobs();
        self.nodes.topology.remove(node);
    }

    /// The store says that it has what a node holds, or has it no more.
    pub(crate) fn set_service(&mut self, node: NodeId, up: bool) {
        if self.stripes.picture.is_up(node) == up {
            return;
        }
        let (name, blocks) = (self.nodes.name(node), self.stripes.picture.block_count(node));
        match up {
            true => tracing::info!(node = %name, blocks, "in service"),
            false => tracing::warn!(node = %name, blocks, "out of service"),
        }
        self.stripes.picture.set_up(node, up);
        self.repairs.note_service(facts!(self), node, up);
        self.out.tell(Signal::Node(node));
        self.out.tell(Signal::Replicas(node));
    }
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

    fn note_load(&mut self, node: NodeId, free_bytes: u64, tasks: u32, out: &mut Out) {
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
