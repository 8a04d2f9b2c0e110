//! Copies of a catalog: taken while the catalog is in use, and restored if the catalog is lost.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redb::backends::FileBackend;
use redb::{
    Database, Key, ReadOnlyDatabase, ReadTransaction, ReadableTable, TableDefinition, TableError, TableHandle,
};
use store_api::{CatalogError, Eras, NodeRecord, OpenError, Replaced, UNPROVEN, Unproven, names};
use tempfile::NamedTempFile;

use super::engine::MARK;
use super::eras::ERAS;
use super::open::open_fault;
use super::stripes::NEXT_STRIPE;
use super::tables::{
    Change, FILES, Json, META, NODE_NAMES, NODES, PUT_STRIPES, QUEUE, STRIPES, View, check_record, fault,
    guard,
};
use super::{DirCatalog, copy_path, former_copy_path};

/// The prefix of the names of drafts, which are unfinished catalogs, and the number of characters after it.
const DRAFT_PREFIX: &str = ".catalog-";
const DRAFT_DIGITS: usize = 6;
/// A draft that was not written for this long is not in use. Drafts are unlocked for a moment before they get their
/// final name.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// The state of the catalog at the time of the snapshot. Another thread may write the snapshot to a file
/// while the catalog continues to change.
///
/// A written copy omits the open puts and the list of blocks to be removed. By the time the copy is restored,
/// these puts may have become files, and the listed blocks may be the only copies. After a restore, the
/// blocks of these puts and the listed blocks are therefore orphans: no record refers to them. A copy also
/// records that the parity of all its stripes must be checked, because it may be restored by `cp`.
pub struct CatalogSnapshot {
    transaction: ReadTransaction,
    path: PathBuf,
}

impl std::fmt::Debug for CatalogSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CatalogSnapshot").field("path", &self.path).finish_non_exhaustive()
    }
}

impl DirCatalog {
    /// Takes a snapshot of the current state.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn snapshot(&self) -> Result<CatalogSnapshot, CatalogError> {
        Ok(CatalogSnapshot { transaction: self.database.begin_read()?, path: self.database.path.clone() })
    }

    /// Replaces the catalog at `path` by a copy. The catalog may be missing or damaged. Keeps the old file
    /// under another name and returns that name. No coordinator may have the catalog open. `helpers` are all
    /// helpers of the cluster; the new catalog contains them too if the copy does not. The new catalog has no addresses
    /// of nodes, because nodes may hold newer blocks until they have registered again.
    ///
    /// # Errors
    /// [`OpenError`] if the copy is not an intact catalog of this cluster, or the catalog is in use; nothing
    /// has changed then.
    pub fn restore(
        copy: &Path,
        path: &Path,
        cluster_id: &str,
        helpers: &BTreeSet<String>,
    ) -> Result<Option<PathBuf>, OpenError> {
        check_unused(path)?;
        let draft = draft_beside(path)?;
        let io_fault = |source| OpenError::Io { path: copy.to_owned(), source };
        // Opening a catalog may write to it, so this opens a copy of the copy.
        fill_from(&draft, copy).map_err(io_fault)?;
        let whole = Self::open(draft.path(), cluster_id)?;
        let clean = draft_beside(path)?;
        whole.snapshot()?.fill(&clean, path)?;
        let mut restored = Self::open(clean.path(), cluster_id)?;
        for helper in helpers {
            restored.node_id(helper)?;
        }
        let nodes = restored.nodes()?;
        restored.change(|change| {
            nodes.iter().try_for_each(|node| {
                change.put(NODES, node.id.0, &NodeRecord { address: None, ..node.clone() })
            })
        })?;
        drop(restored);
        install(clean, path)
    }
}

impl CatalogSnapshot {
    /// Writes a copy of the catalog to a file, atomically; replaces an existing file of that name.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn write(&self, to: &Path) -> Result<(), OpenError> {
        self.write_after(to, || Ok(()))
    }

    /// Like [`write`](Self::write), and runs `make_room` when the copy is complete but has no name yet.
    fn write_after(&self, to: &Path, make_room: impl FnOnce() -> io::Result<()>) -> Result<(), OpenError> {
        guard(&self.path, || {
            let draft = draft_beside(to)?;
            self.fill(&draft, to)?;
            let io_fault = |source| OpenError::Io { path: to.to_owned(), source };
            make_room().map_err(io_fault)?;
            draft.persist(to).map_err(|error| io_fault(error.error))?;
            sync_folder_of(to)
        })
    }

    /// Returns the keys of the stripes of open puts.
    fn pending(&self) -> Result<BTreeSet<u64>, CatalogError> {
        let mut pending = BTreeSet::new();
        View::over(&self.transaction, &self.path).each(PUT_STRIPES, (0, 0).., |_, key: names::Key| {
            pending.insert(key.0);
        })?;
        Ok(pending)
    }

    fn fill(&self, draft: &NamedTempFile, to: &Path) -> Result<(), OpenError> {
        let file = draft.reopen().map_err(|source| OpenError::Io { path: to.to_owned(), source })?;
        let database =
            FileBackend::new(file).and_then(|backend| Database::builder().create_with_backend(backend));
        let database = database.map_err(|error| open_fault(to, error))?;
        self.copy_into(&database, to)?;
        drop(database);
        draft.as_file().sync_all().map_err(|source| OpenError::Io { path: to.to_owned(), source })
    }

    /// Returns the path of the catalog from which the snapshot was taken.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies the snapshot into an empty database.
    pub(super) fn copy_into(&self, database: &Database, to: &Path) -> Result<(), OpenError> {
        let mut copy = Copying { from: self, to, change: database.begin_write().map_err(|e| fault(to, e))? };
        copy.change.set_two_phase_commit(true);
        // A copy must not be mistaken for its original, so the transaction counter (`MARK`) is omitted.
        copy.table(META, |key| *key != MARK && *key != ERAS)?;
        copy.table(NODES, |_| true)?;
        copy.table(NODE_NAMES, |_| true)?;
        copy.table(FILES, |_| true)?;
        copy.table(QUEUE, |_| true)?;
        let pending = self.pending()?;
        copy.table(STRIPES, |key| !pending.contains(key))?;
        let change = Change::shared(&copy.change, to);
        change.put(META, ERAS, &self.eras(&pending)?)?;
        mark_unproven(&change, Replaced::Restored)?;
        copy.change.commit().map_err(|error| fault(to, error))?;
        Ok(())
    }

    /// Returns the record of eras for a copy without the stripes of open puts. If such a put becomes a file
    /// after the copy was taken, the file is newer than the copy.
    fn eras(&self, pending: &BTreeSet<u64>) -> Result<Eras, CatalogError> {
        let view = View::over(&self.transaction, &self.path);
        let eras: Eras = view.get(META, ERAS)?.unwrap_or_default();
        let next: u64 = view.get(META, NEXT_STRIPE)?.unwrap_or(1);
        Ok(eras.for_copy(pending.first().map_or(next, |&key| names::Key(key).count())))
    }
}

impl store_api::Snapshot for CatalogSnapshot {
    fn file(&self) -> Result<File, OpenError> {
        guard(&self.path, || {
            let draft = draft_beside(&self.path)?;
            self.fill(&draft, &self.path)?;
            draft.reopen().map_err(|source| OpenError::Io { path: self.path.clone(), source })
        })
    }

    fn keep(&self) -> Result<(), OpenError> {
        let kept = copy_path(&self.path);
        remove_leftovers(&self.path);
        // The last copy gives up its name only to a complete one: the disk may be full.
        self.write_after(&kept, || {
            if fs::exists(&kept)? {
                fs::rename(&kept, former_copy_path(&self.path))?;
            }
            Ok(())
        })
    }
}

/// A snapshot that is being copied into a database.
struct Copying<'s> {
    from: &'s CatalogSnapshot,
    to: &'s Path,
    change: redb::WriteTransaction,
}

impl Copying<'_> {
    /// Copies a table's records unchanged, including their checksums. A record that does not match its checksum is
    /// an error: the copy would count as whole, and could replace the last good one.
    fn table<K: Key + 'static>(
        &mut self,
        table: TableDefinition<'_, K, Json>,
        keeps: impl Fn(&K::SelfType<'_>) -> bool,
    ) -> Result<(), CatalogError> {
        let (from, to) = (&self.from.path, self.to);
        let opened = match self.from.transaction.open_table(table) {
            Ok(opened) => opened,
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            Err(error) => return Err(fault(from, error)),
        };
        let mut target = self.change.open_table(table).map_err(|error| fault(to, error))?;
        for entry in opened.iter().map_err(|error| fault(from, error))? {
            let (key, value) = entry.map_err(|error| fault(from, error))?;
            if keeps(&key.value()) {
                check_record::<K>(from, table.name(), &key.value(), value.value())?;
                target.insert(key.value(), value.value()).map_err(|error| fault(to, error))?;
            }
        }
        Ok(())
    }
}

/// Records that all stripes of a replaced catalog must still be checked against their parity.
pub(super) fn mark_unproven(change: &Change<'_>, since: Replaced) -> Result<(), CatalogError> {
    change.put(QUEUE, UNPROVEN, &Unproven::all(since))
}

/// Checks that no coordinator has the catalog open. Ignores all other errors. Changes nothing: the catalog
/// that is about to be replaced is kept as it is, even if it was not closed properly.
pub(super) fn check_unused(path: &Path) -> Result<(), OpenError> {
    if !path.is_file() {
        return Ok(());
    }
    match guard(path, || ReadOnlyDatabase::open(path).map_err(|error| open_fault(path, error))) {
        Err(error @ OpenError::Locked { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// Creates a temporary file in the folder of `path`.
pub(super) fn draft_beside(path: &Path) -> Result<NamedTempFile, OpenError> {
    tempfile::Builder::new()
        .prefix(DRAFT_PREFIX)
        .rand_bytes(DRAFT_DIGITS)
        .tempfile_in(folder_of(path))
        .map_err(|source| OpenError::Io { path: path.to_owned(), source })
}

/// Copies the bytes of a file into a draft. The draft keeps its mode, because the file may be read-only.
fn fill_from(draft: &NamedTempFile, from: &Path) -> io::Result<()> {
    io::copy(&mut File::open(from)?, &mut draft.as_file()).map(drop)
}

fn is_draft(path: &Path) -> bool {
    let rest =
        path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(DRAFT_PREFIX));
    rest.is_some_and(|rest| {
        rest.len() == DRAFT_DIGITS && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Removes the drafts that a killed process left in the folder of the catalog at `path`. The catalog must be
/// open. Drafts that are locked or were written lately stay, because another process may be using them. Failures
/// are ignored: it is tried again before the next copy.
pub(super) fn remove_leftovers(path: &Path) {
    if is_draft(path) {
        return; // It is being checked before it becomes a catalog.
    }
    for entry in fs::read_dir(folder_of(path)).into_iter().flatten().flatten() {
        let draft = entry.path();
        if is_draft(&draft) && is_abandoned(&draft) && fs::remove_file(&draft).is_ok() {
            tracing::info!(path = %draft.display(), "removed an unfinished copy of the catalog");
        }
    }
}

/// Whether a draft is unlocked and was not written for an hour.
fn is_abandoned(path: &Path) -> bool {
    let is_old = |written: SystemTime| written.elapsed().is_ok_and(|age| age >= ABANDONED_AFTER);
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| found.is_file() && found.modified().is_ok_and(is_old))
        && File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Renames a complete catalog to `path`. An existing catalog there is kept under another name, which is
/// returned.
pub(super) fn install(draft: NamedTempFile, path: &Path) -> Result<Option<PathBuf>, OpenError> {
    let io_fault = |source| OpenError::Io { path: path.to_owned(), source };
    draft.as_file().sync_all().map_err(io_fault)?;
    let aside = fs::exists(path).map_err(io_fault)?.then(|| aside(path));
    if let Some(aside) = &aside {
        // The old file gets its second name first, so that it always has a name.
        fs::hard_link(path, aside).map_err(io_fault)?;
    }
    draft.persist(path).map_err(|error| io_fault(error.error))?;
    sync_folder_of(path)?;
    Ok(aside)
}

/// Returns the path to which a catalog is moved when it is replaced.
fn aside(path: &Path) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".replaced-{now}"));
    name.into()
}

pub(super) fn sync_folder_of(path: &Path) -> Result<(), OpenError> {
    let io_fault = |source| OpenError::Io { path: path.to_owned(), source };
    File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(io_fault)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use redb::ReadableDatabase;

    use super::*;

    #[test]
    fn a_draft_of_a_read_only_copy_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        fs::write(&copy, "bytes").unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o444)).unwrap();
        let draft = draft_beside(&folder.path().join("catalog")).unwrap();
        fill_from(&draft, &copy).unwrap();
        assert_eq!(fs::read(draft.path()).unwrap(), b"bytes");
        assert_eq!(fs::metadata(draft.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn only_old_unlocked_drafts_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let catalog = folder.path().join("catalog");
        let left = draft_beside(&catalog).unwrap();
        let [locked, fresh] = [(); 2].map(|()| draft_beside(&catalog).unwrap());
        for old in [&left, &locked] {
            old.as_file().set_modified(SystemTime::now() - 2 * ABANDONED_AFTER).unwrap();
        }
        let left = left.into_temp_path().keep().unwrap();
        locked.as_file().lock().unwrap();
        for name in [".catalog-notes", ".catalog-", "catalog"] {
            fs::write(folder.path().join(name), "bytes").unwrap();
        }
        remove_leftovers(&catalog);
        assert!(!left.exists() && locked.path().exists() && fresh.path().exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    #[test]
    fn looking_whether_a_catalog_is_in_use_does_not_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let [path, crashed] = ["catalog", "crashed"].map(|name| folder.path().join(name));
        let open = DirCatalog::create(&path, "cluster").unwrap();
        fs::copy(&path, &crashed).unwrap(); // As a crash would leave it.
        let before = fs::read(&crashed).unwrap();
        assert!(matches!(check_unused(&path), Err(OpenError::Locked { .. })));
        check_unused(&crashed).unwrap();
        assert!(fs::read(&crashed).unwrap() == before);
        drop(open);
        check_unused(&path).unwrap();
    }

    #[test]
    fn a_damaged_record_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalog");
        let database = Database::create(&path).unwrap();
        let change = database.begin_write().unwrap();
        change.open_table(QUEUE).unwrap().insert("key", &b"sum {}"[..]).unwrap();
        change.commit().unwrap();
        let snapshot = CatalogSnapshot { transaction: database.begin_read().unwrap(), path };
        let copy = folder.path().join("copy");
        let error = snapshot.write(&copy).unwrap_err().to_string();
        assert!(error.contains("`queue`") && error.contains("checksum"), "{error}");
        assert!(!copy.exists());
    }
}
