//! Where a read's blocks go on this machine. Nothing of it is a block of a store: a [`Room`] takes bytes, and gives them
//! back to be held against blocks that were not needed.

use std::sync::{Arc, Mutex, PoisonError};

use repair::{BlockId, Sink};
use store_api::{BlockError, BlockReader, Delivery, Intake, Sinks};

/// Where a block's bytes go on this machine, and are found again. Offsets are those of the block.
pub trait Room: Send + Sync + 'static {
    /// Takes `bytes` at `offset`.
    ///
    /// # Errors
    /// [`BlockError`]; the read fails.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;

    /// Gives back what was taken from `offset` on.
    ///
    /// # Errors
    /// [`BlockError`]; the read fails.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), BlockError>;

    /// Whether [`write`](Self::write) may wait for a medium. Only what goes to memory does not.
    fn may_wait(&self) -> bool;
}

/// Delivers a block to a room.
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

/// What was delivered of a block.
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

    fn may_wait(&self) -> bool {
        false
    }
}

/// Delivers a request's one block into [`Memory`].
#[derive(Clone, Debug)]
pub struct MemorySink(pub Arc<Memory>);

impl Sinks for MemorySink {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        let room = MemoryRoom { block: sink.id.clone(), memory: self.0.clone() };
        Ok(delivery_to(sink, Arc::new(room)))
    }
}

/// Bytes that were not asked for.
pub(crate) fn outside(block: &BlockId, offset: u64, bytes: usize) -> BlockError {
    let detail = format!("{bytes} bytes at offset {offset} were delivered and not asked for");
    BlockError::Corrupt { block: block.clone(), path: "this client".to_owned(), detail }
}
