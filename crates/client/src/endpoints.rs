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

/// Takes what is delivered of a block.
pub(crate) trait Take: Send + 'static {
    fn take(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError>;
}

impl<F: FnMut(u64, &[u8]) -> Result<(), BlockError> + Send + 'static> Take for F {
    fn take(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self(offset, bytes)
    }
}

/// A writer that only takes: a client's deliveries are not blocks of a store, so they are never committed.
pub(crate) struct Taker<T> {
    pub(crate) block: BlockId,
    /// Whether taking may wait for a medium.
    pub(crate) may_wait: bool,
    pub(crate) take: T,
}

impl<T: Take> BlockWriter for Taker<T> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        self.take.take(offset, bytes)
    }

    fn may_wait(&self) -> bool {
        self.may_wait
    }

    fn seal(&mut self) -> Result<u32, BlockError> {
        Err(not_here(&self.block))
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        Err(not_here(&self.block))
    }

    fn commit(self: Box<Self>) -> Result<(), BlockError> {
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

    fn write(&self, block: &BlockId, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let mut room = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let place = at.and_then(|at| room.get_mut(at..at.checked_add(bytes.len())?));
        let Some(place) = place else { return Err(outside(block, offset, bytes.len())) };
        place.copy_from_slice(bytes);
        Ok(())
    }
}

/// Delivers a request's one block into [`Memory`].
#[derive(Clone, Debug)]
pub struct MemorySink(pub Arc<Memory>);

impl Endpoints for MemorySink {
    fn sink(&self, sink: &Sink) -> Result<Box<dyn BlockWriter>, BlockError> {
        let (memory, block) = (self.0.clone(), sink.id.clone());
        let take = move |offset: u64, bytes: &[u8]| memory.write(&block, offset, bytes);
        Ok(Box::new(Taker { block: sink.id.clone(), may_wait: false, take }))
    }
}

/// Bytes that were not asked for.
pub(crate) fn outside(block: &BlockId, offset: u64, bytes: usize) -> BlockError {
    let detail = format!("{bytes} bytes at offset {offset} were delivered and not asked for");
    BlockError::Corrupt { block: block.clone(), path: "this client".to_owned(), detail }
}
