//! Slice buffers, aligned for the GF(2^8) kernels and reused. The pool also caches how relays compute recent
//! sums.

use aligned_vec::{AVec, ConstAlign};

use crate::relay::cover::Covers;

/// The bytes of one slice, aligned to a cache line.
pub type Buffer = AVec<u8, ConstAlign<64>>;

/// Free buffers, and a cache of how relays compute recent sums.
#[derive(Debug)]
pub struct BufferPool {
    free: Vec<Buffer>,
    /// The maximum number of free buffers to keep.
    kept: usize,
    /// The passes over inputs that compute recent sums. Relays share these through the pool.
    pub(crate) covers: Covers,
}

impl Default for BufferPool {
    fn default() -> Self {
        Self { free: Vec::new(), kept: Self::KEPT, covers: Covers::default() }
    }
}

impl BufferPool {
    /// The default number of free buffers kept: more than a relay's open slices need with any code but Clay,
    /// so that no buffer is allocated and zeroed in the middle of a stream.
    const KEPT: usize = 512;

    /// Raises the number of free buffers kept.
    pub fn keep(&mut self, buffers: usize) {
        self.kept = buffers.max(Self::KEPT);
    }

    /// Returns a buffer of `bytes` bytes with unspecified contents.
    pub fn take(&mut self, bytes: usize) -> Buffer {
        let mut buffer = self.free.pop().unwrap_or_else(|| AVec::new(64));
        buffer.resize(bytes, 0);
        buffer
    }

    /// Frees buffers until at most `bytes` bytes remain in the pool.
    pub fn trim(&mut self, bytes: usize) {
        let mut kept = 0;
        self.free.retain(|buffer| {
            kept += buffer.capacity();
            kept <= bytes
        });
    }

    /// Puts a buffer back into the pool, or frees it if the pool is full.
    pub fn give(&mut self, buffer: Buffer) {
        if self.free.len() < self.kept {
            self.free.push(buffer);
        }
    }
}
