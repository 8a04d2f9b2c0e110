//! Slice buffers that are reused from plan to plan.

use std::sync::{Arc, Mutex};

use repair::BufferPool;

/// The maximum size of an idle pool in bytes. It suffices for one slice of every stream that a put with Clay
/// (14, 10, 13) reads and sends. Codes with fewer sub-blocks leave much smaller pools.
const KEPT_BYTES: usize = 16 << 20;
/// The maximum number of idle pools.
const KEPT_POOLS: usize = 2;

/// Buffer pools of finished plans, kept for later plans. Fresh memory costs a page fault for every 4 KiB,
/// which is most of the cost of a short plan's buffers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    pools: Arc<Mutex<Vec<BufferPool>>>,
}

impl Buffers {
    pub(crate) fn take(&self) -> BufferPool {
        self.pools.lock().expect("never poisoned").pop().unwrap_or_default()
    }

    pub(crate) fn give(&self, mut pool: BufferPool) {
        let mut pools = self.pools.lock().expect("never poisoned");
        if pools.len() < KEPT_POOLS {
            pool.trim(KEPT_BYTES);
            pools.push(pool);
        }
    }
}
