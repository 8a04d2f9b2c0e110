//! Creates and opens catalogs. Only `create` creates a catalog; opening never does.

use std::io;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Database, DatabaseError};
use store_api::OpenError;
use store_api::names::{ERA_BITS, Era};
use tempfile::NamedTempFile;

use super::copies::{draft_beside, remove_leftovers, sync_folder_of};
use super::engine::{CatalogDatabase, Marks};
use super::medium::Medium;
use super::puts::{Clock, unix_ms};
use super::tables::{Change, META, guard};
use super::{DirCatalog, remedy};

/// The version of the tables and records that this program writes.
pub const CATALOG_VERSION: u32 = 4;
/// The oldest version that this program reads, and upgrades on open. In version 3, no block had a digest of
/// kind `blake3`.
const OLDEST_VERSION: u32 = 3;

const VERSION_KEY: &str = "version";
const CLUSTER_KEY: &str = "cluster";

impl DirCatalog {
    /// Creates an empty catalog atomically.
    ///
    /// # Errors
    /// [`OpenError::Exists`] if any file exists at `path`.
    pub fn create(path: impl AsRef<Path>, cluster_id: &str) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let io_fault = |source| OpenError::Io { path: path.to_owned(), source };
        if std::fs::exists(path).map_err(io_fault)? {
            return Err(OpenError::Exists { path: path.to_owned() });
        }
        let draft = draft_beside(path)?;
        write_empty(&draft, path, cluster_id)?;
        draft.persist_noclobber(path).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => OpenError::Exists { path: path.to_owned() },
            _ => io_fault(error.error),
        })?;
        sync_folder_of(path)?;
        Self::open(path, cluster_id)
    }

    /// Opens the catalog of a cluster. A missing catalog is an error: a new empty one would hide all files.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: impl AsRef<Path>, cluster_id: &str) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let catalog = Self::open_medium(Medium::File, path, cluster_id, new_era(), Box::new(unix_ms))?;
        remove_leftovers(path);
        Ok(catalog)
    }

    /// Opens the catalog on a medium. The names of new stripes contain this era. The clock tells the times of puts
    /// and files.
    pub(super) fn open_medium(
        medium: Medium,
        path: &Path,
        cluster_id: &str,
        era: Era,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let mut database = CatalogDatabase::open(medium, path, cluster_id)?;
        database.check_is_newer_than_1()?;
        let version = database.check()?;
        database.marks = Marks::from(database.mark_found()?);
        if version < CATALOG_VERSION {
            database.renew()?;
        }
        Ok(Self { database, era, clock })
    }
}

impl CatalogDatabase {
    /// Refuses version 1. Its records had no checksums, not even the record that contains the version.
    fn check_is_newer_than_1(&self) -> Result<(), OpenError> {
        let version = self.look(|view| view.bytes(META, VERSION_KEY))?;
        if version.as_deref() == Some(b"1") {
            return Err(OpenError::Older { path: self.path.clone(), oldest: OLDEST_VERSION });
        }
        Ok(())
    }

    /// Upgrades the version, so that older programs refuse the catalog instead of misreading its records.
    fn renew(&mut self) -> Result<(), OpenError> {
        Ok(self.change(|change| change.put(META, VERSION_KEY, &CATALOG_VERSION))?)
    }

    /// Checks that this is a readable catalog of this cluster. Returns its version.
    pub(super) fn check(&self) -> Result<u32, OpenError> {
        let path = || self.path.clone();
        let damaged = |detail: &str| damaged(&self.path, &detail);
        let version: Option<u32> = self.look(|view| view.get(META, VERSION_KEY))?;
        let version = version.ok_or_else(|| damaged("it has no version"))?;
        if version > CATALOG_VERSION {
            return Err(OpenError::Newer { path: path(), found: version, newest: CATALOG_VERSION });
        }
        if version < OLDEST_VERSION {
            return Err(OpenError::Older { path: path(), oldest: OLDEST_VERSION });
        }
        let found: Option<String> = self.look(|view| view.get(META, CLUSTER_KEY))?;
        let found = found.ok_or_else(|| damaged("it has no cluster"))?;
        if found != self.cluster {
            return Err(OpenError::OtherCluster { path: path(), found, expected: self.cluster.clone() });
        }
        Ok(version)
    }
}

/// Draws at random the era that this coordinator includes in the names of its stripes.
pub(super) fn new_era() -> Era {
    Era::of_number(rand::random_range(1..1 << ERA_BITS))
}

/// Opens a catalog file and verifies the checksums of all pages.
pub(super) fn open_whole(path: &Path) -> Result<Database, OpenError> {
    check_whole(path, || Database::open(path))
}

/// Opens a database and verifies the checksums of all pages.
pub(super) fn check_whole(
    path: &Path,
    open: impl FnOnce() -> Result<Database, DatabaseError>,
) -> Result<Database, OpenError> {
    guard(path, || {
        let mut database = open().map_err(|error| open_fault(path, error))?;
        match database.check_integrity() {
            Ok(true) => Ok(database),
            // redb would continue with the pages that it could recover. The lost pages may contain files, so
            // this is an error.
            Ok(false) => Err(damaged(path, &"its pages do not match their checksums")),
            Err(error) => Err(open_fault(path, error)),
        }
    })
}

pub(super) fn write_empty(draft: &NamedTempFile, path: &Path, cluster_id: &str) -> Result<(), OpenError> {
    let io_fault = |source| OpenError::Io { path: path.to_owned(), source };
    let file = draft.reopen().map_err(io_fault)?;
    let database =
        FileBackend::new(file).and_then(|backend| Database::builder().create_with_backend(backend));
    let database = database.map_err(|error| open_fault(path, error))?;
    found(&database, path, cluster_id)?;
    drop(database);
    draft.as_file().sync_all().map_err(io_fault)
}

/// Turns an empty database into the catalog of a cluster.
pub(super) fn found(database: &Database, path: &Path, cluster_id: &str) -> Result<(), OpenError> {
    let change = Change::of(database, path)?;
    change.put(META, VERSION_KEY, &CATALOG_VERSION)?;
    change.put(META, CLUSTER_KEY, &cluster_id)?;
    change.commit()?;
    Ok(())
}

pub(super) fn open_fault(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            OpenError::Locked { path }
        }
        DatabaseError::Storage(redb::StorageError::Io(source)) => io_open_fault(path, source),
        other => damaged(&path, &other),
    }
}

pub(super) fn io_open_fault(path: PathBuf, source: io::Error) -> OpenError {
    match source.kind() {
        io::ErrorKind::NotFound => {
            let remedy = remedy(&path);
            OpenError::Missing { path, remedy }
        }
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => damaged(&path, &source),
        _ => OpenError::Io { path, source },
    }
}

/// Returns the error for a file that is not a catalog or is damaged.
fn damaged(path: &Path, detail: &dyn std::fmt::Display) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), detail: detail.to_string(), remedy: remedy(path) }
}
