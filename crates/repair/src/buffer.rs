//! Slice buffers: aligned for the kernels, and used again instead of allocated again. What a relay has worked out goes
//! with them to the next.

use aligned_vec::{AVec, ConstAlign};

use crate::relay::cover::Covers;

/// The bytes of one slice, aligned to a cache line.
pub type Buffer = AVec<u8, ConstAlign<64>>;

/// Buffers that are free to be used again, and the passes that were found for recent programs.
#[derive(Debug)]
pub struct BufferPool {
    free: Vec<Buffer>,
    /// The most that are kept.
    kept: usize,
    /// What the relays that used them have worked out.
    pub(crate) covers: Covers,
}

impl Default for BufferPool {
    fn default() -> Self {
        Self { free: Vec::new(), kept: Self::KEPT, covers: Covers::default() }
    }
}

impl BufferPool {
    /// No more than this many free buffers are kept, unless it is told: more than a relay's open slices of any code but
    /// Clay have, so that none is allocated, and filled with zeros, in the middle of a stream.
    const KEPT: usize = 512;

    /// Keeps so many free buffers from now on, if that is more than it would anyway.
    pub fn keep(&mut self, buffers: usize) {
        self.kept = buffers.max(Self::KEPT);
    }

    /// A buffer of `bytes` bytes with unspecified contents.
    pub fn take(&mut self, bytes: usize) -> Buffer {
        let mut buffer = self.free.pop().unwrap_or_else(|| AVec::new(64));
        buffer.resize(bytes, 0);
        buffer
    }

    /// Frees buffers until those that are free hold at most `bytes` bytes.
    pub fn trim(&mut self, bytes: usize) {
        let mut kept = 0;
        self.free.retain(|buffer| {
            kept += buffer.capacity();
            kept <= bytes
        });
    }

    /// Gives a buffer back.
    pub fn give(&mut self, buffer: Buffer) {
        if self.free.len() < self.kept {
            self.free.push(buffer);
        }
    }
}
