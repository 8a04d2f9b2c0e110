//! What a job is about and how far it is: what its moving and its ending both know and change.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use codes::BlockIndex;

use super::{BlockProblem, JobAction, Verify};
use crate::wire::control::ToNode;
use crate::{
    BlockId, Class, Digest, Epoch, JobId, NodeId, Permit, Policy, SliceSet, Strength, Stripe, Topology,
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
    /// The plan that runs, or ran last.
    pub(super) epoch: Epoch,
    /// One for each plan, so that a check which begins anew can use answers that were under way.
    pub(super) check_seed: u64,
    /// Why plans were dropped.
    pub(super) replanned: Vec<String>,
    /// Nodes that hold something of the job, or do something for it.
    pub(super) touched: BTreeSet<NodeId>,
    pub(super) actions: VecDeque<JobAction>,
}

/// A wanted block and what is left of it.
#[derive(Debug)]
pub(super) struct Goal {
    pub(super) block: BlockIndex,
    pub(super) requestor: NodeId,
    pub(super) missing: Option<SliceSet>,
    /// Its requestor has made it durable; what is delivered after that unmakes it.
    pub(super) sealed: bool,
    /// What its requestor says of it then, if its store has digests.
    pub(super) digest: Option<Digest>,
    /// How long its requestor's store may take to take it over, on top of what a disk does.
    pub(super) hand_over: Duration,
    /// It was checked and is a block of its requestor's store.
    pub(super) committed: bool,
    /// Who held it before that, if somebody did: still does, until the job is over.
    pub(super) former: Option<NodeId>,
}

impl Work {
    pub(super) fn tell(&mut self, node: NodeId, message: ToNode) {
        self.actions.push_back(JobAction::Tell { node, message });
    }

    /// What the store's own process wants to see before it takes a block.
    pub(super) fn permit(&self, block: BlockIndex) -> Option<&Permit> {
        self.permits.iter().find(|(other, _)| *other == block).map(|(_, permit)| permit)
    }

    /// What it is for: a client takes part in reads, of which nothing is published, and in puts. Nobody wants what is neither
    /// published nor a client's.
    pub(super) fn class(&self) -> Class {
        match (self.publish, self.tag) {
            (false, Some(_)) => Class::Read,
            (false, None) => Class::Probe,
            (true, Some(_)) => Class::Put,
            (true, None) => Class::Repair,
        }
    }

    /// Whether the job could do without a node: one that delivers nothing.
    pub(super) fn may_go_without(&self, node: NodeId, topology: &Topology) -> bool {
        !self.is_requestor(node) && !topology.dials_out(node)
    }

    /// A block is called bad by the node that holds it, or that it is delivered to, and by nobody else.
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

    pub(super) fn is_requestor(&self, node: NodeId) -> bool {
        self.goals.iter().any(|goal| goal.requestor == node)
    }

    pub(super) fn requestors(&self) -> BTreeSet<NodeId> {
        self.goals.iter().map(|goal| goal.requestor).collect()
    }

    /// How much the recorded digest of a delivery tells. What is only read is never sealed, so its digest tells nothing.
    pub(super) fn digest_strength(&self, goal: &Goal) -> Option<Strength> {
        self.stripe.block(goal.block).digest.filter(|_| self.publish).map(|digest| digest.strength())
    }

    /// Whether every delivery has a digest that no other bytes have.
    pub(super) fn is_proven_by_digests(&self) -> bool {
        let mut open = self.goals.iter().filter(|goal| !goal.committed);
        open.all(|goal| self.digest_strength(goal) == Some(Strength::Digest))
    }

    /// Whether all sub-blocks are wanted.
    pub(super) fn has_whole_lines(&self) -> bool {
        self.sub_blocks.as_ref().is_none_or(|some| *some == (0..self.stripe.code.sub_blocks() as u16))
    }

    /// Whether whole blocks are wanted.
    pub(super) fn has_whole_blocks(&self) -> bool {
        self.has_whole_lines() && self.window == (0..self.stripe.sub_block_bytes())
    }

    /// How long the stores of these nodes may take to take over what they were given.
    pub(super) fn hand_over_limit(&self, nodes: &BTreeSet<NodeId>) -> Duration {
        let goals = self.goals.iter().filter(|goal| nodes.contains(&goal.requestor));
        goals.map(|goal| goal.hand_over).max().unwrap_or_default()
    }

    /// A node's deliveries have become blocks of its store.
    pub(super) fn publish_at(&mut self, node: NodeId) {
        for goal in self.goals.iter_mut().filter(|goal| goal.requestor == node && !goal.committed) {
            assert!(goal.sealed, "a block is sealed before it is committed");
            goal.committed = true;
            self.actions.push_back(JobAction::Publish { block: goal.block, node, digest: goal.digest });
            goal.former = self.stripe.blocks[usize::from(goal.block.0)].holder.replace(node);
        }
    }

    /// Nobody holds a block any more, as far as this job goes; whether somebody did.
    pub(super) fn lose_block(&mut self, block: &BlockId, problem: &BlockProblem) -> bool {
        let Some(index) = self.stripe.indices().find(|&index| self.id_of(index) == block) else {
            return false;
        };
        let was_held = self.stripe.blocks[usize::from(index.0)].holder.take().is_some();
        if was_held {
            self.actions.push_back(JobAction::BlockLost { block: index, problem: problem.clone() });
        }
        was_held
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
            hand_over: Duration::ZERO,
            committed: false,
            former: None,
        }
    }

    /// All of it is to be delivered again.
    pub(super) fn restart(&mut self) {
        self.missing = None;
        (self.sealed, self.digest) = (false, None);
        (self.hand_over, self.committed) = (Duration::ZERO, false);
    }

    pub(super) fn is_met(&self) -> bool {
        self.missing.as_ref().is_some_and(SliceSet::is_empty)
    }
}
