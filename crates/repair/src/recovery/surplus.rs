//! Copies of blocks that are not counted: where a node came back after its block was rebuilt elsewhere.
//!
//! A copy is kept as long as anything of its stripe is lost or worked on: until then it may be the last one that can be
//! read.

use std::collections::BTreeMap;

use codes::BlockIndex;

use super::Scheduler;
use super::item::{Action, BlockFacts};
use crate::{NodeId, StripeId};

/// Copies by their stripes.
#[derive(Debug, Default)]
pub(super) struct Surplus {
    copies: BTreeMap<StripeId, Vec<(BlockIndex, NodeId)>>,
}

impl Scheduler {
    /// A node has a copy of a block that belongs elsewhere. `blocks` are the counted ones, all n by index.
    ///
    /// [`Action::DropSurplus`] follows as soon as the stripe is whole and nobody works on it: at once, or when a
    /// repair of the stripe ends. For stripes that are repaired later, say it again once they are.
    pub fn handle_surplus(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        blocks: &[BlockFacts],
    ) {
        let copies = self.surplus.copies.entry(stripe.clone()).or_default();
        if !copies.contains(&(block, node)) {
            copies.push((block, node));
        }
        match self.stripes.find(stripe) {
            Some(no) => self.drop_surplus_of(no),
            None => {
                let is_up = |id| self.table.find(id).is_some_and(|no| self.table.get(no).facts.alive);
                if blocks.iter().all(|facts| facts.good && facts.node.is_some_and(is_up)) {
                    let counted = blocks.iter().map(|facts| facts.node).collect();
                    self.drop_copies(stripe, counted);
                }
            }
        }
    }

    /// Copies that wait for their stripes to be whole.
    pub fn surplus(&self) -> impl Iterator<Item = (&StripeId, BlockIndex, NodeId)> {
        let copies = self.surplus.copies.iter();
        copies.flat_map(|(stripe, copies)| copies.iter().map(move |&(block, node)| (stripe, block, node)))
    }

    /// Names the copies of a stripe, if it is whole and nobody works on it.
    pub(super) fn drop_surplus_of(&mut self, no: u32) {
        let Some(stripe) = self.stripes.try_get(no) else { return };
        if self.surplus.copies.is_empty() || stripe.busy.is_some() || !stripe.is_whole(&self.table) {
            return;
        }
        let node = |place: &super::stripes::Place| Some(self.table.get(place.node?).id);
        let counted = stripe.blocks.iter().map(node).collect();
        self.drop_copies(&stripe.id.clone(), counted);
    }

    fn drop_copies(&mut self, stripe: &StripeId, counted: Vec<Option<NodeId>>) {
        for (block, node) in self.surplus.copies.remove(stripe).unwrap_or_default() {
            // It may have become the counted one meanwhile.
            if counted.get(usize::from(block.0)) != Some(&Some(node)) {
                self.actions.push_back(Action::DropSurplus { stripe: stripe.clone(), block, node });
            }
        }
    }
}
