//! The medium of a catalog: a file, or a storage backend of the caller's.
//!
//! A simulation keeps a catalog in memory, loses writes that were not synced, and fails writes; the code above the medium is
//! the same.

use std::fs::File;
use std::path::Path;

use block_files::forget_all;
use redb::{Database, DatabaseError, StorageBackend};
use store_api::OpenError;
use store_api::names::Era;

use super::open::{check_whole, found, io_open_fault, open_fault, open_whole};
use super::tables::guard;
use super::{CatalogSnapshot, DirCatalog};

/// See the module's documentation.
pub(super) enum Medium {
    /// The file at the catalog's path.
    File,
    /// A backend, which is made anew whenever the catalog is opened.
    Backend(Box<dyn Fn() -> Result<Database, DatabaseError> + Send>),
}

impl Medium {
    /// Opens the database and checks its pages.
    pub(super) fn open(&self, path: &Path) -> Result<Database, OpenError> {
        match self {
            Self::File => open_whole(path),
            Self::Backend(open) => check_whole(path, open),
        }
    }

    /// Has the system read the file from its medium when it is opened next.
    pub(super) fn forget_cached(&self, path: &Path) -> Result<(), OpenError> {
        if let Self::File = self {
            let file = File::open(path).map_err(|error| io_open_fault(path.to_owned(), error))?;
            forget_all(&file);
        }
        Ok(())
    }
}

impl DirCatalog {
    /// Makes an empty catalog on a backend of the caller's. `name` stands for its path in messages.
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

    /// Opens the catalog on the backend that `medium` makes, now and again after an I/O error. Stripes are named in the era
    /// `era`, from 1 to 2^30 − 1: whoever keeps a file lets [`open`](Self::open) draw it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_on<B: StorageBackend>(
        medium: impl Fn() -> B + Send + 'static,
        name: impl AsRef<Path>,
        cluster_id: &str,
        era: u32,
    ) -> Result<Self, OpenError> {
        let medium = Medium::Backend(Box::new(move || database_on(medium())));
        Self::open_medium(medium, name.as_ref(), cluster_id, Era::of_number(era.into()))
    }
}

impl CatalogSnapshot {
    /// Makes the copy that [`write`](Self::write) makes, on an empty backend of the caller's.
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
