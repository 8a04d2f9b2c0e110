use proptest::prelude::*;

use super::*;

const TICK: f64 = 0.001;
/// The node at the other end of the link's connections.
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// The queue of a link drops what would wait longer than this.
const BUFFER_SECONDS: f64 = 0.05;

/// A simulated link with a queue, which reads and background transfers share.
struct Link {
    /// Bytes per second.
    capacity: f64,
    /// The bytes per second of reads.
    reads: f64,
    /// The time constant of the observed delay, in seconds: observations lag behind the queue.
    lag: f64,
    /// The rate that background transfers could use, in bytes per second.
    demand: f64,
    now: f64,
    queue: f64,
    observed: f64,
    sent: f64,
    /// The bytes of reads that have passed the link since the last step.
    read: f64,
    has_waited: bool,
    controller: Controller,
}

/// The means over a period.
#[derive(Debug)]
struct Outcome {
    /// The rate of background transfers as a part of the link's capacity.
    background: f64,
    mean_delay: f64,
    most_delay: f64,
}

impl Link {
    fn new(capacity: f64, reads: f64, lag: f64) -> Self {
        let (demand, controller) = (f64::INFINITY, Controller::default());
        let (now, queue, observed, sent, read, has_waited) = (0.0, 0.0, 0.0, 0.0, 0.0, false);
        Self { capacity, reads, lag, demand, now, queue, observed, sent, read, has_waited, controller }
    }

    /// Passes time with or without reads.
    fn run(&mut self, seconds: f64, has_reads: bool) -> Outcome {
        let ticks = (seconds / TICK) as usize;
        let (mut background, mut delays, mut most_delay) = (0.0, 0.0, 0.0_f64);
        for _ in 0..ticks {
            background += self.tick(has_reads);
            delays += self.queue / self.capacity;
            most_delay = most_delay.max(self.queue / self.capacity);
        }
        let background = background / (ticks as f64 * TICK) / self.capacity;
        Outcome { background, mean_delay: delays / ticks as f64, most_delay }
    }

    /// Returns the bytes that background transfers sent.
    fn tick(&mut self, has_reads: bool) -> f64 {
        self.now += TICK;
        let rate = if has_reads { self.controller.rate_for_reads() } else { f64::INFINITY };
        self.has_waited |= self.demand > rate;
        let reads = if has_reads { self.reads } else { 0.0 };
        let mut background = rate.min(self.demand).min(3.0 * self.capacity) * TICK;
        let queue = (self.queue + background + (reads - self.capacity) * TICK).max(0.0);
        self.queue = queue.min(BUFFER_SECONDS * self.capacity);
        background -= (queue - self.queue).min(background);
        self.observed += (self.queue / self.capacity - self.observed) * (1.0 - (-TICK / self.lag).exp());
        self.sent += background;
        self.read += reads.min(self.capacity) * TICK;
        self.step_if_due(has_reads);
        background
    }

    fn step_if_due(&mut self, has_reads: bool) {
        let now = Duration::from_secs_f64(self.now);
        if self.controller.is_due(now) {
            self.controller.handle_delay(PEER, Duration::from_secs_f64(self.observed));
            let (moved_bytes, has_waited) = (self.sent as u64, self.has_waited);
            let all_bytes = moved_bytes + self.read as u64;
            self.controller.step(Step { has_reads, has_waited, moved_bytes, all_bytes }, now);
            (self.sent, self.read, self.has_waited) = (0.0, 0.0, false);
        }
    }
}

proptest! {
    /// For any rate of the link, and any part that reads use, the queue settles near the target, and background
    /// transfers use the rest.
    #[test]
    fn the_queue_settles_and_the_link_stays_busy(
        capacity in 1e6..2e9,
        part in 0.0..0.8,
        lag in 0.02..0.15,
    ) {
        let mut link = Link::new(capacity, part * capacity, lag);
        link.run(2.0, false);
        link.run(8.0, true);
        let outcome = link.run(16.0, true);
        let target = link.controller.target().as_secs_f64();
        prop_assert!(outcome.background >= 0.95 * (1.0 - part), "{outcome:?}");
        prop_assert!(outcome.mean_delay <= 1.2 * target, "{outcome:?}");
        prop_assert!(outcome.most_delay <= 4.0 * target, "{outcome:?}");
    }

    /// However crowded a link is, repairs keep a part of the highest rate that it had.
    #[test]
    fn the_floor_is_respected(capacity in 1e6..2e9, part in 1.0..3.0, lag in 0.02..0.15) {
        let mut link = Link::new(capacity, part * capacity, lag);
        link.run(2.0, false);
        link.run(10.0, true);
        let rate = link.controller.rate_for_reads();
        prop_assert!(rate >= 0.99 * FLOOR_PART * link.controller.background.peak, "{rate}");
        prop_assert!(rate <= 1.01 * FLOOR_PART * link.controller.all.peak.max(capacity), "{rate}");
    }

    /// Repairs that begin while reads fill the link have never been fast, and keep a part of the link's rate all the same.
    #[test]
    fn repairs_that_begin_on_a_crowded_link_get_the_same_part(capacity in 1e6..2e9, part in 1.0..3.0, moved in 0.0..1e5) {
        let mut link = Link::new(capacity, part * capacity, 0.05);
        (link.demand, link.queue) = (moved, BUFFER_SECONDS * capacity);
        link.run(2.0, true);
        link.demand = f64::INFINITY;
        link.run(60.0, true);
        let rate = link.controller.rate_for_reads();
        prop_assert!(rate >= 0.95 * FLOOR_PART * capacity, "{rate}");
    }
}

/// The lowest rate must not sink together with the rate that it limits.
#[test]
fn the_floor_stays_where_it_is_for_an_hour() {
    let mut link = Link::new(12.5e6, 20e6, 0.05);
    link.run(5.0, false);
    let peak = link.controller.background.peak;
    link.run(3600.0, true);
    let rate = link.controller.rate_for_reads();
    assert!(rate >= 0.99 * FLOOR_PART * peak, "{rate} after a peak of {peak}");
}

/// Hours without repairs say nothing about their highest rate.
#[test]
fn a_highest_rate_outlives_an_idle_time() {
    let mut link = Link::new(12.5e6, 1e6, 0.05);
    link.run(5.0, false);
    let peak = link.controller.background.peak;
    let idle = Step { has_reads: true, has_waited: false, moved_bytes: 0, all_bytes: 0 };
    link.controller.step(idle, Duration::from_secs(3600));
    assert_eq!(link.controller.background.peak, peak);
}

#[test]
fn a_node_that_has_sent_little_starts_like_one_that_has_sent_nothing() {
    let mut controller =
        Controller { background: Rates { mean: 0.0, peak: 1000.0 }, ..Controller::default() };
    assert_eq!(controller.rate_for_reads(), FIRST_RATE);
}

#[test]
fn a_highest_rate_that_transfers_no_longer_want_is_forgotten() {
    let mut controller = Controller { background: Rates { mean: 0.0, peak: 1e8 }, ..Controller::default() };
    controller.rate_for_reads();
    let idle = Step { has_reads: true, has_waited: false, moved_bytes: 0, all_bytes: 0 };
    (1..=20 * 600).for_each(|step| controller.step(idle, STEP * step));
    assert!(controller.background.peak < 0.4e8, "{}", controller.background.peak);
}

#[test]
fn without_reads_there_is_no_limit() {
    let mut link = Link::new(12.5e6, 1e6, 0.05);
    let alone = link.run(5.0, false);
    assert!(alone.background > 0.99 && alone.mean_delay > 0.04, "{alone:?}");
    link.run(5.0, true);
    assert!(link.controller.rate.is_some());
    link.run(0.2, false);
    assert_eq!(link.controller.rate, None);
}

#[test]
fn a_full_queue_drains_as_soon_as_reads_begin() {
    let mut link = Link::new(12.5e6, 1e6, 0.05);
    link.run(5.0, false);
    link.run(0.25, true);
    assert!(link.queue / link.capacity < link.controller.target().as_secs_f64(), "{} bytes", link.queue);
}

#[test]
fn transfers_without_a_queue_are_not_slowed_down() {
    let mut link = Link::new(12.5e6, 1e6, 0.05);
    link.demand = 6e6;
    link.run(5.0, false);
    let outcome = link.run(5.0, true);
    assert!(outcome.background * link.capacity > 0.97 * link.demand, "{outcome:?}");
}

#[test]
fn a_rate_that_is_not_used_does_not_grow() {
    let mut link = Link::new(12.5e6, 1e6, 0.05);
    link.run(5.0, false);
    link.run(5.0, true);
    link.demand = 1e6;
    link.run(1.0, true);
    let rate = link.controller.rate_for_reads();
    link.run(5.0, true);
    assert!(link.controller.rate_for_reads() <= rate);
}

#[test]
fn a_node_that_has_sent_nothing_yet_starts_slowly_and_grows() {
    let mut controller = Controller::default();
    let first = controller.rate_for_reads();
    assert_eq!(first, FIRST_RATE);
    for step in 1..=60 {
        let moved_bytes = (controller.rate_for_reads() * STEP.as_secs_f64()) as u64;
        controller.step(
            Step { has_reads: true, has_waited: true, moved_bytes, all_bytes: moved_bytes },
            STEP * step,
        );
    }
    assert!(controller.rate_for_reads() > 2.0 * first);
}

#[test]
fn a_rate_is_not_continued_after_a_pause() {
    let mut link = Link::new(12.5e6, 12e6, 0.05);
    link.run(5.0, false);
    link.run(5.0, true);
    let paused = Duration::from_secs_f64(link.now) + STALE;
    link.controller.step(Step { has_reads: true, has_waited: false, moved_bytes: 0, all_bytes: 0 }, paused);
    assert_eq!(link.controller.rate, None);
}

#[test]
fn a_queue_that_others_fill_ends_the_draining() {
    let mut link = Link::new(12.5e6, 20e6, 0.05);
    link.run(5.0, false);
    link.run(0.5, true);
    assert!(link.controller.draining_steps > 0);
    link.run(2.0, true);
    assert_eq!(link.controller.draining_steps, 0);
}

/// On a slow link, some steps pass without an observation.
#[test]
fn a_delay_holds_for_a_while() {
    const HOLDS_STEPS: u32 = 10;
    let mut controller =
        Controller { background: Rates { mean: 12.5e6, peak: 12.5e6 }, ..Controller::default() };
    controller
        .step(Step { has_reads: false, has_waited: false, moved_bytes: 600_000, all_bytes: 600_000 }, STEP);
    let first = controller.rate_for_reads();
    controller.handle_delay(PEER, TARGET * 3);
    let waits = Step { has_reads: true, has_waited: true, moved_bytes: 600_000, all_bytes: 600_000 };
    (2..=HOLDS_STEPS).for_each(|step| controller.step(waits, STEP * step));
    let shrunk = controller.rate_for_reads();
    assert!(shrunk < 0.95 * first, "{shrunk} after {first}");
    (HOLDS_STEPS + 1..40).for_each(|step| controller.step(waits, STEP * step));
    assert!(controller.rate_for_reads() > shrunk);
}

/// Their mean rate is low at first, although the link is fast.
#[test]
fn transfers_that_begin_during_reads_keep_much_of_the_rate_that_was_seen() {
    let mut controller =
        Controller { background: Rates { mean: 0.0, peak: 12.5e6 }, ..Controller::default() };
    let moved_bytes = (controller.rate_for_reads() * STEP.as_secs_f64()) as u64;
    let waits = Step { has_reads: true, has_waited: true, moved_bytes, all_bytes: moved_bytes };
    (1..=3).for_each(|step| controller.step(waits, STEP * step));
    let rate = controller.rate_for_reads();
    assert!(rate > 0.49 * 12.5e6, "{rate}");
}

/// The transfers wait for others most of the time, and for their turns only now and then.
#[test]
fn the_rate_stays_near_the_rate_that_is_reached() {
    let mut link = Link::new(12.5e6, 1e6, 0.05);
    link.demand = 4e6;
    link.run(5.0, false);
    link.run(1.0, true);
    for _ in 0..200 {
        link.has_waited = true;
        link.run(0.05, true);
    }
    let rate = link.controller.rate_for_reads() / link.demand;
    assert!((1.0..1.01 * MOST_OF_MEAN).contains(&rate), "{rate}");
}
