//! Bounds the batches of background reads that run on the disks at the same time while clients read.
//!
//! Each job reads from the disk on a thread of its own, so a client's read never waits for a thread. But the
//! disk would serve a batch of each background job before it.

use std::time::Duration;

use super::{BackgroundPacing, MOST_WAIT};

/// The number of batches that may run while clients read: a few keep a disk busy.
const MOST_BATCHES: usize = 4;
/// A batch starts after this time anyway. A node may have several disks, and one of them may hang.
const MOST_HELD: Duration = Duration::from_millis(500);

/// The access of one running plan to the disks; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct DiskBatches {
    pacing: BackgroundPacing,
}

/// A batch that runs until this is dropped.
pub(crate) struct RunningBatch {
    pacing: BackgroundPacing,
}

impl DiskBatches {
    pub(super) fn new(pacing: BackgroundPacing) -> Self {
        Self { pacing }
    }

    /// Begins a batch. While clients read and too many batches run, blocks the thread.
    pub(crate) fn begin(&self) -> RunningBatch {
        let (pacing, shared) = (&self.pacing, &self.pacing.shared);
        let until = pacing.now() + MOST_HELD;
        let mut running = shared.batches.lock().expect("never poisoned");
        while *running >= MOST_BATCHES && pacing.now() < until && pacing.has_reads(pacing.now()) {
            (running, _) = shared.batch_ended.wait_timeout(running, MOST_WAIT).expect("never poisoned");
        }
        *running += 1;
        RunningBatch { pacing: pacing.clone() }
    }
}

impl Drop for RunningBatch {
    fn drop(&mut self) {
        *self.pacing.shared.batches.lock().expect("never poisoned") -= 1;
        self.pacing.shared.batch_ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use repair::Class;

    use super::*;

    #[test]
    fn background_batches_wait_while_clients_read() {
        let pacing = BackgroundPacing::default();
        assert!(pacing.disk_batches(Class::Read).is_none());
        let batches = pacing.disk_batches(Class::Repair).unwrap();
        let mut running: Vec<_> = (0..2 * MOST_BATCHES).map(|_| batches.begin()).collect();
        let read = pacing.for_plan(Class::Read);
        let next = std::thread::spawn(move || batches.begin());
        running.truncate(MOST_BATCHES);
        std::thread::sleep(MOST_HELD / 10);
        assert!(!next.is_finished(), "clients read, and as many batches as may run do");
        running.pop();
        drop(next.join().unwrap());
        drop((running, read));
        assert_eq!(*pacing.shared.batches.lock().unwrap(), 0);
    }

    #[test]
    fn a_batch_is_not_held_for_ever() {
        let pacing = BackgroundPacing::default();
        let _read = pacing.for_plan(Class::Read);
        let batches = pacing.disk_batches(Class::Repair).unwrap();
        let hanging: Vec<_> = (0..MOST_BATCHES).map(|_| batches.begin()).collect();
        let asked = Instant::now();
        let _next = batches.begin();
        assert!(asked.elapsed() >= MOST_HELD);
        drop(hanging);
    }
}
