//! Stripes whose state cannot be determined from the store's answers.
//!
//! They are not part of the picture (the catalog in memory) and are counted separately. While there is such a
//! stripe, the cluster is not reported as safe, and blocks of these stripes do not count as orphans.

use std::collections::{BTreeMap, BTreeSet};

use repair::{BlockId, NodeId, StripeId};
use store_api::Unjudged;
use views::UnjudgedStripe;

use crate::base::Base;
use crate::nodes::Nodes;

/// The stripes of unknown state, and their blocks.
#[derive(Default)]
pub(crate) struct UnjudgedStripes {
    stripes: Vec<Unjudged>,
    names: BTreeSet<StripeId>,
    blocks: BTreeSet<BlockId>,
}

impl UnjudgedStripes {
    /// Replaces the list of stripes of unknown state.
    pub fn set(&mut self, stripes: &[Unjudged]) {
        self.stripes = stripes.to_vec();
        self.names = stripes.iter().map(|it| it.stripe.clone()).collect();
        self.blocks = stripes.iter().flat_map(|stripe| &stripe.blocks).cloned().collect();
    }

    /// Whether a block belongs to a stripe of unknown state.
    pub fn have(&self, block: &BlockId) -> bool {
        self.blocks.contains(block)
    }

    pub fn contain(&self, stripe: &StripeId) -> bool {
        self.names.contains(stripe)
    }

    pub fn names(&self) -> BTreeSet<StripeId> {
        self.names.clone()
    }

    /// Returns the number of stripes of unknown state that have blocks on any of these nodes, or had them last.
    pub fn count_on(&self, facts: (&Nodes, &Base), nodes: &BTreeSet<NodeId>) -> u64 {
        let (known, base) = facts;
        let is_on = |server: &String| known.node_named(base, server).is_ok_and(|node| nodes.contains(&node));
        self.stripes.iter().filter(|stripe| stripe.servers.iter().any(is_on)).count() as u64
    }

    /// Returns the stripes of unknown state, each with the helpers that have blocks of it, or had them last. A server
    /// without a helper has the name that the store gives it.
    pub fn holders(&self, facts: (&Nodes, &Base)) -> BTreeMap<StripeId, BTreeSet<String>> {
        let (known, base) = facts;
        let name = |server: &String| {
            known.node_named(base, server).map_or_else(|_| server.clone(), |node| known.name(node))
        };
        let named = |it: &Unjudged| (it.stripe.clone(), it.servers.iter().map(name).collect());
        self.stripes.iter().map(named).collect()
    }

    pub fn views(&self) -> Vec<UnjudgedStripe> {
        let view = |it: &Unjudged| UnjudgedStripe {
            stripe: it.stripe.to_string(),
            why: it.why.clone(),
            next_step: it.next_step.clone(),
        };
        self.stripes.iter().map(view).collect()
    }

    /// Returns one sentence per stripe.
    pub fn advice(&self) -> impl Iterator<Item = String> + '_ {
        let line = |it: &Unjudged| {
            format!("the state of {} is unknown: {}; next: {}", it.stripe, it.why, it.next_step)
        };
        self.stripes.iter().map(line)
    }
}
