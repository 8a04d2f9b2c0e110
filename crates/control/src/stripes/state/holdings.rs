//! The differences between the blocks that helpers hold and the blocks that the catalog places on them.
//!
//! A block on a helper is one of the following:
//! - recorded there as healthy;
//! - recorded there as bad, and present again: it is verified;
//! - recorded on another helper that has lost it: it is verified and *adopted*;
//! - an *orphan*: any other block that the catalog does not place on this helper;
//! - newer than the catalog: its stripe number has not been used yet. The catalog may then be an old copy
//!   (see `newer_claims`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};

/// The differences between a connected helper's blocks and the catalog.
#[derive(Default)]
pub(crate) struct Holdings {
    /// Blocks that the catalog does not place on this helper.
    pub orphans: BTreeSet<BlockId>,
    /// Blocks that the helper was told to remove, without an answer so far.
    pub removing: BTreeSet<BlockId>,
    /// Blocks that the helper could not remove, and the time of the next attempt.
    pub stuck: BTreeMap<BlockId, Duration>,
    /// Blocks that must be verified before they count as healthy, such as bad blocks that are present again.
    pub rechecks: VecDeque<(StripeId, BlockIndex)>,
}

/// The holdings of the connected helpers.
#[derive(Default)]
pub(crate) struct Inventory(BTreeMap<NodeId, Holdings>);

impl Inventory {
    pub(crate) fn get(&self, node: NodeId) -> Option<&Holdings> {
        self.0.get(&node)
    }

    pub(in crate::stripes) fn get_mut(&mut self, node: NodeId) -> Option<&mut Holdings> {
        self.0.get_mut(&node)
    }

    /// Adds a helper that has connected.
    pub(crate) fn add(&mut self, node: NodeId) {
        self.0.insert(node, Holdings::default());
    }

    /// Drops a helper that has disconnected.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Holdings)> {
        self.0.iter().map(|(&node, held)| (node, held))
    }

    /// Takes a block off a helper's orphans, because it was removed or belongs to a stripe again.
    pub(crate) fn drop_orphan(&mut self, node: NodeId, block: &BlockId) {
        if let Some(held) = self.0.get_mut(&node) {
            held.orphans.remove(block);
        }
    }

    /// Whether a node was told to remove this block and has not answered.
    pub(crate) fn is_removing(&self, node: NodeId, block: &BlockId) -> bool {
        self.0.get(&node).is_some_and(|held| held.removing.contains(block))
    }

    /// Returns the nodes that were told to remove a block and have not answered.
    pub(crate) fn removers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.iter().filter(|(_, held)| !held.removing.is_empty()).map(|(&node, _)| node)
    }
}
