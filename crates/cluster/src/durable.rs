//! Files that are written whole or not at all, and survive a power cut once written.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Mode of a file that only its owner may read.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of a file that anyone may read.
pub(crate) const PUBLIC: u32 = 0o644;

/// A file or folder on which an operation failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    /// What was attempted, such as `read`.
    pub action: &'static str,
    /// On which file or folder.
    pub path: PathBuf,
    /// Why it failed.
    pub source: io::Error,
}

/// Names the action and the path of an I/O error.
pub(crate) fn cannot<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}

pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(cannot("read", path))
}

/// Makes a folder and its parents; fine if it is there.
pub(crate) fn create_folder(path: &Path) -> Result<(), FileError> {
    fs::create_dir_all(path).map_err(cannot("create", path))
}

/// Puts `bytes` in place of the file at `path`. Nobody ever sees half of it, nor a wider mode.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), FileError> {
    let folder = path.parent().expect("every file here is written into a folder");
    try_replace(folder, path, bytes, mode).map_err(cannot("write", path))
}

fn try_replace(folder: &Path, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = NamedTempFile::with_prefix_in(".new-", folder)?; // made with mode 0600
    file.write_all(bytes)?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}
