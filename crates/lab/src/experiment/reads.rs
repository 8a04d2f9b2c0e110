//! Summarizes the reads that clients do during another activity.

use std::time::Duration;

use super::milliseconds;
use crate::figure::plot::Named;

/// Rate and latencies of reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reads {
    per_second: f64,
    median: Duration,
    p99: Duration,
    failed: usize,
}

impl Reads {
    /// Summarizes reads with these latencies, which took place within the time `within`.
    pub(crate) fn of(mut latencies: Vec<Duration>, within: Duration, failed: usize) -> Self {
        latencies.sort();
        Self {
            per_second: latencies.len() as f64 / within.as_secs_f64(),
            median: percentile(&latencies, 0.5),
            p99: percentile(&latencies, 0.99),
            failed,
        }
    }

    /// Returns table cells: reads per second, median and p99 latency in milliseconds, failed reads.
    pub(crate) fn cells(&self) -> [String; 4] {
        let rate = format!("{:.0}", self.per_second);
        [rate, milliseconds(self.median), milliseconds(self.p99), self.failed.to_string()]
    }

    /// Returns the values of a drawing: the median and the 99th percentile of the latency in milliseconds.
    pub(crate) fn named(&self, tick: &str) -> [Named; 2] {
        [("median", self.median), ("99th percentile", self.p99)]
            .map(|(name, latency)| (tick.to_owned(), name.to_owned(), latency.as_secs_f64() * 1e3))
    }

    /// Returns a one-line summary.
    pub(crate) fn summary(&self) -> String {
        let [rate, median, p99, failed] = self.cells();
        format!("{rate} reads/s, median {median} ms, p99 {p99} ms, {failed} failed")
    }
}

/// Returns the percentile `part` (from 0 to 1) of latencies in ascending order; zero if there are none.
pub(crate) fn percentile(sorted: &[Duration], part: f64) -> Duration {
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_summed_up() {
        let latencies = (1..=200).rev().map(Duration::from_millis).collect();
        let reads = Reads::of(latencies, Duration::from_secs(4), 3);
        assert_eq!(reads.summary(), "50 reads/s, median 101.0 ms, p99 199.0 ms, 3 failed");
        let values = reads.named("idle").map(|(tick, _, value)| (tick, value.round()));
        assert_eq!(values, [("idle".to_owned(), 101.0), ("idle".to_owned(), 199.0)]);
    }

    #[test]
    fn no_read_at_all_is_no_latency() {
        let reads = Reads::of(Vec::new(), Duration::from_secs(4), 7);
        assert_eq!(reads.cells(), ["0", "0.0", "0.0", "7"]);
    }
}
