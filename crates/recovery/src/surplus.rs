//! Surplus copies of blocks. They appear when a node comes back after its block was rebuilt elsewhere.
//!
//! A copy is kept while a block of its stripe is lost or a job works on the stripe, because it may be the
//! last readable copy.

use std::collections::BTreeMap;

use codes::BlockIndex;
use repair::{NodeId, StripeId};

use super::item::Action;
use super::nodes::NodeTable;
use super::stripes::Stripe;

/// Surplus copies by stripe.
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

    /// Drops the copies of a stripe that was removed.
    pub fn forget(&mut self, stripe: &StripeId) {
        self.copies.remove(stripe);
    }

    /// Requests removal of a stripe's surplus copies, if the stripe is whole and no job works on it.
    pub fn drop_of(&mut self, stripe: &Stripe, table: &NodeTable) -> Vec<Action> {
        if self.copies.is_empty() || stripe.busy.is_some() || !stripe.is_whole(table) {
            return Vec::new();
        }
        let counted: Vec<Option<NodeId>> =
            stripe.blocks.iter().map(|block| Some(table.get(block.node?).id)).collect();
        self.drop_beside(&stripe.id, &counted)
    }

    /// Requests removal of the surplus copies of a stripe whose blocks can all be read. `counted` are the
    /// nodes of the stripe's n blocks by index.
    pub fn drop_beside(&mut self, stripe: &StripeId, counted: &[Option<NodeId>]) -> Vec<Action> {
        let copies = self.copies.remove(stripe).unwrap_or_default().into_iter();
        // A reported copy may by now be the stripe's regular block.
        let needless = copies.filter(|&(block, node)| counted.get(usize::from(block.0)) != Some(&Some(node)));
        needless.map(|(block, node)| Action::DropSurplus { stripe: stripe.clone(), block, node }).collect()
    }
}
