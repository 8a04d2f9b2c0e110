//! A token bucket that takes the time as an argument.

use std::time::Duration;

use super::Class;

/// The time in which a bucket fills, which decides the bucket's size. Short, to keep bursts small.
const BURST: Duration = Duration::from_millis(100);
/// The minimum size of a bucket, so that a low cap does not split slices into tiny pieces.
const MIN_BURST_BYTES: f64 = (16 << 10) as f64;
/// The maximum size of a bucket.
const MAX_BURST_BYTES: f64 = (32 << 20) as f64;
/// A class must wait until at least this share of a full bucket is available to it: moving a few bytes costs
/// as much as moving many.
const STEP: f64 = 0.25;

/// A token bucket for one rate. Bytes are charged after they moved, so the level may be negative; then every
/// class waits.
///
/// Classes share a bucket: each has a floor, the level below which it takes nothing. While reads use the
/// whole inflow, the level never rises to the floor of puts, and the floor of repairs is higher still.
/// Classes need no knowledge of each other, and a class that stops waiting leaves no state behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Bytes per second.
    rate: f64,
    level: f64,
    filled_at: Duration,
    /// Bytes moved, and bytes that overflowed the full bucket, since the last call of `unused` or change of
    /// the rate.
    moved: f64,
    ran_over: f64,
}

impl Bucket {
    pub(super) fn new(rate: u64, now: Duration) -> Self {
        Self { rate: rate as f64, level: 0.0, filled_at: now, moved: 0.0, ran_over: 0.0 }
    }

    /// Sets another rate. Reduces a debt from the old rate to at most one full bucket; a larger debt would
    /// cause a long wait.
    pub(super) fn set_rate(&mut self, rate: u64, now: Duration) {
        if self.rate == rate as f64 {
            return;
        }
        self.fill(now);
        (self.moved, self.ran_over) = (0.0, 0.0);
        self.rate = rate as f64;
        self.level = self.level.clamp(-self.size(), self.size());
    }

    fn size(&self) -> f64 {
        (self.rate * BURST.as_secs_f64()).clamp(MIN_BURST_BYTES, MAX_BURST_BYTES)
    }

    fn fill(&mut self, now: Duration) {
        let flowed = self.rate * now.saturating_sub(self.filled_at).as_secs_f64();
        let level = self.level + flowed;
        self.level = level.min(self.size());
        self.ran_over += level - self.level;
        self.filled_at = self.filled_at.max(now);
    }

    /// The number of bytes that a class may move now.
    pub(super) fn allowance(&mut self, class: Class, now: Duration) -> usize {
        self.fill(now);
        let allowance = self.level - class.floor() * self.size();
        if allowance + 1.0 < STEP * self.size() { 0 } else { allowance as usize }
    }

    /// The time until a class that may move nothing should ask again.
    pub(super) fn wait(&self, class: Class) -> Duration {
        let missing = (class.floor() + STEP) * self.size() - self.level;
        Duration::from_secs_f64((missing.max(1.0) / self.rate.max(1.0)).min(3600.0))
    }

    pub(super) fn spend(&mut self, bytes: usize) {
        self.level -= bytes as f64;
        self.moved += bytes as f64;
    }

    /// The unused share of the inflow since the last query or change of the rate; `None` if nothing has moved
    /// or overflowed since then. This is the case while a new bucket fills, for example.
    pub(super) fn unused(&mut self, now: Duration) -> Option<f64> {
        self.fill(now);
        let (moved, ran_over) = (std::mem::take(&mut self.moved), std::mem::take(&mut self.ran_over));
        (moved + ran_over > 0.0).then(|| ran_over / (moved + ran_over))
    }
}
