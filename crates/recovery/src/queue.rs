//! The order of waiting items.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::RepairId;

/// Priority of a repair relative to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Someone waits for the result, or a single stripe is repaired automatically.
    Urgent,
    /// Lost blocks are rebuilt.
    #[default]
    Normal,
    /// No data is lost if the repair waits.
    Background,
}

/// Urgency class. Items of one class may overtake each other when one of them has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub priority: Priority,
    /// Further blocks that the stripe can lose in the worst case.
    pub survives: u32,
}

/// Sort key of an item in the queue. The smallest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub class: Class,
    /// Within a class, the stripe with more lost blocks goes first, because one job rebuilds them all.
    pub lost: Reverse<u16>,
    pub repair: RepairId,
    /// The order in which the items of a repair were added.
    pub sequence: u64,
    pub item: u32,
}

impl Key {
    /// Returns a key that sorts after all items of the same class, number of lost blocks and repair.
    pub fn end_of_run(self) -> Self {
        Self { sequence: u64::MAX, item: u32::MAX, ..self }
    }
}
