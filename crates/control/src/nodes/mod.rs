//! Nodes and clients: which are known, which are connected, and what each carries.

pub(crate) mod absences;
pub(crate) mod caps;
pub(crate) mod certificates;
pub(crate) mod figures;
pub(crate) mod joining;
pub(crate) mod leaving;
pub(crate) mod lookups;
pub(crate) mod maintenance;
pub(crate) mod network;
pub(crate) mod node;

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::RepairAfter;
use repair::wire::control::ToNode;
use repair::{BlockId, NodeId, StripeId, Topology};

use crate::ConnectionId;
use crate::nodes::absences::Absence;
use crate::nodes::caps::Capping;
use crate::nodes::certificates::Certificates;
use crate::nodes::figures::Figures;
use crate::nodes::node::{Node, Session, Unproven};
use crate::out::Out;
use crate::signal::Signal;

/// Clients get numbers from here on, for as long as they are connected.
pub(crate) const FIRST_CLIENT: u32 = 1 << 31;

/// The nodes of the cluster and the clients that are connected.
pub(crate) struct Nodes {
    /// The nodes that the catalog has registered: helpers, and servers of a store.
    registered: BTreeMap<NodeId, Node>,
    /// The clients that are connected.
    clients: BTreeMap<NodeId, Client>,
    connections: BTreeMap<ConnectionId, NodeId>,
    next_client: u32,
    /// The nodes as the planner sees them; one is alive in there if and only if it is connected.
    pub topology: Topology,
    pub figures: Figures,
    pub capping: Capping,
    /// How long a helper may be gone, if an operator has set it.
    pub repair_after_set: Option<RepairAfter>,
    pub certificates: Certificates,
    /// Whether the helpers that are expected have come, or had time to.
    pub settled: bool,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            registered: BTreeMap::new(),
            clients: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_client: FIRST_CLIENT,
            topology: Topology::new(),
            figures: Figures::default(),
            capping: Capping::default(),
            repair_after_set: None,
            certificates: Certificates::default(),
            settled: false,
        }
    }
}

/// A client that is connected.
struct Client {
    connection: ConnectionId,
    /// A plug-in sees only the stripes that plug-ins described.
    is_plugin: bool,
}

impl Nodes {
    /// Connects a helper. Returns the absence that ends.
    pub(crate) fn connect_helper(&mut self, node: NodeId, connection: ConnectionId) -> Option<Absence> {
        self.connections.insert(connection, node);
        self.registered.get_mut(&node).and_then(|node| node.connect(connection))
    }

    /// Connects a client under a new number.
    pub(crate) fn connect_client(&mut self, connection: ConnectionId, is_plugin: bool) -> NodeId {
        let client = NodeId(self.next_client);
        self.next_client = self.next_client.checked_add(1).unwrap_or(FIRST_CLIENT);
        self.connections.insert(connection, client);
        self.clients.insert(client, Client { connection, is_plugin });
        client
    }

    /// Disconnects a node or a client. Returns its session; `None` if it was not connected.
    pub(crate) fn disconnect(&mut self, node: NodeId) -> Option<Session> {
        let session = match self.clients.remove(&node) {
            Some(Client { connection, .. }) => Session { connection, unproven: None },
            None => self.registered.get_mut(&node)?.disconnect()?,
        };
        self.connections.remove(&session.connection);
        if let Some(view) = self.topology.get_mut(node) {
            (view.alive, view.load) = (false, 0);
        }
        Some(session)
    }

    /// The storage begins to forget a node that is down.
    pub(crate) fn begin_forgetting(&mut self, node: NodeId) {
        if let Some(node) = self.registered.get_mut(&node) {
            node.begin_forgetting();
        }
    }

    /// The storage could not forget a node.
    pub(crate) fn keep_node(&mut self, node: NodeId) {
        if let Some(node) = self.registered.get_mut(&node) {
            node.keep();
        }
    }

    /// A helper is back and has yet to say what its blocks are.
    pub(crate) fn await_description(&mut self, node: NodeId, unproven: Unproven) {
        if let Some(session) = self.session_mut(node) {
            session.unproven = Some(unproven);
        }
    }

    /// Blocks of a helper that is back have described themselves.
    pub(crate) fn note_described(&mut self, node: NodeId, blocks: impl Iterator<Item = BlockId>) {
        if let Some(unproven) = self.session_mut(node).and_then(|session| session.unproven.as_mut()) {
            unproven.described.extend(blocks);
        }
    }

    /// A helper that is back has said what its blocks are, or is not waited for any longer. Returns what was known of it.
    pub(crate) fn end_description(&mut self, node: NodeId) -> Option<Unproven> {
        self.session_mut(node)?.unproven.take()
    }

    /// Takes the stripes of helpers that have not described their blocks in time.
    pub(crate) fn take_late_stripes(&mut self, now: Duration) -> Vec<StripeId> {
        let sessions = self.registered.values_mut().filter_map(Node::session_mut);
        let late = sessions.filter_map(|session| session.unproven.as_mut()).filter(|it| it.until <= now);
        late.flat_map(|unproven| std::mem::take(&mut unproven.stripes)).collect()
    }

    fn session_mut(&mut self, node: NodeId) -> Option<&mut Session> {
        self.registered.get_mut(&node)?.session_mut()
    }
}

impl Nodes {
    /// All registered nodes.
    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.registered.keys().copied()
    }

    /// All registered nodes with their names.
    pub(crate) fn named(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.registered.iter().map(|(&id, node)| (id, node.name.as_str()))
    }

    /// The node or client of a connection.
    pub(crate) fn node_at(&self, connection: ConnectionId) -> Option<NodeId> {
        self.connections.get(&connection).copied()
    }

    /// Whether a node or client is connected.
    pub(crate) fn is_connected(&self, node: NodeId) -> bool {
        self.is_helper(node) || self.clients.contains_key(&node)
    }

    /// How many nodes and clients are connected.
    pub(crate) fn connected_count(&self) -> usize {
        self.connections.len()
    }

    /// The nodes that are gone.
    pub(crate) fn gone(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.registered.iter().filter(|(_, node)| node.absence().is_some()).map(|(&id, _)| id)
    }

    /// Since when a node is gone, if it is.
    pub(crate) fn absence(&self, node: NodeId) -> Option<&Absence> {
        self.registered.get(&node)?.absence()
    }

    /// Whether the catalog knows a node that mend.toml does not.
    pub(crate) fn is_retired(&self, node: NodeId) -> bool {
        self.registered.get(&node).is_some_and(Node::is_retired)
    }

    /// Whether the storage is just forgetting a node.
    pub(crate) fn is_being_forgotten(&self, node: NodeId) -> bool {
        self.registered.get(&node).is_some_and(Node::is_being_forgotten)
    }

    /// Whether a helper is back and has not said what its blocks are.
    pub(crate) fn is_unproven(&self, node: NodeId) -> bool {
        self.session(node).is_some_and(|session| session.unproven.is_some())
    }

    fn session(&self, node: NodeId) -> Option<&Session> {
        self.registered.get(&node)?.session()
    }
}

impl Nodes {
    /// The helper of this name.
    pub(crate) fn known(&self, name: &str) -> Option<NodeId> {
        self.named().find(|(_, other)| *other == name).map(|(node, _)| node)
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
        let client = || self.clients.get(&node).map(|client| client.connection);
        if let Some(connection) = self.session(node).map(|session| session.connection).or_else(client) {
            out.send(connection, message);
        }
    }

    /// Whether a helper of this id is connected.
    pub(crate) fn is_helper(&self, node: NodeId) -> bool {
        self.session(node).is_some()
    }

    /// Helpers that are connected.
    pub(crate) fn live_helpers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.registered.iter().filter(|(_, node)| node.is_up()).map(|(&id, _)| id)
    }

    /// Names of all helpers.
    pub(crate) fn known_helpers(&self) -> Vec<String> {
        sorted(self.named().map(|(_, name)| name.to_owned()))
    }

    pub(crate) fn is_plugin(&self, client: NodeId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.is_plugin)
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
