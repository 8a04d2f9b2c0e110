//! Reads that clients do during another activity.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::milliseconds;
use crate::figure::plot::Named;

/// Rate and latencies of reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reads {
    per_second: f64,
    median: Duration,
    p99: Duration,
    failed: usize,
}

/// The reads of clients, each with the time when it began.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadLog {
    /// Successful reads with their latencies.
    pub(crate) reads: Vec<(Instant, Duration)>,
    pub(crate) failures: Vec<Instant>,
}

impl ReadLog {
    /// Summarizes the reads that began in this period.
    pub(crate) fn within(&self, begun: Instant, lasted: Duration) -> Reads {
        let is_inside = |at: &Instant| (begun..begun + lasted).contains(at);
        let inside = self.reads.iter().filter(|(at, _)| is_inside(at)).map(|(_, latency)| *latency);
        Reads::of(inside.collect(), lasted, self.failures.iter().filter(|at| is_inside(at)).count())
    }

    fn extend(&mut self, other: Self) {
        self.reads.extend(other.reads);
        self.failures.extend(other.failures);
    }
}

/// Lets each client read, again and again, until `work` returns.
pub(crate) fn read_during<T>(
    clients: Vec<impl FnMut(&mut ReadLog) + Send>,
    work: impl FnOnce() -> T,
) -> (ReadLog, T) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = |mut client| {
            let over = &over;
            move || repeat(&mut client, over)
        };
        let clients: Vec<_> = clients.into_iter().map(|client| scope.spawn(read(client))).collect();
        let done = {
            // Also if `work` panics; otherwise the scope would wait for the clients forever.
            let _end = SetAtEnd(&over);
            work()
        };
        let mut log = ReadLog::default();
        clients.into_iter().for_each(|client| log.extend(client.join().expect("a panic has been printed")));
        (log, done)
    })
}

fn repeat(client: &mut impl FnMut(&mut ReadLog), over: &AtomicBool) -> ReadLog {
    let mut log = ReadLog::default();
    while !over.load(Ordering::Relaxed) {
        client(&mut log);
    }
    log
}

/// Sets a flag when it is dropped.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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

    /// The number of reads per second.
    pub(crate) fn per_second(&self) -> f64 {
        self.per_second
    }

    /// The median and the 99th percentile of the latency, in milliseconds.
    pub(crate) fn latencies_ms(&self) -> [f64; 2] {
        [self.median, self.p99].map(|latency| latency.as_secs_f64() * 1e3)
    }

    /// The number of failed reads.
    pub(crate) fn failed(&self) -> usize {
        self.failed
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
    fn only_reads_of_the_period_count() {
        let (begun, ms) = (Instant::now(), Duration::from_millis);
        let mut log = ReadLog::default();
        log.reads.extend([(begun, ms(5)), (begun + ms(900), ms(700)), (begun + ms(1000), ms(9))]);
        log.failures.extend([begun + ms(10), begun + ms(2000)]);
        let reads = log.within(begun, ms(1000));
        assert_eq!((reads.per_second(), reads.failed()), (2.0, 1));
        assert_eq!(reads.latencies_ms(), [700.0, 700.0]);
    }

    #[test]
    fn clients_read_until_the_work_is_done() {
        let client = |count: usize| {
            move |log: &mut ReadLog| {
                log.reads.extend((0..count).map(|_| (Instant::now(), Duration::from_millis(1))));
                thread::sleep(Duration::from_millis(1));
            }
        };
        let (log, done) = read_during(vec![client(1), client(2)], || {
            thread::sleep(Duration::from_millis(20));
            7
        });
        assert!(log.reads.len() >= 3 && log.failures.is_empty() && done == 7, "{} reads", log.reads.len());
    }

    #[test]
    fn no_read_at_all_is_no_latency() {
        let reads = Reads::of(Vec::new(), Duration::from_secs(4), 7);
        assert_eq!(reads.cells(), ["0", "0.0", "0.0", "7"]);
    }
}
