//! Blocks that parity has shown to be wrong, although their checksums are correct.
//!
//! Checksums are weaker evidence than parity: if a block is replaced together with its checksums, every read
//! accepts it. A condemned block therefore counts as lost, whatever its helper reports, until it is rebuilt there or
//! removed. A block that was rebuilt on another node stays condemned on this one, because the store may list the old
//! copy again. The records keep condemned blocks across restarts.

use std::collections::BTreeMap;

use repair::{BlockId, BlockProblem, NodeId, StripeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store_api::{BlockRecord, StripeRecord};

use crate::out::Out;
use crate::records::recall;

/// The prefix of the record keys; the node's number and the block's name follow.
const PREFIX: &str = "condemned/";

/// The condemned blocks, by block and node.
#[derive(Default)]
pub(crate) struct Condemned {
    pub(in crate::stripes) blocks: BTreeMap<(BlockId, NodeId), StripeId>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    stripe: StripeId,
    block: BlockId,
    node: NodeId,
}

impl Condemned {
    /// Restores the blocks that an earlier coordinator condemned.
    pub(crate) fn recall(&mut self, records: &[(String, Value)]) {
        for (_, kept) in recall::<Kept>(records, PREFIX) {
            if let Some(Kept { stripe, block, node }) = kept {
                self.blocks.insert((block, node), stripe);
            }
        }
    }

    /// Adds a block; returns its problem, or `None` if it was condemned already.
    pub(in crate::stripes) fn add(
        &mut self,
        stripe: &StripeId,
        block: &BlockId,
        node: NodeId,
        out: &mut Out,
    ) -> Option<BlockProblem> {
        if self.blocks.contains_key(&(block.clone(), node)) {
            return None;
        }
        let kept = Kept { stripe: stripe.clone(), block: block.clone(), node };
        out.keep_record(key(block, node), &kept);
        self.blocks.insert((block.clone(), node), stripe.clone());
        Some(BlockProblem::ContradictsParity)
    }

    /// Removes the blocks of a stripe that were rebuilt on these nodes from the condemned ones. A block may have been
    /// condemned as part of another stripe: one that a plug-in described, and that the store lists under another name.
    pub(crate) fn absolve(
        &mut self,
        record: &StripeRecord,
        indices: &[codes::BlockIndex],
        made_on: impl Fn(NodeId) -> bool,
        out: &mut Out,
    ) {
        let made = |block: &BlockId| {
            indices.iter().any(|&index| record.block(index).is_some_and(|made| made.id == *block))
        };
        let taken = self.take(|block, node, _| made_on(node) && made(block));
        self.forget(taken, out);
    }

    /// Drops a block that was removed from a node.
    pub(in crate::stripes) fn forget_copy(&mut self, block: &BlockId, node: NodeId, out: &mut Out) {
        let taken = self.take(|condemned, at, _| (condemned, at) == (block, node));
        self.forget(taken, out);
    }

    /// Drops the condemned blocks on a node that was removed.
    pub(crate) fn forget_node(&mut self, node: NodeId, out: &mut Out) {
        let taken = self.take(|_, at, _| at == node);
        self.forget(taken, out);
    }

    /// Drops the condemned blocks of a stripe that was removed.
    pub(crate) fn forget_stripe(&mut self, stripe: &StripeId, out: &mut Out) {
        let taken = self.take(|_, _, of| of == stripe);
        self.forget(taken, out);
    }

    pub(in crate::stripes) fn forget(&self, blocks: Vec<(BlockId, NodeId)>, out: &mut Out) {
        blocks.into_iter().for_each(|(block, node)| out.forget_record(key(&block, node)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether a recorded copy of a block is condemned. If so, the block's recorded digest proves nothing.
    pub(crate) fn has(&self, block: &BlockRecord) -> bool {
        block.holders().any(|holder| self.problem(&block.id, holder.node).is_some())
    }

    /// Whether there are recorded copies of a block, and all of them are condemned.
    pub(in crate::stripes) fn has_all(&self, block: &BlockRecord) -> bool {
        let mut holders = block.holders().peekable();
        holders.peek().is_some() && holders.all(|holder| self.problem(&block.id, holder.node).is_some())
    }

    /// Returns the problem of a block on a node, if it is condemned there.
    pub(crate) fn problem(&self, block: &BlockId, node: NodeId) -> Option<BlockProblem> {
        let condemned = !self.blocks.is_empty() && self.blocks.contains_key(&(block.clone(), node));
        condemned.then_some(BlockProblem::ContradictsParity)
    }

    /// Removes and returns the entries that match.
    pub(in crate::stripes) fn take(
        &mut self,
        fits: impl Fn(&BlockId, NodeId, &StripeId) -> bool,
    ) -> Vec<(BlockId, NodeId)> {
        let taken = self.blocks.iter().filter(|((block, node), stripe)| fits(block, *node, stripe));
        let taken: Vec<(BlockId, NodeId)> = taken.map(|(key, _)| key.clone()).collect();
        taken.iter().for_each(|key| drop(self.blocks.remove(key)));
        taken
    }
}

fn key(block: &BlockId, node: NodeId) -> String {
    format!("{PREFIX}{}/{block}", node.0)
}
