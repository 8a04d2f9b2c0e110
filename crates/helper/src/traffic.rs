//! The traffic of a node by purpose, and how long its disk takes: counted where the bytes move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use repair::Class;

/// The upper bounds of the histograms of disk operations, in seconds; a last bucket has no bound.
pub const DISK_BOUNDS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];

/// The purpose of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Clients that read.
    Read,
    /// Clients that store files.
    Put,
    /// Repairs, including drains.
    Repair,
    /// Tests of links.
    Probe,
    /// Scrubs.
    Scrub,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Self; 5] = [Self::Read, Self::Put, Self::Repair, Self::Probe, Self::Scrub];

    /// Returns the purpose as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Put => "put",
            Self::Repair => "repair",
            Self::Probe => "probe",
            Self::Scrub => "scrub",
        }
    }
}

impl From<Class> for Purpose {
    fn from(class: Class) -> Self {
        match class {
            Class::Read => Self::Read,
            Class::Put => Self::Put,
            Class::Repair => Self::Repair,
            Class::Probe => Self::Probe,
        }
    }
}

/// The counters of a node; cheap to clone, and all clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    by_purpose: [Moving; Purpose::ALL.len()],
    reads: Times,
    writes: Times,
}

#[derive(Debug, Default)]
struct Moving {
    sent: AtomicU64,
    received: AtomicU64,
    read: AtomicU64,
    delivered: AtomicU64,
    checked: AtomicU64,
}

/// A snapshot of the counters in bytes, without headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes of slices sent to other nodes.
    pub sent: u64,
    /// Bytes of slices received from other nodes.
    pub received: u64,
    /// Bytes read for relays, including padding beyond the end of a short block.
    pub read: u64,
    /// Bytes delivered to sinks, including padding.
    pub delivered: u64,
    /// Bytes read to check blocks: by scrubs, for fingerprints, and to read back what was written.
    pub checked: u64,
}

impl Traffic {
    /// Returns a snapshot of the counters of all purposes together.
    pub fn now(&self) -> Moved {
        Purpose::ALL.into_iter().map(|purpose| self.of(purpose)).fold(Moved::default(), |sum, moved| Moved {
            sent: sum.sent + moved.sent,
            received: sum.received + moved.received,
            read: sum.read + moved.read,
            delivered: sum.delivered + moved.delivered,
            checked: sum.checked + moved.checked,
        })
    }

    /// Returns a snapshot of the counters of one purpose.
    pub fn of(&self, purpose: Purpose) -> Moved {
        let counters = &self.counters.by_purpose[purpose as usize];
        let [sent, received, read, delivered, checked] =
            [&counters.sent, &counters.received, &counters.read, &counters.delivered, &counters.checked]
                .map(|counter| counter.load(Ordering::Relaxed));
        Moved { sent, received, read, delivered, checked }
    }

    /// Returns how long batches of reads took that could not be served from memory.
    pub fn disk_reads(&self) -> &Times {
        &self.counters.reads
    }

    /// Returns how long batches of writes took that could have had to wait for the disk.
    pub fn disk_writes(&self) -> &Times {
        &self.counters.writes
    }

    pub(crate) fn for_purpose(&self, purpose: impl Into<Purpose>) -> Counting {
        Counting { traffic: self.clone(), purpose: purpose.into() }
    }
}

/// Counts the bytes that are moved for one purpose.
#[derive(Clone, Debug)]
pub(crate) struct Counting {
    traffic: Traffic,
    purpose: Purpose,
}

impl Counting {
    fn add(&self, counter: impl Fn(&Moving) -> &AtomicU64, bytes: usize) {
        let counters = &self.traffic.counters.by_purpose[self.purpose as usize];
        counter(counters).fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.add(|counters| &counters.sent, bytes);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.add(|counters| &counters.received, bytes);
    }

    pub(crate) fn read(&self, bytes: usize) {
        self.add(|counters| &counters.read, bytes);
    }

    pub(crate) fn delivered(&self, bytes: usize) {
        self.add(|counters| &counters.delivered, bytes);
    }

    pub(crate) fn checked(&self, bytes: usize) {
        self.add(|counters| &counters.checked, bytes);
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Times {
    buckets: [AtomicU64; DISK_BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl Times {
    pub(crate) fn note(&self, time: Duration) {
        let bucket = DISK_BOUNDS.iter().position(|&bound| time.as_secs_f64() <= bound);
        self.buckets[bucket.unwrap_or(DISK_BOUNDS.len())].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Returns the number of durations up to each bound of [`DISK_BOUNDS`] and above the bound before it; the last
    /// number belongs to no bound.
    pub fn buckets(&self) -> [u64; DISK_BOUNDS.len() + 1] {
        std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed))
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_by_purpose_and_in_all() {
        let traffic = Traffic::default();
        traffic.for_purpose(Class::Put).sent(3);
        traffic.for_purpose(Purpose::Scrub).checked(5);
        assert_eq!(traffic.of(Purpose::Put), Moved { sent: 3, ..Moved::default() });
        assert_eq!(traffic.now(), Moved { sent: 3, checked: 5, ..Moved::default() });
    }

    #[test]
    fn durations_fall_into_the_bucket_of_the_next_bound() {
        let times = Times::default();
        [1, 2, 5, 100_000].into_iter().for_each(|ms| times.note(Duration::from_millis(ms)));
        assert_eq!(times.buckets(), [1, 2, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(times.sum(), Duration::from_millis(100_008));
    }
}
