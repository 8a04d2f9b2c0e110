//! Fine-grained checksums, computed while shards are checked against `.ecsum`.
//!
//! An `.ecsum` has one checksum for each block (usually 16 MiB) of a shard, but a repair reads much smaller
//! slices. The first access to such a block therefore reads the whole block, checks it against `.ecsum`, and
//! computes CRC32C of each 64 KiB chunk in the same pass. Every later read is checked against these chunk
//! checksums, which also detects bytes that rot after the first check. The checksums are shared by successive
//! readers for as long as the file is unchanged.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store_api::BlockError;

use super::ecsum::{ShardSums, crc32c, crc32c_joined};

/// The size of the chunk that each learned checksum covers.
pub(super) const CHUNK_BYTES: u64 = 64 << 10;
/// Memory limit; enough for the learned checksums of 512 GiB of shards.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// Identifies a file and its state, to detect changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A shard's checksums: the expected checksums from `.ecsum`, and the learned checksums of its chunks.
#[derive(Debug)]
pub(super) struct Known {
    sums: ShardSums,
    blocks: Mutex<Vec<Option<Arc<[u32]>>>>,
    /// One lock per block, held while the block is read, so that no other thread reads the same block. Reads of other
    /// blocks do not wait: a client's read must not wait for a whole block that background work needs.
    learning: Box<[Mutex<()>]>,
}

/// Why a block could not be verified.
#[derive(Debug)]
pub(super) enum Fault {
    /// The bytes in this range do not match their checksum.
    Differs(Range<u64>),
    /// The bytes cannot be read.
    Unread(BlockError),
}

impl From<BlockError> for Fault {
    fn from(error: BlockError) -> Self {
        Self::Unread(error)
    }
}

/// Fills a buffer with the bytes of a file from an offset on.
pub(super) type Fill<'f> = &'f dyn Fn(u64, &mut [u8]) -> Result<(), BlockError>;

impl Known {
    /// Creates an entry without learned checksums.
    pub(super) fn new(sums: ShardSums) -> Arc<Self> {
        let blocks = vec![None; sums.blocks().len()];
        Self::with(sums, blocks)
    }

    fn with(sums: ShardSums, blocks: Vec<Option<Arc<[u32]>>>) -> Arc<Self> {
        let learning = sums.blocks().iter().map(|_| Mutex::new(())).collect();
        Arc::new(Self { sums, blocks: Mutex::new(blocks), learning })
    }

    /// Creates a complete entry for a shard that was just written; `chunks` are the checksums of the written
    /// bytes.
    pub(super) fn of_all(sums: ShardSums, chunks: &[u32]) -> Arc<Self> {
        let in_block = (sums.block_bytes() / CHUNK_BYTES) as usize;
        let blocks = chunks.chunks(in_block).map(|chunks| Some(chunks.into())).collect();
        Self::with(sums, blocks)
    }

    /// Returns the expected checksums from `.ecsum`.
    pub(super) fn sums(&self) -> &ShardSums {
        &self.sums
    }

    /// Returns the number of the block that contains a byte.
    pub(super) fn block_of(&self, offset: u64) -> usize {
        (offset / self.sums.block_bytes()) as usize
    }

    /// Returns the learned checksum of the chunk that starts at `offset`, if its block was verified.
    pub(super) fn chunk(&self, offset: u64) -> Option<u32> {
        let block = self.block_of(offset);
        let at = (offset % self.sums.block_bytes()) / CHUNK_BYTES;
        Some(locked(&self.blocks)[block].as_ref()?[at as usize])
    }

    /// Verifies a block of the file, unless that was already done.
    pub(super) fn learn(&self, fill: Fill<'_>, block: usize) -> Result<(), Fault> {
        let _alone = locked(&self.learning[block]);
        if locked(&self.blocks)[block].is_some() {
            return Ok(());
        }
        self.learn_anew(fill, block)
    }

    /// Verifies a block again, regardless of earlier results, and replaces its learned checksums.
    pub(super) fn learn_anew(&self, fill: Fill<'_>, block: usize) -> Result<(), Fault> {
        let range = self.sums.range(block);
        match sum_chunks(fill, range.clone()) {
            Ok((sum, chunks)) if sum == self.sums.blocks()[block] => {
                locked(&self.blocks)[block] = Some(chunks.into());
                Ok(())
            }
            wrong => {
                locked(&self.blocks)[block] = None;
                wrong?;
                Err(Fault::Differs(range))
            }
        }
    }

    fn kept_bytes(&self) -> usize {
        (self.sums.bytes().div_ceil(CHUNK_BYTES) * 4) as usize
    }
}

/// Computes the CRC32C of a range, and of each of its chunks.
pub(super) fn sum_chunks(fill: Fill<'_>, range: Range<u64>) -> Result<(u32, Vec<u32>), BlockError> {
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    let (mut sum, mut chunks) = (crc32c(&[]), Vec::new());
    for start in range.clone().step_by(CHUNK_BYTES as usize) {
        let chunk = &mut buffer[..(range.end - start).min(CHUNK_BYTES) as usize];
        fill(start, chunk)?;
        let crc = crc32c(chunk);
        sum = crc32c_joined(sum, crc, chunk.len() as u64);
        chunks.push(crc);
    }
    Ok((sum, chunks))
}

/// The checksums of the shards that were read most recently.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Vec<(Identity, Arc<Known>)>>);

impl Memory {
    /// Returns the entry for an open file with these expected checksums. Creates a new entry if the file is
    /// unknown or has changed.
    pub(super) fn of(&self, file: &File, sums: &ShardSums) -> io::Result<Arc<Known>> {
        let identity = identify(file)?;
        let mut kept = locked(&self.0);
        let at = kept.iter().position(|(of, known)| *of == identity && known.sums == *sums);
        let entry = at.map_or_else(|| (identity, Known::new(sums.clone())), |at| kept.remove(at));
        let known = Arc::clone(&entry.1);
        kept.push(entry);
        forget_oldest(&mut kept);
        Ok(known)
    }
}

fn forget_oldest(kept: &mut Vec<(Identity, Arc<Known>)>) {
    let mut bytes: usize = kept.iter().map(|(_, known)| known.kept_bytes()).sum();
    while bytes > MAX_KEPT_BYTES && kept.len() > 1 {
        bytes -= kept.remove(0).1.kept_bytes();
    }
}

fn identify(file: &File) -> io::Result<Identity> {
    let found = file.metadata()?;
    Ok(Identity {
        device: found.dev(),
        inode: found.ino(),
        bytes: found.len(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// Locks a mutex even if it is poisoned: the guarded values are always consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::ecsum::{Ecsum, made};
    use super::super::vif::Ratio;
    use super::*;

    #[test]
    fn a_read_of_one_block_does_not_wait_for_another_block() {
        let shards = vec![vec![5_u8; (1 << 20) + 9]; 3];
        let fill = |offset: u64, chunk: &mut [u8]| {
            chunk.copy_from_slice(&shards[0][offset as usize..][..chunk.len()]);
            Ok(())
        };
        let ecsum = made::ecsum(Ratio::new(2, 1).expect("possible"), 1 << 20, &shards);
        let sums = Ecsum::decode(&ecsum).expect("just made").shard(0).expect("it is there").clone();
        let known = Known::new(sums);
        let _reading = locked(&known.learning[0]);
        known.learn(&fill, 1).expect("the bytes are right");
        assert_eq!((known.chunk(0), known.chunk(1 << 20)), (None, Some(crc32c(&[5; 9]))));
    }
}
