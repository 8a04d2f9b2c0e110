//! Atomic and durable writes of files.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Mode of a file that only its owner may read.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of a file that anyone may read.
pub(crate) const PUBLIC: u32 = 0o644;

/// An I/O error with the action that failed and the path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    /// The action that failed, such as `read`.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

/// Returns a function that adds the action and the path to an I/O error.
pub(crate) fn cannot<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}

pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(cannot("read", path))
}

/// Creates a folder and its parents, if absent.
pub(crate) fn create_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(cannot("create", path))
}

/// Atomically replaces the file at `path`. Readers see either the old or the new file completely, and the new
/// bytes never have broader permissions than `mode`.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    let folder = path.parent().expect("every file here is written into a folder");
    try_replace(folder, path, bytes, mode).map_err(cannot("write", path))
}

fn try_replace(folder: &Path, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = NamedTempFile::with_prefix_in(".new-", folder)?; // The file is created with mode 0600.
    file.write_all(bytes)?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

/// Renames a file durably. An existing file at `to` is replaced.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    let folder = to.parent().expect("every file here is written into a folder");
    let renamed = fs::rename(from, to).and_then(|()| File::open(folder)?.sync_all());
    renamed.map_err(cannot("write", to))
}
