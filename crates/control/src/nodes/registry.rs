//! The nodes that the catalog has registered, and the transitions of their lifecycles.

use std::collections::BTreeMap;
use std::time::Duration;
use store_api::{RecordWrite, Write};

use repair::{BlockId, NodeId, StripeId};

use crate::nodes::continuation::NodeThen;
use crate::nodes::node::{Node, Outage, Session, Unproven};
use crate::out::Out;
use crate::signal::Signal;

/// The registered nodes by id.
#[derive(Default)]
pub(crate) struct Registry {
    nodes: BTreeMap<NodeId, Node>,
}

impl Registry {
    pub(super) fn get(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(&node)
    }

    pub(super) fn get_mut(&mut self, node: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(&node)
    }

    pub(super) fn insert(&mut self, id: NodeId, node: Node) {
        self.nodes.insert(id, node);
    }

    pub(super) fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Returns the nodes that satisfy the predicate.
    pub(super) fn those(&self, holds: fn(&Node) -> bool) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().filter(move |(_, node)| holds(node)).map(|(&id, _)| id)
    }

    /// Whether this node is a connected helper.
    pub(super) fn is_up(&self, node: NodeId) -> bool {
        self.session(node).is_some()
    }

    /// Returns the connected helpers.
    pub(super) fn up(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.those(Node::is_up)
    }

    /// Returns the name of a node; empty if there is no such node.
    pub(super) fn name(&self, node: NodeId) -> String {
        self.get(node).map(|node| node.name.clone()).unwrap_or_default()
    }

    /// Requests the storage to remove these retired helpers.
    pub(crate) fn forget_retired(&mut self, nodes: Vec<NodeId>, out: &mut Out) {
        for node in nodes {
            self.begin_forgetting(node);
            out.store(Write::Records(RecordWrite::ForgetNode(node)), NodeThen::Forgotten { node });
        }
    }

    /// Marks a node that is down as being removed by the storage.
    pub(crate) fn begin_forgetting(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.begin_forgetting();
        }
    }

    /// Returns a node to its previous state, because the storage could not remove it.
    pub(crate) fn keep_node(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.keep();
        }
    }

    /// Records that a returned helper must describe its blocks.
    pub(crate) fn await_description(&mut self, node: NodeId, unproven: Unproven) {
        if let Some(session) = self.session_mut(node) {
            session.unproven = Some(unproven);
        }
    }

    /// Records blocks that a returned helper has described.
    pub(crate) fn note_described(&mut self, node: NodeId, blocks: impl Iterator<Item = BlockId>) {
        if let Some(unproven) = self.session_mut(node).and_then(|session| session.unproven.as_mut()) {
            unproven.described.extend(blocks);
        }
    }

    /// Ends the wait for a returned helper's description: all blocks are described, or the deadline has
    /// passed. Returns the state of the wait, if the helper was unproven.
    pub(crate) fn end_description(&mut self, node: NodeId) -> Option<Unproven> {
        self.session_mut(node)?.unproven.take()
    }

    /// Removes and returns the stripes of helpers that have not described their blocks in time.
    pub(crate) fn take_late_stripes(&mut self, now: Duration) -> Vec<StripeId> {
        let sessions = self.nodes.values_mut().filter_map(Node::session_mut);
        let late = sessions.filter_map(|session| session.unproven.as_mut()).filter(|it| it.until <= now);
        late.flat_map(|unproven| std::mem::take(&mut unproven.stripes)).collect()
    }

    pub(crate) fn session_mut(&mut self, node: NodeId) -> Option<&mut Session> {
        self.nodes.get_mut(&node)?.session_mut()
    }

    /// Returns all registered nodes.
    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied()
    }

    /// Returns all registered nodes with their names.
    pub(crate) fn named(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.nodes.iter().map(|(&id, node)| (id, node.name.as_str()))
    }

    /// Returns the absent nodes.
    pub(crate) fn gone(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.those(|node| node.outage().is_some())
    }

    /// Returns the outage of a node, if it is absent.
    pub(crate) fn outage(&self, node: NodeId) -> Option<&Outage> {
        self.nodes.get(&node)?.outage()
    }

    /// Whether the catalog lists a node that mend.toml does not.
    pub(crate) fn is_retired(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(Node::is_retired)
    }

    /// Whether the storage is removing a node at present.
    pub(crate) fn is_being_forgotten(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(Node::is_being_forgotten)
    }

    /// Whether a helper has returned and not yet described its blocks, or has not listed all of them.
    pub(crate) fn is_unproven(&self, node: NodeId) -> bool {
        self.is_incomplete(node) || self.session(node).is_some_and(|session| session.unproven.is_some())
    }

    /// Whether a connected helper has not listed all of its blocks.
    pub(crate) fn is_incomplete(&self, node: NodeId) -> bool {
        self.session(node).is_some_and(|session| session.incomplete.is_some())
    }

    /// Records whether a helper can store blocks, and if not, why.
    pub(crate) fn note_write_problem(&mut self, node: NodeId, problem: Option<String>, out: &mut Out) {
        let Some(session) = self.session_mut(node) else { return };
        if session.write_problem.is_some() != problem.is_some() {
            out.tell(Signal::Node(node));
        }
        session.write_problem = problem;
    }

    /// Returns why a helper cannot store blocks; `None` if it can.
    pub(crate) fn write_problem(&self, node: NodeId) -> Option<&str> {
        self.session(node)?.write_problem.as_deref()
    }

    /// Returns the connection of a node, if it is connected.
    pub(crate) fn session(&self, node: NodeId) -> Option<&Session> {
        self.nodes.get(&node)?.session()
    }

    /// Returns the helper with this name.
    pub(crate) fn known(&self, name: &str) -> Option<NodeId> {
        self.named().find(|(_, other)| *other == name).map(|(node, _)| node)
    }
}
