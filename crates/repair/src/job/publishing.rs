//! From the last slice to a published block: seal, check, commit, read back; and what follows when it is wrong.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use codes::BlockIndex;

use super::check::ParityCheck;
use super::watching::sources;
use super::{BlockProblem, Goal, Job, JobAction, JobError, ParityOutcome, Phase, tell};
use crate::wire::control::ToNode;
use crate::{BlockId, Digest, NodeId, SliceSet, Stripe, Topology};

/// How long sealing, fingerprinting, committing and rereading may take with no report at all.
const DISK_LIMIT: Duration = Duration::from_secs(120);
/// No store may take longer than this to take over a block, whatever a node says.
const MAX_HAND_OVER: Duration = Duration::from_secs(3600);

/// What was delivered was wrong once, so some block that was read is not what its checksums say. One after
/// another is left out, until what is delivered is right, and is known to be.
#[derive(Debug)]
pub(super) struct Doubt {
    /// The blocks that may be wrong; the first is left out now. There is at least one.
    pub(super) suspects: VecDeque<BlockIndex>,
    /// Whether the history says which is left out.
    pub(super) named: bool,
}

impl Job {
    pub(super) fn all_delivered(&mut self, topology: &Topology, now: Duration) {
        if let Phase::Running(running) = &self.phase {
            self.used.extend(sources(&running.plan));
        }
        for goal in &mut self.goals {
            goal.missing = Some(SliceSet::new());
        }
        if !self.publish {
            return self.start_check(topology, now);
        }
        let waiting = self.uncommitted();
        let (job, epoch) = (self.id, self.epoch);
        self.actions.extend(waiting.iter().map(|&node| tell(node, ToNode::Seal { job, epoch })));
        self.phase = Phase::Sealing { waiting, until: now + DISK_LIMIT };
        self.after_sealing(topology, now);
    }

    /// The requestors that hold deliveries which are not blocks of their stores yet.
    pub(super) fn uncommitted(&self) -> BTreeSet<NodeId> {
        self.goals.iter().filter(|goal| !goal.committed).map(|goal| goal.requestor).collect()
    }

    fn requestors(&self) -> BTreeSet<NodeId> {
        self.goals.iter().map(|goal| goal.requestor).collect()
    }

    /// Notes that a requestor has made its deliveries durable.
    pub(super) fn take_sealed(
        &mut self,
        node: NodeId,
        digests: &[(BlockId, Option<Digest>)],
        hand_over: Duration,
    ) {
        for goal in self.goals.iter_mut().filter(|goal| goal.requestor == node && !goal.committed) {
            let id = &self.stripe.blocks[usize::from(goal.block.0)].id;
            let told = digests.iter().find(|(block, _)| block == id);
            (goal.sealed, goal.digest) = (told.is_some(), told.and_then(|&(_, digest)| digest));
            goal.hand_over = hand_over.min(MAX_HAND_OVER);
        }
    }

    /// How long the stores of these nodes may take to take over what they were given.
    pub(super) fn hand_over_limit(&self, nodes: &BTreeSet<NodeId>) -> Duration {
        let goals = self.goals.iter().filter(|goal| nodes.contains(&goal.requestor));
        goals.map(|goal| goal.hand_over).max().unwrap_or_default()
    }

    pub(super) fn after_sealing(&mut self, topology: &Topology, now: Duration) {
        let Phase::Sealing { waiting, .. } = &self.phase else { return };
        if !waiting.is_empty() {
            return;
        }
        let wrong = self.goals.iter().find(|goal| {
            let recorded = self.stripe.block(goal.block).digest;
            !goal.sealed || recorded.is_some() && goal.digest != recorded
        });
        if let Some(wrong) = wrong {
            let id = &self.stripe.block(wrong.block).id;
            let reason = format!("the rebuilt block {id} differs from its recorded digest");
            return self.distrust(reason, topology, now);
        }
        self.start_check(topology, now);
    }

    /// What was delivered is wrong, and nobody knows through whom: everything is delivered again, without
    /// one of the blocks that may be bad.
    pub(super) fn distrust(&mut self, reason: String, topology: &Topology, now: Duration) {
        // Requestors must drop what they have, so they are told to forget the job, not to stop.
        for &node in &self.touched {
            self.actions.push(tell(node, ToNode::Forget { job: self.id }));
        }
        self.goals.iter_mut().filter(|goal| !goal.committed).for_each(Goal::restart);
        self.replanned.push(reason);
        let replanned = self.replanned.clone();
        let used = std::mem::take(&mut self.used);
        match self.doubt.as_mut().map(Doubt::acquit) {
            Some(true) => {}
            Some(false) => {
                self.doubt = None;
                return self.finish(Err(JobError::Contradiction { replanned }));
            }
            None => self.doubt = Doubt::new(&self.stripe, &used),
        }
        self.plan(topology, now);
    }

    pub(super) fn start_check(&mut self, topology: &Topology, now: Duration) {
        if !self.verify.parity || self.goals.iter().all(|goal| goal.committed) {
            return self.start_commit(self.parity, now);
        }
        match self.parity_check(&self.used, topology) {
            None if self.needs_parity() => {
                self.distrust("no block is left to check what was rebuilt with".into(), topology, now);
            }
            None => self.start_commit(ParityOutcome::NoSpareBlock, now),
            Some(check) => {
                let (job, epoch) = (self.id, self.epoch);
                let (window, seed) = ((self.window.start, self.window.end), self.check_seed);
                let chunking = self.stripe.chunking;
                for (node, block) in check.questions() {
                    self.touched.insert(node);
                    let ask = ToNode::Fingerprint { job, epoch, block, chunking, window, seed };
                    self.actions.push(tell(node, ask));
                }
                self.phase = Phase::Checking { check, until: now + DISK_LIMIT };
            }
        }
    }

    /// Whether there is reason to doubt, and no digest to dispel it.
    pub(super) fn needs_parity(&self) -> bool {
        let mut open = self.goals.iter().filter(|goal| !goal.committed);
        // What is only read is never sealed, so its digest dispels nothing.
        let dispels = |goal: &Goal| self.publish && self.stripe.block(goal.block).digest.is_some();
        self.doubt.is_some() && !open.all(dispels)
    }

    /// A check of what is rebuilt from the sets of blocks in `used`, if enough other blocks can be asked.
    /// Nodes that failed before are asked only if it does not go without them.
    pub(super) fn parity_check(
        &self,
        used: &BTreeSet<BTreeSet<BlockIndex>>,
        topology: &Topology,
    ) -> Option<ParityCheck> {
        // An equation relates whole lines of sub-blocks, so some of them alone cannot be checked.
        let all = 0..self.stripe.code.sub_blocks() as u16;
        if self.sub_blocks.as_ref().is_some_and(|some| *some != all) {
            return None;
        }
        let rebuilt: Vec<(BlockIndex, NodeId)> =
            self.goals.iter().map(|goal| (goal.block, goal.requestor)).collect();
        let suspect = self.doubt.as_ref().map(Doubt::suspect);
        let alive: Vec<(BlockIndex, NodeId)> = self
            .stripe
            .held()
            .filter(|&(index, holder)| topology.is_alive(holder) && Some(index) != suspect)
            .filter(|&(index, _)| rebuilt.iter().all(|&(block, _)| block != index))
            .collect();
        let sound = alive.iter().filter(|(_, holder)| !self.policy.avoid.contains(holder));
        let sound: Vec<BlockIndex> = sound.map(|&(index, _)| index).collect();
        let alive: Vec<BlockIndex> = alive.iter().map(|&(index, _)| index).collect();
        let check = |usable: &[BlockIndex]| ParityCheck::new(&self.stripe, &rebuilt, used, usable);
        check(&sound).or_else(|| check(&alive))
    }

    pub(super) fn restart_check(&mut self, topology: &Topology, now: Duration) {
        if let Phase::Checking { .. } = &self.phase {
            self.start_check(topology, now);
        }
    }

    pub(super) fn after_check(&mut self, topology: &Topology, now: Duration) {
        let Phase::Checking { check, .. } = &self.phase else { return };
        match check.verdict() {
            None => {}
            Some(true) => self.start_commit(ParityOutcome::Holds, now),
            Some(false) => {
                let reason =
                    "the rebuilt blocks break a parity equation that the repair did not use".to_owned();
                self.distrust(reason, topology, now);
            }
        }
    }

    /// What was delivered is as good as can be told: a block becomes visible, and a read has ended.
    pub(super) fn start_commit(&mut self, parity: ParityOutcome, now: Duration) {
        self.parity = parity;
        if !self.publish {
            return self.succeed(parity);
        }
        let waiting = self.uncommitted();
        let (job, epoch) = (self.id, self.epoch);
        self.actions.extend(waiting.iter().map(|&node| tell(node, ToNode::Commit { job, epoch })));
        let until = now + DISK_LIMIT + self.hand_over_limit(&waiting);
        self.phase = Phase::Committing { waiting, until };
        self.after_commit(now);
    }

    pub(super) fn publish_at(&mut self, node: NodeId) {
        for goal in self.goals.iter_mut().filter(|goal| goal.requestor == node && !goal.committed) {
            assert!(goal.sealed, "a block is sealed before it is committed");
            goal.committed = true;
            self.actions.push(JobAction::Publish { block: goal.block, node, digest: goal.digest });
            goal.former = self.stripe.blocks[usize::from(goal.block.0)].holder.replace(node);
        }
    }

    pub(super) fn after_commit(&mut self, now: Duration) {
        let Phase::Committing { waiting, .. } = &self.phase else { return };
        if !waiting.is_empty() {
            return;
        }
        if !self.verify.reread {
            return self.succeed(self.parity);
        }
        for goal in &self.goals {
            let block = self.stripe.block(goal.block).id.clone();
            let (job, epoch) = (self.id, self.epoch);
            self.actions.push(tell(goal.requestor, ToNode::Reread { job, epoch, block }));
        }
        let waiting = self.goals.iter().map(|goal| goal.block).collect();
        let until = now + DISK_LIMIT + self.hand_over_limit(&self.requestors());
        self.phase = Phase::Rereading { waiting, until };
    }

    pub(super) fn take_reread(
        &mut self,
        block: &BlockId,
        digest: Option<Digest>,
        topology: &Topology,
        now: Duration,
    ) {
        let Phase::Rereading { waiting, .. } = &mut self.phase else { return };
        let goal = self.goals.iter().find(|goal| self.stripe.block(goal.block).id == *block);
        let Some(goal) = goal.filter(|goal| waiting.contains(&goal.block)) else { return };
        if goal.digest == digest {
            waiting.remove(&goal.block);
            if waiting.is_empty() {
                self.succeed(self.parity);
            }
            return;
        }
        let (node, problem) = (goal.requestor, BlockProblem::Corrupt("reads back other bytes".into()));
        self.lose_block(block, &problem);
        self.requestor_failed(node, &format!("block {block} {problem}"), topology, now);
    }
}

impl Doubt {
    /// Suspects the blocks that were used, then all others, since one of those may have contradicted.
    pub(super) fn new(stripe: &Stripe, used: &BTreeSet<BTreeSet<BlockIndex>>) -> Option<Self> {
        let used: BTreeSet<BlockIndex> = used.iter().flatten().copied().collect();
        let unused = stripe.held().map(|(block, _)| block).filter(|block| !used.contains(block));
        let suspects: VecDeque<BlockIndex> = used.iter().copied().chain(unused).collect();
        (!suspects.is_empty()).then_some(Self { suspects, named: false })
    }

    pub(super) fn suspect(&self) -> BlockIndex {
        self.suspects[0]
    }

    /// It was not this suspect; false if there is no other.
    pub(super) fn acquit(&mut self) -> bool {
        self.named = false;
        self.suspects.pop_front();
        !self.suspects.is_empty()
    }

    pub(super) fn postpone(&mut self) {
        self.named &= self.suspects.len() == 1;
        self.suspects.rotate_left(1);
    }
}
