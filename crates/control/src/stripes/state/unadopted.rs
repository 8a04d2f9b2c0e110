//! Found copies of blocks that could not be put into service.

use std::collections::BTreeMap;
use std::time::Duration;

use repair::{BlockId, NodeId};

/// The pause before a copy is verified again. Verifying reads the whole block.
const AGAIN: Duration = Duration::from_secs(300);
/// The pause if the block's stripe cannot be read without the copy.
const AGAIN_IF_NEEDED: Duration = Duration::from_secs(10);

/// The copies that could not be put into service, by block and node.
#[derive(Default)]
pub(crate) struct Unadopted(BTreeMap<BlockId, BTreeMap<NodeId, Retry>>);

/// When a copy is tried again.
struct Retry {
    /// The time at which to look whether the block's stripe cannot be read without it.
    if_needed: Duration,
    /// The time of the next attempt in any case.
    again: Duration,
}

impl Unadopted {
    /// Has a copy tried again later, because it could not be read or recorded.
    pub(crate) fn failed(&mut self, node: NodeId, block: BlockId, now: Duration) {
        self.insert(node, block, Retry { if_needed: now + AGAIN_IF_NEEDED, again: now + AGAIN });
    }

    /// Records that a copy is not the lost block. It is not read again before its helper registers again or the
    /// block's record changes.
    pub(crate) fn is_another(&mut self, node: NodeId, block: BlockId) {
        self.insert(node, block, Retry { if_needed: Duration::MAX, again: Duration::MAX });
    }

    fn insert(&mut self, node: NodeId, block: BlockId, retry: Retry) {
        self.0.entry(block).or_default().insert(node, retry);
    }

    /// Whether a copy must wait.
    pub(crate) fn has(&self, node: NodeId, block: &BlockId) -> bool {
        self.0.get(block).is_some_and(|nodes| nodes.contains_key(&node))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has all copies of a block considered again, because its record has changed.
    pub(crate) fn reconsider(&mut self, block: &BlockId) {
        self.0.remove(block);
    }

    /// Drops the copies on a helper that has registered again, disconnected or left.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        self.0.retain(|_, nodes| {
            nodes.remove(&node);
            !nodes.is_empty()
        });
    }

    /// Removes and returns the copies that are due. `is_needed` tells whether a block's stripe cannot be read without
    /// it.
    pub(crate) fn take_due(
        &mut self,
        now: Duration,
        is_needed: impl Fn(&BlockId) -> bool,
    ) -> Vec<(NodeId, BlockId)> {
        let mut due = Vec::new();
        self.0.retain(|block, nodes| {
            let is_due = |_: &NodeId, retry: &mut Retry| {
                if now < retry.if_needed {
                    return false;
                }
                retry.if_needed = now + AGAIN_IF_NEEDED;
                retry.again <= now || is_needed(block)
            };
            due.extend(nodes.extract_if(.., is_due).map(|(node, _)| (node, block.clone())));
            !nodes.is_empty()
        });
        due
    }
}
