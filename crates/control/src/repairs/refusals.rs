//! Nodes on which the store refused a rebuilt block: the next attempt uses another node.
//!
//! HDFS, for one, distrusts a replica that a reader found rotten until another DataNode has a good one, even
//! if the first is repaired. If no other node may have the block, the same node is tried again.

use std::collections::{BTreeMap, BTreeSet};

use repair::{NodeId, StripeId};
use store_api::StoreError;

/// The refusing nodes of each stripe, until its repair succeeds.
#[derive(Default)]
pub(crate) struct Refusals(BTreeMap<StripeId, BTreeSet<NodeId>>);

impl Refusals {
    /// A block of the stripe was rebuilt on the node, and the store did not take it.
    pub fn note(&mut self, stripe: &StripeId, node: NodeId) {
        self.0.entry(stripe.clone()).or_default().insert(node);
    }

    /// An error of the store may name the node on which it takes no block of the stripe.
    pub fn note_error(&mut self, stripe: &StripeId, error: &StoreError) {
        if let StoreError::NotServed { node, .. } | StoreError::Unfit { node, .. } = error {
            self.note(stripe, *node);
        }
    }

    /// The store has taken a block of the stripe, or the stripe has been removed.
    pub fn forget(&mut self, stripe: &StripeId) {
        self.0.remove(stripe);
    }

    /// The nodes that refused blocks of the stripe.
    pub fn of(&self, stripe: &StripeId) -> impl Iterator<Item = NodeId> + '_ {
        self.0.get(stripe).into_iter().flatten().copied()
    }
}
