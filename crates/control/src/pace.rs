//! The pace of background reads.

use std::time::Duration;

/// After a pause, reads may catch up on at most this much unused time.
const CREDIT: Duration = Duration::from_secs(1);

/// The time at which the next read may start, so that reads stay within a rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    due: Duration,
}

impl Pace {
    pub(crate) fn is_due(self, now: Duration) -> bool {
        self.due <= now
    }

    /// Delays the next read by the time that a read of `bytes`, which starts now, takes at `rate` bytes per
    /// second.
    pub(crate) fn spend(&mut self, bytes: u64, rate: u64, now: Duration) {
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        self.due = self.due.max(now.saturating_sub(CREDIT)) + cost;
    }

    /// Delays the next read until this time, if it would start earlier.
    pub(crate) fn rest_until(&mut self, time: Duration) {
        self.due = self.due.max(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_earns_the_reads_of_one_second() {
        let (mut pace, now) = (Pace::default(), Duration::from_secs(100));
        let mut reads = 0;
        while pace.is_due(now) {
            pace.spend(10, 100, now);
            reads += 1;
        }
        assert_eq!(reads, 11);
        pace.rest_until(Duration::from_secs(200));
        assert!(!pace.is_due(Duration::from_secs(199)) && pace.is_due(Duration::from_secs(200)));
    }
}
