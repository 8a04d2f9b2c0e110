//! Conversions of I/O errors into errors of blocks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use repair::BlockId;
use rustix::fs::OFlags;
use rustix::io::Errno;
use store_api::BlockError;

/// Adds the file's path to an I/O error that concerns a block.
///
/// A full disk becomes [`BlockError::NoSpace`], an unexpected end of file [`BlockError::Corrupt`].
pub fn block_fault<'a>(block: &'a BlockId, path: &'a Path) -> impl Fn(io::Error) -> BlockError + 'a {
    move |source| {
        let path = path.display().to_string();
        match source.kind() {
            _ if is_full(&source) => BlockError::NoSpace { block: block.clone(), path },
            io::ErrorKind::UnexpectedEof => BlockError::Corrupt {
                block: block.clone(),
                path,
                detail: "its file was truncated while it was open".to_owned(),
            },
            _ => BlockError::Io { path, source },
        }
    }
}

/// Adds the path of the file or folder to an I/O error.
pub fn fault(path: &Path) -> impl Fn(io::Error) -> BlockError + '_ {
    move |source| BlockError::Io { path: path.display().to_string(), source }
}

/// Whether the process or the machine lacks memory or descriptors, so the error proves nothing about the file.
pub fn is_shortage(error: &BlockError) -> bool {
    let BlockError::Io { source, .. } = error else { return false };
    let code = source.raw_os_error().map(Errno::from_raw_os_error);
    code.is_some_and(|code| [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR].contains(&code))
}

/// Whether an I/O error is that of a failing medium, or of the connection to it.
pub fn is_of_medium(error: &io::Error) -> bool {
    let medium = [Errno::IO, Errno::NODATA, Errno::UCLEAN, Errno::TIMEDOUT, Errno::NOLINK];
    error.raw_os_error().map(Errno::from_raw_os_error).is_some_and(|code| medium.contains(&code))
}

/// Whether an error is that of a failing medium, or of the connection to it.
pub fn is_medium_error(error: &BlockError) -> bool {
    matches!(error, BlockError::Io { source, .. } if is_of_medium(source))
}

/// Whether an I/O error means that the disk, or the user's share of it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether an error is the fault of one disk, so that it says nothing about the others: the disk hangs, fails, is
/// read-only or is not mounted.
pub fn is_of_disk(error: &BlockError) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, ReadOnlyFilesystem};
    let source = match error {
        BlockError::Hangs { .. } | BlockError::Unmounted { .. } => return true,
        BlockError::Io { source, .. } => source,
        _ => return false,
    };
    let code = source.raw_os_error().map(Errno::from_raw_os_error);
    is_of_medium(source)
        || code.is_some_and(|code| [Errno::NXIO, Errno::NODEV, Errno::STALE, Errno::NOTCONN].contains(&code))
        || matches!(source.kind(), NotFound | NotADirectory | ReadOnlyFilesystem)
}

/// Whether an error proves that there is no such file or folder: a part of its path does not exist, is no
/// folder, or is a link to itself.
pub fn proves_absence(error: &BlockError) -> bool {
    let BlockError::Io { source, .. } = error else { return false };
    let code = source.raw_os_error().map(Errno::from_raw_os_error);
    code.is_some_and(|code| [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].contains(&code))
}

/// Returns the error for a block with wrong bytes.
pub fn corrupt(block: &BlockId, path: &Path, detail: String) -> BlockError {
    BlockError::Corrupt { block: block.clone(), path: path.display().to_string(), detail }
}

/// Returns the end of a range of `length` bytes in a block of `block_bytes`.
///
/// # Errors
/// [`BlockError::Io`] if the range is not in the block.
pub fn range_end(path: &Path, offset: u64, length: usize, block_bytes: u64) -> Result<u64, BlockError> {
    let end = offset.checked_add(length as u64).filter(|&end| end <= block_bytes);
    end.ok_or_else(|| {
        let text = format!("{length} bytes from offset {offset} exceed the block's {block_bytes} bytes");
        fault(path)(io::Error::new(io::ErrorKind::InvalidInput, text))
    })
}

/// Opens a regular file for reading. Never waits for the writer of a pipe.
///
/// # Errors
/// `missing` if the file does not exist, otherwise [`BlockError::Io`].
pub fn open_file(path: &Path, missing: impl FnOnce() -> BlockError) -> Result<File, BlockError> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing(),
        _ => fault(path)(error),
    })?;
    if !file.metadata().map_err(fault(path))?.is_file() {
        return Err(fault(path)(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file")));
    }
    Ok(file)
}

/// Returns the error for a block whose file does not exist.
pub fn missing(block: &BlockId, path: &Path) -> BlockError {
    BlockError::Missing { block: block.clone(), path: path.display().to_string() }
}
