//! The helper's half of the seam: the blocks on one node. They are opened and made as
//! [`Sources`] and [`Sinks`].

use std::io;
use std::ops::Range;
use std::time::Duration;

use repair::wire::control::{Description, HeldBlock};
use repair::{BlockId, Digest};

use crate::{Gate, Later, Sinks, Sources};

/// Why a block cannot be read, written or removed.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// There is no block of this name.
    #[error("block {block} is not here ({path})")]
    Missing {
        /// The block.
        block: BlockId,
        /// Where it was looked for.
        path: String,
    },
    /// The bytes differ from their checksum, or the file has another length than it should.
    #[error("block {block} is corrupt: {detail} ({path})")]
    Corrupt {
        /// The block.
        block: BlockId,
        /// The file.
        path: String,
        /// What is wrong, with offsets.
        detail: String,
    },
    /// The disk is full.
    #[error("no space for block {block} ({path})")]
    NoSpace {
        /// The block.
        block: BlockId,
        /// The file.
        path: String,
    },
    /// It is another block than the one that was asked for, whole by its own checksums.
    #[error("what is kept as block {block} is not that block: {detail}")]
    Other {
        /// The block that was asked for.
        block: BlockId,
        /// What it is instead.
        detail: String,
    },
    /// Another block of the stripe is here, and the store knows no two of one stripe on a node.
    #[error(
        "block {block} cannot be made here: {beside} is here, of the same stripe, and the store would know only one of them"
    )]
    Beside {
        /// The block that was to be made.
        block: BlockId,
        /// The one that is here.
        beside: BlockId,
    },
    /// The store's own process does not take the block, or does not give it back.
    #[error("block {block}: {error}")]
    Process {
        /// The block.
        block: BlockId,
        /// What is wrong.
        #[source]
        error: ProcessError,
    },
    /// The name cannot be a block's.
    #[error("`{0}` cannot be the name of a block")]
    BadName(String),
    /// Whoever had it read is not there any more.
    #[error("block {0} was not read to its end: nobody waits for the result any more")]
    GivenUp(BlockId),
    /// The system refuses.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}

/// What is wrong between us and the store's own process.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It cannot be reached, or its answer is lost. Whether it did what it was asked is not known.
    #[error("{process} cannot be reached: {why}")]
    Unreachable {
        /// The process.
        process: String,
        /// What the system says.
        why: String,
    },
    /// It did not end in time. Whether it still does is not known.
    #[error("{process} did not take it within {} s", limit.as_secs())]
    TimedOut {
        /// The process.
        process: String,
        /// How long was waited.
        limit: Duration,
    },
    /// It says no.
    #[error("{process} refuses: {why}")]
    Refused {
        /// The process.
        process: String,
        /// What it says.
        why: String,
    },
    /// It agreed, and readers do not find the block there.
    #[error("{process} does not show it: {why}")]
    Unconfirmed {
        /// The process.
        process: String,
        /// What was found instead.
        why: String,
    },
    /// Nothing may be changed now, whoever asks: somebody else works on the stripe, or has the lock.
    #[error("{why}")]
    NotNow {
        /// What is in the way, and who.
        why: String,
    },
}

/// The blocks on one node: a store as a helper sees it.
pub trait Blocks: Sources + Sinks {
    /// Reads a block through and holds it against the store's checksums, see [`StoredBlock::verify`].
    ///
    /// # Errors
    /// [`BlockError`].
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError>;

    /// Reads a block back the way the readers of the store get it, from the store's own process; `None` from a store
    /// that has none, whose files are then [verified](Self::verify). It ends in bounded time, whatever the process does.
    fn read_back(&self, block: &BlockId) -> Option<Later<'static, Result<Option<Digest>, BlockError>>> {
        let _ = block;
        None
    }

    /// Removes a block; `false` if it was not there.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn remove(&self, block: &BlockId) -> Result<bool, BlockError>;

    /// All committed blocks, by name.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn list(&self) -> Result<Vec<HeldBlock>, BlockError>;

    /// What a block says of itself: its stripe and index, if the store keeps them beside it, and its digest.
    ///
    /// # Errors
    /// [`BlockError`].
    fn describe(&self, block: &BlockId) -> Result<Description, BlockError>;

    /// Bytes free for blocks.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn free_bytes(&self) -> Result<u64, BlockError>;
}

/// An open block. Every byte that it hands out of a store agreed with the store's checksums.
pub trait BlockReader: Send + Sync {
    /// Length of the block.
    fn bytes(&self) -> u64;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if a checksum differs; nothing of `buffer` may be used then.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError>;

    /// Like [`read_at`](Self::read_at), but never waits for a medium: `false` if the bytes are not at hand,
    /// and then `buffer` holds nothing of use. A store that cannot tell leaves it at that.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    fn read_if_cached(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, BlockError> {
        let _ = (offset, buffer);
        Ok(false)
    }

    /// Asks the medium for some bytes of the block that will be read soon, and does not wait for them. It is advice: a
    /// store that has no use for it leaves it at that.
    fn read_ahead(&self, bytes: Range<u64>) {
        let _ = bytes;
    }

    /// The digest that the block has by its own checksums, told without reading it; `None` if there are none.
    fn digest(&self) -> Option<Digest>;
}

/// A block of a store, open: it can tell whether all of it is what it was.
pub trait StoredBlock: BlockReader {
    /// The block's digest in the store's own format, found by reading all its bytes and whatever the store checks them
    /// by from the medium, no faster than `gate` lets its bytes pass; `None` from a store without digests, which has read
    /// all of it nevertheless.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if any checksum differs, [`BlockError::GivenUp`] if the gate is closed.
    fn verify(&self, gate: &dyn Gate) -> Result<Option<Digest>, BlockError>;
}
