//! The traffic of a node: payload bytes, counted where they move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of one engine; cheap to clone, and all clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
    read: AtomicU64,
    delivered: AtomicU64,
}

/// A snapshot of the counters, in bytes of slices without headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes sent to other nodes.
    pub sent: u64,
    /// Bytes received from other nodes.
    pub received: u64,
    /// Bytes read for relays, including padding beyond the end of a short block.
    pub read: u64,
    /// Bytes delivered to sinks, including padding.
    pub delivered: u64,
}

impl Traffic {
    /// Returns a snapshot of the counters.
    pub fn now(&self) -> Moved {
        Moved {
            sent: self.counters.sent.load(Ordering::Relaxed),
            received: self.counters.received.load(Ordering::Relaxed),
            read: self.counters.read.load(Ordering::Relaxed),
            delivered: self.counters.delivered.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.counters.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.counters.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, bytes: usize) {
        self.counters.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn delivered(&self, bytes: usize) {
        self.counters.delivered.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
