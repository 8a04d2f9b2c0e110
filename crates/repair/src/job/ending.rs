//! From the last slice to a published block: seal, check, commit, read back.
//!
//! ```text
//!  Sealing ─▶ Checking ─▶ Committing ─▶ Rereading ─▶ done
//! ```
//!
//! What is only read, and published nowhere, has nothing but the check. An ending knows no plans: what it finds wrong it
//! says as a [`Turn`], and the job decides what is delivered anew.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;

use super::check::ParityCheck;
use super::trust::Trust;
use super::work::Work;
use super::{BlockProblem, JobPhase, ParityOutcome, Report};
use crate::wire::control::ToNode;
use crate::{BlockId, Digest, NodeId, Topology};

/// How long sealing, fingerprinting, committing and rereading may take with no report at all.
const DISK_LIMIT: Duration = Duration::from_secs(120);
/// No store may take longer than this to take over a block, whatever a node says.
const MAX_HAND_OVER: Duration = Duration::from_secs(3600);

/// What is done with deliveries that are complete.
#[derive(Debug)]
pub(super) struct Ending {
    step: Step,
    /// When a step that nobody reports on is given up.
    until: Duration,
    parity: ParityOutcome,
}

#[derive(Debug)]
enum Step {
    Sealing { waiting: BTreeSet<NodeId> },
    Checking { check: ParityCheck },
    Committing { waiting: BTreeSet<NodeId> },
    Rereading { waiting: BTreeSet<BlockIndex> },
}

/// What becomes of the job.
#[derive(Debug)]
pub(super) enum Turn {
    /// The ending goes on.
    On,
    /// It is over, and all is well.
    Done(ParityOutcome),
    /// What was delivered is wrong, and nobody knows through whom.
    Wrong(String),
    /// A requestor cannot go on.
    RequestorFailed { node: NodeId, reason: String },
    /// What was published is not what its node keeps.
    ReadsBackWrong { node: NodeId, block: BlockId, problem: BlockProblem },
    /// Nobody answers.
    Late,
}

/// What an ending needs to know besides what it changes.
#[derive(Clone, Copy)]
pub(super) struct Scene<'job> {
    pub(super) trust: &'job Trust,
    pub(super) topology: &'job Topology,
    pub(super) now: Duration,
}

impl Ending {
    /// All is delivered. `parity` is what was found of it before, if some of it is committed already.
    pub(super) fn begin(work: &mut Work, parity: ParityOutcome, scene: Scene<'_>) -> (Self, Turn) {
        let waiting = if work.publish { uncommitted(work) } else { BTreeSet::new() };
        let (job, epoch) = (work.id, work.epoch);
        waiting.iter().for_each(|&node| work.tell(node, ToNode::Seal { job, epoch }));
        let step = Step::Sealing { waiting };
        let mut ending = Self { step, until: scene.now + DISK_LIMIT, parity };
        let turn = ending.after_sealing(work, scene);
        (ending, turn)
    }

    /// What was found out about parity so far.
    pub(super) fn parity(&self) -> ParityOutcome {
        self.parity
    }

    pub(super) fn phase(&self) -> JobPhase {
        match self.step {
            Step::Sealing { .. } => JobPhase::MakingDurable,
            Step::Checking { .. } => JobPhase::CheckingParity,
            Step::Committing { .. } => JobPhase::Publishing,
            Step::Rereading { .. } => JobPhase::ReadingBack,
        }
    }

    /// The nodes whose stores may be taking over a block at this moment.
    pub(super) fn committing(&self) -> Option<&BTreeSet<NodeId>> {
        match &self.step {
            Step::Committing { waiting } => Some(waiting),
            _ => None,
        }
    }

    pub(super) fn handle_report(
        &mut self,
        node: NodeId,
        report: Report,
        work: &mut Work,
        scene: Scene<'_>,
    ) -> Turn {
        match (&mut self.step, report) {
            (Step::Sealing { waiting }, Report::Sealed { digests, hand_over_ms }) => {
                if !waiting.remove(&node) {
                    return Turn::On;
                }
                take_sealed(work, node, &digests, Duration::from_millis(hand_over_ms.into()));
                self.after_sealing(work, scene)
            }
            (Step::Checking { check }, Report::Fingerprinted { block, fingerprints }) => {
                check.take(&block, fingerprints);
                self.after_check(work, scene)
            }
            (Step::Committing { waiting }, Report::Committed) => {
                if !waiting.remove(&node) {
                    return Turn::On;
                }
                work.publish_at(node);
                self.after_commit(work, scene.now)
            }
            (Step::Rereading { waiting }, Report::Reread { block, digest }) => {
                take_reread(waiting, &block, digest, work, self.parity)
            }
            (Step::Sealing { waiting } | Step::Committing { waiting }, Report::Refused { why })
                if waiting.contains(&node) =>
            {
                Turn::RequestorFailed { node, reason: why.to_string() }
            }
            _ => Turn::On,
        }
    }

    /// A node that is no requestor is gone.
    pub(super) fn handle_node_lost(&mut self, work: &mut Work, scene: Scene<'_>) -> Turn {
        match self.step {
            Step::Checking { .. } => self.check(work, scene),
            _ => Turn::On,
        }
    }

    pub(super) fn handle_tick(&self, now: Duration) -> Turn {
        match &self.step {
            _ if now < self.until => Turn::On,
            Step::Sealing { waiting } | Step::Committing { waiting } => {
                let node = *waiting.first().expect("somebody is awaited");
                Turn::RequestorFailed { node, reason: "its disk does not answer".into() }
            }
            Step::Checking { .. } | Step::Rereading { .. } => Turn::Late,
        }
    }

    fn after_sealing(&mut self, work: &mut Work, scene: Scene<'_>) -> Turn {
        if matches!(&self.step, Step::Sealing { waiting } if !waiting.is_empty()) {
            return Turn::On;
        }
        let is_wrong = |goal: &&super::work::Goal| {
            let recorded = work.stripe.block(goal.block).digest;
            !goal.sealed || recorded.is_some() && goal.digest != recorded
        };
        match work.goals.iter().find(is_wrong).filter(|_| work.publish) {
            Some(wrong) => {
                let id = work.id_of(wrong.block);
                Turn::Wrong(format!("the rebuilt block {id} differs from its recorded digest"))
            }
            None => self.check(work, scene),
        }
    }

    /// Asks for what a parity equation needs, if one is to be checked.
    fn check(&mut self, work: &mut Work, scene: Scene<'_>) -> Turn {
        if !work.verify.parity || work.goals.iter().all(|goal| goal.committed) {
            return self.commit(self.parity, work, scene.now);
        }
        match scene.trust.parity_check(work, scene.topology) {
            None if scene.trust.needs_parity(work) => {
                Turn::Wrong("no block is left to check what was rebuilt with".into())
            }
            None => self.commit(ParityOutcome::NoSpareBlock, work, scene.now),
            Some(check) => {
                ask_for_fingerprints(&check, work);
                (self.step, self.until) = (Step::Checking { check }, scene.now + DISK_LIMIT);
                Turn::On
            }
        }
    }

    fn after_check(&mut self, work: &mut Work, scene: Scene<'_>) -> Turn {
        let Step::Checking { check } = &self.step else { return Turn::On };
        match check.verdict() {
            None => Turn::On,
            Some(true) => self.commit(ParityOutcome::Holds, work, scene.now),
            Some(false) => Turn::Wrong("the rebuilt blocks break a parity equation".into()),
        }
    }

    /// What was delivered is as good as can be told: a block becomes visible, and a read has ended.
    fn commit(&mut self, parity: ParityOutcome, work: &mut Work, now: Duration) -> Turn {
        self.parity = parity;
        if !work.publish {
            return Turn::Done(parity);
        }
        let waiting = uncommitted(work);
        let (job, epoch) = (work.id, work.epoch);
        waiting.iter().for_each(|&node| work.tell(node, ToNode::Commit { job, epoch }));
        self.until = now + DISK_LIMIT + work.hand_over_limit(&waiting);
        self.step = Step::Committing { waiting };
        self.after_commit(work, now)
    }

    fn after_commit(&mut self, work: &mut Work, now: Duration) -> Turn {
        if matches!(&self.step, Step::Committing { waiting } if !waiting.is_empty()) {
            return Turn::On;
        }
        if !work.verify.reread {
            return Turn::Done(self.parity);
        }
        let asked: Vec<(NodeId, BlockId)> =
            work.goals.iter().map(|goal| (goal.requestor, work.id_of(goal.block).clone())).collect();
        let (job, epoch) = (work.id, work.epoch);
        asked.into_iter().for_each(|(node, block)| work.tell(node, ToNode::Reread { job, epoch, block }));
        self.until = now + DISK_LIMIT + work.hand_over_limit(&work.requestors());
        self.step = Step::Rereading { waiting: work.goals.iter().map(|goal| goal.block).collect() };
        Turn::On
    }
}

/// The requestors that hold deliveries which are not blocks of their stores yet.
fn uncommitted(work: &Work) -> BTreeSet<NodeId> {
    work.goals.iter().filter(|goal| !goal.committed).map(|goal| goal.requestor).collect()
}

/// Notes that a requestor has made its deliveries durable.
fn take_sealed(work: &mut Work, node: NodeId, digests: &[(BlockId, Option<Digest>)], hand_over: Duration) {
    let blocks = &work.stripe.blocks;
    for goal in work.goals.iter_mut().filter(|goal| goal.requestor == node && !goal.committed) {
        let id = &blocks[usize::from(goal.block.0)].id;
        let told = digests.iter().find(|(block, _)| block == id);
        (goal.sealed, goal.digest) = (told.is_some(), told.and_then(|&(_, digest)| digest));
        goal.hand_over = hand_over.min(MAX_HAND_OVER);
    }
}

fn ask_for_fingerprints(check: &ParityCheck, work: &mut Work) {
    let (job, epoch) = (work.id, work.epoch);
    let (window, seed) = ((work.window.start, work.window.end), work.check_seed);
    let chunking = work.stripe.chunking;
    for (node, block) in check.questions() {
        work.touched.insert(node);
        work.tell(node, ToNode::Fingerprint { job, epoch, block, chunking, window, seed });
    }
}

/// A node says what it reads back of a block that it published.
fn take_reread(
    waiting: &mut BTreeSet<BlockIndex>,
    block: &BlockId,
    digest: Option<Digest>,
    work: &Work,
    parity: ParityOutcome,
) -> Turn {
    let goal = work.goals.iter().find(|goal| work.id_of(goal.block) == block);
    let Some(goal) = goal.filter(|goal| waiting.contains(&goal.block)) else { return Turn::On };
    if goal.digest != digest {
        let problem = BlockProblem::Corrupt("reads back other bytes".into());
        return Turn::ReadsBackWrong { node: goal.requestor, block: block.clone(), problem };
    }
    waiting.remove(&goal.block);
    if waiting.is_empty() { Turn::Done(parity) } else { Turn::On }
}
