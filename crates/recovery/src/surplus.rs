//! Copies of blocks that are not counted: where a node came back after its block was rebuilt elsewhere.
//!
//! A copy is kept as long as anything of its stripe is lost or worked on: until then it may be the last one that can be
//! read.

use std::collections::BTreeMap;

use codes::BlockIndex;
use repair::{NodeId, StripeId};

use super::item::Action;
use super::nodes::NodeTable;
use super::stripes::Stripe;

/// Copies by their stripes.
#[derive(Debug, Default)]
pub(super) struct Surplus {
    copies: BTreeMap<StripeId, Vec<(BlockIndex, NodeId)>>,
}

impl Surplus {
    pub fn add(&mut self, stripe: &StripeId, block: BlockIndex, node: NodeId) {
        let copies = self.copies.entry(stripe.clone()).or_default();
        if !copies.contains(&(block, node)) {
            copies.push((block, node));
        }
    }

    /// Copies that wait for their stripes to be whole.
    pub fn iter(&self) -> impl Iterator<Item = (&StripeId, BlockIndex, NodeId)> {
        let copies = self.copies.iter();
        copies.flat_map(|(stripe, copies)| copies.iter().map(move |&(block, node)| (stripe, block, node)))
    }

    /// Names the copies of a stripe, if it is whole and nobody works on it.
    pub fn drop_of(&mut self, stripe: &Stripe, table: &NodeTable) -> Vec<Action> {
        if self.copies.is_empty() || stripe.busy.is_some() || !stripe.is_whole(table) {
            return Vec::new();
        }
        let counted: Vec<Option<NodeId>> =
            stripe.blocks.iter().map(|place| Some(table.get(place.node?).id)).collect();
        self.drop_beside(&stripe.id, &counted)
    }

    /// Names the copies of a stripe that is whole. `counted` are the nodes of its blocks, all n by index.
    pub fn drop_beside(&mut self, stripe: &StripeId, counted: &[Option<NodeId>]) -> Vec<Action> {
        let copies = self.copies.remove(stripe).unwrap_or_default().into_iter();
        // A copy may have become the counted one meanwhile.
        let needless = copies.filter(|&(block, node)| counted.get(usize::from(block.0)) != Some(&Some(node)));
        needless.map(|(block, node)| Action::DropSurplus { stripe: stripe.clone(), block, node }).collect()
    }
}
