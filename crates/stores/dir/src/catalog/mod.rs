//! [`DirCatalog`]: stripes, files and the coordinator's records in one redb file.
//!
//! Each method that changes the catalog is one transaction, durable when the method returns. Writes that are
//! carried out together share one transaction (`group`). `seams` implements the traits of `store-api` that
//! the coordinator uses.

mod copies;
mod counters;
mod engine;
mod eras;
mod group;
#[cfg(test)]
mod group_tests;
mod medium;
mod nodes;
mod open;
mod puts;
mod queue;
mod rebuild;
mod seams;
mod stripes;
mod tables;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use codes::BlockIndex;
use store_api::CatalogError;
use store_api::names::Era;

pub use copies::CatalogSnapshot;
pub use open::CATALOG_VERSION;
pub use rebuild::{Rebuilt, Rival, Stranger, Unconfirmed};

use engine::CatalogDatabase;
use puts::Clock;
use tables::{Change, View};

/// The catalog of the `dir` store.
///
/// ```
/// use codes::{BlockIndex, CodeSpec};
/// use store_api::BlockSize;
/// use dir::DirCatalog;
///
/// let folder = tempfile::tempdir()?;
/// let mut catalog = DirCatalog::create(folder.path().join("catalog.redb"), "my-cluster")?;
/// let nodes = ["a", "b", "c"].map(|name| catalog.node_id(name)).into_iter().collect::<Result<Vec<_>, _>>()?;
///
/// let put = catalog.begin_put("greeting", 10, CodeSpec::reed_solomon(3, 2), BlockSize::whole(4096), false)?;
/// let stripe = catalog.allocate_stripe(put, 0, BlockSize::whole(64), &nodes)?;
/// for (index, &node) in nodes.iter().enumerate() {
///     catalog.publish_all(&stripe.id, &[(BlockIndex(index as u16), node, None)])?;
/// }
/// assert_eq!(catalog.file("greeting")?, None); // Nothing is visible before the commit.
/// let file = catalog.commit_put(put)?;
/// assert_eq!(catalog.file("greeting")?, Some(file));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DirCatalog {
    database: CatalogDatabase,
    /// The era (a random number) in all names that this coordinator assigns.
    era: Era,
    /// Returns the time in milliseconds since 1970.
    clock: Clock,
}

impl std::fmt::Debug for DirCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirCatalog")
            .field("path", &self.database.path)
            .field("era", &self.era)
            .finish_non_exhaustive()
    }
}

impl DirCatalog {
    /// See [`CatalogDatabase::change`].
    fn change<T, E: From<CatalogError>>(
        &mut self,
        work: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.database.change(work)
    }

    /// Reads the current state of the catalog.
    fn look<T>(&self, work: impl FnOnce(&View<'_>) -> Result<T, CatalogError>) -> Result<T, CatalogError> {
        self.database.look(work)
    }
}

fn block_index(index: usize) -> BlockIndex {
    BlockIndex(u16::try_from(index).expect("a stripe has at most 255 blocks"))
}

/// Returns the operator's next step for a damaged or missing catalog.
fn remedy(path: &Path) -> String {
    let copies = [
        (copy_path(path), "the copy from the last successful start"),
        (former_copy_path(path), "the last but one copy"),
    ];
    let restore = match copies.iter().find(|(copy, _)| matches!(fs::exists(copy), Ok(true))) {
        Some((copy, which)) => format!("`mend catalog restore {}` ({which})", copy.display()),
        None => "`mend catalog restore FILE` from a backup".to_owned(),
    };
    format!(
        "the blocks on the helpers are untouched: rebuild it from them with `mend catalog rebuild`, or \
         {restore}"
    )
}

/// Returns the path of the last good copy of a catalog.
fn copy_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".last-good");
    name.into()
}

/// Returns the path of the copy before the last good one.
fn former_copy_path(path: &Path) -> PathBuf {
    let mut name = copy_path(path).into_os_string();
    name.push(".1");
    name.into()
}
