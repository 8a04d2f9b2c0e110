//! The helper's seam: the blocks on one node, opened for reading as [`Sources`] and for writing as [`Sinks`].

use std::io;
use std::ops::Range;
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::{Description, HeldBlock};
use repair::{BlockId, Digest, LocalBlock};

use crate::{BlockHash, Gate, Later, Sinks, Sources};

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
    /// The bytes differ from their checksum, or the file has the wrong length.
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
    /// A different block, whole by its own checksums, is kept under the name.
    #[error("what is kept as block {block} is not that block: {detail}")]
    Other {
        /// The block that was asked for.
        block: BlockId,
        /// What it is instead.
        detail: String,
    },
    /// Another block of the stripe is here, and the store keeps only one of a stripe per node.
    #[error(
        "block {block} cannot be made here: {beside} is here, of the same stripe, and the store would know only one of them"
    )]
    Beside {
        /// The block that was to be made.
        block: BlockId,
        /// The one that is here.
        beside: BlockId,
    },
    /// The store's own process refuses the block, or does not return it.
    #[error("block {block}: {error}")]
    Process {
        /// The block.
        block: BlockId,
        /// What is wrong.
        #[source]
        error: ProcessError,
    },
    /// The name is no valid block name.
    #[error("`{0}` cannot be the name of a block")]
    BadName(String),
    /// The reader was cancelled.
    #[error("block {0} was not read to its end: nobody waits for the result any more")]
    GivenUp(BlockId),
    /// The system refuses access.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Why the store's own process failed to take or show a block.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It cannot be reached, or its answer is lost. Whether it carried out the request is unknown.
    #[error("{process} cannot be reached: {why}")]
    Unreachable {
        /// The process.
        process: String,
        /// What the system says.
        why: String,
    },
    /// It did not finish in time. Whether it still will is unknown.
    #[error("{process} did not take it within {} s", limit.as_secs())]
    TimedOut {
        /// The process.
        process: String,
        /// The timeout.
        limit: Duration,
    },
    /// It refuses.
    #[error("{process} refuses: {why}")]
    Refused {
        /// The process.
        process: String,
        /// What it says.
        why: String,
    },
    /// It accepted the block, but readers do not find it there.
    #[error("{process} does not show it: {why}")]
    Unconfirmed {
        /// The process.
        process: String,
        /// What was found instead.
        why: String,
    },
    /// The stripe, or the whole store, is locked by another writer.
    #[error("{why}")]
    NotNow {
        /// Who holds the lock.
        why: String,
    },
}

/// The blocks on one node: a store as a helper sees it.
pub trait Blocks: Sources + Sinks {
    /// Reads all of a block and its checksums from the medium, no faster than `gate` lets its bytes pass, and compares
    /// them. Returns the block's digest in the store's own format; `None` from a store without digests.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if any checksum differs, [`BlockError::GivenUp`] if the gate is closed.
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError>;

    /// Reads a block back as the store's readers do, through the store's own process, in bounded time. `None` from a store
    /// without such a process: its files are [verified](Self::verify) instead.
    fn read_back(&self, block: &BlockId) -> Option<Later<'static, Result<Option<Digest>, BlockError>>> {
        let _ = block;
        None
    }

    /// Removes a block; `false` if there was none.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn remove(&self, block: &BlockId) -> Result<bool, BlockError>;

    /// All committed blocks, sorted by name.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn list(&self) -> Result<Vec<HeldBlock>, BlockError>;

    /// A block's own description: its digest, and its stripe and index if the store keeps a label beside it. By default
    /// there is no label.
    ///
    /// # Errors
    /// [`BlockError`].
    fn describe(&self, block: &BlockId) -> Result<Description, BlockError> {
        let any = LocalBlock { index: BlockIndex(0), id: block.clone(), bytes: 0, digest: None };
        let reader = self.open(&any)?;
        Ok(Description { id: any.id, bytes: reader.bytes(), digest: reader.digest(), label: None })
    }

    /// Bytes free for blocks.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn free_bytes(&self) -> Result<u64, BlockError>;
}

/// An open block. Bytes of a store are returned only after they matched the store's checksums.
pub trait BlockReader: Send + Sync {
    /// Length of the block.
    fn bytes(&self) -> u64;

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if a checksum differs; nothing of `buffer` may be used then.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError>;

    /// Like [`read_at`](Self::read_at), but never waits for a medium: `false` if the bytes are not cached, or the store
    /// cannot tell. `buffer` is undefined then.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    fn read_if_cached(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, BlockError> {
        let _ = (offset, buffer);
        Ok(false)
    }

    /// Starts reading bytes that will be needed soon, without waiting. It is advice: by default nothing happens.
    fn read_ahead(&self, bytes: Range<u64>) {
        let _ = bytes;
    }

    /// The digest according to the block's checksums, without reading its bytes; `None` if there are none.
    fn digest(&self) -> Option<Digest>;
}

/// A block in memory.
impl BlockReader for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        let start = offset as usize;
        buffer.copy_from_slice(&self[start..start + buffer.len()]);
        Ok(())
    }

    fn digest(&self) -> Option<Digest> {
        let mut hash = BlockHash::default();
        hash.update(self);
        Some(hash.finish())
    }
}
