//! The request and the progress of a job, shared by its moving and ending phases.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use codes::BlockIndex;

use super::{BlockProblem, JobAction, Verify};
use crate::wire::control::ToNode;
use crate::{
    BlockId, Class, Digest, Epoch, JobId, NodeId, Permit, Policy, SliceSet, Strength, Stripe, StripeBlock,
    Topology,
};

#[derive(Debug)]
pub(super) struct Work {
    pub(super) id: JobId,
    pub(super) stripe: Stripe,
    pub(super) window: Range<u64>,
    pub(super) sub_blocks: Option<Range<u16>>,
    pub(super) policy: Policy,
    pub(super) verify: Verify,
    pub(super) publish: bool,
    pub(super) tag: Option<u64>,
    pub(super) permits: Vec<(BlockIndex, Permit)>,
    pub(super) goals: Vec<Goal>,
    /// The epoch of the current or last plan.
    pub(super) epoch: Epoch,
    /// Seed of the parity check, one per plan, so that a restarted check can use answers still in flight.
    pub(super) check_seed: u64,
    /// Why earlier plans were dropped.
    pub(super) replanned: Vec<String>,
    /// Nodes that hold state of the job or work for it.
    pub(super) touched: BTreeSet<NodeId>,
    pub(super) actions: VecDeque<JobAction>,
}

/// A wanted block and its remaining slices.
#[derive(Debug)]
pub(super) struct Goal {
    pub(super) block: BlockIndex,
    pub(super) requestor: NodeId,
    pub(super) missing: Option<SliceSet>,
    /// Whether the requestor has made the block durable; reset when the block is delivered again.
    pub(super) sealed: bool,
    /// The digest that the requestor reported at the seal, if its store has digests.
    pub(super) digest: Option<Digest>,
    /// The digest that the block must have instead of the recorded one, which parity has refuted.
    pub(super) confirmed: Option<Digest>,
    /// Extra time that the requestor's store may need to accept the block, on top of the disk's time.
    pub(super) hand_over: Duration,
    /// Whether the current ending has told the requestor to commit the block, because the block was checked.
    pub(super) told_to_commit: bool,
    /// Whether the block was checked and is now part of the requestor's store.
    pub(super) committed: bool,
    /// The block's holder before the commit, if there was one. This node keeps its copy until the job is
    /// over.
    pub(super) former: Option<NodeId>,
}

impl Work {
    pub(super) fn tell(&mut self, node: NodeId, message: ToNode) {
        self.actions.push_back(JobAction::Tell { node, message });
    }

    /// Tells the nodes of a plan that the stripe is at risk, after they got their assignments.
    pub(super) fn tell_at_risk(&mut self, nodes: &[NodeId]) {
        let job = self.id;
        nodes.iter().for_each(|&node| self.tell(node, ToNode::AtRisk { job }));
    }

    /// The permit that the storage system's own process requires for a block, if it requires one.
    pub(super) fn permit(&self, block: BlockIndex) -> Option<&Permit> {
        self.permits.iter().find(|(other, _)| *other == block).map(|(_, permit)| permit)
    }

    /// The class of the job's traffic. Clients take part in reads, which publish nothing, and in puts. A job
    /// without a client that publishes nothing is a probe.
    pub(super) fn class(&self) -> Class {
        match (self.publish, self.tag) {
            (false, Some(_)) => Class::Read,
            (false, None) => Class::Probe,
            (true, Some(_)) => Class::Put,
            (true, None) => Class::Repair,
        }
    }

    /// Whether the job is a put, which delivers every block of its stripe.
    pub(super) fn is_put(&self) -> bool {
        self.class() == Class::Put
    }

    /// Whether the job can avoid a node, that is, whether the node is neither a requestor nor a client.
    pub(super) fn may_go_without(&self, node: NodeId, topology: &Topology) -> bool {
        !self.is_requestor(node) && !topology.dials_out(node)
    }

    /// Whether a node may report on a block: only its holder and its requestor may.
    pub(super) fn may_speak_of(&self, node: NodeId, block: &BlockId) -> bool {
        let holds = self.stripe.held().any(|(index, holder)| holder == node && self.id_of(index) == block);
        holds || self.goals.iter().any(|goal| goal.requestor == node && self.id_of(goal.block) == block)
    }

    pub(super) fn id_of(&self, block: BlockIndex) -> &BlockId {
        &self.stripe.block(block).id
    }

    pub(super) fn is_wanted(&self, block: BlockIndex) -> bool {
        self.goals.iter().any(|goal| goal.block == block)
    }

    /// Whether the job delivers this block.
    pub(super) fn delivers(&self, block: &BlockId) -> bool {
        self.goals.iter().any(|goal| self.id_of(goal.block) == block)
    }

    /// Whether a node receives this block and has not committed it yet.
    pub(super) fn is_receiving(&self, node: NodeId, block: &BlockId) -> bool {
        let mut open = self.goals.iter().filter(|goal| goal.requestor == node && !goal.committed);
        open.any(|goal| self.id_of(goal.block) == block)
    }

    pub(super) fn is_requestor(&self, node: NodeId) -> bool {
        self.goals.iter().any(|goal| goal.requestor == node)
    }

    /// The nodes that hold the stripe's blocks or will receive them.
    pub(super) fn homes(&self) -> impl Iterator<Item = (BlockIndex, NodeId)> + '_ {
        let coming = self.goals.iter().map(|goal| (goal.block, goal.requestor));
        coming.chain(self.stripe.held().filter(|&(block, _)| !self.is_wanted(block)))
    }

    pub(super) fn requestors(&self) -> BTreeSet<NodeId> {
        self.goals.iter().map(|goal| goal.requestor).collect()
    }

    /// How much the recorded digest of a delivery proves. A client's read is never sealed, so its digest
    /// proves nothing.
    pub(super) fn digest_strength(&self, goal: &Goal) -> Option<Strength> {
        let strength = match goal.confirmed {
            Some(_) => Some(Strength::Parity),
            None => self.stripe.block(goal.block).digest.map(|digest| digest.strength()),
        };
        strength.filter(|_| self.publish)
    }

    /// The digest that a delivery must have, if one is known.
    pub(super) fn expected_digest(&self, goal: &Goal) -> Option<Digest> {
        goal.confirmed.or(self.stripe.block(goal.block).digest)
    }

    /// Lets the digests of the deliveries take the place of those recorded digests that differ from them.
    pub(super) fn confirm_digests(&mut self) {
        for goal in &mut self.goals {
            let StripeBlock { id, digest: recorded, .. } = self.stripe.block(goal.block);
            if goal.confirmed.is_none() && recorded.is_some() && goal.digest != *recorded {
                goal.confirmed = goal.digest;
                self.replanned.push(format!(
                    "the recorded digest of {id} is wrong: two helpers received the same other bytes, which \
                     agree with all survivors, and the survivors have their own digests"
                ));
            }
        }
    }

    /// Whether a cryptographic digest is recorded for every delivery that is not committed yet. Without such a
    /// delivery, nothing is proven.
    pub(super) fn is_proven_by_digests(&self) -> bool {
        let mut open = self.goals.iter().filter(|goal| !goal.committed).peekable();
        open.peek().is_some() && open.all(|goal| self.digest_strength(goal) == Some(Strength::Digest))
    }

    /// Whether all sub-blocks are wanted.
    pub(super) fn has_whole_lines(&self) -> bool {
        self.sub_blocks.as_ref().is_none_or(|some| *some == (0..self.stripe.code.sub_blocks() as u16))
    }

    /// Whether whole blocks are wanted.
    pub(super) fn has_whole_blocks(&self) -> bool {
        self.has_whole_lines() && self.window == (0..self.stripe.sub_block_bytes())
    }

    /// Extra time that the stores of these nodes may need to accept their blocks.
    pub(super) fn hand_over_limit(&self, nodes: &BTreeSet<NodeId>) -> Duration {
        let goals = self.goals.iter().filter(|goal| nodes.contains(&goal.requestor));
        goals.map(|goal| goal.hand_over).max().unwrap_or_default()
    }

    /// Tells the requestors with deliveries that are not committed yet to commit them.
    pub(super) fn tell_to_commit(&mut self, requestors: &BTreeSet<NodeId>) {
        let (job, epoch) = (self.id, self.epoch);
        requestors.iter().for_each(|&node| self.tell(node, ToNode::Commit { job, epoch }));
        for goal in self.goals.iter_mut().filter(|goal| !goal.committed) {
            goal.told_to_commit = requestors.contains(&goal.requestor);
        }
    }

    /// Forgets who was told to commit, because a new plan or ending begins, and deliveries may change or be sealed again.
    pub(super) fn take_back_commits(&mut self) {
        self.goals.iter_mut().for_each(|goal| goal.told_to_commit = false);
    }

    /// Starts all deliveries to a node again from scratch, because the node failed.
    pub(super) fn restart_at(&mut self, node: NodeId) {
        self.goals.iter_mut().filter(|goal| goal.requestor == node).for_each(Goal::restart);
    }

    /// Records that a node's deliveries have become blocks of its store. A node that reports this for a delivery that
    /// is not sealed, or that it was not told to commit, is ignored.
    pub(super) fn publish_at(&mut self, node: NodeId) {
        let may_publish = |goal: &&mut Goal| goal.sealed && goal.told_to_commit && !goal.committed;
        let is_put = self.is_put();
        for goal in self.goals.iter_mut().filter(may_publish).filter(|goal| goal.requestor == node) {
            goal.committed = true;
            let block = &mut self.stripe.blocks[usize::from(goal.block.0)];
            // The job's own plans must not ask the block for the digest that is recorded so far.
            let replaces = block.digest.take_if(|_| goal.confirmed.is_some());
            let (index, digest) = (goal.block, goal.digest);
            self.actions.push_back(JobAction::Publish { block: index, node, digest, replaces });
            // A put reads everything from its client: what helpers have stored may have been replaced since.
            if !is_put {
                goal.former = block.holder.replace(node);
            }
        }
    }

    /// Takes back the publication of a block, because its new copy is lost, and starts its delivery again from scratch.
    pub(super) fn take_back(&mut self, at: usize) {
        let is_put = self.is_put();
        let goal = &mut self.goals[at];
        if !is_put {
            self.stripe.blocks[usize::from(goal.block.0)].holder = goal.former.take();
        }
        goal.restart();
    }

    /// The stripe for plans and checks that read blocks: a block that this job has stored must still have the bytes
    /// that were sealed, also if no digest of it is recorded.
    pub(super) fn stripe_with_seals(&self) -> Cow<'_, Stripe> {
        let is_new = |goal: &&Goal| goal.committed && self.stripe.block(goal.block).digest.is_none();
        let is_strong = |digest: &Digest| digest.strength() == Strength::Digest;
        let mut stripe = Cow::Borrowed(&self.stripe);
        for goal in self.goals.iter().filter(is_new) {
            if let Some(digest) = goal.digest.filter(is_strong) {
                stripe.to_mut().blocks[usize::from(goal.block.0)].digest = Some(digest);
            }
        }
        stripe
    }

    /// The copy of a block to read instead of the present one: it has not failed, and its node is not avoided. Returns
    /// `None` if the present copy is the best one, or if the block never could be read.
    pub(super) fn better_copy(
        &self,
        index: BlockIndex,
        good: &[NodeId],
        unreadable: &BTreeSet<(BlockIndex, NodeId)>,
    ) -> Option<NodeId> {
        let holder = self.stripe.block(index).holder;
        let was_readable = holder.is_some() || unreadable.iter().any(|&(block, _)| block == index);
        let readable = good.iter().copied().filter(|&node| !unreadable.contains(&(index, node)));
        let is_avoided = |node: &NodeId| self.policy.avoid.contains(node);
        let best = readable.min_by_key(|node| (is_avoided(node), Some(*node) != holder));
        best.filter(|node| was_readable && Some(*node) != holder)
    }

    /// Marks a block as lost for this job. If the job had stored it, the block is wanted again. Returns whether
    /// the block had a holder.
    pub(super) fn lose_block(&mut self, block: &BlockId, problem: &BlockProblem) -> bool {
        let Some(index) = self.stripe.indices().find(|&index| self.id_of(index) == block) else {
            return false;
        };
        let lost = match self.goals.iter().position(|goal| goal.block == index && goal.committed) {
            // A block that this job has stored must be delivered again, with all slices.
            Some(at) => {
                self.take_back(at);
                let requestor = self.goals[at].requestor;
                let others =
                    self.goals.iter_mut().filter(|goal| goal.requestor == requestor && !goal.committed);
                others.for_each(Goal::restart);
                self.tell(requestor, ToNode::Forget { job: self.id });
                Some(requestor)
            }
            None => self.stripe.blocks[usize::from(index.0)].holder.take(),
        };
        if let Some(node) = lost {
            self.actions.push_back(JobAction::BlockLost { block: index, node, problem: problem.clone() });
        }
        lost.is_some()
    }
}

impl Goal {
    pub(super) fn new(block: BlockIndex, requestor: NodeId) -> Self {
        Self {
            block,
            requestor,
            missing: None,
            sealed: false,
            digest: None,
            confirmed: None,
            hand_over: Duration::ZERO,
            told_to_commit: false,
            committed: false,
            former: None,
        }
    }

    /// Starts the delivery of this block again from scratch.
    pub(super) fn restart(&mut self) {
        self.missing = None;
        (self.sealed, self.digest) = (false, None);
        self.hand_over = Duration::ZERO;
        (self.told_to_commit, self.committed) = (false, false);
    }

    pub(super) fn is_met(&self) -> bool {
        self.missing.as_ref().is_some_and(SliceSet::is_empty)
    }
}
