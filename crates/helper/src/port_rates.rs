//! Measures the throughput of this node's network ports under real transfers, as a lower bound on their
//! capacity.
//!
//! A port that is seldom saturated reveals little about its capacity. So only the maximum over a period is
//! reported, and the coordinator treats it as a lower bound.

use std::time::{Duration, Instant};

use crate::traffic::Moved;

/// The minimum measuring interval; shorter ones would report bursts.
const LEAST: Duration = Duration::from_millis(500);
/// A reported value is valid for this long; then a new period begins.
const HOLDS: Duration = Duration::from_secs(600);

/// The traffic counters at the last measurement, and the rates reported last.
#[derive(Debug)]
pub(crate) struct PortRates {
    looked: Instant,
    moved: Moved,
    said: Option<(Instant, [u64; 2])>,
}

impl PortRates {
    pub(crate) fn new(moved: Moved, now: Instant) -> Self {
        Self { looked: now, moved, said: None }
    }

    /// Measures the bytes per second sent and received since the last measurement. If either exceeds the last
    /// report by more than 5%, returns the maxima of the current period.
    pub(crate) fn look(&mut self, moved: Moved, now: Instant) -> Option<[u64; 2]> {
        let passed = now.duration_since(self.looked);
        if passed < LEAST {
            return None;
        }
        let rate = |bytes: u64| (bytes as f64 / passed.as_secs_f64()) as u64;
        let rates = [rate(moved.sent - self.moved.sent), rate(moved.received - self.moved.received)];
        (self.looked, self.moved) = (now, moved);
        let (at, said) = self.said.filter(|(at, _)| now < *at + HOLDS).unwrap_or((now, [0; 2]));
        let busier = |rate: u64, said: u64| rate > said + said / 20;
        if !(busier(rates[0], said[0]) || busier(rates[1], said[1])) {
            return None;
        }
        let busiest = [rates[0].max(said[0]), rates[1].max(said[1])];
        self.said = Some((at, busiest));
        Some(busiest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_is_reported_once_per_period() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let moved = |sent, received| Moved { sent, received, ..Moved::default() };
        let mut rates = PortRates::new(moved(0, 0), start);
        assert_eq!(rates.look(moved(50, 0), at(0.1)), None, "a burst");
        assert_eq!(rates.look(moved(100, 10), at(1.0)), Some([100, 10]));
        assert_eq!(rates.look(moved(202, 20), at(2.0)), None, "hardly busier");
        assert_eq!(rates.look(moved(250, 120), at(3.0)), Some([100, 100]));
        assert_eq!(rates.look(moved(250, 120), at(4.0)), None, "idle");
        assert_eq!(rates.look(moved(250 + 640, 120), at(644.0)), Some([1, 0]), "what was said is old");
    }
}
