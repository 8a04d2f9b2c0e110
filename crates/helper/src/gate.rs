//! The cap of the disk, where whole blocks are read through: scrubs, fingerprints, and what is read back.
//!
//! A slice waits for the cap in its job's task ([`motion`](crate::motion)). What is read here is read on threads that may
//! wait, and so is the cap. Whoever asked can look whether it is held back, and say so: the coordinator waits longer then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use repair::Meter;
use store_api::{Closed, Gate};

use crate::throttle::Allowance;

/// What somebody has read; the reading ends when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    held_back: Arc<AtomicU64>,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct DiskGate {
    allowance: Allowance,
    held_back: Weak<AtomicU64>,
}

impl Interest {
    /// A gate for what is read in this interest.
    pub(crate) fn gate(&self, allowance: Allowance) -> DiskGate {
        DiskGate { allowance, held_back: Arc::downgrade(&self.held_back) }
    }

    /// How often a gate had to wait.
    pub(crate) fn held_back(&self) -> u64 {
        self.held_back.load(Ordering::Relaxed)
    }
}

impl DiskGate {
    /// How often any gate of the same interest had to wait.
    pub(crate) fn held_back(&self) -> u64 {
        self.held_back.upgrade().map_or(0, |held_back| held_back.load(Ordering::Relaxed))
    }

    /// The same as [`pass`](Gate::pass), where `sleep` lets the time pass.
    fn pass_by(&self, bytes: usize, mut sleep: impl FnMut(Duration)) -> Result<(), Closed> {
        loop {
            let held_back = self.held_back.upgrade().ok_or(Closed)?;
            let Err(wait) = self.allowance.ask(Meter::Disk) else { break };
            held_back.fetch_add(1, Ordering::Relaxed);
            drop(held_back);
            sleep(wait);
        }
        self.allowance.spend(Meter::Disk, bytes);
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

    const BLOCK_BYTES: usize = 3 << 20;

    /// A gate that lets the time of a clock pass which stands still otherwise; it counts what passes.
    struct Clocked {
        gate: DiskGate,
        throttle: Throttle,
        passed: AtomicU64,
    }

    impl Clocked {
        fn new(interest: &Interest, throttle: &Throttle, job: Option<JobId>, class: Class) -> Self {
            let gate = interest.gate(Allowance::new(throttle.clone(), job, class));
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
    fn a_scrub_and_a_repair_read_as_fast_together_as_the_cap_of_the_disk_says() {
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

    /// It is all read while it is made, sealed and committed, and no faster than the cap says.
    #[test]
    fn what_is_read_back_behind_its_writer_counts_as_well() {
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
    fn who_reads_for_a_client_is_not_held_back_by_the_cap_of_repairs() {
        let (_folder, blocks, id) = store();
        let throttle = Throttle::standing(Caps { repairs_disk: Some(1000), ..Caps::default() });
        let interest = Interest::default();
        let clocked = Clocked::new(&interest, &throttle, Some(JobId(1)), Class::Put);
        blocks.verify(&id, &clocked).unwrap();
        assert_eq!((clocked.passed.into_inner(), interest.held_back()), (BLOCK_BYTES as u64, 0));
    }

    #[test]
    fn what_nobody_waits_for_is_not_read_to_its_end() {
        let (_folder, blocks, id) = store();
        // At a byte per second it would take a month.
        let throttle = Throttle::new(Caps { disk: Some(1), ..Caps::default() });
        let interest = Interest::default();
        let gate = interest.gate(Allowance::new(throttle, None, Class::Repair));
        let reading = std::thread::spawn(move || blocks.verify(&id, &gate));
        while interest.held_back() < 3 {
            std::thread::yield_now();
        }
        drop(interest);
        assert!(matches!(reading.join().unwrap(), Err(BlockError::GivenUp(_))));
    }
}
