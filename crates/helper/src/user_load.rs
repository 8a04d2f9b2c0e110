//! Measures the user load: the rate at which this helper sends what clients read.

use std::time::{Duration, Instant};

/// The minimum measuring interval; shorter ones would report bursts.
const LEAST: Duration = Duration::from_millis(500);

/// The counter at the last measurement, and the rate that was told last.
#[derive(Debug)]
pub(crate) struct UserLoad {
    looked: Instant,
    sent_bytes: u64,
    told: u64,
}

impl UserLoad {
    /// Creates a measurement at whose start `sent_bytes` were already sent, and no load was told.
    pub(crate) fn new(sent_bytes: u64, now: Instant) -> Self {
        Self { looked: now, sent_bytes, told: 0 }
    }

    /// Measures the bytes per second sent for clients since the last measurement. Returns the rate if it
    /// differs by more than a tenth from the one that was told last.
    pub(crate) fn look(&mut self, sent_bytes: u64, now: Instant) -> Option<u64> {
        let passed = now.duration_since(self.looked);
        if passed < LEAST {
            return None;
        }
        let rate = ((sent_bytes - self.sent_bytes) as f64 / passed.as_secs_f64()) as u64;
        (self.looked, self.sent_bytes) = (now, sent_bytes);
        if rate.abs_diff(self.told) <= self.told / 10 {
            return None;
        }
        self.told = rate;
        Some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_told_when_it_changes() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut load = UserLoad::new(1000, start);
        assert_eq!(load.look(1500, at(0.4)), None, "a burst");
        assert_eq!(load.look(2000, at(2.0)), Some(500));
        assert_eq!(load.look(2550, at(3.0)), None, "a tenth more");
        assert_eq!(load.look(3150, at(4.0)), Some(600));
        assert_eq!(load.look(3150, at(5.0)), Some(0), "the clients have gone");
        assert_eq!(load.look(3150, at(6.0)), None);
    }
}
