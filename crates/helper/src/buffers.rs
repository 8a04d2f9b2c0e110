//! Slice buffers that pass from plan to plan.

use std::sync::{Arc, Mutex};

use repair::BufferPool;

/// The most that one pool keeps while no plan uses it: a slice of all that a put with Clay (14, 10, 13) reads and sends.
/// What a pool keeps some plan has used; those of codes without many sub-blocks use far less.
const KEPT_BYTES: usize = 16 << 20;
/// Pools that are kept.
const KEPT_POOLS: usize = 2;

/// Pools of plans that have ended: fresh memory costs a page fault for every 4 KiB, which is most of what a
/// short plan's buffers cost. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers {
    pools: Arc<Mutex<Vec<BufferPool>>>,
}

impl Buffers {
    pub(crate) fn take(&self) -> BufferPool {
        self.pools.lock().expect("no holder panics").pop().unwrap_or_default()
    }

    pub(crate) fn give(&self, mut pool: BufferPool) {
        let mut pools = self.pools.lock().expect("no holder panics");
        if pools.len() < KEPT_POOLS {
            pool.trim(KEPT_BYTES);
            pools.push(pool);
        }
    }
}
