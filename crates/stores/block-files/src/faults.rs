//! Conversions of I/O errors into errors of blocks.

use std::fs::File;
use std::io;
use std::path::Path;

use repair::BlockId;
use store_api::BlockError;

/// Adds the file's path to an I/O error that concerns a block.
///
/// A full disk becomes [`BlockError::NoSpace`], an unexpected end of file [`BlockError::Corrupt`].
pub fn block_fault<'a>(block: &'a BlockId, path: &'a Path) -> impl Fn(io::Error) -> BlockError + 'a {
    move |source| {
        let path = path.display().to_string();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                BlockError::NoSpace { block: block.clone(), path }
            }
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

/// The error for a block with wrong bytes.
pub fn corrupt(block: &BlockId, path: &Path, detail: String) -> BlockError {
    BlockError::Corrupt { block: block.clone(), path: path.display().to_string(), detail }
}

/// The error for a range beyond the end of the block.
pub fn beyond(path: &Path, offset: u64, length: usize, block_bytes: u64) -> BlockError {
    let text = format!("{length} bytes from offset {offset} exceed the block's {block_bytes} bytes");
    fault(path)(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Makes all renames and new names in a folder durable.
///
/// # Errors
/// [`BlockError::Io`].
pub fn sync_folder(folder: &Path) -> Result<(), BlockError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(fault(folder))
}
