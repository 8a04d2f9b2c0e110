//! Nodes on which the store refused a rebuilt block. The next attempt uses other nodes.
//!
//! For example, if a reader found a replica corrupt, HDFS distrusts this replica even after its repair, until
//! another DataNode has a good one. If no other node can take the block, the same node is tried again.

use std::collections::{BTreeMap, BTreeSet};

use repair::{NodeId, StripeId};
use store_api::StoreError;

/// For each stripe, the nodes on which the store refused blocks, until a repair of the stripe succeeds.
#[derive(Default)]
pub(crate) struct Refusals(BTreeMap<StripeId, BTreeSet<NodeId>>);

impl Refusals {
    /// Records that the store refused a rebuilt block of the stripe on this node.
    pub fn note(&mut self, stripe: &StripeId, node: NodeId) {
        self.0.entry(stripe.clone()).or_default().insert(node);
    }

    /// Records the node that an error of the store names, if the store refuses blocks of the stripe on that
    /// node. Returns whether the store had refused the same node before.
    pub fn note_error(&mut self, stripe: &StripeId, error: &StoreError) -> bool {
        let (StoreError::NotServed { node, .. } | StoreError::Unfit { node, .. }) = error else {
            return false;
        };
        !self.0.entry(stripe.clone()).or_default().insert(*node)
    }

    /// Forgets the refusals for a stripe, because the store has accepted a block of it or the stripe was
    /// removed.
    pub fn forget(&mut self, stripe: &StripeId) {
        self.0.remove(stripe);
    }

    /// Returns the nodes on which the store refused blocks of the stripe.
    pub fn of(&self, stripe: &StripeId) -> impl Iterator<Item = NodeId> + '_ {
        self.0.get(stripe).into_iter().flatten().copied()
    }
}
