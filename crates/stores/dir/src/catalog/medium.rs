//! The medium of a catalog: a file, or a storage backend that the caller provides.
//!
//! A simulation provides a backend in memory that drops unsynced writes and makes writes fail. All other code
//! of the catalog is the same as in production.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use block_files::forget_all;
use redb::{Database, DatabaseError, StorageBackend};
use store_api::OpenError;
use store_api::names::Era;

use super::open::{check_whole, found, io_open_fault, open_fault, open_whole};
use super::tables::guard;
use super::{CatalogSnapshot, DirCatalog};

/// The medium of a catalog; see the module's documentation.
pub(super) enum Medium {
    /// The file at the catalog's path.
    File,
    /// A backend, which is created again for each open.
    Backend(Box<dyn Fn() -> Result<Database, DatabaseError> + Send>),
}

/// The identity of a file, which stays the same when the file is renamed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl Medium {
    /// Opens the database and checks its pages.
    pub(super) fn open(&self, path: &Path) -> Result<Database, OpenError> {
        match self {
            Self::File => open_whole(path),
            Self::Backend(open) => check_whole(path, open),
        }
    }

    /// Returns the identity of the file at the path; `None` for another medium.
    pub(super) fn file_at(&self, path: &Path) -> Result<Option<FileId>, OpenError> {
        let Self::File = self else { return Ok(None) };
        let file = fs::metadata(path).map_err(|error| io_open_fault(path.to_owned(), error))?;
        Ok(Some(FileId { device: file.dev(), inode: file.ino() }))
    }

    /// Drops the file from the page cache, so that the next open reads the medium.
    pub(super) fn forget_cached(&self, path: &Path) -> Result<(), OpenError> {
        if let Self::File = self {
            let file = File::open(path).map_err(|error| io_open_fault(path.to_owned(), error))?;
            forget_all(&file);
        }
        Ok(())
    }
}

impl DirCatalog {
    /// Creates an empty catalog on a backend. `name` replaces the path in messages.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn create_on(
        backend: impl StorageBackend,
        name: impl AsRef<Path>,
        cluster_id: &str,
    ) -> Result<(), OpenError> {
        let name = name.as_ref();
        guard(name, || {
            found(&database_on(backend).map_err(|error| open_fault(name, error))?, name, cluster_id)
        })
    }

    /// Opens the catalog on a backend. `medium` creates the backend now, and again after an I/O error. The
    /// names of new stripes contain the given era, a number from 1 to 2^30 − 1, and `clock` returns the time in
    /// milliseconds since 1970. For catalogs in files, [`open`](Self::open) draws the era at random and takes the
    /// machine's clock.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_on<B: StorageBackend>(
        medium: impl Fn() -> B + Send + 'static,
        name: impl AsRef<Path>,
        cluster_id: &str,
        era: u32,
        clock: impl Fn() -> u64 + Send + 'static,
    ) -> Result<Self, OpenError> {
        let medium = Medium::Backend(Box::new(move || database_on(medium())));
        Self::open_medium(medium, name.as_ref(), cluster_id, Era::of_number(era.into()), Box::new(clock))
    }
}

impl CatalogSnapshot {
    /// Makes the same copy as [`write`](Self::write), on an empty backend.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn write_on(&self, backend: impl StorageBackend) -> Result<(), OpenError> {
        let name = self.path().to_owned();
        guard(&name, || {
            let database = database_on(backend).map_err(|error| open_fault(&name, error))?;
            self.copy_into(&database, &name)
        })
    }
}

fn database_on(backend: impl StorageBackend) -> Result<Database, DatabaseError> {
    Database::builder().create_with_backend(backend)
}
