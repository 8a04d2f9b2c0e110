//! Which copies of a block are required, wanted or surplus.

use codes::BlockIndex;
use recovery::{BlockFacts, CopyState};
use repair::{BlockId, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, StripeRecord};

use crate::facts::Facts;
use crate::stripes::indices::indexed;

impl<'a> Facts<'a> {
    /// Whether a node's copy of a block is surplus: no stripe contains the block, or the stripe is whole
    /// without this copy and as well spread as with it. Call this before each removal, because the decision
    /// to remove the copy may be outdated.
    pub(crate) fn may_go(self, node: NodeId, block: &BlockId) -> bool {
        let Some((stripe, index, record)) = self.stripes.record_of(block) else {
            // In a store that others change, a volume may be missing from a listing for a moment. Its blocks
            // must not be removed because of that.
            return !self.base.store.claims_stripes();
        };
        record.node != Some(node) && self.is_spare(&stripe, index, node)
    }

    /// Whether a stripe tolerates as many losses without a node's copy of a block as its code allows.
    pub(crate) fn is_spare(self, stripe: &StripeId, index: BlockIndex, node: NodeId) -> bool {
        self.stripes.picture.stripe(stripe).is_ok_and(|stripe| self.survives_without(&stripe, index, node))
    }

    /// Whether a node's copy of a block is worth verifying. This is so if the copy was recorded as bad, if no
    /// recorded holder has the block, or if the holder also has another block of the stripe and this node has
    /// none.
    pub(crate) fn is_wanted_from(self, node: NodeId, stripe: &StripeId, index: BlockIndex) -> bool {
        let Ok(record) = self.stripes.picture.stripe(stripe) else { return false };
        let Some(block) = record.block(index) else { return false };
        match self.stripes.unrecorded.latest(block, node) {
            // If helpers' lists may omit blocks that they have, even a copy recorded as healthy is verified.
            Some(state) => state != BlockState::Healthy || !self.base.store.trusts_lists(),
            None if !self.nodes.settled || !self.may_change() => false,
            None if self.base.store.owns_files() && self.shares_helper(&record, index, node) => {
                self.is_lost(block) && self.nobody_else_has(&record, block)
            }
            None if self.is_lost(block) => true,
            None => {
                let home = if self.base.store.owns_files() { self.readable_at(block) } else { None };
                home.is_some_and(|home| self.shares_helper(&record, index, home))
            }
        }
    }

    /// Whether to accept a copy on a helper that already has another block of the stripe. Such a copy does
    /// not raise the number of helpers that the stripe can lose. It is accepted only if the recorded holder
    /// cannot return with the block, or if the stripe is unreadable as long as the holder is away.
    fn nobody_else_has(self, stripe: &StripeRecord, block: &BlockRecord) -> bool {
        let returns = |node: NodeId| !self.nodes.is_connected(node) && !self.nodes.registry.is_retired(node);
        let comes_back = block.state == BlockState::Healthy && block.node.is_some_and(returns);
        !comes_back || !self.is_readable(stripe)
    }

    /// Whether an orphan is surely not needed: its stripe tolerates as many losses without this copy, or a
    /// coordinator that used this catalog assigned the block's name and no stripe contains the block any
    /// more.
    pub(crate) fn is_unreferenced(self, node: NodeId, block: &BlockId) -> bool {
        match self.stripes.record_of(block) {
            Some((stripe, index, _)) => self.is_spare(&stripe, index, node),
            None => self.stripes.picture.was_given(block),
        }
    }

    /// Whether a node has another readable block of the stripe.
    pub(crate) fn shares_helper(self, stripe: &StripeRecord, index: BlockIndex, node: NodeId) -> bool {
        indexed(stripe)
            .any(|(other, block)| other != index && self.readers(block).any(|reader| reader == node))
    }

    /// Whether a stripe can do without a node's copy of a block. No blocks of the stripe may contradict each
    /// other, and every block must remain readable, each on a node of its own. In stores where a node may
    /// have several blocks of a stripe, the stripe must instead survive as many node failures as with all
    /// copies. Only one copy of each other block is counted, because its further copies may be about to be
    /// removed.
    pub(crate) fn survives_without(self, stripe: &StripeRecord, index: BlockIndex, node: NodeId) -> bool {
        if self.stripes.contradictions.has(&stripe.id) {
            return false; // The copy may be the one with the right bytes.
        }
        let stays = |(at, block)| self.proven_readers(block).find(|&reader| at != index || reader != node);
        let Some(rest) = indexed(stripe).map(stays).collect::<Option<Vec<NodeId>>>() else { return false };
        let rest = self.stripes.picture.together(&rest);
        if !rest.shares_nodes() || !self.base.store.shares_nodes() {
            return !rest.shares_nodes();
        }
        let is_readable = |block| self.proven_readers(block).any(|reader| reader == node);
        if !stripe.block(index).is_some_and(is_readable) {
            return true;
        }
        let spare = (stripe.code.blocks() - stripe.code.data_blocks()) as u32;
        let with_all = self.stripes.picture.together(&least_shared(self, stripe));
        rest.survives(spare).nodes >= with_all.survives(spare).nodes
    }

    /// Among the blocks of a stripe that share a helper with another block of the stripe, returns the one
    /// with the highest index.
    pub(crate) fn doubled_block(self, stripe: &StripeRecord) -> Option<BlockId> {
        let mut blocks = indexed(stripe).collect::<Vec<_>>().into_iter().rev();
        let shares = |(index, block): &(BlockIndex, &store_api::BlockRecord)| {
            self.readable_at(block).is_some_and(|node| self.shares_helper(stripe, *index, node))
        };
        blocks.find(shares).map(|(_, block)| block.id.clone())
    }

    /// Returns the scheduler's facts about a block. If the block has several holders, a readable one is used.
    pub(crate) fn block_facts(self, block: &BlockRecord) -> BlockFacts {
        let reader = if block.replicas.is_empty() { None } else { self.readable_at(block) };
        let node = reader.or(block.node);
        let holder = node.and_then(|node| block.holders().find(|holder| holder.node == node));
        let state = holder.map(|holder| self.known_state(block, &holder));
        BlockFacts { node, copy: state.map_or(CopyState::Missing, copy_state) }
    }
}

/// Chooses a node for each readable block such that few blocks share a node. Nodes that are being drained
/// are chosen only for blocks without another copy.
fn least_shared(facts: Facts<'_>, stripe: &StripeRecord) -> Vec<NodeId> {
    let mut copies: Vec<Vec<NodeId>> =
        stripe.blocks.iter().map(|block| facts.proven_readers(block).collect()).collect();
    copies.sort_by_key(Vec::len); // Blocks with the fewest copies choose first.
    let mut chosen: Vec<NodeId> = Vec::with_capacity(copies.len());
    for nodes in copies {
        let taken = |node: &NodeId| chosen.iter().filter(|other| *other == node).count();
        let rank = |node: &NodeId| (facts.nodes.registry.is_leaving(*node), taken(node));
        let least = nodes.into_iter().min_by_key(rank);
        chosen.extend(least);
    }
    chosen
}

/// Returns the scheduler's view of a copy in this state.
pub(crate) fn copy_state(state: BlockState) -> CopyState {
    match state {
        BlockState::Healthy => CopyState::Good,
        BlockState::Corrupt | BlockState::Unreadable => CopyState::Bad,
        BlockState::Missing | BlockState::NotStored => CopyState::Missing,
    }
}
