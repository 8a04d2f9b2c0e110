//! Bounds the batches of background reads that run on the disks at the same time while clients read.
//!
//! Each job reads from the disk on a thread of its own, so a client's read never waits for a thread. But the
//! disk would serve a batch of each background job before it.

use std::time::Duration;

use super::{AtRisk, BackgroundPacing, MOST_WAIT};

/// The number of batches that may run while clients read: a few keep a disk busy.
const MOST_BATCHES: usize = 4;
/// A batch starts after this time anyway. A node may have several disks, and one of them may hang.
const MOST_HELD: Duration = Duration::from_millis(500);
/// A batch that runs for longer does not count: its disk hangs. It may never end, not even after the helper has
/// registered again without this disk.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// The batches that run on the disks.
#[derive(Debug, Default)]
pub(super) struct Batches {
    /// When they began.
    began: Vec<Duration>,
}

impl Batches {
    /// Whether as many batches run as may run while clients read.
    fn are_full(&self, now: Duration) -> bool {
        self.began.iter().filter(|&&began| now < began + HANGS_AFTER).count() >= MOST_BATCHES
    }

    fn end(&mut self, began: Duration) {
        let ended = self.began.iter().position(|&other| other == began);
        self.began.swap_remove(ended.expect("every batch ends once"));
    }
}

/// The access of one running plan to the disks; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct DiskBatches {
    pacing: BackgroundPacing,
    at_risk: AtRisk,
}

/// A batch that runs until this is dropped.
pub(crate) struct RunningBatch {
    pacing: BackgroundPacing,
    began: Duration,
}

impl DiskBatches {
    pub(super) fn new(pacing: BackgroundPacing, at_risk: AtRisk) -> Self {
        Self { pacing, at_risk }
    }

    /// Begins a batch. While clients read and too many batches run, blocks the thread, unless the job's stripe is
    /// at risk.
    pub(crate) fn begin(&self) -> RunningBatch {
        let (pacing, shared) = (&self.pacing, &self.pacing.shared);
        let asked = pacing.now();
        let until = asked + MOST_HELD;
        let is_held = || !self.at_risk.is_set() && pacing.now() < until && pacing.has_reads(pacing.now());
        let mut batches = shared.batches.lock().expect("never poisoned");
        let waits = batches.are_full(asked);
        while batches.are_full(pacing.now()) && is_held() {
            (batches, _) = shared.batch_ended.wait_timeout(batches, MOST_WAIT).expect("never poisoned");
        }
        let began = pacing.now();
        batches.began.push(began);
        if waits {
            shared.traffic.note_held_back(began - asked);
        }
        RunningBatch { pacing: pacing.clone(), began }
    }
}

impl Drop for RunningBatch {
    fn drop(&mut self) {
        self.pacing.shared.batches.lock().expect("never poisoned").end(self.began);
        self.pacing.shared.batch_ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use repair::Class;

    use super::*;
    use crate::traffic::Traffic;

    #[test]
    fn background_batches_wait_while_clients_read() {
        let pacing = BackgroundPacing::new(Traffic::default());
        assert!(pacing.disk_batches(Class::Read, &AtRisk::default()).is_none());
        let batches = pacing.disk_batches(Class::Repair, &AtRisk::default()).unwrap();
        let mut running: Vec<_> = (0..2 * MOST_BATCHES).map(|_| batches.begin()).collect();
        let read = pacing.for_plan(Class::Read, &AtRisk::default());
        let next = std::thread::spawn(move || batches.begin());
        running.truncate(MOST_BATCHES);
        std::thread::sleep(MOST_HELD / 10);
        assert!(!next.is_finished(), "clients read, and as many batches as may run do");
        running.pop();
        drop(next.join().unwrap());
        drop((running, read));
        assert!(pacing.shared.batches.lock().unwrap().began.is_empty());
    }

    #[test]
    fn a_batch_is_not_held_for_ever() {
        let pacing = BackgroundPacing::new(Traffic::default());
        let _read = pacing.for_plan(Class::Read, &AtRisk::default());
        let batches = pacing.disk_batches(Class::Repair, &AtRisk::default()).unwrap();
        let hanging: Vec<_> = (0..MOST_BATCHES).map(|_| batches.begin()).collect();
        let asked = Instant::now();
        let _next = batches.begin();
        assert!(asked.elapsed() >= MOST_HELD);
        assert!(pacing.shared.traffic.held_back() >= MOST_HELD);
        drop(hanging);
    }

    /// Otherwise a disk that hangs would hold back the reads of all others, until the helper is restarted.
    #[test]
    fn batches_that_hang_do_not_count() {
        let mut pacing = BackgroundPacing::new(Traffic::default());
        Arc::get_mut(&mut pacing.shared).unwrap().start -= HANGS_AFTER;
        pacing.shared.batches.lock().unwrap().began = vec![Duration::ZERO; MOST_BATCHES];
        let _read = pacing.for_plan(Class::Read, &AtRisk::default());
        let batches = pacing.disk_batches(Class::Repair, &AtRisk::default()).unwrap();
        let running: Vec<_> = (0..MOST_BATCHES).map(|_| batches.begin()).collect();
        assert_eq!(pacing.shared.traffic.held_back(), Duration::ZERO);
        drop(batches.begin());
        assert!(pacing.shared.traffic.held_back() >= MOST_HELD, "batches that run still count");
        drop(running);
        assert_eq!(pacing.shared.batches.lock().unwrap().began.len(), MOST_BATCHES);
    }

    #[test]
    fn batches_of_a_job_at_risk_do_not_wait() {
        let pacing = BackgroundPacing::new(Traffic::default());
        let _read = pacing.for_plan(Class::Read, &AtRisk::default());
        let at_risk = AtRisk::default();
        let batches = pacing.disk_batches(Class::Repair, &at_risk).unwrap();
        at_risk.set();
        let running: Vec<_> = (0..2 * MOST_BATCHES).map(|_| batches.begin()).collect();
        assert!(pacing.shared.traffic.held_back() < MOST_HELD);
        drop(running);
    }
}
