//! What went through a node: payload bytes, counted where they move.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one engine; cheap to clone, all clones count together.
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

/// The counters at one moment, in bytes of slices; headers are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Sent to other nodes.
    pub sent: u64,
    /// Received from other nodes.
    pub received: u64,
    /// Read for relays, padding beyond the end of a short block included.
    pub read: u64,
    /// Delivered to sinks, padding included.
    pub delivered: u64,
}

impl Traffic {
    /// The counters now.
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
