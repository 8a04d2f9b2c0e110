//! [`DirCatalog`]: the coordinator's files, stripes and nodes in one redb file.
//!
//! Every method that changes something is one transaction, and it is durable when the method returns.
//! What is only in memory (`holders`, `jobs`) is derived from the file when it is opened.

mod nodes;
mod open;
mod puts;
mod queue;
mod records;
mod stripes;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use codes::BlockIndex;
use redb::Database;
use repair::NodeId;

pub use open::{CATALOG_VERSION, OpenError};
pub use puts::PutError;
pub use records::{FileRecord, NodeRecord, PutId, PutRecord};

use crate::{CatalogError, StripeRecord};
use tables::{Change, View};

/// The catalog of the `dir` store.
///
/// ```
/// use codes::{BlockIndex, CodeSpec};
/// use stores::Catalog;
/// use stores::dir::DirCatalog;
///
/// let folder = tempfile::tempdir()?;
/// let mut catalog = DirCatalog::create(folder.path().join("catalog.redb"), "my-cluster")?;
/// let nodes = ["a", "b", "c"].map(|name| catalog.node_id(name)).into_iter().collect::<Result<Vec<_>, _>>()?;
///
/// let put = catalog.begin_put("greeting", 10, CodeSpec::reed_solomon(3, 2), 4096, false)?;
/// let stripe = catalog.allocate_stripe(put, 0, 64, &nodes)?;
/// for (index, &node) in nodes.iter().enumerate() {
///     catalog.publish(&stripe.id, BlockIndex(index as u16), node, 0xd16e57)?;
/// }
/// assert_eq!(catalog.file("greeting")?, None); // Nothing is visible before the commit.
/// let file = catalog.commit_put(put)?;
/// assert_eq!(catalog.file("greeting")?, Some(file));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DirCatalog {
    path: PathBuf,
    database: Database,
    /// Blocks that were published, by the node that holds them.
    holders: BTreeMap<NodeId, BTreeSet<(u64, BlockIndex)>>,
    /// Job numbers that the file says are used, and that were not handed out yet.
    jobs: Range<u64>,
}

impl DirCatalog {
    fn view(&self) -> Result<View<'_>, CatalogError> {
        View::of(&self.database, &self.path)
    }

    /// Runs one transaction; an error leaves everything as it was.
    fn change<T, E: From<CatalogError>>(
        &self,
        work: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let change = Change::of(&self.database, &self.path)?;
        let result = work(&change)?; // Dropping the change aborts it.
        change.commit()?;
        Ok(result)
    }

    /// Brings the index up to date with a stripe that was stored or removed.
    fn reindex(&mut self, number: u64, old: Option<&StripeRecord>, new: Option<&StripeRecord>) {
        for (index, node) in old.into_iter().flat_map(published) {
            if let Some(blocks) = self.holders.get_mut(&node) {
                blocks.remove(&(number, index));
            }
        }
        for (index, node) in new.into_iter().flat_map(published) {
            self.holders.entry(node).or_default().insert((number, index));
        }
    }
}

/// The blocks of a stripe that some node is known to have got, and that node.
fn published(stripe: &StripeRecord) -> impl Iterator<Item = (BlockIndex, NodeId)> {
    let blocks = stripe.blocks.iter().enumerate().filter(|(_, block)| block.digest.is_some());
    blocks.map(|(index, block)| (block_index(index), block.node))
}

fn block_index(index: usize) -> BlockIndex {
    BlockIndex(u16::try_from(index).expect("a stripe has at most 255 blocks"))
}
