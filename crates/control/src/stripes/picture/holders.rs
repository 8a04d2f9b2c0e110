//! The blocks of one node.

use std::collections::BTreeSet;

use crate::stripes::picture::Slot;

/// The blocks whose recorded place is one node, including missing and corrupt ones.
#[derive(Default)]
pub(super) struct Held {
    blocks: BTreeSet<(Slot, u16)>,
    /// The total length of these blocks.
    bytes: u64,
}

impl Held {
    /// The blocks of a node that holds none.
    pub(super) const NONE: &Self = &Self { blocks: BTreeSet::new(), bytes: 0 };

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

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
