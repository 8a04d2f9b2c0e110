//! Files, puts, and the blocks that nodes must remove.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use repair::{BlockId, NodeId};
use store_api::{FileRecord, PutError, PutId, PutRecord, StoreChange};

/// The files, the open puts, and the blocks to remove from each node.
#[derive(Default)]
pub(crate) struct FilesPicture {
    files: BTreeMap<String, FileRecord>,
    /// The total bytes of all files.
    bytes: u64,
    puts: BTreeMap<PutId, PutRecord>,
    discards: BTreeMap<NodeId, BTreeSet<BlockId>>,
}

impl FilesPicture {
    pub(crate) fn apply(&mut self, change: StoreChange) {
        match change {
            StoreChange::File(file) => {
                self.forget(&file.name.clone());
                self.bytes += file.bytes;
                self.files.insert(file.name.clone(), file);
            }
            StoreChange::FileGone(name) => self.forget(&name),
            StoreChange::Put(put) => drop(self.puts.insert(put.id, put)),
            StoreChange::PutGone(put) => drop(self.puts.remove(&put)),
            StoreChange::Discard(node, block) => drop(self.discards.entry(node).or_default().insert(block)),
            StoreChange::DiscardGone(node, block) => {
                if let Some(blocks) = self.discards.get_mut(&node) {
                    blocks.remove(&block);
                }
            }
            StoreChange::Stripe(..)
            | StoreChange::StripeGone(_)
            | StoreChange::Node(_)
            | StoreChange::NodeGone(_)
            | StoreChange::Counted(_)
            | StoreChange::Eras(_)
            | StoreChange::Service(..)
            | StoreChange::ClaimLost(_)
            | StoreChange::Troubles(_)
            | StoreChange::Unjudged(_)
            | StoreChange::Doubted(_)
            | StoreChange::Remarks(_)
            | StoreChange::FileWorked(_)
            | StoreChange::FileBacklog(_)
            | StoreChange::Needed(_)
            | StoreChange::Maintained(_)
            | StoreChange::LateStripes(_)
            | StoreChange::Unlisted(_)
            | StoreChange::Spoiled { .. } => {}
        }
    }

    pub(crate) fn forget(&mut self, name: &str) {
        if let Some(file) = self.files.remove(name) {
            self.bytes -= file.bytes;
        }
    }

    /// Returns a file by name.
    pub(crate) fn get(&self, name: &str) -> Option<&FileRecord> {
        self.files.get(name)
    }

    /// Returns the files whose names begin with `prefix`, in the order of names.
    pub(crate) fn with_prefix<'p>(&'p self, prefix: &'p str) -> impl Iterator<Item = &'p FileRecord> {
        self.files
            .range(prefix.to_owned()..)
            .map(|(_, file)| file)
            .take_while(move |file| file.name.starts_with(prefix))
    }

    /// Returns the number of files and their total bytes.
    pub(crate) fn in_all(&self) -> (u64, u64) {
        (self.files.len() as u64, self.bytes)
    }

    /// Returns the record of an open put.
    pub(crate) fn put(&self, put: PutId) -> Result<&PutRecord, PutError> {
        self.puts.get(&put).ok_or(PutError::NoSuchPut(put))
    }

    /// Returns the blocks to remove from a node, in the order of their names.
    ///
    /// A block on this list must not be removed while a running job delivers it to that node. After the job
    /// has ended, the list must be read again, because publishing the block takes it off the list.
    pub(crate) fn discards(&self, node: NodeId) -> impl Iterator<Item = &BlockId> {
        self.discards.get(&node).into_iter().flatten()
    }

    /// Returns the same blocks, first those after `after`, and then the others.
    pub(crate) fn discards_after<'f>(
        &'f self,
        node: NodeId,
        after: Option<&'f BlockId>,
    ) -> impl Iterator<Item = &'f BlockId> {
        let blocks = self.discards.get(&node);
        let start = after.map_or(Unbounded, Excluded);
        let later = blocks.into_iter().flat_map(move |all| all.range::<BlockId, _>((start, Unbounded)));
        let others = blocks.zip(after).into_iter();
        later.chain(others.flat_map(|(all, after)| all.range::<BlockId, _>(..=after)))
    }

    /// Whether a block must be removed from a node.
    pub(crate) fn is_discarded(&self, node: NodeId, block: &BlockId) -> bool {
        self.discards.get(&node).is_some_and(|blocks| blocks.contains(block))
    }

    /// Returns the number of blocks to remove from a node.
    pub(crate) fn discard_count(&self, node: NodeId) -> usize {
        self.discards.get(&node).map_or(0, BTreeSet::len)
    }
}
