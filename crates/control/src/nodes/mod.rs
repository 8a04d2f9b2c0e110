//! Nodes and clients: which are registered, which are connected, and their rates.

pub(crate) mod bandwidth;
pub(crate) mod capping;
pub(crate) mod caps;
pub(crate) mod certificates;
pub(crate) mod continuation;
pub(crate) mod joining;
pub(crate) mod leaving;
pub(crate) mod lookups;
pub(crate) mod maintenance;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod outages;
pub(crate) mod registry;
mod settings;
pub(crate) mod skew;
pub(crate) mod usage;

use std::collections::BTreeMap;

use cluster::RepairAfter;
use repair::wire::control::ToNode;
use repair::{NodeId, Topology};

use crate::base::Base;
use crate::effect::ConnectionId;
use crate::error::RequestError;
use crate::nodes::bandwidth::Bandwidth;
use crate::nodes::certificates::Certificates;
use crate::nodes::maintenance::MaintenanceWindows;
use crate::nodes::node::{Outage, Session};
use crate::nodes::registry::Registry;
use crate::nodes::skew::Skewed;
use crate::out::Out;
use crate::signal::Signal;

/// The first client number. Clients keep their numbers while they are connected.
pub(crate) const FIRST_CLIENT: u32 = 1 << 31;

/// The nodes of the cluster and the connected clients.
pub(crate) struct Nodes {
    /// The nodes that the catalog has registered: helpers, and servers of a store.
    pub registry: Registry,
    pub maintenance: MaintenanceWindows,
    /// The connected clients.
    clients: BTreeMap<NodeId, Client>,
    connections: BTreeMap<ConnectionId, NodeId>,
    next_client: u32,
    /// The nodes as the planner sees them. A node is alive there if and only if it is connected.
    pub topology: Topology,
    pub bandwidth: Bandwidth,
    /// How long a helper may be absent before its blocks are rebuilt, if an operator has set this time.
    pub repair_after_set: Option<RepairAfter>,
    pub certificates: Certificates,
    pub skewed: Skewed,
    /// Whether all expected helpers have connected, or the time limit for connecting has passed.
    pub settled: bool,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            registry: Registry::default(),
            maintenance: MaintenanceWindows::default(),
            clients: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_client: FIRST_CLIENT,
            topology: Topology::new(),
            bandwidth: Bandwidth::default(),
            repair_after_set: None,
            certificates: Certificates::default(),
            skewed: Skewed::default(),
            settled: false,
        }
    }
}

/// A connected client.
struct Client {
    connection: ConnectionId,
    /// A plug-in sees only the stripes that plug-ins described.
    is_plugin: bool,
}

impl Nodes {
    /// Connects a helper. Returns the outage that has ended, if there was one.
    pub(crate) fn connect_helper(&mut self, node: NodeId, connection: ConnectionId) -> Option<Outage> {
        self.connections.insert(connection, node);
        self.registry.get_mut(node).and_then(|node| node.connect(connection))
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
            Some(Client { connection, .. }) => Session::new(connection),
            None => self.registry.get_mut(node)?.disconnect()?,
        };
        self.connections.remove(&session.connection);
        if let Some(view) = self.topology.get_mut(node) {
            (view.alive, view.load) = (false, 0);
        }
        Some(session)
    }
}

impl Nodes {
    /// Checks that the coordinator no longer waits for helpers to register.
    pub(crate) fn check_settled(&self, base: &Base) -> Result<(), RequestError> {
        match self.settled {
            true => Ok(()),
            false => {
                let awaited = sorted(self.registry.awaited(base).map(|node| self.name(node)));
                Err(RequestError::Settling { awaited })
            }
        }
    }
}

impl Nodes {
    /// Returns the node or client of a connection.
    pub(crate) fn node_at(&self, connection: ConnectionId) -> Option<NodeId> {
        self.connections.get(&connection).copied()
    }

    /// Whether a node or client is connected.
    pub(crate) fn is_connected(&self, node: NodeId) -> bool {
        self.is_helper(node) || self.clients.contains_key(&node)
    }

    /// Returns how many nodes and clients are connected.
    pub(crate) fn connected_count(&self) -> usize {
        self.connections.len()
    }
}

impl Nodes {
    /// Counts a new task of a node. The count applies until the node's next load report, so that jobs started
    /// at the same time do not crowd one node.
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
        if let Some(connection) =
            self.registry.session(node).map(|session| session.connection).or_else(client)
        {
            out.send(connection, message);
        }
    }

    /// Whether this node is a connected helper.
    pub(crate) fn is_helper(&self, node: NodeId) -> bool {
        self.registry.session(node).is_some()
    }

    /// Returns the connected helpers.
    pub(crate) fn live_helpers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.registry.up()
    }

    /// Returns the names of all helpers.
    pub(crate) fn known_helpers(&self) -> Vec<String> {
        sorted(self.registry.named().map(|(_, name)| name.to_owned()))
    }

    pub(crate) fn is_plugin(&self, client: NodeId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.is_plugin)
    }

    pub(crate) fn name(&self, node: NodeId) -> String {
        self.topology.name(node)
    }
}

/// Sorts names in natural order, with numbers by value.
pub(crate) fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.collect();
    names.sort_by(|a, b| views::natural(a, b));
    names
}
