//! Reads a shard; every returned byte has matched `.ecsum`, if the volume has that file.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block_files::{StoredBlock, beyond, block_fault, corrupt, fault, read_exact_cached, read_through};
use repair::{BlockId, Digest};
use rustix::fs::{Advice, fadvise};
use store_api::{BlockError, BlockReader, Gate};

use super::ecsum::crc32c;
use super::learned::{CHUNK_BYTES, Fault, Known, sum_chunks};
use super::name::ShardName;

/// Bytes to read between two checks of the gate if the volume has no checksums.
const VERIFY_BYTES: NonZeroU64 = NonZeroU64::new(16 * CHUNK_BYTES).unwrap();

/// The checks that apply to the bytes of a shard.
#[derive(Clone, Debug)]
pub(super) enum Check {
    /// Check against `.ecsum`.
    Ecsum(Arc<Known>),
    /// Check only the length, if it is known. Without checksums, only parity can reveal wrong bytes.
    Nothing(Option<u64>),
}

/// Whether a read may block on the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Never,
    AsLongAsItTakes,
}

/// An open shard. The reader keeps its file descriptor, so it continues to read this file if another replaces
/// its name.
#[derive(Debug)]
pub(super) struct ShardReader {
    block: BlockId,
    path: PathBuf,
    file: File,
    bytes: u64,
    check: Check,
}

impl ShardReader {
    /// Creates a reader of an open file. Fails if the file's length contradicts its checksums.
    pub(super) fn new(shard: &ShardName, path: &Path, file: File, check: Check) -> Result<Self, BlockError> {
        let bytes = file.metadata().map_err(fault(path))?.len();
        let reader = Self { block: shard.block_id(), path: path.to_owned(), file, bytes, check };
        reader.check_length()?;
        Ok(reader)
    }

    fn check_length(&self) -> Result<(), BlockError> {
        let (expected, by) = match &self.check {
            Check::Ecsum(known) => (Some(known.sums().bytes()), ".ecsum"),
            Check::Nothing(expected) => (*expected, ".vif"),
        };
        let found = self.file.metadata().map_err(fault(&self.path))?.len();
        match expected.unwrap_or(self.bytes) {
            expected if expected == found => Ok(()),
            expected => {
                Err(self
                    .corrupt(format!("it has {found} bytes, but {expected} according to its volume's {by}")))
            }
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
            Fault::Io(error) => block_fault(&self.block, &self.path)(error),
        }
    }

    fn check_range(&self, offset: u64, bytes: usize) -> Result<u64, BlockError> {
        let end = offset.checked_add(bytes as u64).filter(|&end| end <= self.bytes);
        end.ok_or_else(|| beyond(&self.path, offset, bytes, self.bytes))
    }

    fn read(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool, BlockError> {
        let end = self.check_range(offset, buffer.len())?;
        let Check::Ecsum(known) = &self.check else { return self.fill(offset, buffer, wait) };
        let mut rest = buffer;
        for start in (offset - offset % CHUNK_BYTES..end).step_by(CHUNK_BYTES as usize) {
            let stop = (start + CHUNK_BYTES).min(self.bytes);
            let (from, to) = (start.max(offset), stop.min(end));
            let (piece, after) = rest.split_at_mut((to - from) as usize);
            rest = after;
            if !self.read_piece(known, start..stop, from, piece, wait)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a part of one chunk. The chunk is read whole, so that it can be verified.
    fn read_piece(
        &self,
        known: &Known,
        chunk: Range<u64>,
        from: u64,
        piece: &mut [u8],
        wait: Wait,
    ) -> Result<bool, BlockError> {
        if piece.len() as u64 == chunk.end - chunk.start {
            return self.read_chunk(known, chunk.start, piece, wait);
        }
        let mut storage = vec![0; (chunk.end - chunk.start) as usize];
        let read = self.read_chunk(known, chunk.start, &mut storage, wait)?;
        let skip = (from - chunk.start) as usize;
        piece.copy_from_slice(&storage[skip..skip + piece.len()]);
        Ok(read)
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
            Wait::Never => Ok(false), // A later read that may block finds the reason.
            Wait::AsLongAsItTakes => self.read_changed(known, start, chunk),
        }
    }

    fn learn(&self, known: &Known, start: u64) -> Result<u32, BlockError> {
        known.learn(&self.file, known.block_of(start)).map_err(|fault| self.fault(fault))?;
        Ok(known.chunk(start).expect("its block was just learned"))
    }

    /// Handles a chunk that has changed: verifies its block against `.ecsum` again, and reads the chunk once
    /// more.
    fn read_changed(&self, known: &Known, start: u64, chunk: &mut [u8]) -> Result<bool, BlockError> {
        let block = known.block_of(start);
        known.learn_anew(&self.file, block).map_err(|fault| self.fault(fault))?;
        self.fill(start, chunk, Wait::AsLongAsItTakes)?;
        if known.chunk(start) == Some(crc32c(chunk)) {
            return Ok(true);
        }
        Err(self.differs(&known.sums().range(block)))
    }

    fn fill(&self, offset: u64, buffer: &mut [u8], wait: Wait) -> Result<bool, BlockError> {
        match wait {
            Wait::Never => Ok(read_exact_cached(&self.file, buffer, offset)),
            Wait::AsLongAsItTakes => {
                self.file.read_exact_at(buffer, offset).map_err(block_fault(&self.block, &self.path))?;
                Ok(true)
            }
        }
    }

    /// The range that must be read to return `bytes`: whole blocks of `.ecsum` where a block was not verified
    /// yet.
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
        let reach = self.reach(bytes);
        // The kernel limits the length of one read-ahead request, so it is split.
        for offset in reach.clone().step_by(2 * CHUNK_BYTES as usize) {
            let length = NonZeroU64::new((2 * CHUNK_BYTES).min(reach.end - offset));
            let _ = fadvise(&self.file, offset, length, Advice::WillNeed); // An error can be ignored.
        }
    }

    /// `None` if the volume has no `.ecsum`.
    fn digest(&self) -> Option<Digest> {
        match &self.check {
            Check::Ecsum(known) => Some(known.sums().digest()),
            Check::Nothing(_) => None,
        }
    }
}

impl StoredBlock for ShardReader {
    /// Without `.ecsum`, this only shows that the bytes can be read, not that they are correct.
    fn verify(&self, gate: &dyn Gate) -> Result<Option<Digest>, BlockError> {
        // Drop the page cache, so that the disk is read. If that fails, the cached bytes are checked, as any
        // reader gets them.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        self.check_length()?;
        match &self.check {
            Check::Nothing(_) => {
                read_through(&self.block, 0..self.bytes, VERIFY_BYTES, gate, |piece, _| {
                    sum_chunks(&self.file, piece).map(drop).map_err(block_fault(&self.block, &self.path))
                })?;
                Ok(None)
            }
            Check::Ecsum(known) => {
                let sums = known.sums();
                let block_bytes = NonZeroU64::new(sums.block_bytes())
                    .expect("the block size was checked when the file was read");
                read_through(&self.block, 0..sums.bytes(), block_bytes, gate, |piece, _| {
                    let block = (piece.start / block_bytes) as usize;
                    known.learn_anew(&self.file, block).map_err(|fault| self.fault(fault))
                })?;
                Ok(Some(sums.digest()))
            }
        }
    }
}

/// Opens a shard's file; a missing file is reported as a missing block.
pub(super) fn open(shard: &ShardName, path: &Path) -> Result<File, BlockError> {
    File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            BlockError::Missing { block: shard.block_id(), path: path.display().to_string() }
        }
        _ => fault(path)(error),
    })
}
