//! Nodes on which a store did not take a block that was made there: it is made on another one next.
//!
//! HDFS, for one, distrusts a replica that a reader found rotten until another DataNode has a good one, whatever becomes of the
//! first. Where nobody else may have the block, who refused it is tried again.

use std::collections::{BTreeMap, BTreeSet};

use repair::{NodeId, StripeId};

/// By stripe, as long as its repair fails.
#[derive(Default)]
pub(crate) struct Refusals(BTreeMap<StripeId, BTreeSet<NodeId>>);

impl Refusals {
    /// A block of the stripe was made on the node, and the store has none there.
    pub fn note(&mut self, stripe: &StripeId, node: NodeId) {
        self.0.entry(stripe.clone()).or_default().insert(node);
    }

    /// The store has taken a block of the stripe, or there is no such stripe any more.
    pub fn forget(&mut self, stripe: &StripeId) {
        self.0.remove(stripe);
    }

    /// Who refused blocks of the stripe.
    pub fn of(&self, stripe: &StripeId) -> impl Iterator<Item = NodeId> + '_ {
        self.0.get(stripe).into_iter().flatten().copied()
    }
}
