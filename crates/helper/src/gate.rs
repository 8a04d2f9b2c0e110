//! Applies the disk's cap to reads of whole blocks: scrubs, fingerprints, and reading back.
//!
//! Slices wait for the cap inside their job's task ([`motion`](crate::motion)). The reads here run on threads
//! that may block, so they sleep until the cap admits them. The caller can see that a read is throttled, and
//! reports this to the coordinator, which then waits longer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use repair::Meter;
use store_api::{Closed, Gate};

use crate::throttle::Allowance;
use crate::traffic::Counting;

/// A caller's interest in reads of whole blocks. When it is dropped, the reads through the gates that it
/// created end with an error.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    held_back: Arc<AtomicU64>,
}

/// Admits reads of whole blocks within the disk's cap, as long as their [`Interest`] exists.
#[derive(Clone, Debug)]
pub(crate) struct DiskGate {
    allowance: Allowance,
    counting: Counting,
    held_back: Weak<AtomicU64>,
    /// The number of times that this gate has admitted or held back a read.
    asked: Arc<AtomicU64>,
}

impl Interest {
    /// Creates a gate for reads that end when this interest is dropped.
    pub(crate) fn gate(&self, allowance: Allowance, counting: Counting) -> DiskGate {
        DiskGate { allowance, counting, held_back: Arc::downgrade(&self.held_back), asked: Arc::default() }
    }

    /// Returns the number of times that any gate of this interest had to wait.
    pub(crate) fn held_back(&self) -> u64 {
        self.held_back.load(Ordering::Relaxed)
    }
}

impl DiskGate {
    /// Returns the number of times that any gate of the same interest had to wait.
    pub(crate) fn held_back(&self) -> u64 {
        self.held_back.upgrade().map_or(0, |held_back| held_back.load(Ordering::Relaxed))
    }

    /// Returns the number of times that this gate has admitted or held back a read. It does not grow while the disk
    /// hangs.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Implements [`pass`](Gate::pass), waiting by calls of `sleep`.
    fn pass_by(&self, bytes: usize, mut sleep: impl FnMut(Duration)) -> Result<(), Closed> {
        loop {
            let held_back = self.held_back.upgrade().ok_or(Closed)?;
            self.asked.fetch_add(1, Ordering::Relaxed);
            let Err(wait) = self.allowance.ask(Meter::Disk) else { break };
            held_back.fetch_add(1, Ordering::Relaxed);
            drop(held_back);
            sleep(wait);
        }
        self.allowance.spend(Meter::Disk, bytes);
        self.counting.checked(bytes);
        Ok(())
    }
}

impl Gate for DiskGate {
    fn pass(&self, bytes: usize) -> Result<(), Closed> {
        self.pass_by(bytes, std::thread::sleep)
    }
}

#[cfg(test)]
mod tests {
    use codes::BlockIndex;
    use dir::DirBlocks;
    use repair::{BlockId, Caps, Class, JobId, Sink, SinkEnd};
    use store_api::{BlockError, Blocks};

    use super::*;
    use crate::throttle::Throttle;
    use crate::traffic::Traffic;

    const BLOCK_BYTES: usize = 3 << 20;

    /// A gate on a simulated clock, which advances only while the gate waits. This type counts the bytes that
    /// pass.
    struct Clocked {
        gate: DiskGate,
        throttle: Throttle,
        passed: AtomicU64,
    }

    impl Clocked {
        fn new(interest: &Interest, throttle: &Throttle, job: Option<JobId>, class: Class) -> Self {
            let gate = interest.gate(Allowance::new(throttle.clone(), job, class), counting());
            Self { gate, throttle: throttle.clone(), passed: AtomicU64::new(0) }
        }
    }

    impl Gate for Clocked {
        fn pass(&self, bytes: usize) -> Result<(), Closed> {
            self.gate.pass_by(bytes, |wait| self.throttle.let_pass(wait))?;
            self.passed.fetch_add(bytes as u64, Ordering::Relaxed);
            Ok(())
        }
    }

    fn counting() -> Counting {
        Traffic::default().for_purpose(Class::Repair)
    }

    fn store() -> (tempfile::TempDir, DirBlocks, BlockId) {
        let folder = tempfile::tempdir().unwrap();
        let (blocks, id) = (DirBlocks::open(folder.path()).unwrap(), BlockId("1.0".into()));
        let end = SinkEnd::Kept { label: None, permit: None };
        let sink =
            Sink { index: BlockIndex(0), id: id.clone(), bytes: BLOCK_BYTES as u64, digest: None, end };
        let mut writer = blocks.create(&sink).unwrap();
        writer.write_at(0, &vec![7; BLOCK_BYTES]).unwrap();
        writer.seal().unwrap();
        writer.commit().unwrap();
        (folder, blocks, id)
    }

    #[test]
    fn a_scrub_and_a_repair_share_the_cap_of_the_disk() {
        let (_folder, blocks, id) = store();
        for rate in [2_000_000, 30_000_000] {
            let throttle = Throttle::standing(Caps { repairs_disk: Some(rate), ..Caps::default() });
            let interest = Interest::default();
            let clocked = |job| Clocked::new(&interest, &throttle, job, Class::Repair);
            let (scrub, reread) = (clocked(None), clocked(Some(JobId(1))));
            while throttle.now() < Duration::from_secs(20) {
                blocks.verify(&id, &scrub).unwrap();
                blocks.verify(&id, &reread).unwrap();
            }
            let expected = rate as f64 * throttle.now().as_secs_f64();
            let [scrubbed, reread] = [scrub, reread].map(|clocked| clocked.passed.into_inner());
            let passed = scrubbed + reread;
            assert!((passed as f64 - expected).abs() <= 0.05 * expected, "{passed} of {expected} at {rate}");
            assert_eq!(scrubbed, reread);
            assert!(interest.held_back() > 0);
        }
    }

    /// Reads back a part of a block while later parts are being written, and the rest after the commit. The
    /// cap applies to all bytes.
    #[test]
    fn reading_back_behind_the_writer_counts_towards_the_cap() {
        let rate = 500_000;
        let (_folder, blocks, id) = store();
        let throttle = Throttle::standing(Caps { repairs_disk: Some(rate), ..Caps::default() });
        let interest = Interest::default();
        let clocked = Arc::new(Clocked::new(&interest, &throttle, Some(JobId(1)), Class::Repair));
        let end = SinkEnd::Kept { label: None, permit: None };
        let sink = Sink { index: BlockIndex(0), id, bytes: 10 << 20, digest: None, end };
        let mut writer = blocks.create(&sink).unwrap();
        writer.read_back_behind(clocked.clone());
        writer.write_at(0, &vec![7; 9 << 20]).unwrap();
        writer.write_at(9 << 20, &vec![7; 1 << 20]).unwrap();
        let digest = writer.seal().unwrap();
        let rest = writer.commit().unwrap().expect("it was read back behind");
        assert_eq!(rest(&*clocked).unwrap(), digest);
        assert_eq!(clocked.passed.load(Ordering::Relaxed), 10 << 20);
        let expected = rate as f64 * throttle.now().as_secs_f64();
        assert!(((10 << 20) as f64 - expected).abs() <= 0.05 * expected, "in {:?}", throttle.now());
        assert!(interest.held_back() > 0);
    }

    #[test]
    fn reads_for_a_client_are_exempt_from_the_cap_of_repairs() {
        let (_folder, blocks, id) = store();
        let throttle = Throttle::standing(Caps { repairs_disk: Some(1000), ..Caps::default() });
        let interest = Interest::default();
        let clocked = Clocked::new(&interest, &throttle, Some(JobId(1)), Class::Put);
        blocks.verify(&id, &clocked).unwrap();
        assert_eq!((clocked.passed.into_inner(), interest.held_back()), (BLOCK_BYTES as u64, 0));
    }

    #[test]
    fn a_read_without_interest_ends_early() {
        let (_folder, blocks, id) = store();
        // At one byte per second, the read would take a month.
        let throttle = Throttle::new(Caps { disk: Some(1), ..Caps::default() });
        let interest = Interest::default();
        let gate = interest.gate(Allowance::new(throttle, None, Class::Repair), counting());
        let reading = std::thread::spawn(move || blocks.verify(&id, &gate));
        while interest.held_back() < 3 {
            std::thread::yield_now();
        }
        drop(interest);
        assert!(matches!(reading.join().unwrap(), Err(BlockError::GivenUp(_))));
    }
}
