//! Chooses the rate of background transfers while clients read, from queueing delays.
//!
//! As in LEDBAT (RFC 6817), the rate grows while packets queue for less than a target time, and shrinks while
//! they queue for longer. LEDBAT sets a window of bytes in flight for each connection. A node has dozens of
//! background connections, and one packet of each may already exceed the target, so this controller sets one
//! rate for all of them. [`Delays`] has the queueing delay that it reacts to.

use std::net::IpAddr;
use std::time::Duration;

use super::delays::Delays;
use super::turns::LEAST_TURN_BYTES;

/// The queueing delay that background transfers may cause on this node's links. A degraded read passes the
/// links of several nodes, one after the other, and is delayed by the sum.
const TARGET: Duration = Duration::from_micros(2500);
/// On slow links, the target is the time of a turn at the highest rate seen, up to a limit, because the
/// bytes of a turn are sent at once.
const TARGET_BYTES: f64 = LEAST_TURN_BYTES;
const MOST_TARGET: Duration = Duration::from_millis(15);
/// The interval between two changes of the rate.
const STEP: Duration = Duration::from_millis(50);
/// The relative growth of the rate in a step without any queue. It decreases to 0 at the target, and is
/// negative above the target.
const GAIN: f64 = 0.01;
/// A delay counts as at most this many times the target.
const MOST_TARGETS: f64 = 4.0;
/// The part of a step's overload that the next step corrects. The overload is the growth of the delay divided
/// by the time in which it grew.
const DAMPING: f64 = 0.75;
/// The largest relative change in a step, upwards and downwards.
const MOST_GROWTH: f64 = 0.1;
const MOST_SHRINKING: f64 = 0.3;
/// The rate grows by `CLEAR_GROWTH` after so many steps in which the delay was at most this part of the
/// target, and by `MOST_GROWTH` after twice as many.
const CLEAR_GROWTH: f64 = 0.05;
const CLEAR_STEPS: u32 = 20;
const CLEAR: f64 = 0.25;
/// The rate is at most so many times the mean rate that the transfers have reached. They often wait for others, so the
/// rate would otherwise grow far beyond the rate of the link. This limit is not less than `FIRST_RATE` and this part of
/// the highest rate seen: the mean says little about transfers that have just begun, or that use less than half of their
/// turns because the node's processors are busy.
const MOST_OF_MEAN: f64 = 3.0;
const LEAST_LIMIT_PART: f64 = 0.5;
/// The first rate when reads begin, as a part of the highest rate seen, and the least in bytes per second.
const FIRST_PART: f64 = 0.75;
const FIRST_RATE: f64 = (1 << 20) as f64;
/// If there is a queue when reads begin, it first drains at the lowest rate, for at most this number of
/// steps.
const DRAINING_STEPS: u32 = 20;
/// The lowest rate, as a part of the highest rate of all the node's transfers and in bytes per second: repairs must make
/// progress, also those that begin while reads fill the links.
const FLOOR_PART: f64 = 0.1;
const FLOOR_RATE: f64 = (64 << 10) as f64;
/// The time constant of the mean rate, and the time in which the highest mean rate is forgotten while it could be
/// reached, in seconds.
const MEAN_SECONDS: f64 = 1.0;
const PEAK_SECONDS: f64 = 600.0;
/// A rate and a delay are not continued after a longer time without background transfers.
const STALE: Duration = Duration::from_secs(2);

/// The rate of a node's background transfers.
#[derive(Debug, Default)]
pub(super) struct Controller {
    /// Bytes per second in each direction; `None` while there are no reads.
    rate: Option<f64>,
    /// The rates of background transfers, and of all the node's transfers.
    background: Rates,
    all: Rates,
    stepped_at: Duration,
    delays: Delays,
    /// The delay of this node's links, and the one that background transfers cause on all links, at the last step.
    own_delay: Option<Duration>,
    delay: Option<Duration>,
    /// The number of successive steps with hardly any delay.
    clear_steps: u32,
    /// The number of steps for which the queue may still drain.
    draining_steps: u32,
}

/// The mean rate of transfers, and the highest mean, in bytes per second.
#[derive(Debug, Default)]
struct Rates {
    mean: f64,
    peak: f64,
}

/// The events since the last step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Whether this node takes part in reads.
    pub(super) has_reads: bool,
    /// Whether a background transfer had to wait, so that it would have used a higher rate.
    pub(super) has_waited: bool,
    /// The bytes that background transfers have sent, or those that they have received if these are more.
    pub(super) moved_bytes: u64,
    /// The same for all the node's transfers.
    pub(super) all_bytes: u64,
}

impl Rates {
    /// Updates the rates with the bytes of a step. `kept` is the part of the highest rate that is not forgotten in it.
    fn count(&mut self, bytes: u64, seconds: f64, kept: f64) {
        let rate = bytes as f64 / seconds;
        self.mean += (rate - self.mean) * (1.0 - (-seconds / MEAN_SECONDS).exp());
        self.peak = self.mean.max(self.peak * kept);
    }
}

impl Controller {
    /// Returns the rate in bytes per second while there are reads. The first call chooses the first rate.
    pub(super) fn rate_for_reads(&mut self) -> f64 {
        if let Some(rate) = self.rate {
            return rate;
        }
        let is_congested = self.delay.is_some_and(|delay| delay > self.target());
        let rate = if is_congested { self.floor() } else { self.first_rate() };
        self.draining_steps = if is_congested { DRAINING_STEPS } else { 0 };
        (self.rate, self.clear_steps) = (Some(rate), CLEAR_STEPS);
        rate
    }

    /// Whether the links of this node have a queue, so that receiving is paced as well.
    pub(super) fn has_queue(&self) -> bool {
        self.own_delay.is_some_and(|delay| delay > self.target())
    }

    /// Returns the highest mean rate seen, in bytes per second; 0 if background transfers have not moved anything.
    pub(super) fn peak(&self) -> f64 {
        self.background.peak
    }

    /// Handles the queueing delay of a connection to a peer.
    pub(super) fn handle_delay(&mut self, peer: IpAddr, delay: Duration) {
        self.delays.note(peer, delay);
    }

    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.stepped_at + STEP
    }

    /// Updates the rate; call when a step [is due](Self::is_due).
    pub(super) fn step(&mut self, seen: Step, now: Duration) {
        let elapsed = now.saturating_sub(self.stepped_at);
        self.stepped_at = now;
        self.count(seen, elapsed);
        let overload = self.take_delay(elapsed);
        let continues = seen.has_reads && elapsed < STALE;
        self.rate = match self.rate.filter(|_| continues) {
            Some(_) if self.draining_steps > 0 => Some(self.drain()),
            Some(rate) => {
                let change = self.change(overload);
                let is_wanted = change < 0.0 || seen.has_waited;
                let rate = if is_wanted { rate * (1.0 + change) } else { rate };
                Some(rate.min(self.limit()).max(self.floor()))
            }
            None => None,
        };
    }

    /// Returns the rate of the next step while the queue drains.
    fn drain(&mut self) -> f64 {
        if self.delay.is_none_or(|delay| delay > self.target()) {
            self.draining_steps -= 1;
            return self.floor();
        }
        self.draining_steps = 0;
        self.first_rate_of(FIRST_PART)
    }

    /// Updates the mean and the highest rates. While pacing limits the transfers, their mean rate says nothing about
    /// the rate that they could use. If the highest rate were forgotten then, the lowest one would sink with it. A time
    /// without background transfers says nothing either.
    fn count(&mut self, seen: Step, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let is_limited = self.rate.is_some() && seen.has_waited;
        let kept = if is_limited || elapsed >= STALE { 1.0 } else { (-seconds / PEAK_SECONDS).exp() };
        self.background.count(seen.moved_bytes, seconds, kept);
        self.all.count(seen.all_bytes, seconds, kept);
    }

    /// Begins another step's delays. Returns the overload of the link: by which part the arriving bytes
    /// exceeded its rate.
    fn take_delay(&mut self, elapsed: Duration) -> f64 {
        if elapsed >= STALE {
            (self.delays, self.delay) = Default::default();
        }
        let before = self.delay;
        (self.own_delay, self.delay) = (self.delays.own(), self.delays.of_all(self.target()));
        self.delays.step();
        let is_clear = self.delay.is_none_or(|delay| delay <= self.target().mul_f64(CLEAR));
        self.clear_steps = if is_clear { self.clear_steps.saturating_add(1) } else { 0 };
        match before.zip(self.delay) {
            Some((before, now)) => (now.as_secs_f64() - before.as_secs_f64()) / elapsed.as_secs_f64(),
            None => 0.0,
        }
    }

    /// The relative change of the rate.
    fn change(&self, overload: f64) -> f64 {
        let targets = self.delay.map_or(0.0, |delay| delay.as_secs_f64() / self.target().as_secs_f64());
        let growth = match self.clear_steps / CLEAR_STEPS {
            0 => GAIN * (1.0 - targets.min(MOST_TARGETS)),
            1 => CLEAR_GROWTH,
            _ => MOST_GROWTH,
        };
        (growth - DAMPING * overload).clamp(-MOST_SHRINKING, MOST_GROWTH)
    }

    fn target(&self) -> Duration {
        let peak = self.background.peak;
        if peak == 0.0 {
            return TARGET;
        }
        Duration::from_secs_f64(TARGET_BYTES / peak.max(FLOOR_RATE)).clamp(TARGET, MOST_TARGET)
    }

    fn first_rate(&self) -> f64 {
        let is_busy = self.background.mean > FIRST_PART * self.background.peak;
        // Transfers that run without a queue are left alone.
        let has_room = is_busy && self.delay.is_none_or(|delay| delay <= self.target());
        self.first_rate_of(if has_room { 1.0 } else { FIRST_PART })
    }

    /// Returns the first rate, with this part of the highest rate seen.
    fn first_rate_of(&self, part: f64) -> f64 {
        (part * self.background.peak).max(FIRST_RATE).max(self.floor())
    }

    fn limit(&self) -> f64 {
        let Rates { mean, peak } = self.background;
        (MOST_OF_MEAN * mean).max(LEAST_LIMIT_PART * peak).max(FIRST_RATE)
    }

    fn floor(&self) -> f64 {
        (FLOOR_PART * self.all.peak).max(FLOOR_RATE)
    }
}

#[cfg(test)]
mod shared_links;
#[cfg(test)]
mod tests;
