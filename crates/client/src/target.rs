//! Writes the local file of a get. The file appears under its name only when it is complete.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use codes::BlockIndex;
use repair::{BlockId, Sink};
use store_api::{BlockError, Delivery, Sinks};

use crate::destination::{Destination, FilePlace, folder_of};
use crate::draft::Draft;
use crate::error::LocalFileError;
use crate::rooms::{Room, delivery_to, outside};
use crate::whole::WholeBlock;
use crate::{Progress, no_progress};

/// A file under construction: written at any offset, visible under its name only at the end.
pub(crate) struct FileTarget {
    place: FilePlace,
    draft: Draft,
}

impl FileTarget {
    /// Creates a draft, that is, a temporary file, in the folder of the final file.
    pub(crate) fn create(place: FilePlace) -> Result<Self, LocalFileError> {
        let folder = folder_of(&place.path);
        let draft = Draft::create(folder, place.existing.is_some())
            .map_err(LocalFileError::io("create a file in", folder))?;
        Ok(Self { place, draft })
    }

    /// Returns a second handle to the file, for writing.
    pub(crate) fn file(&self) -> Result<Arc<File>, LocalFileError> {
        let file = self.draft.file().try_clone();
        file.map(Arc::new).map_err(LocalFileError::io("write", &self.place.path))
    }

    /// Syncs the file and renames it to its final name. Replaces a file only if it existed at the start.
    pub(crate) fn finish(self) -> Result<(), LocalFileError> {
        let Self { place: FilePlace { path, existing }, draft } = self;
        let finished = match existing {
            Some(before) => what_is_replaced(&path, before).and_then(|now| draft.persist(&path, &now)),
            None => draft.persist_new(&path),
        };
        finished.map_err(LocalFileError::io("write", &path))
    }
}

/// A file that is written from start to end, and appears only when complete. Devices, FIFOs and sockets are
/// written to directly.
pub(crate) struct WholeFile {
    path: PathBuf,
    output: Output,
    bytes: u64,
}

enum Output {
    Stream(File),
    File(Box<FileTarget>),
}

impl WholeFile {
    pub(crate) fn create(path: &Path) -> Result<Self, LocalFileError> {
        let output = match Destination::open(path).map_err(LocalFileError::io("write", path))? {
            Destination::Stream(stream) => Output::Stream(stream),
            Destination::File(place) => Output::File(Box::new(FileTarget::create(place)?)),
        };
        Ok(Self { path: path.to_owned(), output, bytes: 0 })
    }

    /// Appends bytes.
    pub(crate) fn and_write(mut self, bytes: &[u8]) -> Result<Self, LocalFileError> {
        let written = match &mut self.output {
            Output::Stream(stream) => stream.write_all(bytes),
            Output::File(target) => target.draft.file().write_all_at(bytes, self.bytes),
        };
        written.map_err(LocalFileError::io("write", &self.path))?;
        self.bytes += bytes.len() as u64;
        Ok(self)
    }

    /// Makes the file appear under its name; returns its length in bytes.
    pub(crate) fn finish(self) -> Result<u64, LocalFileError> {
        match self.output {
            Output::Stream(mut stream) => {
                stream.flush().map_err(LocalFileError::io("write", &self.path))?;
            }
            Output::File(target) => target.finish()?,
        }
        Ok(self.bytes)
    }
}

/// Returns the current metadata of the file to replace, or `before` if the metadata cannot be read again. A
/// get may take long: if `path` has meanwhile become something other than a regular file, returns an error
/// instead of replacing it.
fn what_is_replaced(path: &Path, before: Metadata) -> io::Result<Metadata> {
    match std::fs::symlink_metadata(path) {
        Ok(now) if !now.is_file() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it has become something other than a regular file since the get began",
        )),
        Ok(now) => Ok(now),
        Err(_) => Ok(before),
    }
}

/// The first error of a local file. It is returned to the caller instead of the coordinator's message, which
/// is less precise.
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

/// The destination of one stripe's blocks in the file under construction.
#[derive(Clone)]
pub(crate) struct StripeTarget {
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
    pub(crate) fault: Fault,
    pub(crate) progress: Progress,
    /// Offset of the stripe's first byte in the stored file.
    pub(crate) stripe_offset: u64,
    pub(crate) block_bytes: u64,
    /// The wanted range of the stored file; the local file starts with the first byte of this range.
    pub(crate) wanted: std::ops::Range<u64>,
}

impl Sinks for StripeTarget {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        let room = FileRoom { target: self.clone(), index: sink.index, block: sink.id.clone() };
        Ok(delivery_to(sink, Arc::new(room)))
    }
}

/// One block's range in the local file.
struct FileRoom {
    target: StripeTarget,
    index: BlockIndex,
    block: BlockId,
}

impl FileRoom {
    /// Returns the offset in the local file of bytes at `offset` in the block; fails if they are outside the
    /// wanted range.
    fn place(&self, offset: u64, bytes: usize) -> Result<u64, BlockError> {
        let StripeTarget { stripe_offset, block_bytes, wanted, .. } = &self.target;
        let at = stripe_offset + u64::from(self.index.0) * block_bytes + offset;
        if at < wanted.start || at + bytes as u64 > wanted.end {
            return Err(outside(&self.block, offset, bytes));
        }
        Ok(at - wanted.start)
    }
}

impl Room for FileRoom {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let at = self.place(offset, bytes.len())?;
        let written = self.target.file.write_all_at(bytes, at);
        written.map_err(|error| self.target.failed(&self.block, "write", error))?;
        (self.target.progress)(bytes.len() as u64);
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        let at = self.place(offset, buffer.len())?;
        let read = self.target.file.read_exact_at(buffer, at);
        read.map_err(|error| self.target.failed(&self.block, "read back", error))
    }

    fn may_wait(&self) -> bool {
        true
    }
}

impl StripeTarget {
    /// Returns the same target without progress reports, for bytes that are delivered a second time.
    pub(crate) fn silent(&self) -> Self {
        Self { progress: no_progress(), ..self.clone() }
    }

    /// Whether the block's bytes in the local file match the block's recorded digest.
    pub(crate) fn has(&self, block: &WholeBlock) -> Result<bool, LocalFileError> {
        let read = |at: u64, buffer: &mut [u8]| self.file.read_exact_at(buffer, at - self.wanted.start);
        block.agrees(read).map_err(LocalFileError::io("read back", &self.path))
    }

    fn failed(&self, block: &BlockId, action: &'static str, error: io::Error) -> BlockError {
        let path = self.path.display().to_string();
        let said = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                BlockError::NoSpace { block: block.clone(), path }
            }
            kind => BlockError::Io { path, source: kind.into() },
        };
        self.fault.record(LocalFileError::io(action, &self.path)(error));
        said
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_new_file_never_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        let [path, link] = ["film", "link"].map(|name| folder.path().join(name));
        let target = FileTarget::create(FilePlace::new_file(&path).unwrap()).unwrap();
        std::fs::write(&path, "another").unwrap();
        symlink("nowhere", &link).unwrap();
        // One was created after the target was opened, the others before.
        target.finish().unwrap_err();
        for path in [&path, &link] {
            let refused = FilePlace::new_file(path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no draft remains");
    }
}
