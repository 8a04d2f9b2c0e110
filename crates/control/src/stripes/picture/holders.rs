//! The stripes that have blocks on given nodes.

use std::collections::BTreeSet;

use codes::{BlockIndex, CodeSpec};
use repair::{NodeId, StripeId};

use crate::stripes::picture::{Picture, Slot, Together};

impl Picture {
    /// Returns the stripes of files and of open puts that have a block on at least one of these nodes.
    pub(crate) fn stripes_on(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<Slot> {
        let held = nodes.iter().filter_map(|node| self.holders.get(node));
        held.flatten().map(|&(slot, _)| slot).collect()
    }

    /// Returns the stripes of open puts that have a block on at least one of these nodes.
    pub(crate) fn pending_on(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<Slot> {
        let held = nodes.iter().filter_map(|node| self.holders.get(node));
        held.flatten().map(|&(slot, _)| slot).filter(|&slot| self.entry_in(slot).pending).collect()
    }

    /// Returns the index in memory of a file's stripe. `None` if the stripe does not exist or belongs to an
    /// uncommitted put.
    pub(crate) fn slot_of_file(&self, stripe: &StripeId) -> Option<Slot> {
        self.slot(stripe).ok().filter(|&slot| !self.entry_in(slot).pending)
    }

    /// Returns a stripe's code and the length of its blocks.
    pub(crate) fn code_of(&self, slot: Slot) -> (&CodeSpec, u64) {
        let entry = self.entry_in(slot);
        (self.shared.code_of(entry.code), entry.block_bytes)
    }

    /// Returns the blocks that a stripe would have lost, and how its other blocks would share failure
    /// domains, if only the copies that `counts` accepts could be read.
    pub(crate) fn losses(
        &self,
        slot: Slot,
        counts: impl Fn(u16, NodeId) -> bool,
    ) -> (Vec<BlockIndex>, Together) {
        let entry = self.entry_in(slot);
        let lost = entry.lost(&counts).into_iter().map(BlockIndex).collect();
        (lost, self.fleet.together(&entry.readers(counts)))
    }

    /// Returns the total bytes of the blocks whose recorded place is this node, including missing and corrupt
    /// ones.
    pub(crate) fn bytes_on(&self, node: NodeId) -> u64 {
        let slots = self.holders.get(&node).into_iter().flatten();
        slots.map(|&(slot, _)| self.entry_in(slot).block_bytes).sum()
    }
}
