//! Making and opening a catalog. A catalog is never made in passing: only `create` makes one.

use std::io;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{Database, DatabaseError};
use tempfile::NamedTempFile;

use super::copies::{draft_beside, sync_folder_of};
use super::engine::{Engine, Marks};
use super::medium::Medium;
use super::names::Era;
use super::tables::{Change, META, guard};
use super::{DirCatalog, remedy};
use crate::CatalogError;

/// The version of the tables and records that this program writes.
pub const CATALOG_VERSION: u32 = 4;
/// The oldest version that it reads, and makes a newer one of: in version 3 no block had a digest of kind `blake3`.
const OLDEST_VERSION: u32 = 3;

const VERSION_KEY: &str = "version";
const CLUSTER_KEY: &str = "cluster";

/// Why a catalog cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("the catalog {} is not there; {}", path.display(), remedy(path))]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// There is such a file already.
    #[error("{} exists already: open it, or choose another path for a new catalog", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a newer program.
    #[error(
        "the catalog {} has version {found}, and this program reads up to version {newest}: run a newer mend",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that can be read.
        newest: u32,
    },
    /// It was written by an older program.
    #[error(
        "the catalog {} has a version before {OLDEST_VERSION}, which this program does not read: get its files with \
         the mend that wrote it, and put them with this one",
        path.display()
    )]
    Older {
        /// The file.
        path: PathBuf,
    },
    /// It is of another cluster.
    #[error(
        "the catalog {} is of cluster {found}, and this is cluster {expected}: name the right catalog, or the \
         right cluster folder",
        path.display()
    )]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// The cluster that it is of.
        found: String,
        /// The cluster that was asked for.
        expected: String,
    },
    /// Another coordinator has it open.
    #[error("the catalog {} is in use by another coordinator: stop that one first", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// It is not a catalog, or its bytes are damaged.
    #[error("{} is not a catalog or is damaged ({detail}); {}", path.display(), remedy(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// What is there after an I/O error is not what was committed before it.
    #[error(
        "the catalog {} failed, and what is there now is not what this coordinator wrote last (commit {known}, found \
         {found}): it was replaced, or its disk lost a write that it had confirmed; check the disk, then start the \
         coordinator again, or {}",
        path.display(), remedy(path)
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// The last commit that returned well.
        known: u64,
        /// The last commit in the file.
        found: u64,
    },
    /// Another coordinator has used it meanwhile.
    #[error("the catalog {} was taken over by another coordinator: stop one of the two", path.display())]
    TakenOver {
        /// The file.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("cannot use the catalog {}: {source}", path.display())]
    Io {
        /// The file or its folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Its tables cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

impl DirCatalog {
    /// Makes an empty catalog. It appears whole or not at all.
    ///
    /// # Errors
    /// [`OpenError::Exists`] if there is a file at `path`, whatever it is.
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

    /// Opens the catalog of a cluster. A missing one is an error, never made anew: it would show an empty
    /// store.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: impl AsRef<Path>, cluster_id: &str) -> Result<Self, OpenError> {
        Self::open_medium(Medium::File, path.as_ref(), cluster_id, Era::new())
    }

    /// Opens the catalog on a medium, and names stripes in this era.
    pub(super) fn open_medium(
        medium: Medium,
        path: &Path,
        cluster_id: &str,
        era: Era,
    ) -> Result<Self, OpenError> {
        let mut catalog = Self {
            path: path.to_owned(),
            cluster: cluster_id.to_owned(),
            engine: Engine::Open(medium.open(path)?),
            medium,
            marks: Marks::default(),
            in_doubt: None,
            era,
            group: None,
            told: Vec::new(),
        };
        catalog.check_is_newer_than_1()?;
        let version = catalog.check()?;
        catalog.marks = Marks::from(catalog.mark_found()?);
        if version < CATALOG_VERSION {
            catalog.renew()?;
        }
        Ok(catalog)
    }

    /// Version 1 had records without checksums, its own version among them.
    fn check_is_newer_than_1(&self) -> Result<(), OpenError> {
        let version = self.look(|view| view.bytes(META, VERSION_KEY))?;
        if version.as_deref() == Some(b"1") {
            return Err(OpenError::Older { path: self.path.clone() });
        }
        Ok(())
    }

    /// From now on no program reads it that would take its records for something else.
    fn renew(&mut self) -> Result<(), OpenError> {
        Ok(self.change(|change| change.put(META, VERSION_KEY, &CATALOG_VERSION))?)
    }

    /// Its version, if it is a catalog of this cluster that can be read.
    pub(super) fn check(&self) -> Result<u32, OpenError> {
        let path = || self.path.clone();
        let damaged = |detail: &str| OpenError::damaged(&self.path, &detail);
        let version: Option<u32> = self.look(|view| view.get(META, VERSION_KEY))?;
        let version = version.ok_or_else(|| damaged("it has no version"))?;
        if version > CATALOG_VERSION {
            return Err(OpenError::Newer { path: path(), found: version, newest: CATALOG_VERSION });
        }
        if version < OLDEST_VERSION {
            return Err(OpenError::Older { path: path() });
        }
        let found: Option<String> = self.look(|view| view.get(META, CLUSTER_KEY))?;
        let found = found.ok_or_else(|| damaged("it has no cluster"))?;
        if found != self.cluster {
            return Err(OpenError::OtherCluster { path: path(), found, expected: self.cluster.clone() });
        }
        Ok(version)
    }
}

impl OpenError {
    /// Whether the same file may be usable a moment later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Locked { .. } | Self::Catalog(CatalogError::Storage { .. }) => true,
            Self::Missing { .. }
            | Self::Exists { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::OtherCluster { .. }
            | Self::Damaged { .. }
            | Self::Changed { .. }
            | Self::TakenOver { .. }
            | Self::Catalog(_) => false,
        }
    }

    fn damaged(path: &Path, detail: &dyn std::fmt::Display) -> Self {
        Self::Damaged { path: path.to_owned(), detail: detail.to_string() }
    }
}

/// Opens a catalog file of which every page is as it was written.
pub(super) fn open_whole(path: &Path) -> Result<Database, OpenError> {
    check_whole(path, || Database::open(path))
}

/// Opens a database and checks that every page is as it was written.
pub(super) fn check_whole(
    path: &Path,
    open: impl FnOnce() -> Result<Database, DatabaseError>,
) -> Result<Database, OpenError> {
    guard(path, || {
        let mut database = open().map_err(|error| open_fault(path, error))?;
        match database.check_integrity() {
            Ok(true) => Ok(database),
            // Its storage would go on with what it could save. What it could not is files.
            Ok(false) => Err(OpenError::damaged(path, &"its pages differ from their checksums")),
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

/// Makes an empty database the catalog of a cluster.
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
        other => OpenError::damaged(&path, &other),
    }
}

pub(super) fn io_open_fault(path: PathBuf, source: io::Error) -> OpenError {
    match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing { path },
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => OpenError::damaged(&path, &source),
        _ => OpenError::Io { path, source },
    }
}
