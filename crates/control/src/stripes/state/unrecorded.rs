//! States of blocks that are being recorded.

use std::collections::BTreeMap;

use repair::{BlockId, NodeId};
use store_api::{BlockRecord, BlockState, StripeRecord};

/// The latest state that was found for each copy, until it is recorded.
#[derive(Default)]
pub(crate) struct Unrecorded {
    copies: BTreeMap<(BlockId, NodeId), Found>,
    last_write: u64,
}

/// A finding about a copy.
struct Found {
    /// The number of the latest write about the copy; `None` if it has ended.
    write: Option<u64>,
    /// The state in that write.
    state: BlockState,
    /// The latest bad state. A copy that was found bad, and then good, counts as bad until the latter is recorded.
    bad: Option<BlockState>,
}

impl Unrecorded {
    /// Returns the number of a new write.
    pub(crate) fn begin_write(&mut self) -> u64 {
        self.last_write += 1;
        self.last_write
    }

    /// Notes that a write contains this state of a copy.
    pub(crate) fn note(&mut self, write: u64, copy: (BlockId, NodeId), state: BlockState) {
        let bad_before = self.copies.get(&copy).and_then(|found| found.bad);
        let bad = if state == BlockState::Healthy { bad_before } else { Some(state) };
        self.copies.insert(copy, Found { write: Some(write), state, bad });
    }

    /// Handles the end of a write. `recorded` is the state of the copy in the catalog; `None` if it has none there.
    pub(crate) fn end_write(
        &mut self,
        write: u64,
        copy: &(BlockId, NodeId),
        is_ok: bool,
        recorded: Option<BlockState>,
    ) {
        let Some(found) = self.copies.get_mut(copy).filter(|found| found.write == Some(write)) else {
            return;
        };
        found.write = None;
        let is_recorded = is_ok && (found.state == BlockState::Healthy || recorded == Some(found.state));
        match found.bad {
            Some(bad) if !is_recorded && recorded.is_some() => found.state = bad,
            _ => drop(self.copies.remove(copy)),
        }
    }

    /// Forgets the findings about a copy whose record has changed to `now`, unless a later write is on its way.
    pub(crate) fn settle(&mut self, copy: &(BlockId, NodeId), now: Option<BlockState>) {
        if self.copies.get(copy).is_some_and(|found| found.write.is_none() || now.is_none()) {
            self.copies.remove(copy);
        }
    }

    /// Returns the copies of a block about which there are findings.
    pub(crate) fn nodes_of(&self, block: &BlockId) -> Vec<NodeId> {
        let copies = self.copies.range((block.clone(), NodeId(0))..=(block.clone(), NodeId(u32::MAX)));
        copies.map(|((_, node), _)| *node).collect()
    }

    /// Whether there are no findings.
    pub(crate) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Returns the state that a node's copy of a block will have once everything that was found about it is recorded;
    /// `None` if the node has none according to the catalog.
    pub(crate) fn latest(&self, block: &BlockRecord, node: NodeId) -> Option<BlockState> {
        let recorded = block.state_on(node)?;
        Some(self.state(&block.id, node).unwrap_or(recorded))
    }

    /// Returns the state of a copy that is on its way to the storage.
    fn state(&self, block: &BlockId, node: NodeId) -> Option<BlockState> {
        if self.copies.is_empty() {
            return None;
        }
        self.copies.get(&(block.clone(), node)).filter(|found| found.write.is_some()).map(|found| found.state)
    }

    /// Returns the bad state of a copy.
    pub(crate) fn bad(&self, block: &BlockId, node: NodeId) -> Option<BlockState> {
        if self.copies.is_empty() {
            return None;
        }
        self.copies.get(&(block.clone(), node))?.bad
    }

    /// Whether a bad state of a copy could not be recorded, and no write about the copy is on its way.
    pub(crate) fn is_left_over(&self, block: &BlockId, node: NodeId) -> bool {
        let found = self.copies.get(&(block.clone(), node));
        found.is_some_and(|found| found.write.is_none() && found.bad.is_some())
    }

    /// Whether a block on a node was found bad and its new state is not yet recorded.
    pub(crate) fn is_bad(&self, block: &BlockId, node: NodeId) -> bool {
        self.bad(block, node).is_some()
    }

    /// Forgets the findings about copies whose record has changed.
    pub(crate) fn settle_changed(&mut self, before: Option<&StripeRecord>, now: Option<&StripeRecord>) {
        if self.is_empty() {
            return;
        }
        let known = |record: Option<&StripeRecord>, at: usize, node| {
            record.and_then(|record| record.blocks.get(at)?.state_on(node))
        };
        for (at, block) in before.or(now).map_or(&[][..], |record| &record.blocks).iter().enumerate() {
            for node in self.nodes_of(&block.id) {
                let (before, now) = (known(before, at, node), known(now, at, node));
                if before != now {
                    self.settle(&(block.id.clone(), node), now);
                }
            }
        }
    }

    /// Returns all copies that were found bad.
    pub(crate) fn all_bad(&self) -> impl Iterator<Item = &(BlockId, NodeId)> {
        self.copies.iter().filter(|(_, found)| found.bad.is_some()).map(|(copy, _)| copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BlockState::{Corrupt, Healthy, Missing};

    fn copy() -> (BlockId, NodeId) {
        (BlockId("1.0".to_owned()), NodeId(1))
    }

    fn bad(unrecorded: &Unrecorded) -> Option<BlockState> {
        let (block, node) = copy();
        unrecorded.bad(&block, node)
    }

    #[test]
    fn a_bad_copy_stays_bad_while_an_older_good_state_is_recorded() {
        let mut unrecorded = Unrecorded::default();
        let [good, missing] = [(); 2].map(|()| unrecorded.begin_write());
        unrecorded.note(good, copy(), Healthy);
        assert_eq!(bad(&unrecorded), None);
        unrecorded.note(missing, copy(), Missing);
        unrecorded.settle(&copy(), Some(Healthy));
        unrecorded.end_write(good, &copy(), true, Some(Healthy));
        assert_eq!(bad(&unrecorded), Some(Missing));
        unrecorded.settle(&copy(), Some(Missing));
        unrecorded.end_write(missing, &copy(), true, Some(Missing));
        assert!(unrecorded.is_empty());
    }

    #[test]
    fn a_copy_that_is_good_again_is_bad_until_that_is_recorded() {
        let mut unrecorded = Unrecorded::default();
        let [corrupt, good] = [(); 2].map(|()| unrecorded.begin_write());
        unrecorded.note(corrupt, copy(), Corrupt);
        unrecorded.note(good, copy(), Healthy);
        unrecorded.end_write(corrupt, &copy(), true, Some(Corrupt));
        assert_eq!((bad(&unrecorded), unrecorded.state(&copy().0, copy().1)), (Some(Corrupt), Some(Healthy)));
        unrecorded.end_write(good, &copy(), true, Some(Healthy));
        assert!(unrecorded.is_empty());
    }

    #[test]
    fn a_bad_copy_stays_bad_if_its_state_cannot_be_recorded() {
        let mut unrecorded = Unrecorded::default();
        let write = unrecorded.begin_write();
        unrecorded.note(write, copy(), Missing);
        unrecorded.end_write(write, &copy(), false, Some(Healthy));
        assert_eq!(bad(&unrecorded), Some(Missing));
        unrecorded.settle(&copy(), None);
        assert!(unrecorded.is_empty(), "the block has moved");
    }
}
