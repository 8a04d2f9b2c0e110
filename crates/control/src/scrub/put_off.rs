//! Blocks that the background scrub reads later, because their helpers are slow.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};

use crate::helper_queries::Queries;

/// How long the scrub waits for a helper that is still reading, before it continues with other helpers.
const SLOW_AFTER: Duration = Duration::from_secs(30);

/// A block on a node, or the entry for the parity check of a stripe. Each round visits all places in order.
pub(super) type BlockOnNode = (StripeId, BlockIndex, NodeId);

/// The blocks that the scrub has put off because their helpers are slow, in the order of each helper's list.
#[derive(Default)]
pub(crate) struct PutOff {
    blocks: BTreeMap<NodeId, VecDeque<BlockOnNode>>,
    /// The busy helpers that the scrub waits for, and since when.
    waits: BTreeMap<NodeId, Duration>,
}

impl PutOff {
    /// Returns a block whose helper is idle again.
    pub(super) fn next(&mut self, queries: &Queries) -> Option<BlockOnNode> {
        self.waits.retain(|&node, _| queries.is_verifying(node));
        let node = *self.blocks.keys().find(|&&node| !queries.is_verifying(node))?;
        let blocks = self.blocks.get_mut(&node)?;
        let next = blocks.pop_front();
        if blocks.is_empty() {
            self.blocks.remove(&node);
        }
        next
    }

    /// Whether the scrub has waited long enough for this busy helper.
    pub(super) fn is_slow(&mut self, node: NodeId, now: Duration) -> bool {
        now >= *self.waits.entry(node).or_insert(now) + SLOW_AFTER
    }

    /// Whether all helpers with blocks that were put off are slow again; the next round then starts without them.
    pub(super) fn all_are_slow(&mut self, now: Duration) -> bool {
        let nodes: Vec<NodeId> = self.blocks.keys().copied().collect();
        nodes.into_iter().all(|node| self.is_slow(node, now))
    }

    pub(super) fn add(&mut self, place: BlockOnNode) {
        self.blocks.entry(place.2).or_default().push_back(place);
    }

    /// Returns the blocks that were put off.
    pub(super) fn places(&self) -> impl Iterator<Item = &BlockOnNode> {
        self.blocks.values().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.values().map(VecDeque::len).sum()
    }
}
