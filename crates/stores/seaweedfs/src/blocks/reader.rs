//! Reads a shard; every returned byte has matched `.ecsum`, if the volume has that file.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block_files::{
    DiskWatch, StoredBlock, Wait, block_fault, corrupt, fault, forget_all, missing, open_file, range_end,
    read_ahead, read_by_chunks, read_exact, read_through,
};
use repair::{BlockId, Digest};
use store_api::{BlockError, BlockReader, Gate};

use super::ecsum::crc32c;
use super::learned::{CHUNK_BYTES, Fault, Known, sum_chunks};
use super::name::ShardName;

/// Number of bytes that are read per call of the gate (the rate limiter) if the volume has no checksums.
const VERIFY_BYTES: NonZeroU64 = NonZeroU64::new(16 * CHUNK_BYTES).unwrap();

/// The checks that apply to the bytes of a shard.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// Check against `.ecsum`.
    Ecsum(Arc<Known>),
    /// Check only the length, if it is known. Without checksums, only parity can reveal wrong bytes.
    Nothing(Option<u64>),
}

/// An open shard. The reader keeps the file open, so it continues to read this file even if another file
/// replaces it under the same name.
#[derive(Debug)]
pub(super) struct ShardReader {
    block: BlockId,
    path: PathBuf,
    file: File,
    bytes: u64,
    check: Check,
    watch: Arc<DiskWatch>,
    last: Mutex<LastChunk>,
}

/// The chunk that was read last for a read of less than a chunk. Slices may be smaller than chunks, and each of a chunk's
/// slices would read and check the whole chunk again.
#[derive(Debug, Default)]
struct LastChunk {
    start: u64,
    bytes: Vec<u8>,
}

impl LastChunk {
    /// Fills a buffer with the chunk's bytes. Returns `false` if the chunk does not have all of them.
    fn copy_to(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let from = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let bytes = from.and_then(|from| self.bytes.get(from..from.checked_add(buffer.len())?));
        bytes.map(|bytes| buffer.copy_from_slice(bytes)).is_some()
    }
}

impl ShardReader {
    /// Creates a reader of an open file. `watch` is that of the file's disk. Fails if the file's length contradicts its
    /// checksums.
    pub(super) fn new(
        shard: &ShardName,
        path: &Path,
        (file, check): (File, Check),
        watch: Arc<DiskWatch>,
    ) -> Result<Self, BlockError> {
        let bytes = file.metadata().map_err(fault(path))?.len();
        let (block, path) = (shard.block_id(), path.to_owned());
        let reader = Self { block, path, file, bytes, check, watch, last: Mutex::default() };
        reader.check_length()?;
        Ok(reader)
    }

    /// Checks the length of the file. If no checksums are in use, a wrong length makes the shard unreadable, and not
    /// corrupt: the coordinator does not count shards as corrupt while it doubts their checksums.
    fn check_length(&self) -> Result<(), BlockError> {
        let found = self.file.metadata().map_err(fault(&self.path))?.len();
        let differs =
            |expected, by| format!("it has {found} bytes, but {expected} according to its volume's {by}");
        match &self.check {
            Check::Ecsum(known) if known.sums().bytes() != found => {
                Err(self.corrupt(differs(known.sums().bytes(), ".ecsum")))
            }
            Check::Nothing(expected) if expected.unwrap_or(self.bytes) != found => {
                let detail = differs(expected.unwrap_or(self.bytes), ".vif");
                Err(fault(&self.path)(io::Error::new(io::ErrorKind::InvalidData, detail)))
            }
            Check::Ecsum(_) | Check::Nothing(_) => Ok(()),
        }
    }

    fn corrupt(&self, detail: String) -> BlockError {
        corrupt(&self.block, &self.path, detail)
    }

    fn differs(&self, range: &Range<u64>) -> BlockError {
        self.corrupt(format!("bytes {} to {} do not match their checksum in .ecsum", range.start, range.end))
    }

    fn fault(&self, fault: Fault) -> BlockError {
        match fault {
            Fault::Differs(range) => self.differs(&range),
            Fault::Unread(error) => error,
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool, BlockError> {
        range_end(&self.path, offset, buffer.len(), self.bytes)?;
        let Check::Ecsum(known) = &self.check else { return self.fill(offset, buffer, wait) };
        let is_part = (buffer.len() as u64) < CHUNK_BYTES;
        if is_part && self.last().copy_to(offset, buffer) {
            return Ok(true);
        }
        read_by_chunks(offset, buffer, CHUNK_BYTES, self.bytes, |offset, chunks| {
            let done = self.read_chunks(known, offset, chunks, wait)?;
            if is_part && done {
                *self.last() = LastChunk { start: offset, bytes: chunks.to_vec() };
            }
            Ok(done)
        })
    }

    fn last(&self) -> MutexGuard<'_, LastChunk> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads whole chunks and compares each with its checksum.
    fn read_chunks(
        &self,
        known: &Known,
        offset: u64,
        buffer: &mut [u8],
        wait: Wait,
    ) -> Result<bool, BlockError> {
        for (start, chunk) in
            (offset..).step_by(CHUNK_BYTES as usize).zip(buffer.chunks_mut(CHUNK_BYTES as usize))
        {
            if !self.read_chunk(known, start, chunk, wait)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a whole chunk and checks it against its learned checksum.
    fn read_chunk(
        &self,
        known: &Known,
        start: u64,
        chunk: &mut [u8],
        wait: Wait,
    ) -> Result<bool, BlockError> {
        let learned = match (known.chunk(start), wait) {
            (Some(learned), _) => learned,
            (None, Wait::Never) => return Ok(false),
            (None, Wait::AsLongAsItTakes) => self.learn(known, start)?,
        };
        if !self.fill(start, chunk, wait)? {
            return Ok(false);
        }
        match wait {
            _ if crc32c(chunk) == learned => Ok(true),
            Wait::Never => Ok(false), // A later read that may block reports the reason.
            Wait::AsLongAsItTakes => self.read_changed(known, start, chunk),
        }
    }

    fn learn(&self, known: &Known, start: u64) -> Result<u32, BlockError> {
        known.learn(&self.filling(), known.block_of(start)).map_err(|fault| self.fault(fault))?;
        Ok(known.chunk(start).expect("its block was just learned"))
    }

    /// Handles a chunk that has changed: verifies its block against `.ecsum` again, and reads the chunk once
    /// more.
    fn read_changed(&self, known: &Known, start: u64, chunk: &mut [u8]) -> Result<bool, BlockError> {
        let block = known.block_of(start);
        known.learn_anew(&self.filling(), block).map_err(|fault| self.fault(fault))?;
        self.fill(start, chunk, Wait::AsLongAsItTakes)?;
        if known.chunk(start) == Some(crc32c(chunk)) {
            return Ok(true);
        }
        Err(self.differs(&known.sums().range(block)))
    }

    fn fill(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool, BlockError> {
        let mut read =
            || read_exact(&self.file, buffer, offset, wait).map_err(block_fault(&self.block, &self.path));
        match wait {
            Wait::Never => read(),
            Wait::AsLongAsItTakes => self.watch.read(read),
        }
    }

    /// Returns a function that fills a buffer and waits for the medium.
    fn filling(&self) -> impl Fn(u64, &mut [u8]) -> Result<(), BlockError> {
        move |offset, buffer| self.fill(offset, buffer, Wait::AsLongAsItTakes).map(drop)
    }

    /// Returns the range that must be read to return `bytes`. At either end, the range is extended to the
    /// whole block of `.ecsum` if that block was not verified yet.
    fn reach(&self, bytes: Range<u64>) -> Range<u64> {
        let Check::Ecsum(known) = &self.check else { return bytes };
        let size = known.sums().block_bytes();
        let start = known.chunk(bytes.start).map_or(bytes.start - bytes.start % size, |_| bytes.start);
        let last = bytes.end - 1;
        let end = known.chunk(last).map_or(known.sums().range(known.block_of(last)).end, |_| bytes.end);
        start..end
    }
}

impl BlockReader for ShardReader {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.read(offset, buffer, Wait::AsLongAsItTakes).map(drop)
    }

    fn read_if_cached(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, BlockError> {
        self.read(offset, buffer, Wait::Never)
    }

    fn read_ahead(&self, bytes: Range<u64>) {
        let bytes = bytes.start..bytes.end.min(self.bytes);
        if bytes.is_empty() {
            return;
        }
        read_ahead(&self.file, self.reach(bytes));
    }

    /// Returns the digest computed from `.ecsum`; `None` if the volume has no such file.
    fn digest(&self) -> Option<Digest> {
        match &self.check {
            Check::Ecsum(known) => Some(known.sums().digest()),
            Check::Nothing(_) => None,
        }
    }
}

impl StoredBlock for ShardReader {
    /// Verifies all bytes of the shard. Without `.ecsum`, this only shows that the bytes can be read, not
    /// that they are correct.
    fn verify(&self, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        self.verify_all(gate).map_err(|error| self.watch.explained(error))
    }
}

impl ShardReader {
    fn verify_all(&self, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        // Drop the page cache, so that the disk is read. If that fails, this checks the cached bytes, which
        // readers would get too.
        forget_all(&self.file);
        self.check_length()?;
        match &self.check {
            Check::Nothing(_) => {
                read_through(&self.block, 0..self.bytes, VERIFY_BYTES, gate, |piece, _| {
                    sum_chunks(&self.filling(), piece).map(drop)
                })?;
                Ok(None)
            }
            Check::Ecsum(known) => {
                let sums = known.sums();
                let block_bytes = NonZeroU64::new(sums.block_bytes())
                    .expect("the block size was checked when the file was read");
                read_through(&self.block, 0..sums.bytes(), block_bytes, gate, |piece, _| {
                    let block = (piece.start / block_bytes) as usize;
                    known.learn_anew(&self.filling(), block).map_err(|fault| self.fault(fault))
                })?;
                Ok(Some(sums.digest()))
            }
        }
    }
}

/// Opens a shard's file; a missing file is reported as a missing block.
pub(super) fn open(shard: &ShardName, path: &Path) -> Result<File, BlockError> {
    open_file(path, || missing(&shard.block_id(), path))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;
    use std::{fs, thread};

    use store_api::OpenGate;

    use super::*;

    /// A disk that hangs would otherwise use up the helper's threads, one read after another.
    #[test]
    fn no_read_begins_on_a_disk_that_hangs() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("5.ec00");
        fs::write(&path, "shard").expect("written");
        let watch = Arc::new(DiskWatch::with_patience(folder.path(), Duration::ZERO));
        let (shard, file) = ("5.ec00".parse().expect("a shard"), File::open(&path).expect("there"));
        let reader = ShardReader::new(&shard, &path, (file, Check::Nothing(None)), watch.clone());
        let reader = reader.expect("there");
        let ((begun, has_begun), (end, ends)) = (mpsc::channel(), mpsc::channel::<()>());
        let hanging = thread::spawn(move || {
            watch.read(|| {
                begun.send(()).expect("the test waits");
                Ok(ends.recv().is_err())
            })
        });
        has_begun.recv().expect("begun");
        let is_hanging = |error: BlockError| matches!(error, BlockError::Hangs { .. });
        let mut bytes = [0; 5];
        assert!(reader.read_at(0, &mut bytes).is_err_and(is_hanging));
        assert!(reader.verify(&OpenGate).is_err_and(is_hanging));
        drop(end);
        assert!(hanging.join().expect("it ends").expect("it works"));
        reader.read_at(0, &mut bytes).expect("the disk answers again");
        assert_eq!(&bytes, b"shard");
    }
}
