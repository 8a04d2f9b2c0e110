//! [`DirCatalog`]: the coordinator's files, stripes and nodes in one redb file.
//!
//! Every method that changes something is one transaction, and it is durable when the method returns.
//! What is only in memory (`holders`, `jobs`) is derived from the file when it is opened.

mod copies;
mod names;
mod nodes;
mod open;
mod puts;
mod queue;
mod rebuild;
mod records;
mod stripes;
mod tables;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use codes::BlockIndex;
use redb::Database;
use repair::NodeId;

pub use copies::Snapshot;
pub use open::{CATALOG_VERSION, OpenError};
pub use puts::PutError;
pub use rebuild::{Inventory, Rebuilt};
pub use records::{FileRecord, NodeRecord, PutId, PutRecord};

use crate::{BlockState, CatalogError, StripeRecord};
use names::{Era, Key};
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
///     catalog.publish(&stripe.id, BlockIndex(index as u16), node, None)?;
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
    holders: BTreeMap<NodeId, BTreeSet<(Key, BlockIndex)>>,
    /// Job numbers that the file says are used, and that were not handed out yet.
    jobs: Range<u64>,
    cluster: String,
    /// Of the names that are given from now on.
    era: Era,
    /// Transactions since it was opened.
    changes: AtomicU64,
}

impl DirCatalog {
    /// Runs one transaction; an error leaves everything as it was.
    fn change<T, E: From<CatalogError>>(
        &self,
        work: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        tables::guard(&self.path, || {
            let change = Change::of(&self.database, &self.path)?;
            let result = work(&change)?; // Dropping the change aborts it.
            change.commit()?;
            self.changes.fetch_add(1, Ordering::Relaxed);
            Ok(result)
        })
    }

    /// How often it has changed since it was opened.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Reads the catalog as it is now.
    fn look<T>(&self, work: impl FnOnce(&View<'_>) -> Result<T, CatalogError>) -> Result<T, CatalogError> {
        tables::guard(&self.path, || work(&View::of(&self.database, &self.path)?))
    }

    /// Brings the index up to date with a stripe that was stored or removed.
    fn reindex(&mut self, key: Key, old: Option<&StripeRecord>, new: Option<&StripeRecord>) {
        for (index, node) in old.into_iter().flat_map(published) {
            if let Some(blocks) = self.holders.get_mut(&node) {
                blocks.remove(&(key, index));
            }
        }
        for (index, node) in new.into_iter().flat_map(published) {
            self.holders.entry(node).or_default().insert((key, index));
        }
    }
}

/// The blocks of a stripe that some node is known to have got, and that node.
fn published(stripe: &StripeRecord) -> impl Iterator<Item = (BlockIndex, NodeId)> {
    let blocks = stripe.blocks.iter().enumerate().filter(|(_, block)| block.state != BlockState::NotStored);
    blocks.filter_map(|(index, block)| Some((block_index(index), block.node?)))
}

fn block_index(index: usize) -> BlockIndex {
    BlockIndex(u16::try_from(index).expect("a stripe has at most 255 blocks"))
}

/// What to do about a catalog that is damaged or gone.
fn remedy(path: &Path) -> String {
    let copy = copy_path(path);
    let restore = match fs::exists(&copy) {
        Ok(true) => {
            format!("`mend catalog restore {}` (the copy of the last start that went well)", copy.display())
        }
        _ => "`mend catalog restore FILE` from a backup".to_owned(),
    };
    format!(
        "the blocks on the helpers are untouched: make it anew from them with `mend catalog rebuild`, or {restore}"
    )
}

/// Where the last good copy of a catalog is kept.
fn copy_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".last-good");
    name.into()
}
