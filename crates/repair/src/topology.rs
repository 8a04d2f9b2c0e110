//! The nodes a plan may use, and what their links carry.

use std::collections::BTreeMap;

use crate::NodeId;

/// What is known of the nodes at the moment of planning.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    nodes: BTreeMap<NodeId, NodeView>,
    encrypts_edges: bool,
}

/// One node as the planner sees it. Rates are in bytes per second.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// The node's name, for people.
    pub name: String,
    /// Where its data port is; `None` for a node that only dials out (a client).
    pub address: Option<String>,
    /// The name that its certificate carries, by which the other end of an encrypted edge knows it.
    pub tls_name: String,
    /// Whether it takes tasks now.
    pub alive: bool,
    /// Its rack, if known.
    pub rack: Option<String>,
    /// Rate at which it can send.
    pub up: f64,
    /// Rate at which it can receive.
    pub down: f64,
    /// Rate at which its disk reads.
    pub disk: f64,
    /// Tasks it is busy with; less busy nodes are preferred.
    pub load: u32,
    /// Bytes free for blocks.
    pub free_bytes: u64,
}

impl NodeView {
    /// Rates assumed for a node of which nothing is known: 1 Gb/s links and a 500 MB/s disk.
    pub fn unknown(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            address: None,
            tls_name: String::new(),
            alive: true,
            rack: None,
            up: 125e6,
            down: 125e6,
            disk: 500e6,
            load: 0,
            free_bytes: u64::MAX,
        }
    }
}

impl Topology {
    /// A topology without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on the edges of all plans are encrypted.
    pub fn encrypt_edges(&mut self) {
        self.encrypts_edges = true;
    }

    /// Whether the edges of plans are encrypted.
    pub fn encrypts_edges(&self) -> bool {
        self.encrypts_edges
    }

    /// The name that the certificate of `node` must carry at the other end of an edge; `None` if edges are plain.
    ///
    /// A node whose name is not known gets an empty one, which no certificate carries: its edges fail, and never
    /// carry a byte in the clear.
    pub fn tls_name(&self, node: NodeId) -> Option<String> {
        let name = || self.get(node).map_or_else(String::new, |view| view.tls_name.clone());
        self.encrypts_edges.then(name)
    }

    /// Adds or replaces a node.
    pub fn set(&mut self, node: NodeId, view: NodeView) {
        self.nodes.insert(node, view);
    }

    /// Forgets a node.
    pub fn remove(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// What is known of `node`.
    pub fn get(&self, node: NodeId) -> Option<&NodeView> {
        self.nodes.get(&node)
    }

    /// What is known of `node`, to be changed.
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut NodeView> {
        self.nodes.get_mut(&node)
    }

    /// Whether `node` is known and takes tasks.
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.get(node).is_some_and(|view| view.alive)
    }

    /// The node's name, or its number if it has none.
    pub fn name(&self, node: NodeId) -> String {
        self.get(node).map_or_else(|| node.to_string(), |view| view.name.clone())
    }

    /// All nodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &NodeView)> {
        self.nodes.iter().map(|(&node, view)| (node, view))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_to_nodes_without_a_known_name_are_never_plain_where_edges_are_encrypted() {
        let mut topology = Topology::new();
        topology.set(NodeId(1), NodeView { tls_name: "h1.helper.mend".into(), ..NodeView::unknown("h1") });
        assert_eq!(topology.tls_name(NodeId(1)), None);
        topology.encrypt_edges();
        assert_eq!(topology.tls_name(NodeId(1)).as_deref(), Some("h1.helper.mend"));
        assert_eq!(topology.tls_name(NodeId(2)).as_deref(), Some(""));
    }
}
