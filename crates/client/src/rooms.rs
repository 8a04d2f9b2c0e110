//! Local destinations for the blocks that a client reads: files or memory instead of a store. A [`Room`]
//! accepts bytes and can return them, because the parity check of a verified read needs them again.

use std::sync::{Arc, Mutex, PoisonError};

use repair::{BlockId, Sink};
use store_api::{BlockError, BlockReader, Delivery, Intake, Sinks};

/// A local destination for one block's bytes. Offsets are relative to the start of the block.
pub trait Room: Send + Sync + 'static {
    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// [`BlockError`], which fails the client's read of the block.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;

    /// Reads back bytes that were written before.
    ///
    /// # Errors
    /// [`BlockError`], which fails the client's read of the block.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError>;

    /// Whether [`write`](Self::write) may block on a device; `false` only for memory.
    fn may_wait(&self) -> bool;
}

/// Returns a delivery that writes a block into a room.
pub fn delivery_to<R: Room>(sink: &Sink, room: Arc<R>) -> Delivery {
    Delivery::Taken(Box::new(RoomTaker { bytes: sink.bytes, room }))
}

struct RoomTaker<R> {
    bytes: u64,
    room: Arc<R>,
}

impl<R: Room> Intake for RoomTaker<R> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.room.write(offset, bytes)
    }

    fn may_wait(&self) -> bool {
        self.room.may_wait()
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(Arc::new(RoomReader { bytes: self.bytes, room: self.room.clone() }))
    }
}

/// Reads back the bytes delivered for a block.
struct RoomReader<R> {
    bytes: u64,
    room: Arc<R>,
}

impl<R: Room> BlockReader for RoomReader<R> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        self.room.read(offset, buffer)
    }

    fn digest(&self) -> Option<repair::Digest> {
        None
    }
}

/// Part of one block in memory.
#[derive(Debug, Default)]
pub struct Memory {
    start: u64,
    bytes: Mutex<Vec<u8>>,
}

impl Memory {
    /// Allocates zeroed memory for `bytes` bytes of a block, from offset `start` on.
    pub fn new(start: u64, bytes: usize) -> Arc<Self> {
        Arc::new(Self { start, bytes: Mutex::new(vec![0; bytes]) })
    }

    /// Takes the delivered bytes and leaves the memory empty.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `work` with the memory that holds the given range of the block.
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

/// A [`Room`] for one block in [`Memory`].
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

    fn may_wait(&self) -> bool {
        false
    }
}

/// Delivers the single block of a request into [`Memory`].
#[derive(Clone, Debug)]
pub struct MemorySink(pub Arc<Memory>);

impl Sinks for MemorySink {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        let room = MemoryRoom { block: sink.id.clone(), memory: self.0.clone() };
        Ok(delivery_to(sink, Arc::new(room)))
    }
}

/// Returns the error for bytes outside the requested range.
pub(crate) fn outside(block: &BlockId, offset: u64, bytes: usize) -> BlockError {
    let detail = format!("received {bytes} unrequested bytes at offset {offset}");
    BlockError::Corrupt { block: block.clone(), path: "this client".to_owned(), detail }
}
