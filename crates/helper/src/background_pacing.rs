//! Puts clients' reads before background transfers (repairs and drains) on this node's links and disks.
//!
//! While this node takes part in reads, its background transfers send in turns, at a rate that keeps the queues on its
//! links and on those of its peers short. They receive in turns while this node's own links have a queue. A read then waits for a few milliseconds of background slices, and
//! not for a full queue. While there are no reads, background transfers are not paced.
//!
//! [`Controller`] chooses the rate, from the queueing delays that [`PathWatch`] observes. [`Turns`] spreads
//! the bytes of all jobs evenly at this rate. Both are pure. [`DiskBatches`] bounds what background transfers
//! read from the disks at the same time.

mod controller;
mod delays;
mod disk_batches;
mod path_delay;
mod turns;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use repair::{Class, Meter};
use tokio::time::Instant;

use self::controller::{Controller, Step};
use self::disk_batches::Batches;
pub(crate) use self::disk_batches::DiskBatches;
use self::path_delay::LeastRoundTrips;
pub(crate) use self::path_delay::{PathSample, PathWatch};
use self::turns::{Turn, Turns};
use crate::traffic::Traffic;

/// How long background transfers stay paced after the last bytes of a read. Longer than the usual time
/// between two reads that use the same node.
const READS_LAST: Duration = Duration::from_secs(1);
/// The shortest and the longest wait before a job asks for its turn again. The runtime's timers cannot wait
/// less than the shortest, and the longest is short because the reads may end in the meantime.
const LEAST_WAIT: Duration = Duration::from_millis(1);
const MOST_WAIT: Duration = Duration::from_millis(50);

/// The rates of sending and of receiving, relative to the controller's rate. Receiving is paced only while this node's
/// links have a queue: bytes that have arrived and are not read yet are acknowledged late, which looks like a queue to the
/// sender.
const HEADROOM: [f64; 2] = [1.0, 1.5];
/// The index of the turns of receiving.
const RECEIVING: usize = 1;
/// The time in which background transfers send the bytes that one connection keeps in the kernel, and the
/// bounds of this number of bytes. They are few, because dozens of connections have such bytes, and all of
/// them leave before the pacing takes effect.
const UNSENT: Duration = Duration::from_millis(2);
const LEAST_UNSENT_BYTES: f64 = (16 << 10) as f64;
const MOST_UNSENT_BYTES: f64 = (128 << 10) as f64;

/// The pacing of a node's background transfers, shared by all its jobs; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct BackgroundPacing {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    start: Instant,
    /// The last time at which bytes of a read moved, in microseconds after `start`; 0 if there was no read.
    read_at_us: AtomicU64,
    /// The bytes that background transfers have sent, and those that they have received.
    background_bytes: [AtomicU64; 2],
    /// The same for all transfers.
    all_bytes: [AtomicU64; 2],
    state: Mutex<State>,
    /// The batches of background reads that run on the disks.
    batches: Mutex<Batches>,
    batch_ended: Condvar,
    /// Counts the time for which background transfers are held back.
    traffic: Traffic,
}

/// Whether a job's stripe cannot lose another block, in which case the job is not paced; shared by the job and
/// its access to the pacing.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtRisk(Arc<AtomicBool>);

impl AtRisk {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct State {
    controller: Controller,
    least_round_trips: LeastRoundTrips,
    /// The turns of sending and of receiving.
    turns: [Turns; 2],
    /// Whether a job had to wait for its turn since the controller's last step.
    has_waited: bool,
    /// The values of `Shared::background_bytes` and `Shared::all_bytes` at the controller's last step.
    counted_bytes: [[u64; 2]; 2],
}

/// The access of one running plan to its node's pacing.
#[derive(Debug)]
pub(crate) struct JobPacing {
    pacing: BackgroundPacing,
    class: Class,
    at_risk: AtRisk,
    /// The current turn of sending and of receiving.
    turns: [Option<Turn>; 2],
    /// Since when the job waits for its turn.
    waits_since: [Option<Duration>; 2],
}

impl BackgroundPacing {
    /// Creates the pacing of a node. It counts in `traffic` for how long background transfers are held back.
    pub(crate) fn new(traffic: Traffic) -> Self {
        let (read_at_us, background_bytes, all_bytes) = Default::default();
        let (state, batches, batch_ended) = Default::default();
        let start = Instant::now();
        let shared =
            Shared { start, read_at_us, background_bytes, all_bytes, state, batches, batch_ended, traffic };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the counters in which the pacing counts the time for which it holds transfers back.
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.shared.traffic
    }

    /// Returns the access of a plan of this class. If it is a read, the pacing of background transfers
    /// begins.
    pub(crate) fn for_plan(&self, class: Class, at_risk: &AtRisk) -> JobPacing {
        if class == Class::Read {
            self.note_read(self.now());
        }
        JobPacing {
            pacing: self.clone(),
            class,
            at_risk: at_risk.clone(),
            turns: [None, None],
            waits_since: [None; 2],
        }
    }

    /// Returns the access of a plan of this class to the disks; `None` if it is not held back there.
    pub(crate) fn disk_batches(&self, class: Class, at_risk: &AtRisk) -> Option<DiskBatches> {
        (class == Class::Repair).then(|| DiskBatches::new(self.clone(), at_risk.clone()))
    }

    /// Returns the number of unsent bytes that a connection of a background transfer may keep in the kernel,
    /// apart from those in flight.
    pub(crate) fn unsent_bytes(&self) -> i32 {
        match self.state().controller.peak() {
            0.0 => MOST_UNSENT_BYTES as i32,
            peak => unsent_bytes(peak) as i32,
        }
    }

    fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }

    fn note_read(&self, now: Duration) {
        self.shared.read_at_us.store(now.as_micros().max(1) as u64, Ordering::Relaxed);
    }

    fn has_reads(&self, now: Duration) -> bool {
        let read_at_us = self.shared.read_at_us.load(Ordering::Relaxed);
        read_at_us > 0 && now < Duration::from_micros(read_at_us) + READS_LAST
    }

    /// Returns the bytes of background transfers and of all transfers, sent and received.
    fn moved_bytes(&self) -> [[u64; 2]; 2] {
        let counters = [&self.shared.background_bytes, &self.shared.all_bytes];
        counters.map(|moved| moved.each_ref().map(|bytes| bytes.load(Ordering::Relaxed)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("never poisoned")
    }
}

impl State {
    fn step_if_due(&mut self, has_reads: bool, moved_bytes: [[u64; 2]; 2], now: Duration) {
        if self.controller.is_due(now) {
            let has_waited = std::mem::take(&mut self.has_waited);
            let counted_bytes = std::mem::replace(&mut self.counted_bytes, moved_bytes);
            let since = |which: usize| {
                let moved = moved_bytes[which].into_iter().zip(counted_bytes[which]);
                moved.map(|(now, before)| now.saturating_sub(before)).max().unwrap_or(0)
            };
            let [moved_bytes, all_bytes] = [since(0), since(1)];
            self.controller.step(Step { has_reads, has_waited, moved_bytes, all_bytes }, now);
        }
    }
}

impl JobPacing {
    /// Whether [`ask`](Self::ask) may deny a request now.
    pub(crate) fn is_paced(&self) -> bool {
        self.is_background() && !self.at_risk.is_set() && self.pacing.has_reads(self.pacing.now())
    }

    /// Whether this is a plan whose connections should be observed.
    pub(crate) fn is_background(&self) -> bool {
        self.class == Class::Repair
    }

    /// Returns the number of bytes that may move now ([`usize::MAX`] if unlimited), or as an error the time
    /// to wait before asking again.
    pub(crate) fn ask(&mut self, meter: Meter) -> Result<usize, Duration> {
        if self.is_background() { self.ask_at(meter, self.pacing.now()) } else { Ok(usize::MAX) }
    }

    fn ask_at(&mut self, meter: Meter, now: Duration) -> Result<usize, Duration> {
        let Some(direction) = direction(meter) else { return Ok(usize::MAX) };
        if self.at_risk.is_set() || !self.pacing.has_reads(now) {
            self.turns[direction] = None;
            self.end_wait(direction, now);
            return Ok(usize::MAX);
        }
        let mut state = self.pacing.state();
        state.step_if_due(true, self.pacing.moved_bytes(), now);
        let rate = state.controller.rate_for_reads() * HEADROOM[direction];
        if direction == RECEIVING && !state.controller.has_queue() {
            drop(state);
            self.turns[direction] = None;
            self.end_wait(direction, now);
            return Ok(usize::MAX);
        }
        let turns = &mut state.turns[direction];
        turns.set_rate(rate, now);
        let turn = self.turns[direction].get_or_insert_with(|| turns.reserve());
        let Some(wait) = turns.wait(turn) else {
            let bytes = turn.bytes;
            drop(state);
            self.end_wait(direction, now);
            return Ok(bytes);
        };
        state.has_waited = true;
        self.waits_since[direction].get_or_insert(now);
        Err(wait.clamp(LEAST_WAIT, MOST_WAIT))
    }

    fn end_wait(&mut self, direction: usize, now: Duration) {
        if let Some(since) = self.waits_since[direction].take() {
            self.pacing.shared.traffic.note_held_back(now.saturating_sub(since));
        }
    }

    /// Counts bytes that have moved.
    pub(crate) fn spend(&mut self, meter: Meter, bytes: usize) {
        if self.class == Class::Read {
            self.pacing.note_read(self.pacing.now());
        }
        let Some(direction) = direction(meter) else { return };
        self.pacing.shared.all_bytes[direction].fetch_add(bytes as u64, Ordering::Relaxed);
        if self.is_background() {
            self.spend_in_background(direction, bytes);
        }
    }

    fn spend_in_background(&mut self, direction: usize, bytes: usize) {
        self.pacing.shared.background_bytes[direction].fetch_add(bytes as u64, Ordering::Relaxed);
        self.end_wait(direction, self.pacing.now()); // The reads may have ended before the turn came.
        if let Some(turn) = &mut self.turns[direction] {
            turn.bytes = turn.bytes.saturating_sub(bytes);
        }
        self.turns[direction].take_if(|turn| turn.bytes == 0);
    }

    /// Passes on what was observed of a connection on which this plan sends.
    pub(crate) fn observe(&self, sample: &PathSample) {
        let now = self.pacing.now();
        let mut state = self.pacing.state();
        let delay = state.least_round_trips.queueing_delay(sample, now);
        state.controller.handle_delay(sample.peer, delay);
        state.step_if_due(self.pacing.has_reads(now), self.pacing.moved_bytes(), now);
    }
}

/// The unsent bytes of a connection if background transfers have reached this rate.
fn unsent_bytes(peak: f64) -> f64 {
    (peak * UNSENT.as_secs_f64()).clamp(LEAST_UNSENT_BYTES, MOST_UNSENT_BYTES)
}

/// The index of the turns for a meter; `None` for the disk, which is not paced.
fn direction(meter: Meter) -> Option<usize> {
    match meter {
        Meter::Up => Some(0),
        Meter::Down => Some(RECEIVING),
        Meter::Disk => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Has the controller observe a long queue on this node's links.
    fn fill_own_links(pacing: &BackgroundPacing, now: Duration) {
        let controller = &mut pacing.state().controller;
        controller.handle_delay(std::net::Ipv4Addr::LOCALHOST.into(), 50 * MILLISECOND);
        controller
            .step(controller::Step { has_reads: true, has_waited: false, moved_bytes: 0, all_bytes: 0 }, now);
    }

    #[test]
    fn receiving_is_paced_only_while_the_own_links_have_a_queue() {
        let pacing = BackgroundPacing::new(Traffic::default());
        let mut repair = pacing.for_plan(Class::Repair, &AtRisk::default());
        let _read = pacing.for_plan(Class::Read, &AtRisk::default());
        let now = pacing.now();
        assert_eq!(repair.ask_at(Meter::Down, now), Ok(usize::MAX));
        assert!(repair.ask_at(Meter::Up, now).is_ok_and(|granted| granted < 1 << 20));
        fill_own_links(&pacing, now);
        assert!(repair.ask_at(Meter::Down, now).is_ok_and(|granted| granted < 1 << 20));
    }

    #[test]
    fn only_background_transfers_are_paced_and_only_during_reads() {
        let pacing = BackgroundPacing::new(Traffic::default());
        let mut repair = pacing.for_plan(Class::Repair, &AtRisk::default());
        assert!(!repair.is_paced());
        assert_eq!(repair.ask(Meter::Up), Ok(usize::MAX));

        let mut read = pacing.for_plan(Class::Read, &AtRisk::default());
        assert!(repair.is_paced() && !read.is_paced());
        let now = pacing.now();
        fill_own_links(&pacing, now);
        for meter in [Meter::Up, Meter::Down] {
            let granted = repair.ask_at(meter, now).unwrap();
            assert!(granted < 1 << 20, "{granted}");
            repair.spend(meter, granted);
            assert!(repair.ask_at(meter, now).is_err(), "the next turn is later");
            assert_eq!(read.ask(meter), Ok(usize::MAX));
            assert_eq!(pacing.for_plan(Class::Put, &AtRisk::default()).ask(meter), Ok(usize::MAX));
        }
        assert_eq!(repair.ask_at(Meter::Disk, now), Ok(usize::MAX));
        assert_eq!(repair.ask_at(Meter::Up, now + READS_LAST + MILLISECOND), Ok(usize::MAX));
    }

    #[test]
    fn a_job_at_risk_is_not_paced_and_still_counts() {
        let (pacing, at_risk) = (BackgroundPacing::new(Traffic::default()), AtRisk::default());
        let mut repair = pacing.for_plan(Class::Repair, &at_risk);
        let _read = pacing.for_plan(Class::Read, &AtRisk::default());
        let now = pacing.now();
        let granted = repair.ask_at(Meter::Up, now).unwrap();
        repair.spend(Meter::Up, granted);
        assert!(repair.ask_at(Meter::Up, now).is_err() && repair.is_paced());
        at_risk.set();
        assert_eq!(repair.ask_at(Meter::Up, now), Ok(usize::MAX));
        assert!(!repair.is_paced());
        repair.spend(Meter::Up, 1 << 20);
        let moved = [granted as u64 + (1 << 20), 0];
        assert_eq!(pacing.moved_bytes(), [moved, moved]);
    }

    #[test]
    fn the_time_of_waiting_for_turns_is_counted() {
        let traffic = Traffic::default();
        let pacing = BackgroundPacing::new(traffic.clone());
        let mut repair = pacing.for_plan(Class::Repair, &AtRisk::default());
        let _read = pacing.for_plan(Class::Read, &AtRisk::default());
        let now = pacing.now();
        let granted = repair.ask_at(Meter::Up, now).unwrap();
        repair.spend(Meter::Up, granted);
        assert_eq!(traffic.held_back(), Duration::ZERO);
        for waited in [0, 1] {
            assert!(repair.ask_at(Meter::Up, now + waited * MILLISECOND).is_err());
        }
        assert!(repair.ask_at(Meter::Up, now + 500 * MILLISECOND).is_ok());
        assert!(traffic.held_back().abs_diff(500 * MILLISECOND) < MILLISECOND, "{:?}", traffic.held_back());
    }

    #[test]
    fn connections_keep_fewer_unsent_bytes_on_slow_links() {
        let pacing = BackgroundPacing::new(Traffic::default());
        assert_eq!(pacing.unsent_bytes(), 128 << 10, "the rate is not known");
        let bytes = [1e6, 12.5e6, 2e9].map(unsent_bytes);
        assert_eq!(bytes, [16384.0, 25000.0, 131072.0]);
    }

    #[test]
    fn bytes_of_a_read_keep_the_pacing_up() {
        let pacing = BackgroundPacing::new(Traffic::default());
        let mut read = pacing.for_plan(Class::Read, &AtRisk::default());
        let begun = Duration::from_micros(pacing.shared.read_at_us.load(Ordering::Relaxed));
        std::thread::sleep(5 * MILLISECOND);
        read.spend(Meter::Up, 1);
        assert!(pacing.has_reads(begun + READS_LAST + MILLISECOND));
        assert_eq!(pacing.moved_bytes(), [[0, 0], [1, 0]]);
    }

    /// Two jobs that always have data share the rate evenly, and neither exceeds it.
    #[test]
    fn jobs_take_turns() {
        let pacing = BackgroundPacing::new(Traffic::default());
        pacing.note_read(Duration::from_micros(1));
        let mut jobs = [
            pacing.for_plan(Class::Repair, &AtRisk::default()),
            pacing.for_plan(Class::Repair, &AtRisk::default()),
        ];
        let mut moved = [0, 0];
        for now in (0..900).map(|ms| ms * MILLISECOND) {
            for (job, moved) in jobs.iter_mut().zip(&mut moved) {
                if let Ok(bytes) = job.ask_at(Meter::Up, now) {
                    job.spend(Meter::Up, bytes);
                    *moved += bytes;
                }
            }
        }
        let [first, second] = moved;
        assert!(first.abs_diff(second) <= first / 10, "{first} and {second}");
        let rate = pacing.state().controller.rate_for_reads();
        assert!((first + second) as f64 <= rate, "{first} and {second} in 0.9 s, at most at {rate} a second");
    }
}
