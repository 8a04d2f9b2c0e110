//! The order of what waits.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::RepairId;

/// How much a repair matters beside others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Somebody waits for it.
    Urgent,
    /// What is lost is rebuilt.
    #[default]
    Normal,
    /// Nothing is lost: blocks are moved for the sake of order.
    Background,
}

/// Items of one class are equally urgent: what is in the way of one does not hold up another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub priority: Priority,
    /// Further blocks that the stripe can surely lose.
    pub survives: u32,
}

/// An item's place in the queue; the smallest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub class: Class,
    /// Of equals, the stripe that lacks more blocks goes first, as one job rebuilds them all.
    pub lost: Reverse<u16>,
    pub repair: RepairId,
    /// The order in which the items of a repair were named.
    pub sequence: u64,
    pub item: u32,
}

impl Key {
    /// Behind all items of the same standing in the same repair.
    pub fn end_of_run(self) -> Self {
        Self { sequence: u64::MAX, item: u32::MAX, ..self }
    }
}
