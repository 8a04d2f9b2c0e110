//! Ends of a request on this machine: where data blocks come from, and where blocks go.

use std::sync::{Arc, Mutex, PoisonError};

use repair::{BlockId, LocalBlock, Sink};
use stores::{BlockError, BlockReader, BlockWriter};

use crate::local::not_here;

/// What a request reads from and delivers to. Called from threads that may wait.
pub trait Endpoints: Send + Sync + 'static {
    /// A block that the request brings along.
    ///
    /// # Errors
    /// [`BlockError`]; the request fails.
    fn source(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        Err(not_here(&block.id))
    }

    /// Where a block goes. Offsets are those of the block, whatever part of it was asked for.
    ///
    /// # Errors
    /// [`BlockError`]; the request fails.
    fn sink(&self, sink: &Sink) -> Result<Box<dyn BlockWriter>, BlockError> {
        Err(not_here(&sink.id))
    }
}

/// Where a block's bytes go on this machine, and are found again.
pub(crate) trait Room: Send + Sync + 'static {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError>;
}

/// A writer that only takes: a client's deliveries are not blocks of a store, so they are never committed. They can be
/// read back, to be held against blocks that were not needed.
pub(crate) struct Taker<R> {
    pub(crate) block: BlockId,
    pub(crate) bytes: u64,
    /// Whether taking may wait for a medium.
    pub(crate) may_wait: bool,
    pub(crate) room: Arc<R>,
}

impl<R: Room> BlockWriter for Taker<R> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.room.write(offset, bytes)
    }

    fn may_wait(&self) -> bool {
        self.may_wait
    }

    fn seal(&mut self) -> Result<Option<repair::Digest>, BlockError> {
        Err(not_here(&self.block))
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        let (block, bytes, room) = (self.block.clone(), self.bytes, self.room.clone());
        Ok(Arc::new(Taken { block, bytes, room }))
    }

    fn commit(self: Box<Self>) -> Result<(), BlockError> {
        Err(not_here(&self.block))
    }
}

/// What was delivered of a block.
struct Taken<R> {
    block: BlockId,
    bytes: u64,
    room: Arc<R>,
}

impl<R: Room> BlockReader for Taken<R> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.room.read(offset, buffer)
    }

    fn digest(&self) -> Option<repair::Digest> {
        None
    }

    fn verify(&self) -> Result<Option<repair::Digest>, BlockError> {
        Err(not_here(&self.block))
    }
}

/// Bytes of one block in memory, from an offset on.
#[derive(Debug, Default)]
pub struct Memory {
    start: u64,
    bytes: Mutex<Vec<u8>>,
}

impl Memory {
    /// Room for `bytes` bytes of a block from `start` on, zeros until they come.
    pub fn new(start: u64, bytes: usize) -> Arc<Self> {
        Arc::new(Self { start, bytes: Mutex::new(vec![0; bytes]) })
    }

    /// What has come; the room is empty after this.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hands the place of these bytes to `work`.
    fn at(
        &self,
        block: &BlockId,
        offset: u64,
        bytes: usize,
        work: impl FnOnce(&mut [u8]),
    ) -> Result<(), BlockError> {
        let mut room = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let place = at.and_then(|at| room.get_mut(at..at.checked_add(bytes)?));
        place.map(work).ok_or_else(|| outside(block, offset, bytes))
    }
}

/// The memory of one block.
struct MemoryRoom {
    block: BlockId,
    memory: Arc<Memory>,
}

impl Room for MemoryRoom {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.memory.at(&self.block, offset, bytes.len(), |place| place.copy_from_slice(bytes))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.memory.at(&self.block, offset, buffer.len(), |place| buffer.copy_from_slice(place))
    }
}

/// Delivers a request's one block into [`Memory`].
#[derive(Clone, Debug)]
pub struct MemorySink(pub Arc<Memory>);

impl Endpoints for MemorySink {
    fn sink(&self, sink: &Sink) -> Result<Box<dyn BlockWriter>, BlockError> {
        let room = Arc::new(MemoryRoom { block: sink.id.clone(), memory: self.0.clone() });
        Ok(Box::new(Taker { block: sink.id.clone(), bytes: sink.bytes, may_wait: false, room }))
    }
}

/// Bytes that were not asked for.
pub(crate) fn outside(block: &BlockId, offset: u64, bytes: usize) -> BlockError {
    let detail = format!("{bytes} bytes at offset {offset} were delivered and not asked for");
    BlockError::Corrupt { block: block.clone(), path: "this client".to_owned(), detail }
}
