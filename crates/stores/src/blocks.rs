//! The helper's half of the seam: the blocks on one node.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use repair::wire::control::{Description, HeldBlock};
use repair::{BlockId, Digest, Sink};

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
    /// The name cannot be a block's.
    #[error("`{0}` cannot be the name of a block")]
    BadName(String),
    /// The system refuses.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}

/// The blocks on one node.
pub trait Blocks: Send + Sync {
    /// Opens a block for reading at any offset.
    ///
    /// # Errors
    /// [`BlockError`]; a length that contradicts the checksums is found here.
    fn open(&self, block: &BlockId) -> Result<Arc<dyn BlockReader>, BlockError>;

    /// Like [`open`](Self::open), but never waits for a medium or a lock: `None` if that would take waiting, or
    /// something is wrong, which [`open`](Self::open) then says. A store that cannot tell leaves it at that.
    fn open_if_cached(&self, block: &BlockId) -> Option<Arc<dyn BlockReader>> {
        let _ = block;
        None
    }

    /// Starts a block. Nothing is visible under its name before [`commit`](BlockWriter::commit); dropping the
    /// writer removes what was written.
    ///
    /// # Errors
    /// [`BlockError`]; [`NoSpace`](BlockError::NoSpace) already here if the space can be seen to be short.
    fn create(&self, block: &Sink) -> Result<Box<dyn BlockWriter>, BlockError>;

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

/// An open block. Every byte it hands out agreed with the store's checksums.
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

    /// The digest that the block has by its own checksums, told without reading it; `None` if the store keeps none.
    fn digest(&self) -> Option<Digest>;

    /// The block's digest in the store's own format, found by reading all its bytes and whatever the store checks them
    /// by from the medium; `None` from a store without digests, which has read all of it nevertheless.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if any checksum differs.
    fn verify(&self) -> Result<Option<Digest>, BlockError>;
}

/// A block being made. Writes may come in any order and may overlap; in the end every byte has been
/// written at least once.
pub trait BlockWriter: Send {
    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// [`BlockError::NoSpace`], [`BlockError::Io`].
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;

    /// Whether [`write_at`](Self::write_at) may wait for a medium. Only what goes to memory does not.
    fn may_wait(&self) -> bool {
        true
    }

    /// Makes all that was written durable and returns the block's digest, if the store has digests. May be
    /// called again after more writes.
    ///
    /// # Errors
    /// [`BlockError`]; a byte that was never written is [`Corrupt`](BlockError::Corrupt).
    fn seal(&mut self) -> Result<Option<Digest>, BlockError>;

    /// A reader of what was sealed, while it is not committed.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError>;

    /// Makes the sealed block visible under its name, atomically and durably, replacing one that was there.
    ///
    /// # Errors
    /// [`BlockError::Io`]; then nothing has become visible.
    fn commit(self: Box<Self>) -> Result<(), BlockError>;
}
