//! Stripes counted by what they lack, so that nobody need count them again: a change costs what it changes.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, CodeSpec};
use repair::NodeId;

use super::Slot;
use super::entry::{Entry, Shared};

/// Stripes of files by code and lost blocks, of which there are few kinds.
#[derive(Default)]
pub(super) struct Counts {
    kinds: BTreeMap<(u16, Vec<u16>), Count>,
}

#[derive(Default)]
struct Count {
    stripes: u64,
    block_bytes: u64,
    /// Which they are, if they lack anything.
    slots: BTreeSet<Slot>,
}

/// Stripes that are alike.
pub(in crate::core) struct Kind<'p> {
    pub code: &'p CodeSpec,
    pub lost: Vec<BlockIndex>,
    pub stripes: u64,
    /// Of one block of each of them, all together.
    pub block_bytes: u64,
    /// Which they are, if they lack anything.
    pub slots: &'p BTreeSet<Slot>,
}

impl Counts {
    pub(super) fn add(&mut self, slot: Slot, entry: &Entry, up: &BTreeSet<NodeId>) {
        if entry.pending {
            return;
        }
        let lost = entry.lost(|node| up.contains(&node));
        let damaged = !lost.is_empty();
        let count = self.kinds.entry((entry.code, lost)).or_default();
        count.stripes += 1;
        count.block_bytes += entry.block_bytes;
        if damaged {
            count.slots.insert(slot);
        }
    }

    /// # Panics
    /// If it was not added as it is now.
    pub(super) fn remove(&mut self, slot: Slot, entry: &Entry, up: &BTreeSet<NodeId>) {
        if entry.pending {
            return;
        }
        let key = (entry.code, entry.lost(|node| up.contains(&node)));
        let count = self.kinds.get_mut(&key).expect("it was counted");
        count.stripes -= 1;
        count.block_bytes -= entry.block_bytes;
        count.slots.remove(&slot);
        if count.stripes == 0 {
            self.kinds.remove(&key);
        }
    }

    pub(super) fn damaged(&self) -> impl Iterator<Item = Slot> + '_ {
        self.kinds.values().flat_map(|count| count.slots.iter().copied())
    }

    pub(super) fn kinds<'p>(&'p self, shared: &'p Shared) -> impl Iterator<Item = Kind<'p>> {
        self.kinds.iter().map(|((code, lost), count)| Kind {
            code: shared.code_of(*code),
            lost: lost.iter().copied().map(BlockIndex).collect(),
            stripes: count.stripes,
            block_bytes: count.block_bytes,
            slots: &count.slots,
        })
    }
}
