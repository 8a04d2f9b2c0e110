//! What the coordinator keeps for itself, and what nodes shall remove.

use repair::{BlockId, NodeId};
use serde_json::Value;
use store_api::CatalogError;

use super::DirCatalog;
use super::stripes::{discard_from, keep};
use super::tables::{DISCARDS, QUEUE};

impl DirCatalog {
    /// Keeps a record of the coordinator's under its key, in place of the one that was there.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn queue_put(&mut self, key: &str, value: &Value) -> Result<(), CatalogError> {
        self.change(|change| change.put(QUEUE, key, value))
    }

    /// Removes a record of the coordinator's; `false` if it was not there.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn queue_remove(&mut self, key: &str) -> Result<bool, CatalogError> {
        self.change(|change| change.remove(QUEUE, key))
    }

    /// The coordinator's records whose keys begin with `prefix`, in the keys' order.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn queue_list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError> {
        let mut records = Vec::new();
        self.look(|view| {
            view.each_with_prefix(QUEUE, prefix, |key, value| records.push((key.to_owned(), value)))
        })?;
        Ok(records)
    }

    /// Takes `count` numbers that no job had before, larger than all that were given; the first of them.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn take_numbers(&mut self, count: u64) -> Result<u64, CatalogError> {
        self.change(|change| change.count("next-job", count))
    }

    /// The blocks that shall be removed from a node, in the order of their names.
    ///
    /// A block that a running job delivers to that node must not be removed before the job has ended and
    /// this list has been read again: publishing the block takes it off the list.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn discards(&self, node: NodeId) -> Result<Vec<BlockId>, CatalogError> {
        let mut blocks = Vec::new();
        let last = node
            .0
            .checked_add(1)
            .map_or(std::ops::Bound::Unbounded, |next| std::ops::Bound::Excluded((next, "")));
        let keys = (std::ops::Bound::Included((node.0, "")), last);
        self.look(|view| view.each(DISCARDS, keys, |(_, block), ()| blocks.push(BlockId(block.to_owned()))))?;
        Ok(blocks)
    }

    /// Asks for a block to be removed from a node, for one that a node holds and no stripe knows.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn discard(&mut self, node: NodeId, block: &BlockId) -> Result<(), CatalogError> {
        self.change(|change| discard_from(change, node, block))
    }

    /// Notes that a node does not have a block any more.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn discarded(&mut self, node: NodeId, block: &BlockId) -> Result<(), CatalogError> {
        self.change(|change| keep(change, node, block))
    }
}
