//! Counters since the start of the coordinator, for metrics. Every counted event is also in the history.

use std::collections::BTreeMap;

use views::{FileWorkKind, HistoryEvent, RepairState};

/// The upper bounds of the histogram of repair durations, in seconds; a last bucket has no bound.
pub const DURATION_BOUNDS: [f64; 8] = [1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];

/// A number of blocks, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of blocks.
    pub blocks: u64,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, more: Self) {
        self.blocks += more.blocks;
        self.bytes += more.bytes;
    }
}

/// The store's work on files that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileWorks {
    /// The number of times that a file reached the desired state.
    pub done: u64,
    /// The lengths of these files in bytes.
    pub bytes: u64,
    /// The number of failures.
    pub failed: u64,
}

/// Counters since the start of the coordinator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Repairs that have ended, by whether they started automatically, and by their final state.
    pub repairs: BTreeMap<(bool, RepairState), u64>,
    /// Blocks that these repairs have rebuilt or moved.
    pub rebuilt: Amount,
    /// The part of `rebuilt` that was moved: blocks that were not lost when the repair began.
    pub moved: Amount,
    /// Durations of the repairs that ended as done.
    pub durations: Durations,
    /// Blocks that were found bad or missing on helpers that were up.
    pub bad_blocks: u64,
    /// The store's work on files, by its kind.
    pub file_works: BTreeMap<FileWorkKind, FileWorks>,
    /// How often the connection to each helper was lost.
    pub disconnects: BTreeMap<String, u64>,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Durations {
    /// Number of durations in each bucket of [`DURATION_BOUNDS`], and above the last bound.
    pub buckets: [u64; DURATION_BOUNDS.len() + 1],
    /// Sum of the durations in seconds.
    pub sum_s: f64,
}

impl Durations {
    pub(crate) fn note(&mut self, seconds: f64) {
        let bucket = DURATION_BOUNDS.iter().position(|&bound| seconds <= bound);
        self.buckets[bucket.unwrap_or(DURATION_BOUNDS.len())] += 1;
        self.sum_s += seconds;
    }
}

impl Totals {
    /// Counts an event.
    pub(crate) fn note(&mut self, event: &HistoryEvent) {
        match event {
            HistoryEvent::NodeLost { node, .. } => *self.disconnects.entry(node.clone()).or_default() += 1,
            HistoryEvent::NodeRemoved { node } => {
                self.disconnects.remove(node);
            }
            HistoryEvent::BlocksLost { blocks, .. } => self.bad_blocks += blocks,
            HistoryEvent::FileWorked { work, bytes, failure, .. } => {
                let works = self.file_works.entry(*work).or_default();
                match failure {
                    Some(_) => works.failed += 1,
                    // A client has stated the number.
                    None => (works.done, works.bytes) = (works.done + 1, works.bytes.saturating_add(*bytes)),
                }
            }
            HistoryEvent::RepairEnded {
                by_itself,
                state,
                took_ms,
                blocks,
                bytes,
                moved_blocks,
                moved_bytes,
                ..
            } => {
                *self.repairs.entry((*by_itself, *state)).or_default() += 1;
                self.rebuilt += Amount { blocks: *blocks, bytes: *bytes };
                self.moved += Amount { blocks: *moved_blocks, bytes: *moved_bytes };
                if *state == RepairState::Done {
                    self.durations.note(*took_ms as f64 / 1000.0);
                }
            }
            _ => {}
        }
    }
}
