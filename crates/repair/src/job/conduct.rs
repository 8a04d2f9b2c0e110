//! Records how nodes have behaved in a job: how often each was blamed or given up as a requestor, which ones
//! are suspected, and which links are broken.
//!
//! Not part of this module: finding the culprit ([`blame`](super::blame)), and the set of nodes that the next
//! plan avoids (`Policy::avoid`), which is cleared when nodes get a second chance. These records last as long
//! as the job.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;

use super::blame::{Standing, Worth};
use super::links::BrokenLinks;
use super::trust::Wrong;
use super::work::Work;
use super::{JobAction, Report};
use crate::{Accepts, NodeId, NodeProfile, Reach, Topology};

/// A node given up this often as a requestor does not become a requestor again. This bounds the number of
/// replacements.
pub(super) const GIVEN_UP: u32 = 2;

/// The behaviour of nodes in a job; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    pub(super) links: BrokenLinks,
    /// How often each node was blamed.
    blamed: BTreeMap<NodeId, u32>,
    /// How often each node was given up as a requestor. A failure that is certain, because the node itself
    /// reported it or disconnected from the coordinator, counts twice.
    given_up: BTreeMap<NodeId, u32>,
    /// Nodes whose store currently refuses the block. A single node may be wrong about that; when a second
    /// one agrees, the job ends.
    not_now: BTreeSet<NodeId>,
    /// Requestors that may have corrupted the data delivered to them. Requestors are suspected at most once
    /// in a job, and before any source block is suspected.
    suspected: BTreeSet<NodeId>,
    /// The copies of blocks that the job could not read.
    pub(super) unreadable: BTreeSet<(BlockIndex, NodeId)>,
    /// The copies of blocks that the job read before it found better ones. Their nodes may still report them.
    pub(super) left: BTreeSet<(BlockIndex, NodeId)>,
}

impl Conduct {
    /// Passes on that a copy is bad which the job no longer reads.
    pub(super) fn hear_of_left_copy(&mut self, node: NodeId, report: &Report, work: &mut Work) {
        let Report::BadBlock { block, problem } = report else { return };
        let is_it = |&&(index, left): &&(BlockIndex, NodeId)| left == node && work.id_of(index) == block;
        let Some(&copy) = self.left.iter().find(is_it) else { return };
        if self.unreadable.insert(copy) {
            let (block, problem) = (copy.0, problem.clone());
            work.actions.push_back(JobAction::BlockLost { block, node, problem });
        }
    }

    pub(super) fn blame(&mut self, node: NodeId) {
        *self.blamed.entry(node).or_insert(0) += 1;
    }

    pub(super) fn give_up(&mut self, node: NodeId, weight: u32) {
        *self.given_up.entry(node).or_insert(0) += weight;
    }

    /// Records that a node's store currently refuses the block; returns whether another node has reported the
    /// same.
    pub(super) fn note_not_now(&mut self, node: NodeId) -> bool {
        self.not_now.insert(node);
        self.not_now.len() > 1
    }

    pub(super) fn suspect(&mut self, requestors: &BTreeSet<NodeId>) {
        self.suspected.extend(requestors);
    }

    /// Whether to suspect the requestors of a wrong delivery: none was suspected before, and all of them can
    /// be replaced.
    pub(super) fn may_suspect(&self, wrong: &Wrong, work: &Work, topology: &Topology) -> bool {
        !wrong.at.is_empty()
            && self.suspected.is_empty()
            && self.can_all_be_replaced(&wrong.at, work, topology)
    }

    /// How hard a node is to replace.
    pub(super) fn worth(&self, node: NodeId, work: &Work, topology: &Topology) -> Worth {
        let standing = if topology.dials_out(node) {
            Standing::Client
        } else if work.is_requestor(node) {
            Standing::Requestor
        } else {
            Standing::Helper
        };
        Worth { standing, blamed: self.blamed.get(&node).copied().unwrap_or(0) }
    }

    pub(super) fn can_be_replaced(&self, node: NodeId, work: &Work, topology: &Topology) -> bool {
        self.can_all_be_replaced(&BTreeSet::from([node]), work, topology)
    }

    fn can_all_be_replaced(&self, nodes: &BTreeSet<NodeId>, work: &Work, topology: &Topology) -> bool {
        let mut taken = work.requestors();
        let deliveries = work.goals.iter().filter(|goal| nodes.contains(&goal.requestor));
        deliveries.map(|goal| goal.block).all(|block| {
            self.stand_in(block, &taken, work, topology).is_some_and(|other| taken.insert(other))
        })
    }

    /// Picks a replacement requestor for a block: a live helper that accepts new blocks, has room for this one,
    /// and may be chosen under the job's policy. It holds no block of the stripe or, if blocks of a stripe may
    /// share nodes, fewer than an even share of them. As in the first placement, the spread over racks and then
    /// hosts comes first; then come nodes that have not failed. Nodes in `taken` already receive other blocks
    /// and are excluded, because a node reports progress as one sum over all its deliveries.
    pub(super) fn stand_in(
        &self,
        block: BlockIndex,
        taken: &BTreeSet<NodeId>,
        work: &Work,
        topology: &Topology,
    ) -> Option<NodeId> {
        let (bytes, rules) = (work.stripe.block_bytes(), &work.policy.replacements);
        let fit = topology.iter().filter(|(node, view)| {
            let given_up = self.given_up.get(node).is_some_and(|&times| times >= GIVEN_UP);
            let takes_blocks = view.alive && view.reach != Reach::DialsOut && view.accepts == Accepts::All;
            let is_allowed =
                (rules.only.is_empty() || rules.only.contains(node)) && !rules.never.contains(node);
            takes_blocks && is_allowed && view.free_bytes >= bytes && !given_up
        });
        let fit: Vec<_> = fit.collect();
        let share = if rules.shares_nodes { work.stripe.blocks.len().div_ceil(fit.len().max(1)) } else { 1 };
        let held = |node: NodeId| work.stripe.held().filter(|&(_, holder)| holder == node).count();
        let others: Vec<&NodeProfile> = work
            .homes()
            .filter(|&(other, _)| other != block)
            .filter_map(|(_, node)| topology.get(node))
            .collect();
        let beside = |view: &NodeProfile| {
            let in_rack =
                others.iter().filter(|other| view.rack.is_some() && other.rack == view.rack).count();
            let host = view.reach.host();
            let on_host = others.iter().filter(|other| host.is_some() && other.reach.host() == host).count();
            (in_rack, on_host)
        };
        fit.into_iter()
            .filter(|&(node, _)| !taken.contains(&node) && held(node) < share)
            .min_by_key(|&(node, view)| {
                let failed = work.policy.avoid.contains(&node);
                let blamed = self.blamed.get(&node);
                (beside(view), failed, blamed, held(node), view.load, Reverse(view.free_bytes))
            })
            .map(|(node, _)| node)
    }
}
