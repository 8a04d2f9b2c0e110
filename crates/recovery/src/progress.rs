//! Progress of a repair: amount done, rate, and estimated end.
//!
//! Rates are computed over a window and not since the start, because caps change, nodes come and go, and the
//! last hour says little about the next. The estimate is a range, from the rate of the fastest interval in
//! the window to that of the slowest.

use std::collections::VecDeque;
use std::time::Duration;

use repair::Resource;

use super::nodes::NodeTable;

/// Minimum time between samples. A sample that comes earlier only updates the latest value.
const STRETCH: Duration = Duration::from_secs(5);
/// Number of intervals in the window.
const STRETCHES: usize = 12;
/// Minimum number of intervals for an estimate.
const LEAST_STRETCHES: usize = 2;
/// There is no estimate before this part of the total is done or the window is full, because the first slices
/// say little about the rest.
const LEAST_PART: f64 = 0.01;
/// The search for the slowest interval starts at the first interval with at least this part of the fastest
/// rate. Before that, work was still starting.
const STARTED: f64 = 0.1;

/// Samples of the amount done over time.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Time, and the bytes done by then.
    samples: VecDeque<(Duration, u64)>,
    latest: Option<(Duration, u64)>,
}

/// Estimated time from now until the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Time left at the rate of the fastest interval.
    pub soonest: Duration,
    /// Time left at the rate of the slowest interval. `None` if there was an interval without progress.
    pub latest: Option<Duration>,
}

impl Progress {
    /// Records the bytes of blocks repaired by now. The number may decrease if repaired blocks are lost
    /// again.
    pub fn note(&mut self, now: Duration, bytes_done: u64) {
        // The window starts with the first progress.
        if self.samples.len() == 1 && self.samples[0].1 == bytes_done {
            self.samples.clear();
        }
        if self.samples.back().is_none_or(|&(at, _)| now >= at + STRETCH) {
            self.samples.push_back((now, bytes_done));
            if self.samples.len() > STRETCHES + 1 {
                self.samples.pop_front();
            }
        }
        self.latest = Some((now, bytes_done));
    }

    /// Returns the bytes per second over the window. `None` before there are two samples.
    pub fn rate(&self) -> Option<f64> {
        let (&first, last) = (self.samples.front()?, self.latest?);
        rate(first, last)
    }

    /// Returns the estimated time for `bytes_left` further bytes. `None` while too little is done for an
    /// estimate.
    pub fn estimate(&self, bytes_left: u64) -> Option<Estimate> {
        let mean = self.rate().filter(|&rate| rate > 0.0 && bytes_left > 0)?;
        let (stretches, done) = (self.samples.len() - 1, self.latest?.1 as f64);
        let is_little = done < LEAST_PART * (done + bytes_left as f64) && stretches < STRETCHES;
        if stretches < LEAST_STRETCHES || is_little {
            return None;
        }
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        let rates: Vec<f64> = pairs.filter_map(|(&before, &after)| rate(before, after)).collect();
        let fastest = rates.iter().copied().fold(mean, f64::max);
        let begun = rates.iter().skip_while(|&&rate| rate < fastest * STARTED);
        let slowest = begun.copied().fold(fastest, f64::min);
        let time = |rate: f64| Duration::try_from_secs_f64(bytes_left as f64 / rate).ok();
        Some(Estimate { soonest: time(fastest)?, latest: time(slowest).filter(|_| slowest > 0.0) })
    }
}

fn rate((from, before): (Duration, u64), (to, after): (Duration, u64)) -> Option<f64> {
    let seconds = to.saturating_sub(from).as_secs_f64();
    (seconds > 0.0).then(|| after.saturating_sub(before) as f64 / seconds)
}

impl NodeTable {
    /// Returns the resource with the largest reserved part. On a tie, a link or disk is preferred over the
    /// number of jobs.
    pub(super) fn fullest(&self) -> Option<Resource> {
        let up = self.all().map(|(_, node)| node).filter(|node| node.facts.alive);
        let parts = up.flat_map(|node| {
            let (used, budget) = (node.used(), node.budget);
            let part = |used: u64, of: u64| used as f64 / of.max(1) as f64;
            [
                (part(used.jobs, budget.jobs), 0, Resource::Jobs(node.id)),
                (part(used.down_bytes, budget.down_bytes), 1, Resource::Downlink(node.id)),
                (part(used.up_bytes, budget.up_bytes), 1, Resource::Uplink(node.id)),
                (part(used.disk_bytes, budget.disk_bytes), 1, Resource::Disk(node.id)),
            ]
        });
        let fullest = parts.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        fullest.filter(|&(part, ..)| part > 0.0).map(|(.., resource)| resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_estimate_is_a_range() {
        let mut progress = Progress::default();
        assert_eq!((progress.rate(), progress.estimate(10)), (None, None));
        progress.note(seconds(0), 0);
        progress.note(seconds(5), 500);
        progress.note(seconds(10), 700);
        assert_eq!(progress.rate(), Some(70.0));
        let estimate = progress.estimate(4000).unwrap();
        assert_eq!(estimate, Estimate { soonest: seconds(40), latest: Some(seconds(100)) });
    }

    #[test]
    fn an_interval_without_progress_gives_no_latest_end() {
        let mut progress = Progress::default();
        progress.note(seconds(0), 0);
        progress.note(seconds(5), 500);
        progress.note(seconds(10), 500);
        assert_eq!(progress.estimate(500), Some(Estimate { soonest: seconds(5), latest: None }));
    }

    #[test]
    fn only_the_window_counts() {
        let mut progress = Progress::default();
        for second in 0..200 {
            progress.note(seconds(second), if second < 100 { 0 } else { (second - 100) * 10 });
        }
        assert_eq!(progress.rate(), Some(10.0));
        assert_eq!(
            progress.estimate(100),
            Some(Estimate { soonest: seconds(10), latest: Some(seconds(10)) })
        );
    }

    #[test]
    fn nothing_is_estimated_from_a_slow_start() {
        let mut progress = Progress::default();
        // The job waits a minute for room, then the first slices arrive.
        (0..60).for_each(|second| progress.note(seconds(second), 0));
        progress.note(seconds(60), 10);
        assert_eq!(progress.estimate(1_000_000), None);
        progress.note(seconds(65), 2_000);
        progress.note(seconds(70), 4_000);
        assert_eq!(progress.estimate(1_000_000), None, "too little is done");
        progress.note(seconds(75), 404_000);
        let estimate = progress.estimate(596_000).unwrap();
        assert_eq!(estimate.soonest, Duration::from_secs_f64(596_000.0 / 80_000.0));
        assert_eq!(estimate.latest, Some(estimate.soonest), "work was starting until then");
        assert_eq!(progress.estimate(0), None, "nothing is left to move");
    }
}
