//! Where a get's bytes go on this machine: a file that appears when it is complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use codes::BlockIndex;
use repair::{BlockId, Sink};
use stores::{BlockError, BlockWriter};
use tempfile::NamedTempFile;

use crate::Progress;
use crate::endpoints::{Endpoints, Taker, outside};
use crate::error::LocalFileError;

/// A file being made: written at any offset, and visible under its name only at the end.
pub(crate) struct FileTarget {
    path: PathBuf,
    draft: NamedTempFile,
}

impl FileTarget {
    /// Starts a file beside the place where it will be.
    pub(crate) fn create(path: &Path) -> Result<Self, LocalFileError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path.is_dir() {
            let source = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(LocalFileError::io("write", path)(source));
        }
        let draft = tempfile::Builder::new()
            .prefix(".mend-get-")
            .permissions(std::fs::Permissions::from_mode(0o666)) // The umask takes its part of it.
            .tempfile_in(folder)
            .map_err(LocalFileError::io("make a file in", folder))?;
        Ok(Self { path: path.to_owned(), draft })
    }

    /// A second hold of the file, for writing.
    pub(crate) fn file(&self) -> Result<Arc<File>, LocalFileError> {
        let file = self.draft.as_file().try_clone();
        file.map(Arc::new).map_err(LocalFileError::io("write", &self.path))
    }

    /// Makes the file visible.
    pub(crate) fn finish(self) -> Result<(), LocalFileError> {
        let kept = self.draft.persist(&self.path);
        kept.map(drop).map_err(|error| LocalFileError::io("write", &self.path)(error.error))
    }
}

/// The first thing that went wrong on this machine; what the coordinator says of it is hearsay.
#[derive(Clone, Default)]
pub(crate) struct Fault(Arc<Mutex<Option<LocalFileError>>>);

impl Fault {
    pub(crate) fn record(&self, error: LocalFileError) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    pub(crate) fn take(&self) -> Option<LocalFileError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// One stripe's place in a file that is being made.
#[derive(Clone)]
pub(crate) struct StripeTarget {
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
    pub(crate) fault: Fault,
    pub(crate) progress: Progress,
    /// Where the stripe's first byte is in the source file.
    pub(crate) stripe_offset: u64,
    pub(crate) block_bytes: u64,
    /// The bytes of the source file that are wanted; the first of them comes first in the target.
    pub(crate) wanted: std::ops::Range<u64>,
}

impl Endpoints for StripeTarget {
    fn sink(&self, sink: &Sink) -> Result<Box<dyn BlockWriter>, BlockError> {
        let (target, index, block) = (self.clone(), sink.index, sink.id.clone());
        let take = move |offset: u64, bytes: &[u8]| target.write(index, &block, offset, bytes);
        Ok(Box::new(Taker { block: sink.id.clone(), may_wait: true, take }))
    }
}

impl StripeTarget {
    fn write(&self, index: BlockIndex, block: &BlockId, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let at = self.stripe_offset + u64::from(index.0) * self.block_bytes + offset;
        if at < self.wanted.start || at + bytes.len() as u64 > self.wanted.end {
            return Err(outside(block, offset, bytes.len()));
        }
        self.file.write_all_at(bytes, at - self.wanted.start).map_err(|error| self.failed(block, error))?;
        (self.progress)(bytes.len() as u64);
        Ok(())
    }

    fn failed(&self, block: &BlockId, error: io::Error) -> BlockError {
        let path = self.path.display().to_string();
        let said = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                BlockError::NoSpace { block: block.clone(), path }
            }
            kind => BlockError::Io { path, source: kind.into() },
        };
        self.fault.record(LocalFileError::io("write", &self.path)(error));
        said
    }
}
