//! The traffic of a node by purpose, and how long its disk takes: counted where the bytes move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use repair::Class;

/// The upper bounds of the histograms of disk operations, in seconds.
const DISK_BOUNDS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];

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

#[derive(Debug)]
struct Counters {
    by_purpose: [Moving; Purpose::ALL.len()],
    /// The time for which background transfers were held back, in microseconds.
    held_back_us: AtomicU64,
    reads: Histogram,
    writes: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        let [reads, writes] = [DISK_BOUNDS; 2].map(Histogram::new);
        Self { by_purpose: Default::default(), held_back_us: AtomicU64::new(0), reads, writes }
    }
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

    /// Returns the time for which background transfers waited for their turn because clients read, summed over jobs.
    pub fn held_back(&self) -> Duration {
        Duration::from_micros(self.counters.held_back_us.load(Ordering::Relaxed))
    }

    pub(crate) fn note_held_back(&self, time: Duration) {
        self.counters.held_back_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    /// Returns the seconds that batches of reads took which could not be served from memory.
    pub fn disk_reads(&self) -> &Histogram {
        &self.counters.reads
    }

    /// Returns the seconds that batches of writes took which could have had to wait for the disk.
    pub fn disk_writes(&self) -> &Histogram {
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
}
