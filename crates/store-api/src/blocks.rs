//! The helper's interface to a store: the blocks on one node, opened for reading as [`Sources`] and for
//! writing as [`Sinks`].

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
    /// The node has no block of this name.
    #[error("block {block} is missing ({path})")]
    Missing {
        /// The block.
        block: BlockId,
        /// The path at which the block was expected.
        path: String,
    },
    /// The bytes differ from their checksum, or the file has the wrong length.
    #[error("block {block} is corrupt: {detail} ({path})")]
    Corrupt {
        /// The block.
        block: BlockId,
        /// The file.
        path: String,
        /// The mismatch, with offsets.
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
    /// The file under this name is intact but contains a different block.
    #[error("the file of block {block} holds a different block: {detail}")]
    Other {
        /// The requested block.
        block: BlockId,
        /// A description of the block that was found.
        detail: String,
    },
    /// The node already holds another block of the stripe, and the store allows only one per node.
    #[error(
        "block {block} cannot be stored here: this server already has {beside} of the same stripe, and the \
         store would list only one of them"
    )]
    Beside {
        /// The block that could not be created.
        block: BlockId,
        /// The block of the same stripe that the node already holds.
        beside: BlockId,
    },
    /// The store's own process refuses the block or does not return it.
    #[error("block {block}: {error}")]
    Process {
        /// The block.
        block: BlockId,
        /// The cause.
        #[source]
        error: ProcessError,
    },
    /// The name is not a valid block name.
    #[error("`{0}` is not a valid block name")]
    BadName(String),
    /// The read was cancelled.
    #[error("reading block {0} was abandoned, because its requester no longer waits")]
    GivenUp(BlockId),
    /// The folder of blocks that was opened is no longer at its path, usually because its disk was unmounted.
    /// This proves nothing about any block.
    #[error("{path}: {why}; check that the disk is mounted")]
    Unmounted {
        /// The path of the folder.
        path: String,
        /// The reason for this conclusion.
        why: String,
    },
    /// The disk hangs: an operation on it has not ended for a long time. This proves nothing about any block.
    #[error("{path}: the disk does not answer; check it, and the network if it is remote")]
    Hangs {
        /// The folder on the disk.
        path: String,
    },
    /// The operating system reports an error.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Why the store's own process, such as an HDFS DataNode, did not accept or return a block.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The process cannot be reached, or its response was lost. It may or may not have carried out the
    /// request.
    #[error("{process} cannot be reached: {why}")]
    Unreachable {
        /// The process.
        process: String,
        /// The system's error message.
        why: String,
    },
    /// The process did not finish within the timeout. It may still finish later.
    #[error("{process} did not accept the block within {} s", limit.as_secs())]
    TimedOut {
        /// The process.
        process: String,
        /// The timeout.
        limit: Duration,
    },
    /// The process refuses the request.
    #[error("{process} refuses: {why}")]
    Refused {
        /// The process.
        process: String,
        /// The reason that the process gives.
        why: String,
    },
    /// The process accepted the block, but readers cannot find the block there.
    #[error("{process} does not list the block: {why}")]
    Unconfirmed {
        /// The process.
        process: String,
        /// The result of the lookup.
        why: String,
    },
    /// The stripe, or the whole store, is locked by another writer.
    #[error("{why}")]
    NotNow {
        /// The owner of the lock.
        why: String,
    },
}

/// A list of blocks that may be incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockList {
    /// The committed blocks, sorted by name, except those in `silent`.
    pub held: Vec<HeldBlock>,
    /// The folders whose disks hang. It is not known which blocks they hold.
    pub silent: Vec<String>,
}

/// The blocks on one node, as a helper uses a store.
pub trait Blocks: Sources + Sinks {
    /// Reads a whole block and its checksums from the medium and compares them; `gate` limits the rate.
    /// Returns the block's digest in the store's own format, or `None` if the store has no digests.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if any checksum differs, [`BlockError::GivenUp`] if the gate is closed.
    fn verify(&self, block: &BlockId, gate: &dyn Gate) -> Result<Option<Digest>, BlockError>;

    /// Like [`verify`](Self::verify), for a block whose digest the coordinator records as `recorded`; `None`
    /// means that no digest of the block is in use. Only stores whose checksums may be outdated need the digest.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    fn verify_recorded(
        &self,
        block: &BlockId,
        recorded: Option<Digest>,
        gate: &dyn Gate,
    ) -> Result<Option<Digest>, BlockError> {
        let _ = recorded;
        self.verify(block, gate)
    }

    /// Reads a block through the store's own process, as the store's clients do, within a time limit. Returns
    /// `None` if the store has no such process; the caller then [verifies](Self::verify) the block's files
    /// instead.
    fn read_back(&self, block: &BlockId) -> Option<Later<'static, Result<Option<Digest>, BlockError>>> {
        let _ = block;
        None
    }

    /// Whether another folder of blocks is now at the path of the folder that was opened, for example because
    /// a disk was mounted there, or a folder can be used again that was left out. The blocks must then be
    /// opened again. May block.
    fn is_displaced(&self) -> bool {
        false
    }

    /// Removes a block. Returns `false` if the block did not exist.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn remove(&self, block: &BlockId) -> Result<bool, BlockError>;

    /// Lists all committed blocks, sorted by name.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn list(&self) -> Result<Vec<HeldBlock>, BlockError>;

    /// Like [`list`](Self::list), but omits the blocks in folders whose disks hang. For a store with several
    /// folders, of which at least one must answer.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn list_answering(&self) -> Result<BlockList, BlockError> {
        Ok(BlockList { held: self.list()?, silent: Vec::new() })
    }

    /// Returns the folders whose disks hang now. Never waits.
    fn silent_folders(&self) -> Vec<String> {
        Vec::new()
    }

    /// Describes a block: its digest, plus its stripe and index if the store keeps a label for each block.
    ///
    /// # Errors
    /// [`BlockError`].
    fn describe(&self, block: &BlockId) -> Result<Description, BlockError> {
        let any = LocalBlock { index: BlockIndex(0), id: block.clone(), bytes: 0, digest: None };
        let reader = self.open(&any)?;
        Ok(Description { id: any.id, bytes: reader.bytes(), digest: reader.digest(), label: None })
    }

    /// Returns the free space for blocks, in bytes.
    ///
    /// # Errors
    /// [`BlockError::Io`].
    fn free_bytes(&self) -> Result<u64, BlockError>;

    /// Checks that blocks can be stored. The default does nothing: the servers of other stores watch their
    /// disks themselves.
    ///
    /// # Errors
    /// [`BlockError::Io`], also if the disk is full.
    fn check_writable(&self) -> Result<(), BlockError> {
        Ok(())
    }
}

/// An open block. Reads return only bytes that match the store's checksums.
pub trait BlockReader: Send + Sync {
    /// Returns the length of the block in bytes.
    fn bytes(&self) -> u64;

    /// Reads exactly `buffer.len()` bytes at `offset`.
    ///
    /// # Errors
    /// [`BlockError::Corrupt`] if a checksum differs; the contents of `buffer` are invalid then.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError>;

    /// Like [`read_at`](Self::read_at), but never waits for a medium. Returns `false` if the bytes are not
    /// cached or the store cannot determine that; the contents of `buffer` are undefined then.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    fn read_if_cached(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, BlockError> {
        let _ = (offset, buffer);
        Ok(false)
    }

    /// Starts reading bytes that will be needed soon, without waiting. This is a hint; the default does
    /// nothing.
    fn read_ahead(&self, bytes: Range<u64>) {
        let _ = bytes;
    }

    /// Returns the block's digest, computed from its stored checksums without reading the block; `None` if
    /// the store has none.
    fn digest(&self) -> Option<Digest>;
}

/// Reads a block that is in memory.
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
