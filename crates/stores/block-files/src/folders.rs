//! Folders of block files: their locks, the names of files in them, and the removal of files.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::StatVfsMountFlags;
use store_api::BlockError;

use crate::fault;
use crate::faults::is_full;

/// The prefix of the names of Mend's own files in the folders of another system.
pub const OWN_PREFIX: &str = ".mend-";
/// The name of the lock file that Mend creates in a folder of another system.
pub const OWN_LOCK: &str = ".mend-lock";
/// How many more times a held lock is tried, and the pause before each attempt.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// A folder and its path. If the folder's disk is unmounted, another folder may be at the path.
#[derive(Clone, Debug)]
pub struct FolderPlace {
    folder: PathBuf,
    /// The device and inode of the folder.
    id: (u64, u64),
}

impl FolderPlace {
    /// Checks that the folder is still at its path.
    ///
    /// # Errors
    /// [`BlockError::Unmounted`], also if the path cannot be examined.
    pub fn check(&self) -> Result<(), BlockError> {
        let why = match id_of(&self.folder) {
            Ok(id) if id == self.id => return Ok(()),
            Ok(_) => "another folder is at this path now".to_owned(),
            Err(BlockError::Io { source, .. }) => source.to_string(),
            Err(error) => error.to_string(),
        };
        Err(BlockError::Unmounted { path: self.folder.display().to_string(), why })
    }
}

/// An exclusive lock on a folder. The system releases the lock when this value is dropped or the process
/// ends.
#[derive(Debug)]
pub struct FolderLock {
    place: FolderPlace,
    _file: File,
}

impl FolderLock {
    /// Locks `folder` by a lock on the file `name` in it, which is created if necessary. A folder on a read-only
    /// file system can be locked if it was locked before.
    ///
    /// Waits a moment for a lock that is held: a child process has a copy of every open file from its start until it
    /// executes its program, so it may hold the lock a little longer than the owner.
    ///
    /// # Errors
    /// [`BlockError::Io`]; the error text is `taken` if the lock is held, followed by the number of the process that
    /// has it.
    pub fn take(folder: &Path, name: &str, taken: &'static str) -> Result<Self, BlockError> {
        let path = folder.join(name);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let opened = opened.or_else(|error| match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem => File::open(&path).map_err(|_| error),
            _ => Err(error),
        });
        let file = opened.map_err(fault(&path))?;
        let mut attempt = file.try_lock();
        for _ in 0..ATTEMPTS {
            if !matches!(attempt, Err(TryLockError::WouldBlock)) {
                break;
            }
            thread::sleep(PAUSE);
            attempt = file.try_lock();
        }
        match attempt {
            Ok(()) => {
                let _ = note_holder(&file); // Only the texts of errors lack it, on a full disk for instance.
                Ok(Self { place: FolderPlace { folder: folder.to_owned(), id: id_of(folder)? }, _file: file })
            }
            Err(TryLockError::Error(error)) => Err(fault(&path)(error)),
            Err(TryLockError::WouldBlock) => {
                let text = taken_by(holder(&file), taken);
                Err(fault(folder)(io::Error::new(io::ErrorKind::ResourceBusy, text)))
            }
        }
    }
}

impl FolderLock {
    /// Checks that the locked folder is still at its path. If its disk was unmounted, an empty folder may be
    /// there instead.
    ///
    /// # Errors
    /// [`BlockError::Unmounted`], also if the path cannot be examined.
    pub fn check(&self) -> Result<(), BlockError> {
        self.place.check()
    }

    /// Returns the locked folder and its path, without the lock.
    pub fn place(&self) -> FolderPlace {
        self.place.clone()
    }
}

/// The length of the number of the process in a lock file, in bytes.
const HOLDER_BYTES: usize = 10;

/// Writes the number of this process into its lock file.
fn note_holder(file: &File) -> io::Result<()> {
    let number = format!("{:>HOLDER_BYTES$}", process::id());
    file.write_all_at(number.as_bytes(), 0)
}

/// Returns the process that holds a lock, if its lock file contains the number.
fn holder(file: &File) -> Option<u32> {
    let mut number = [0; HOLDER_BYTES];
    file.read_exact_at(&mut number, 0).ok()?;
    str::from_utf8(&number).ok()?.trim_start().parse().ok()
}

/// Returns the text of the error for a held lock. The number of a process is unique only in its container or on its
/// machine, so that of this process may also stand for another one.
fn taken_by(holder: Option<u32>, taken: &str) -> String {
    match holder {
        Some(number) => {
            format!("{taken} (process {number} has it, possibly in another container or on another machine)")
        }
        None => taken.to_owned(),
    }
}

/// Returns the device and the inode of a folder.
fn id_of(folder: &Path) -> Result<(u64, u64), BlockError> {
    let found = fs::metadata(folder).map_err(fault(folder))?;
    Ok((found.dev(), found.ino()))
}

/// Names of Mend's own files in the folders of another system. All of them begin with [`OWN_PREFIX`].
#[derive(Debug, Default)]
pub struct OwnNames(AtomicU64);

impl OwnNames {
    /// Returns a prefix of file names; no other writer uses the same prefix.
    pub fn next_prefix(&self) -> String {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        format!("{OWN_PREFIX}{number:08x}-")
    }
}

/// Returns the names in a folder. Names that are not UTF-8 are left out.
///
/// # Errors
/// [`BlockError::Io`], also for a missing folder.
pub fn names(folder: &Path) -> Result<BTreeSet<String>, BlockError> {
    collect(folder, fs::read_dir(folder).map_err(fault(folder))?)
}

/// Like [`names`], but returns an empty set for a missing folder.
///
/// # Errors
/// [`BlockError::Io`].
pub fn names_if_any(folder: &Path) -> Result<BTreeSet<String>, BlockError> {
    let entries = found(folder, fs::read_dir(folder))?;
    entries.map_or_else(|| Ok(BTreeSet::new()), |entries| collect(folder, entries))
}

fn collect(folder: &Path, entries: fs::ReadDir) -> Result<BTreeSet<String>, BlockError> {
    let mut names = BTreeSet::new();
    for entry in entries {
        names.extend(entry.map_err(fault(folder))?.file_name().into_string());
    }
    Ok(names)
}

/// Turns the error of a missing file or folder into `None`, and names the path in any other error.
fn found<T>(path: &Path, result: io::Result<T>) -> Result<Option<T>, BlockError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fault(path)(error)),
    }
}

/// Returns whether a file or folder exists.
///
/// # Errors
/// [`BlockError::Io`] if that cannot be determined.
pub fn exists(path: &Path) -> Result<bool, BlockError> {
    fs::exists(path).map_err(fault(path))
}

/// Returns the length of a file, or `None` if it does not exist.
///
/// # Errors
/// [`BlockError::Io`].
pub fn file_bytes(path: &Path) -> Result<Option<u64>, BlockError> {
    Ok(found(path, fs::metadata(path))?.map(|metadata| metadata.len()))
}

/// Removes a file. Returns whether it existed.
///
/// # Errors
/// [`BlockError::Io`].
pub fn remove_file(path: &Path) -> Result<bool, BlockError> {
    Ok(found(path, fs::remove_file(path))?.is_some())
}

/// Removes these files from a folder, durably.
///
/// # Errors
/// [`BlockError::Io`]; the files that follow the failing one stay.
pub fn remove_all<'a>(folder: &Path, names: impl Iterator<Item = &'a String>) -> Result<(), BlockError> {
    let paths: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
    paths.iter().try_for_each(|path| fs::remove_file(path).map_err(fault(path)))?;
    if paths.is_empty() { Ok(()) } else { sync_folder(folder) }
}

/// Makes all renames and new names in a folder durable.
///
/// # Errors
/// [`BlockError::Io`].
pub fn sync_folder(folder: &Path) -> Result<(), BlockError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(fault(folder))
}

/// Checks that the disk of an opened folder can be written, by writing to the lock file [`OWN_LOCK`] in it. Creates no file:
/// in the place of an unmounted disk, the file would look like that of a disk that a helper has used.
///
/// # Errors
/// [`BlockError::Io`]; a full disk is no error.
pub fn check_writable(folder: &Path) -> Result<(), BlockError> {
    let path = folder.join(OWN_LOCK);
    let write = || {
        let file = OpenOptions::new().write(true).open(&path)?;
        note_holder(&file)?;
        file.sync_data()
    };
    match write() {
        Err(error) if !is_full(&error) => Err(fault(&path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the free space of a folder's file system, in bytes; 0 if no file can be created there, because the
/// file system is read-only or has no inodes left.
///
/// # Errors
/// [`BlockError::Io`].
pub fn free_bytes(folder: &Path) -> Result<u64, BlockError> {
    let found = rustix::fs::statvfs(folder).map_err(|error| fault(folder)(error.into()))?;
    let is_read_only = found.f_flag.contains(StatVfsMountFlags::RDONLY);
    let has_no_inodes = found.f_files > 0 && found.f_favail == 0;
    let blocks = if is_read_only || has_no_inodes { 0 } else { found.f_bavail };
    Ok(blocks.saturating_mul(found.f_frsize))
}

/// Returns the free bytes of the folder that has the most. Ignores folders that cannot be used, as long as
/// one can be used. Without folders, returns 0.
///
/// # Errors
/// The error of the last folder, if no folder can be used.
pub fn most_free(folders: impl Iterator<Item = Result<u64, BlockError>>) -> Result<u64, BlockError> {
    folders
        .reduce(|most, free| match (most, free) {
            (Ok(most), Ok(free)) => Ok(most.max(free)),
            (Ok(usable), Err(_)) | (Err(_), Ok(usable)) => Ok(usable),
            (Err(_), error) => error,
        })
        .unwrap_or(Ok(0))
}

/// Returns the folder of a file.
///
/// # Panics
/// If `path` has no parent.
pub fn parent(path: &Path) -> &Path {
    path.parent().expect("a file in a folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_exchanged_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, aside) = (folder.path().join("blocks"), folder.path().join("aside"));
        fs::create_dir(&path).unwrap();
        let lock = FolderLock::take(&path, ".lock", "nobody").unwrap();
        lock.check().unwrap();
        fs::rename(&path, &aside).unwrap();
        assert!(matches!(lock.check(), Err(BlockError::Unmounted { .. })));
        fs::create_dir(&path).unwrap();
        assert!(lock.check().unwrap_err().to_string().contains("mounted"));
        fs::remove_dir(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
        lock.check().unwrap();
    }

    #[test]
    fn a_folder_has_one_lock_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path(), ".lock", "stop the other one").unwrap();
        let error = FolderLock::take(folder.path(), ".lock", "stop the other one").unwrap_err();
        assert!(error.to_string().contains(&format!("process {} has it", process::id())), "{error}");
        drop(lock);
        FolderLock::take(folder.path(), ".lock", "nobody").unwrap();
    }

    #[test]
    fn a_held_lock_names_the_process_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path(), ".lock", "nobody").unwrap();
        fs::write(folder.path().join(".lock"), format!("{:>HOLDER_BYTES$}", 1)).unwrap();
        let error = FolderLock::take(folder.path(), ".lock", "stop the other one").unwrap_err();
        assert!(
            error.to_string().contains("stop the other one (process 1 has it, possibly in another container"),
            "{error}"
        );
        // A program without this feature has written nothing.
        fs::write(folder.path().join(".lock"), "").unwrap();
        let error = FolderLock::take(folder.path(), ".lock", "stop the other one").unwrap_err();
        assert!(error.to_string().ends_with("stop the other one"), "{error}");
        drop(lock);
    }

    #[test]
    fn a_folder_on_a_disk_that_works_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let _lock = FolderLock::take(folder.path(), OWN_LOCK, "nobody").unwrap();
        check_writable(folder.path()).unwrap();
        assert_eq!(names(folder.path()).unwrap().len(), 1, "no file is left");
        assert!(check_writable(&folder.path().join("away")).is_err());
    }

    #[test]
    fn free_space_counts_as_long_as_one_folder_can_be_used() {
        let gone = || free_bytes(Path::new("/no such folder"));
        assert_eq!(most_free([gone(), Ok(1), gone(), Ok(3), Ok(2)].into_iter()).unwrap(), 3);
        assert!(most_free([gone(), gone()].into_iter()).is_err());
    }

    #[test]
    fn missing_files_are_no_errors_and_missing_folders_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("block");
        assert_eq!((file_bytes(&path).unwrap(), remove_file(&path).unwrap()), (None, false));
        fs::write(&path, b"bytes").unwrap();
        assert_eq!(file_bytes(&path).unwrap(), Some(5));
        let there = names(folder.path()).unwrap();
        remove_all(folder.path(), there.iter()).unwrap();
        assert!(!exists(&path).unwrap());
        assert!(names(&path).is_err());
        assert!(names_if_any(&path).unwrap().is_empty());
    }
}
