//! Running counts of stripes by lost blocks. Each change updates only the counts that it affects.

use std::collections::{BTreeMap, BTreeSet};

use crate::stripes::picture::Slot;
use crate::stripes::picture::domains::{Fleet, Together};
use crate::stripes::picture::entry::{Entry, Shared};
use codes::{BlockIndex, CodeSpec};

/// Stripes of files, counted by code, lost blocks and shared helpers. There are few distinct combinations.
#[derive(Default)]
pub(crate) struct Counts {
    kinds: BTreeMap<Key, Count>,
}

type Key = (u32, Vec<u16>, Together);

/// Returns the combination that a stripe is counted under.
fn key(entry: &Entry, fleet: &Fleet) -> Key {
    let is_up = |_, node| fleet.is_up(node);
    (entry.code, entry.lost(is_up), fleet.together(&entry.readers(is_up)))
}

#[derive(Default)]
struct Count {
    stripes: u64,
    block_bytes: u64,
    /// The slots (indices in memory) of the counted stripes; empty if the stripes are whole and share no
    /// helpers.
    slots: BTreeSet<Slot>,
}

/// Stripes with the same code, lost blocks and shared helpers.
pub(crate) struct Kind<'p> {
    pub code: &'p CodeSpec,
    pub lost: Vec<BlockIndex>,
    pub together: &'p Together,
    pub stripes: u64,
    /// The sum of the stripes' block lengths, one block per stripe.
    pub block_bytes: u64,
    /// The slots (indices in memory) of the stripes; empty if the stripes are whole and share no helpers.
    pub slots: &'p BTreeSet<Slot>,
}

impl Counts {
    pub(crate) fn add(&mut self, slot: Slot, entry: &Entry, fleet: &Fleet) {
        if entry.pending {
            return;
        }
        let key = key(entry, fleet);
        let is_named = !key.1.is_empty() || key.2.shares_nodes();
        let count = self.kinds.entry(key).or_default();
        count.stripes += 1;
        count.block_bytes += entry.block_bytes;
        if is_named {
            count.slots.insert(slot);
        }
    }

    /// Removes a stripe from the counts.
    ///
    /// # Panics
    /// If the stripe was not added in its present state.
    pub(crate) fn remove(&mut self, slot: Slot, entry: &Entry, fleet: &Fleet) {
        if entry.pending {
            return;
        }
        let key = key(entry, fleet);
        let count = self.kinds.get_mut(&key).expect("the stripe was counted when it was added");
        count.stripes -= 1;
        count.block_bytes -= entry.block_bytes;
        count.slots.remove(&slot);
        if count.stripes == 0 {
            self.kinds.remove(&key);
        }
    }

    pub(crate) fn damaged(&self) -> impl Iterator<Item = Slot> + '_ {
        let damaged = self.kinds.iter().filter(|((_, lost, _), _)| !lost.is_empty());
        damaged.flat_map(|(_, count)| count.slots.iter().copied())
    }

    /// Returns the stripes with several blocks on the same helper.
    pub(crate) fn doubled(&self) -> impl Iterator<Item = Slot> + '_ {
        let doubled = self.kinds.iter().filter(|((_, _, together), _)| together.shares_nodes());
        doubled.flat_map(|(_, count)| count.slots.iter().copied())
    }

    /// Returns all kinds, without counting the stripes `apart`.
    pub(crate) fn kinds_without<'p>(
        &'p self,
        apart: impl Iterator<Item = &'p Entry>,
        fleet: &Fleet,
        shared: &'p Shared,
    ) -> impl Iterator<Item = Kind<'p>> {
        let mut less: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
        for entry in apart {
            let (stripes, bytes) = less.entry(key(entry, fleet)).or_default();
            *stripes += 1;
            *bytes += entry.block_bytes;
        }
        let kind = move |(key, count): (&'p Key, &'p Count)| {
            let (stripes, block_bytes) = less.get(key).copied().unwrap_or_default();
            let (code, lost, together) = key;
            Kind {
                code: shared.code_of(*code),
                lost: lost.iter().copied().map(BlockIndex).collect(),
                together,
                stripes: count.stripes - stripes,
                block_bytes: count.block_bytes - block_bytes,
                slots: &count.slots,
            }
        };
        self.kinds.iter().map(kind).filter(|kind| kind.stripes > 0)
    }
}
