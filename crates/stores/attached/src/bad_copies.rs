//! The copies of blocks that were found missing or corrupt, in memory. The [`Ledger`](crate::Ledger) records
//! them across restarts.

use std::collections::BTreeMap;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::BlockState;

/// A copy of a block: its stripe, its index, and its node.
pub type CopyId = (StripeId, BlockIndex, NodeId);

/// The states of all copies that are not healthy.
#[derive(Debug, Default)]
pub struct BadCopies {
    states: BTreeMap<StripeId, BTreeMap<(BlockIndex, NodeId), BlockState>>,
    /// Copies that no longer exist and whose records the caller must still delete.
    gone: Vec<CopyId>,
}

impl BadCopies {
    /// Sets the state of a copy. A healthy copy has no entry.
    pub fn set(&mut self, stripe: &StripeId, index: BlockIndex, node: NodeId, state: BlockState) {
        match state {
            BlockState::Healthy => {
                if let Some(copies) = self.states.get_mut(stripe) {
                    copies.remove(&(index, node));
                }
            }
            bad => drop(self.states.entry(stripe.clone()).or_default().insert((index, node), bad)),
        }
    }

    /// Returns the state of a copy; a copy without an entry is healthy.
    pub fn state(&self, stripe: &StripeId, index: BlockIndex, node: NodeId) -> BlockState {
        let copies = self.states.get(stripe);
        copies.and_then(|copies| copies.get(&(index, node))).copied().unwrap_or(BlockState::Healthy)
    }

    /// Whether no copy of any stripe is known to be bad.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Whether a copy of a stripe is not healthy.
    pub fn has_any(&self, stripe: &StripeId) -> bool {
        self.states.get(stripe).is_some_and(|copies| !copies.is_empty())
    }

    /// Returns the nodes of the copies of a stripe that are not healthy.
    pub fn nodes(&self, stripe: &StripeId) -> impl Iterator<Item = NodeId> {
        self.states.get(stripe).into_iter().flatten().map(|(&(_, node), _)| node)
    }

    /// Forgets those copies of a stripe for which `exists` returns false.
    pub fn retain(&mut self, stripe: &StripeId, exists: impl Fn(BlockIndex, NodeId) -> bool) {
        self.forget(stripe, |index, node, _| !exists(index, node));
    }

    /// Forgets the corrupt copies of a stripe, except those for which `stays` returns true.
    pub fn forget_corrupt(&mut self, stripe: &StripeId, stays: impl Fn(BlockIndex, NodeId) -> bool) {
        self.forget(stripe, |index, node, state| state == BlockState::Corrupt && !stays(index, node));
    }

    fn forget(&mut self, stripe: &StripeId, is_gone: impl Fn(BlockIndex, NodeId, BlockState) -> bool) {
        let Some(copies) = self.states.get_mut(stripe) else { return };
        for ((index, node), _) in copies.extract_if(.., |&(index, node), state| is_gone(index, node, *state))
        {
            self.gone.push((stripe.clone(), index, node));
        }
        if copies.is_empty() {
            self.states.remove(stripe);
        }
    }

    /// Forgets all copies of a stripe that no longer exists.
    pub fn remove_stripe(&mut self, stripe: &StripeId) {
        self.retain(stripe, |_, _| false);
    }

    /// Returns the copies forgotten since the last call, so that the caller can delete their records.
    pub fn take_gone(&mut self) -> Vec<CopyId> {
        std::mem::take(&mut self.gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_bad_until_it_is_healthy_or_gone() {
        let mut copies = BadCopies::default();
        let (stripe, node) = (StripeId("s".to_owned()), NodeId(7));
        let [first, second] = [BlockIndex(0), BlockIndex(1)];
        for index in [first, second] {
            copies.set(&stripe, index, node, BlockState::Corrupt);
        }
        assert_eq!(copies.state(&stripe, first, node), BlockState::Corrupt);
        assert_eq!(copies.state(&stripe, first, NodeId(8)), BlockState::Healthy);
        assert!(copies.has_any(&stripe));
        assert_eq!(copies.nodes(&stripe).collect::<Vec<_>>(), [node, node]);
        copies.set(&stripe, first, node, BlockState::Healthy);
        assert_eq!(copies.state(&stripe, first, node), BlockState::Healthy);
        copies.remove_stripe(&stripe);
        assert!(!copies.has_any(&stripe));
        assert_eq!(copies.take_gone(), [(stripe.clone(), second, node)], "a healthy copy has no record");
        assert_eq!(
            (copies.state(&stripe, second, node), copies.take_gone()),
            (BlockState::Healthy, Vec::new())
        );
    }

    #[test]
    fn missing_copies_stay_missing_when_corrupt_ones_are_forgotten() {
        let mut copies = BadCopies::default();
        let (stripe, node) = (StripeId("s".to_owned()), NodeId(7));
        let states = [BlockState::Missing, BlockState::Corrupt, BlockState::Corrupt];
        for (index, state) in (0..).map(BlockIndex).zip(states) {
            copies.set(&stripe, index, node, state);
        }
        copies.forget_corrupt(&stripe, |index, _| index == BlockIndex(2));
        let found = [0, 1, 2].map(|index| copies.state(&stripe, BlockIndex(index), node));
        assert_eq!(found, [BlockState::Missing, BlockState::Healthy, BlockState::Corrupt]);
        assert_eq!(copies.take_gone(), [(stripe, BlockIndex(1), node)]);
    }
}
