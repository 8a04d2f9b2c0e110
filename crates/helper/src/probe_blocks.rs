//! The source and sink of a probe, which is a job that measures a link: it reads zeros and discards what it
//! receives. No store is involved, so that only the link is measured.

use std::sync::Arc;

use repair::{Digest, LocalBlock, Sink};
use store_api::{BlockError, BlockReader, Delivery, Intake, Sinks, Sources};

/// Provides blocks of zeros, and sinks that discard all bytes.
pub(crate) struct ProbeBlocks;

/// A block of this many zeros.
struct Zeros(u64);

/// A sink that discards all bytes.
struct Dropped(u64);

impl Sources for ProbeBlocks {
    fn open(&self, block: &LocalBlock) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(Arc::new(Zeros(block.bytes)))
    }

    fn open_if_cached(&self, block: &LocalBlock) -> Option<Arc<dyn BlockReader>> {
        Some(Arc::new(Zeros(block.bytes)))
    }
}

impl Sinks for ProbeBlocks {
    fn deliver(&self, sink: &Sink) -> Result<Delivery, BlockError> {
        Ok(Delivery::Taken(Box::new(Dropped(sink.bytes))))
    }
}

impl BlockReader for Zeros {
    fn bytes(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
        buffer.fill(0);
        Ok(())
    }

    fn read_if_cached(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, BlockError> {
        self.read_at(offset, buffer).map(|()| true)
    }

    fn digest(&self) -> Option<Digest> {
        None
    }
}

impl Intake for Dropped {
    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), BlockError> {
        Ok(())
    }

    fn may_wait(&self) -> bool {
        false
    }

    fn reader(&self) -> Result<Arc<dyn BlockReader>, BlockError> {
        Ok(Arc::new(Zeros(self.0)))
    }
}
