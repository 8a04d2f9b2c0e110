//! Writes a file under a temporary name until it is complete; this temporary file is called a draft.
//!
//! A killed get leaves its draft behind, and the next get into the same folder removes that draft. No other
//! file is removed: drafts in use are locked, and the name of a draft contains a checksum, so that files with
//! similar names are not mistaken for drafts.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions, Permissions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use repair::wire::edge::crc32c;
use rustix::fs::OFlags;
use tempfile::NamedTempFile;

use crate::destination::folder_of;

const PREFIX: &str = ".mend-get-";
/// The maximum number of attempts to create a draft: another get may remove a new draft before we lock it.
const ATTEMPTS: u32 = 16;
/// Mode of a new file, before the umask.
const NEW_FILE_MODE: u32 = 0o666;
/// Mode of a draft that will replace a file. In the end, the draft gets the mode of the replaced file.
const PRIVATE_MODE: u32 = 0o600;

/// A file under construction. Dropping it removes the file.
pub(crate) struct Draft {
    file: NamedTempFile,
}

impl Draft {
    /// Creates a draft in `folder` after removing abandoned drafts. If the draft is to replace a file
    /// (`replaces`), only the draft's owner can read it until [`persist`](Self::persist).
    pub(crate) fn create(folder: &Path, replaces: bool) -> io::Result<Self> {
        remove_leftovers(folder);
        let mode = if replaces { PRIVATE_MODE } else { NEW_FILE_MODE };
        for _ in 0..ATTEMPTS {
            let file = tempfile::Builder::new()
                .prefix(&new_name())
                .rand_bytes(0)
                .permissions(Permissions::from_mode(mode))
                .tempfile_in(folder)?;
            let locked = match file.as_file().try_lock() {
                // If the file system has no locks, another get cannot lock the draft either, and therefore
                // does not remove it.
                Ok(()) | Err(TryLockError::Error(_)) => true,
                Err(TryLockError::WouldBlock) => false,
            };
            if locked && is_at(file.as_file(), file.path()) {
                return Ok(Self { file });
            }
        }
        Err(io::Error::other("other runs of `mend get` keep removing the temporary file of this one"))
    }

    /// Returns the open temporary file.
    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Syncs the draft and renames it to `path`, where it replaces the file with the metadata `replaced`. The
    /// draft first gets that file's permissions, and also that file's owner if we may set the owner.
    pub(crate) fn persist(self, path: &Path, replaced: &Metadata) -> io::Result<()> {
        keep_owner_and_mode(self.file(), replaced)?;
        // Sync before the rename below, which destroys the old file: some file systems report a full disk
        // only on sync.
        self.file().sync_all()?;
        self.file.persist(path).map_err(|error| error.error)?;
        sync_folder(folder_of(path))
    }

    /// Syncs the draft and renames it to `path`, unless another file has this name by now.
    ///
    /// # Errors
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists), and other I/O errors.
    pub(crate) fn persist_new(self, path: &Path) -> io::Result<()> {
        self.file().sync_all()?;
        match self.file.persist_noclobber(path) {
            Ok(_) => {}
            // Some network file systems cannot rename without replacing.
            Err(failed) if !exists(path) => {
                failed.file.persist(path).map(drop).map_err(|error| error.error)?
            }
            Err(_) => return Err(created_meanwhile()),
        }
        sync_folder(folder_of(path))
    }
}

/// Whether any file has this name, including a dangling symbolic link.
fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn created_meanwhile() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "another program created it meanwhile; that file was left unchanged, and the received bytes were \
         discarded",
    )
}

/// Makes the new name of a file durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some network file systems cannot sync folders. Folders that may not be read cannot be opened.
        Err(error) if is_unsupported(&error) => Ok(()),
        synced => synced,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported)
}

fn keep_owner_and_mode(file: &File, replaced: &Metadata) -> io::Result<()> {
    let (uid, gid) = (replaced.uid(), replaced.gid());
    let now = file.metadata()?;
    let is_kept = (now.uid(), now.gid()) == (uid, gid) || fchown(file, Some(uid), Some(gid)).is_ok();
    if !is_kept {
        let _ = fchown(file, None, Some(gid)); // We may be able to set the group, if not the owner.
    }
    // If the owner could not be kept, drop the set-user-id and set-group-id bits: they would grant the rights
    // of the new owner.
    let mode = replaced.mode() & if is_kept { 0o7777 } else { 0o777 };
    if file.metadata()?.mode() & 0o7777 != mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Returns a new draft name: `.mend-get-`, 16 random hexadecimal digits and their checksum.
fn new_name() -> String {
    let digits = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
    format!("{PREFIX}{digits}-{:08x}", checksum(&digits))
}

fn is_draft_name(name: &OsStr) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    let parts = rest.and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(digits, sum)| digits.len() == 16 && sum == format!("{:08x}", checksum(digits)))
}

fn checksum(digits: &str) -> u32 {
    crc32c(&[PREFIX.as_bytes(), digits.as_bytes()])
}

/// Removes abandoned drafts from a folder. Failures are ignored, because a leftover draft does no harm.
fn remove_leftovers(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !is_draft_name(&entry.file_name()) {
            continue;
        }
        let path = entry.path();
        match remove_if_left(&path) {
            Ok(true) => tracing::info!(path = %path.display(), "removed the temporary file of a killed get"),
            Ok(false) => {}
            Err(error) => tracing::debug!(path = %path.display(), %error, "cannot remove a temporary file"),
        }
    }
}

fn remove_if_left(path: &Path) -> io::Result<bool> {
    let found = std::fs::symlink_metadata(path)?;
    if !found.is_file() || found.nlink() != 1 || found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(false);
    }
    // Some network file systems can lock only files that are open for writing.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let open = |write| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
    let file = open(true).or_else(|_| open(false))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    if !is_at(&file, path) {
        return Ok(false);
    }
    std::fs::remove_file(path)?;
    Ok(true)
}

/// Whether `path` still names this file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(named)) = (file.metadata(), std::fs::symlink_metadata(path)) else { return false };
    (file.dev(), file.ino()) == (named.dev(), named.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_go_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let leave = |name: &str| std::fs::write(folder.path().join(name), "x").unwrap();
        let left = new_name();
        leave(&left);
        let mut alike = [".mend-get-", ".mend-get-notes1", ".mend-get-0123456789abcdef-00000000", "film"]
            .map(str::to_owned)
            .to_vec();
        alike.push(left.to_uppercase());
        alike.push(format!("{left}~"));
        alike.iter().for_each(|name| leave(name));
        let (folder_like, link) = (new_name(), new_name());
        std::fs::create_dir(folder.path().join(&folder_like)).unwrap();
        std::os::unix::fs::symlink("film", folder.path().join(&link)).unwrap();
        alike.extend([folder_like, link]);

        let used = Draft::create(folder.path(), false).unwrap();
        let draft = Draft::create(folder.path(), true).unwrap();
        assert!(!folder.path().join(&left).exists());
        assert!(used.file.path().exists() && draft.file.path().exists());
        drop((used, draft));
        let mut kept: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        kept.sort();
        alike.sort();
        assert_eq!(kept, alike);
    }

    #[test]
    fn a_new_file_replaces_no_file_that_was_created_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("film");
        let draft = Draft::create(folder.path(), false).unwrap();
        std::fs::write(&path, "another").unwrap();
        let error = draft.persist_new(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("discarded"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another");
        std::fs::remove_file(&path).unwrap();
        Draft::create(folder.path(), false).unwrap().persist_new(&path).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no draft remains");
    }

    #[test]
    fn drafts_made_at_once_do_not_take_each_other_for_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let draft = Draft::create(folder.path(), false).unwrap();
                        assert!(is_at(draft.file(), draft.file.path()));
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
