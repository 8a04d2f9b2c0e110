//! The stripes that have blocks on given nodes.

use std::collections::BTreeSet;

use codes::{BlockIndex, CodeSpec};
use repair::{NodeId, StripeId};

use crate::stripes::picture::{Picture, Slot, Together};

/// The blocks whose recorded place is one node, including missing and corrupt ones.
#[derive(Default)]
pub(super) struct Held {
    blocks: BTreeSet<(Slot, u16)>,
    /// The total length of these blocks.
    bytes: u64,
}

impl Held {
    /// The blocks of a node that holds none.
    const NONE: &Self = &Self { blocks: BTreeSet::new(), bytes: 0 };

    pub(super) fn insert(&mut self, slot: Slot, index: u16, bytes: u64) {
        if self.blocks.insert((slot, index)) {
            self.bytes += bytes;
        }
    }

    pub(super) fn remove(&mut self, slot: Slot, index: u16, bytes: u64) {
        if self.blocks.remove(&(slot, index)) {
            self.bytes -= bytes;
        }
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = (Slot, u16)> {
        self.blocks.iter().copied()
    }

    /// Returns the stripes of these blocks, each once.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        let mut last = None;
        self.blocks().map(|(slot, _)| slot).filter(move |&slot| last.replace(slot) != Some(slot))
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }
}

impl Picture {
    /// Returns the blocks whose recorded place is this node.
    pub(super) fn held(&self, node: NodeId) -> &Held {
        self.holders.get(&node).unwrap_or(Held::NONE)
    }

    /// Returns the stripes of files and of open puts that have a block on at least one of these nodes.
    pub(crate) fn stripes_on(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<Slot> {
        nodes.iter().flat_map(|&node| self.held(node).slots()).collect()
    }

    /// Returns the stripes of open puts that have a block on at least one of these nodes.
    pub(crate) fn pending_on(&self, nodes: &BTreeSet<NodeId>) -> BTreeSet<Slot> {
        let slots = nodes.iter().flat_map(|&node| self.held(node).slots());
        slots.filter(|&slot| self.entry_in(slot).pending).collect()
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
        self.held(node).bytes
    }
}
