//! Nodes: each name has a number until the node is forgotten. Numbers are never reused.

use repair::NodeId;
use store_api::{CatalogError, NodeRecord, StoreChange};

use super::DirCatalog;
use super::stripes::keep;
use super::tables::{NODE_NAMES, NODES};

impl DirCatalog {
    /// Returns the number of a node; assigns a number to a new node.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn node_id(&mut self, name: &str) -> Result<NodeId, CatalogError> {
        if let Some(id) = self.look(|view| view.get(NODE_NAMES, name))? {
            return Ok(id);
        }
        self.change(|change| {
            let number = change.count("next-node", 1)?;
            let id = NodeId(u32::try_from(number).expect("a cluster has fewer than 2^32 nodes in its life"));
            change.put(NODE_NAMES, name, &id)?;
            let record = NodeRecord { id, name: name.to_owned(), address: None };
            change.put(NODES, id.0, &record)?;
            change.tell(StoreChange::Node(record));
            Ok(id)
        })
    }

    /// Records the address at which a node was reached.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    ///
    /// # Panics
    /// If no node has this number.
    pub fn set_node_address(&mut self, node: NodeId, address: &str) -> Result<(), CatalogError> {
        let record: Option<NodeRecord> = self.look(|view| view.get(NODES, node.0))?;
        let mut record = record.expect("only nodes that have a number have an address");
        if record.address.as_deref() == Some(address) {
            return Ok(());
        }
        record.address = Some(address.to_owned());
        self.change(|change| {
            change.put(NODES, node.0, &record)?;
            change.tell(StoreChange::Node(record));
            Ok(())
        })
    }

    /// Removes a node's record permanently; the node's number is not reused. The caller makes sure that no
    /// stripe places a block on the node.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn forget_node(&mut self, node: NodeId) -> Result<(), CatalogError> {
        let record: Option<NodeRecord> = self.look(|view| view.get(NODES, node.0))?;
        let Some(record) = record else { return Ok(()) };
        let discards = self.discards(node)?;
        self.change(|change| {
            change.remove(NODES, node.0)?;
            change.remove(NODE_NAMES, record.name.as_str())?;
            discards.iter().try_for_each(|block| keep(change, node, block))?;
            change.tell(StoreChange::NodeGone(node));
            Ok(())
        })
    }

    /// Returns all nodes, sorted by number.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn nodes(&self) -> Result<Vec<NodeRecord>, CatalogError> {
        let mut nodes = Vec::new();
        self.look(|view| view.each(NODES, 0.., |_, node| nodes.push(node)))?;
        Ok(nodes)
    }
}
