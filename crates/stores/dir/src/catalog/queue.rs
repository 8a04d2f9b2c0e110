//! The coordinator's own records, and the blocks that nodes must remove.

use repair::{BlockId, NodeId};
use serde_json::Value;
use store_api::CatalogError;

use super::DirCatalog;
use super::stripes::{discard_from, keep};
use super::tables::{DISCARDS, QUEUE};

impl DirCatalog {
    /// Stores a record of the coordinator; replaces an earlier record of the same key.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn queue_put(&mut self, key: &str, value: &Value) -> Result<(), CatalogError> {
        self.change(|change| change.put(QUEUE, key, value))
    }

    /// Removes a record of the coordinator. Returns `false` if there was none.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn queue_remove(&mut self, key: &str) -> Result<bool, CatalogError> {
        self.change(|change| change.remove(QUEUE, key))
    }

    /// Returns the coordinator's records whose keys begin with `prefix`, sorted by key.
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

    /// Reserves `count` numbers for jobs, larger than all earlier job numbers. Returns the first of these
    /// numbers.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn take_numbers(&mut self, count: u64) -> Result<u64, CatalogError> {
        self.change(|change| change.count("next-job", count))
    }

    /// Returns the blocks that a node must remove, sorted by name.
    ///
    /// While a running job delivers a block to that node, the block must not be removed. Read this list again
    /// after the job has ended: publishing the block takes it off the list.
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

    /// Marks a block that no stripe needs for removal from a node.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn discard(&mut self, node: NodeId, block: &BlockId) -> Result<(), CatalogError> {
        self.change(|change| discard_from(change, node, block))
    }

    /// Records that a node no longer has a block.
    ///
    /// # Errors
    /// [`CatalogError::Storage`].
    pub fn discarded(&mut self, node: NodeId, block: &BlockId) -> Result<(), CatalogError> {
        self.change(|change| keep(change, node, block))
    }
}
