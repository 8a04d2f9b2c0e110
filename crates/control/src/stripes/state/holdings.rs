//! The differences between the blocks that helpers hold and the blocks that the catalog places on them.
//!
//! A block on a helper is one of the following:
//! - recorded there as healthy;
//! - recorded there as bad, and present again: it is verified;
//! - recorded on another helper that has lost it: it is verified and *adopted*;
//! - an *orphan*: any other block that the catalog does not place on this helper;
//! - newer than the catalog: its stripe number has not been used yet. The catalog may then be an old copy
//!   (see `newer_claims`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use store_api::StripeRecord;

use crate::base::Base;
use crate::nodes::Nodes;
use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::indices::indices_of;
use crate::stripes::state::copy_search::CopySearch;
use crate::stripes::state::unadopted::Unadopted;

/// The differences between a connected helper's blocks and the catalog.
#[derive(Default)]
pub(crate) struct Holdings {
    /// Blocks that the catalog does not place on this helper.
    pub orphans: BTreeSet<BlockId>,
    /// Blocks that the helper was told to remove, without an answer so far.
    pub removing: BTreeSet<BlockId>,
    /// Blocks that the helper could not remove, and the time of the next attempt.
    pub stuck: BTreeMap<BlockId, Duration>,
    /// The block at which the last search for blocks to remove has stopped, because it had looked at too
    /// many.
    pub looked_at: Option<BlockId>,
    /// Blocks that must be verified before they count as healthy, such as bad blocks that are present again.
    pub rechecks: BTreeSet<(StripeId, BlockIndex)>,
    /// Blocks that are recorded as healthy, and that the helper has not described after its return. They are
    /// verified after the others, one after another: there may be more of them than a queue of messages takes.
    pub undescribed: BTreeSet<(StripeId, BlockIndex)>,
}

/// The holdings of the helpers.
#[derive(Default)]
pub(crate) struct Inventory {
    /// The holdings of the connected helpers.
    held: BTreeMap<NodeId, Holdings>,
    /// Helpers that returned without most of their blocks.
    hollow: BTreeMap<NodeId, Hollow>,
    /// Blocks that helpers have removed, while this is being recorded, each with whether the helper has listed the block
    /// since. It does so if it has another disk than before.
    pub recording: BTreeMap<(NodeId, BlockId), bool>,
    /// Found copies that could not be put into service.
    pub unadopted: Unadopted,
    /// Stripes of which a found copy is being recorded.
    pub adopting: BTreeSet<StripeId>,
    /// The search for spare copies of lost blocks.
    pub search: CopySearch,
}

/// A helper that returned without most of its blocks.
struct Hollow {
    /// The time of the return; `None` if the grace period is over. It does not begin again if the helper
    /// reconnects.
    since: Option<Duration>,
    /// The number of blocks that were missing.
    missing: usize,
    /// The number of lost blocks of other helpers that were found on this one since then.
    adopted: usize,
}

impl Inventory {
    pub(crate) fn get(&self, node: NodeId) -> Option<&Holdings> {
        self.held.get(&node)
    }

    pub(crate) fn get_mut(&mut self, node: NodeId) -> Option<&mut Holdings> {
        self.held.get_mut(&node)
    }

    /// Adds a helper that has connected.
    pub(crate) fn add(&mut self, node: NodeId) {
        self.held.insert(node, Holdings::default());
        self.unadopted.forget_node(node);
    }

    /// Drops a helper that has disconnected.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.held.remove(&node);
    }

    /// Forgets a helper that was removed from the cluster.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.held.remove(&node);
        self.hollow.remove(&node);
    }

    /// Records that this many of the `expected` blocks are not in the list of a returned helper, which is hollow
    /// if these are most of them.
    pub(in crate::stripes) fn note_missing(
        &mut self,
        node: NodeId,
        missing: usize,
        expected: usize,
        now: Duration,
    ) {
        if 2 * missing > expected {
            self.hollow.entry(node).or_insert(Hollow { since: Some(now), missing, adopted: 0 });
        } else {
            self.hollow.remove(&node);
        }
    }

    /// Records that a lost block of another helper was found on this one. If it has about as many blocks as it
    /// lacks, its disk is mounted: it has another one than before.
    pub(in crate::stripes) fn note_adopted(&mut self, node: NodeId, out: &mut Out) {
        let Some(hollow) = self.hollow.get_mut(&node) else { return };
        hollow.adopted += 1;
        if 2 * hollow.adopted > hollow.missing {
            self.hollow.remove(&node);
            out.tell(Signal::Node(node));
        }
    }

    /// Ends the grace periods of hollow helpers that have passed.
    pub(crate) fn expire_hollow(&mut self, nodes: &Nodes, base: &Base, out: &mut Out) {
        if let Some(grace) = nodes.repair_after(base).time() {
            self.end_hollow(|since| base.now >= since + grace, out);
        }
    }

    /// Ends the grace periods of all hollow helpers, because an operator has all lost blocks rebuilt.
    pub(crate) fn accept_hollow(&mut self, out: &mut Out) {
        self.end_hollow(|_| true, out);
    }

    fn end_hollow(&mut self, ends: impl Fn(Duration) -> bool, out: &mut Out) {
        for (&node, hollow) in &mut self.hollow {
            if hollow.since.take_if(|since| ends(*since)).is_some() {
                out.tell(Signal::Node(node));
            }
        }
    }

    /// Drops what is to be done with the blocks of a stripe that was removed. `record` is its last record.
    pub(in crate::stripes) fn forget_stripe(&mut self, stripe: &StripeId, record: Option<&StripeRecord>) {
        for held in self.held.values_mut() {
            held.rechecks.extract_if(indices_of(stripe), |_| true).for_each(drop);
            held.undescribed.extract_if(indices_of(stripe), |_| true).for_each(drop);
        }
        record
            .iter()
            .flat_map(|record| &record.blocks)
            .for_each(|block| self.unadopted.reconsider(&block.id));
    }

    /// Returns the time of return of a hollow helper in its grace period.
    pub(crate) fn hollow_since(&self, node: NodeId) -> Option<Duration> {
        self.hollow.get(&node)?.since
    }

    /// Returns the hollow helpers in their grace periods, and the times of their returns.
    pub(crate) fn hollow(&self) -> impl Iterator<Item = (NodeId, Duration)> {
        self.hollow.iter().filter_map(|(&node, hollow)| Some((node, hollow.since?)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Holdings)> {
        self.held.iter().map(|(&node, held)| (node, held))
    }

    /// Takes a block off a helper's orphans, because it was removed or belongs to a stripe again.
    pub(crate) fn drop_orphan(&mut self, node: NodeId, block: &BlockId) {
        if let Some(held) = self.held.get_mut(&node) {
            held.orphans.remove(block);
        }
    }

    /// Whether it is being recorded that a node has removed this block.
    pub(in crate::stripes) fn is_recording(&self, node: NodeId, block: &BlockId) -> bool {
        self.recording.contains_key(&(node, block.clone()))
    }

    /// Whether a node was told to remove this block and has not answered.
    pub(crate) fn is_removing(&self, node: NodeId, block: &BlockId) -> bool {
        self.held.get(&node).is_some_and(|held| held.removing.contains(block))
    }

    /// Returns the nodes that were told to remove a block and have not answered.
    pub(crate) fn removers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.held.iter().filter(|(_, held)| !held.removing.is_empty()).map(|(&node, _)| node)
    }
}
