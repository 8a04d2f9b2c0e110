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
use redb::WriteTransaction;
use store_api::names::Era;
use store_api::{CatalogError, Done, StoreChange};

pub use copies::CatalogSnapshot;
pub use open::CATALOG_VERSION;
pub use rebuild::{Rebuilt, Rival, Stranger, Unconfirmed};

use engine::{Engine, MARK, Marks};
use medium::{FileId, Medium};
use puts::Clock;
use tables::{Change, META, View};

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
    /// The path of the catalog's file, or the name of another medium.
    path: PathBuf,
    medium: Medium,
    /// The identity of the open file; `None` for another medium.
    file: Option<FileId>,
    cluster: String,
    engine: Engine,
    marks: Marks,
    /// The answers of a transaction that failed but may be durable.
    in_doubt: Option<Vec<Done>>,
    /// The era (a random number) in all names that this coordinator assigns.
    era: Era,
    /// Returns the time in milliseconds since 1970.
    clock: Clock,
    /// The open transaction, while a group of writes is carried out.
    group: Option<WriteTransaction>,
    /// Changes that the caller has not collected yet.
    told: Vec<StoreChange>,
}

impl std::fmt::Debug for DirCatalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirCatalog").field("path", &self.path).field("era", &self.era).finish_non_exhaustive()
    }
}

impl DirCatalog {
    /// Runs `work` in the open group's transaction, or in a new transaction if no group is open. On an error,
    /// a new transaction is rolled back; the caller must drop the group's transaction.
    fn change<T, E: From<CatalogError>>(
        &mut self,
        work: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mark = self.marks.next();
        let (result, told) = tables::guard(&self.path, || {
            let change = match &self.group {
                Some(group) => Change::shared(group, &self.path),
                None => Change::of(self.writable()?, &self.path)?,
            };
            let result = work(&change)?; // An error drops `change`, which aborts a new transaction.
            if self.group.is_none() {
                change.put(META, MARK, &mark)?;
            }
            Ok::<_, E>((result, change.commit()?))
        })?;
        if self.group.is_none() {
            self.marks.committed(mark);
        }
        self.told.extend(told);
        Ok(result)
    }

    /// Reads the current state of the catalog.
    fn look<T>(&self, work: impl FnOnce(&View<'_>) -> Result<T, CatalogError>) -> Result<T, CatalogError> {
        tables::guard(&self.path, || match &self.group {
            Some(group) => work(&View::changing(group, &self.path)),
            None => work(&View::of(self.engine.database()?, &self.path)?),
        })
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
