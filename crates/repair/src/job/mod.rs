//! One request carried out: plan, watch, plan anew, check, publish.
//!
//! A job goes through these states, and each holds only what it needs:
//!
//! ```text
//!  Running ──all delivered──▶ Sealing ─▶ Checking ─▶ Committing ─▶ Rereading ─▶ done
//!     │ ▲                        └────────┴── what was delivered is wrong ──┐
//!  evidence                                                                 │
//!     ▼ └────────────────────── Stopping ◀──────────────────────────────────┘
//! ```
//!
//! When something breaks, the reports of all nodes are gathered for a moment, a culprit is found
//! ([`blame`]), the plan is stopped everywhere, requestors say which slices they have, and another plan is
//! made for the slices that are still missing, without the culprit. No helper ever asks what to do next.
//!
//! **Always true:** at most one plan of a job runs; reports of earlier plans are dropped by their epoch; a
//! block is published only after its whole length was delivered, its digest agreed with the recorded one
//! (if there is one) and, if asked for, a parity equation that the repair did not use holds.

mod blame;
mod check;
mod planning;
mod publishing;
mod report;
mod waiting;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use codes::BlockIndex;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};

use self::blame::Evidence;
use self::check::ParityCheck;
use self::publishing::{DISK_LIMIT, Doubt};
pub use self::report::{BlockProblem, Brought, Due, Refusal, Report, SinkProblem};
use self::watching::{GIVEN_UP, Running, STOP_LIMIT};
use crate::wire::control::ToNode;
use crate::{
    BlockId, Class, Digest, Epoch, Geometry, JobId, NodeId, Plan, PlanError, Policy, Scheme, SliceSet,
    Stripe, Topology, Wanted,
};

/// What is to be done, and how carefully.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// The job's number.
    pub job: JobId,
    /// The stripe as the catalog and the cluster see it now.
    pub stripe: Stripe,
    /// The blocks wanted, and where.
    pub wanted: Vec<Wanted>,
    /// Offsets inside each sub-block.
    pub window: Range<u64>,
    /// Only these sub-blocks of the wanted blocks; all if absent.
    pub sub_blocks: Option<Range<u16>>,
    /// Scheme, slice size, nodes to avoid.
    pub policy: Policy,
    /// What to check before publishing.
    pub verify: Verify,
    /// Whether the deliveries become blocks of the store; otherwise they are a client's and the job ends
    /// when they are delivered.
    pub publish: bool,
    /// The client's number for the request, if a client takes part.
    pub tag: Option<u64>,
}

/// What is checked before a block is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verify {
    /// Whether one parity equation that the repair or the read did not use must hold, if enough blocks survive.
    pub parity: bool,
    /// Whether a committed block is read back from the disk.
    pub reread: bool,
}

/// What the driver of a job does for it.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAction {
    /// Tell a node something that concerns this job.
    Tell {
        /// The node.
        node: NodeId,
        /// What: never anything that concerns no job.
        message: ToNode,
    },
    /// Record in the catalog that a block is healthy on a node.
    Publish {
        /// The block.
        block: BlockIndex,
        /// The node.
        node: NodeId,
        /// Its digest.
        digest: Option<Digest>,
    },
    /// Record in the catalog that a block is not good where it was thought to be.
    BlockLost {
        /// The block.
        block: BlockIndex,
        /// What is wrong with it.
        problem: BlockProblem,
    },
    /// The job has ended. Comes once, last.
    Finish(Box<Result<Outcome, JobError>>),
}

/// How a job ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The scheme of the last plan.
    pub scheme: Scheme,
    /// The digests of the published blocks.
    pub digests: BTreeMap<BlockIndex, Digest>,
    /// Where the wanted blocks were delivered.
    pub homes: BTreeMap<BlockIndex, NodeId>,
    /// Why plans were dropped on the way.
    pub replanned: Vec<String>,
    /// Whether a parity equation was checked, or why not.
    pub parity: ParityOutcome,
}

/// What came of the parity check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParityOutcome {
    /// It was not asked for.
    NotAsked,
    /// No block survives that the repair did not use.
    NoSpareBlock,
    /// An equation that the repair did not use holds.
    Holds,
}

/// Why a job failed. What it delivered and did not publish is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// No plan can be made.
    #[error("{error}{}", history(.replanned))]
    Plan {
        /// Why.
        error: PlanError,
        /// What happened before.
        replanned: Vec<String>,
    },
    /// No node can take the place of a requestor that failed.
    #[error("no other node can take block {block}: {reason}{}", history(.replanned))]
    NoRequestor {
        /// The block.
        block: BlockId,
        /// What became of the one before.
        reason: String,
        /// What happened before.
        replanned: Vec<String>,
    },
    /// The client that takes part is gone, or cannot go on.
    #[error("the client cannot go on: {reason}")]
    Client {
        /// Why.
        reason: String,
    },
    /// Plan after plan was dropped without a new slice.
    #[error("given up after {attempts} plans without progress{}", history(.replanned))]
    NoProgress {
        /// Plans tried.
        attempts: u32,
        /// What happened.
        replanned: Vec<String>,
    },
    /// The blocks contradict each other or the recorded digests, and nothing tells which of them is wrong.
    #[error(
        "the blocks contradict each other, and too few are left to find out which is wrong{}",
        history(.replanned)
    )]
    Contradiction {
        /// What happened.
        replanned: Vec<String>,
    },
    /// The store takes no block of this stripe now, whichever node brings it.
    #[error("the store takes no block of this stripe now: {reason}{}", history(.replanned))]
    StoreNotReady {
        /// What the last node that was asked says of it.
        reason: String,
        /// What happened before.
        replanned: Vec<String>,
    },
    /// It was called off.
    #[error("cancelled")]
    Cancelled,
}

fn history(replanned: &[String]) -> String {
    if replanned.is_empty() { String::new() } else { format!(" (before that: {})", replanned.join("; ")) }
}

/// What a job is doing, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobState {
    /// What it is about.
    pub phase: JobPhase,
    /// The scheme of the current plan.
    pub scheme: Scheme,
    /// Slices delivered so far, of all wanted blocks.
    pub delivered: u32,
    /// Slices to deliver in all.
    pub slices: u32,
    /// Bytes of one slice.
    pub slice_bytes: u32,
    /// Why plans were dropped so far.
    pub replanned: Vec<String>,
}

/// The phases of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobPhase {
    /// Slices travel.
    MovingSlices,
    /// A plan is being stopped.
    StoppingPlan,
    /// It waits for nodes to come back.
    WaitingForNodes,
    /// What was delivered is being made durable.
    MakingDurable,
    /// A parity equation is being checked.
    CheckingParity,
    /// Blocks are being published.
    Publishing,
    /// What was published is being read back.
    ReadingBack,
    /// It is over.
    Finished,
}

/// Plans in a row that bring no new slice before the job gives up.
const MAX_FRUITLESS: u32 = 6;

/// See the module's documentation.
#[derive(Debug)]
pub struct Job {
    id: JobId,
    stripe: Stripe,
    window: Range<u64>,
    sub_blocks: Option<Range<u16>>,
    policy: Policy,
    verify: Verify,
    publish: bool,
    tag: Option<u64>,
    goals: Vec<Goal>,
    epoch: Epoch,
    geometry: Option<Geometry>,
    scheme: Scheme,
    phase: Phase,
    keys: ChaCha20Rng,
    replanned: Vec<String>,
    fruitless: u32,
    /// How often nodes were blamed.
    blamed: BTreeMap<NodeId, u32>,
    /// How often nodes were given up as requestors; what they say of themselves counts twice.
    given_up: BTreeMap<NodeId, u32>,
    /// Each set of blocks that some plan read and of which something was delivered.
    used: BTreeSet<BTreeSet<BlockIndex>>,
    doubt: Option<Doubt>,
    /// One for each plan, so that a check which begins anew can use answers that were under way.
    check_seed: u64,
    parity: ParityOutcome,
    touched: BTreeSet<NodeId>,
    /// Nodes whose store takes no block now. One may be wrong about that; when a second one agrees the job ends.
    not_now: BTreeSet<NodeId>,
    actions: Vec<JobAction>,
}

/// A wanted block and what is left of it.
#[derive(Debug)]
struct Goal {
    block: BlockIndex,
    requestor: NodeId,
    missing: Option<SliceSet>,
    /// Its requestor has made it durable; what is delivered after that unmakes it.
    sealed: bool,
    /// What its requestor says of it then, if its store has digests.
    digest: Option<Digest>,
    /// How long its requestor's store may take to take it over, on top of what a disk does.
    hand_over: Duration,
    /// It was checked and is a block of its requestor's store.
    committed: bool,
    /// Who held it before that, if somebody did: still does, until the job is over.
    former: Option<NodeId>,
}

#[derive(Debug)]
enum Phase {
    Running(Box<Running>),
    Stopping { waiting: BTreeSet<NodeId>, until: Duration, sources: BTreeSet<BTreeSet<BlockIndex>> },
    Pausing { until: Duration },
    Sealing { waiting: BTreeSet<NodeId>, until: Duration },
    Checking { check: ParityCheck, until: Duration },
    Committing { waiting: BTreeSet<NodeId>, until: Duration },
    Rereading { waiting: BTreeSet<BlockIndex>, until: Duration },
    Finished,
}

impl Job {
    /// Starts a job: plans and hands out the first tasks.
    pub fn new(request: JobRequest, seed: [u8; 32], topology: &Topology, now: Duration) -> Self {
        let goals = request
            .wanted
            .iter()
            .map(|wanted| Goal {
                block: wanted.block,
                requestor: wanted.requestor,
                missing: None,
                sealed: false,
                digest: None,
                hand_over: Duration::ZERO,
                committed: false,
                former: None,
            })
            .collect();
        let mut job = Self {
            id: request.job,
            stripe: request.stripe,
            window: request.window,
            sub_blocks: request.sub_blocks,
            scheme: request.policy.scheme,
            policy: request.policy,
            verify: request.verify,
            publish: request.publish,
            tag: request.tag,
            goals,
            epoch: Epoch(0),
            geometry: None,
            phase: Phase::Finished,
            keys: ChaCha20Rng::from_seed(seed),
            replanned: Vec::new(),
            fruitless: 0,
            blamed: BTreeMap::new(),
            given_up: BTreeMap::new(),
            used: BTreeSet::new(),
            doubt: None,
            check_seed: 0,
            parity: ParityOutcome::NotAsked,
            touched: BTreeSet::new(),
            not_now: BTreeSet::new(),
            actions: Vec::new(),
        };
        job.plan(topology, now);
        job
    }

    /// The job's number.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// The plan that runs now; replies to anything must carry its epoch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The stripe it works on.
    pub fn stripe(&self) -> &Stripe {
        &self.stripe
    }

    /// The client's number for the request, if a client takes part.
    pub fn tag(&self) -> Option<u64> {
        self.tag
    }

    /// What it is for: a client takes part in reads, of which nothing is published, and in puts.
    pub fn class(&self) -> Class {
        match (self.publish, self.tag) {
            (false, _) => Class::Read,
            (true, Some(_)) => Class::Put,
            (true, None) => Class::Repair,
        }
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// The plan that is being carried out, while one is.
    pub fn running_plan(&self) -> Option<&Plan> {
        match &self.phase {
            Phase::Running(running) => Some(&running.plan),
            _ => None,
        }
    }

    /// Nodes that hold something of this job, or do something for it.
    pub fn nodes(&self) -> &BTreeSet<NodeId> {
        &self.touched
    }

    /// What it is doing.
    pub fn state(&self) -> JobState {
        let per_goal = self.geometry.as_ref().map_or(0, Geometry::slices);
        let slices = per_goal * self.goals.len() as u32;
        let missing: u32 =
            self.goals.iter().map(|goal| goal.missing.as_ref().map_or(per_goal, SliceSet::len)).sum();
        let running = match &self.phase {
            Phase::Running(running) => running.progress.values().map(|&(slices, _)| slices).sum(),
            _ => 0,
        };
        JobState {
            phase: self.phase.kind(),
            scheme: self.scheme,
            delivered: (slices - missing + running).min(slices),
            slices,
            slice_bytes: self.geometry.as_ref().map_or(0, |geometry| geometry.slice_bytes),
            replanned: self.replanned.clone(),
        }
    }

    /// The next thing to do for the job, if there is one.
    pub fn poll(&mut self) -> Option<JobAction> {
        if self.actions.is_empty() { None } else { Some(self.actions.remove(0)) }
    }

    /// Takes a node's report on plan `epoch`.
    pub fn handle_report(
        &mut self,
        node: NodeId,
        epoch: Epoch,
        report: Report,
        topology: &Topology,
        now: Duration,
    ) {
        if self.is_finished() || epoch != self.epoch || !self.touched.contains(&node) {
            return;
        }
        if let Report::BadBlock { block, .. } = &report
            && !self.may_speak_of(node, block)
        {
            return;
        }
        if let Report::SinkFailed { problem: SinkProblem::NotNow(reason), .. } = &report
            && self.goals.iter().any(|goal| goal.requestor == node)
        {
            self.not_now.insert(node);
            if self.not_now.len() > 1 {
                let (reason, replanned) = (reason.clone(), self.replanned.clone());
                return self.finish(Err(JobError::StoreNotReady { reason, replanned }));
            }
        }
        match (&mut self.phase, report) {
            (Phase::Running(_), report) => self.take_running(node, report, topology, now),
            (Phase::Checking { until, .. } | Phase::Rereading { until, .. }, Report::Limited) => {
                *until = (*until).max(now + DISK_LIMIT);
            }
            (Phase::Stopping { waiting, .. }, Report::Stopped { delivered }) => {
                if waiting.remove(&node) {
                    self.credit(node, &delivered);
                }
                self.plan_when_stopped(topology, now);
            }
            (Phase::Stopping { waiting, .. }, Report::Committed) if waiting.contains(&node) => {
                // Another requestor failed while this one was told to commit what was checked.
                self.publish_at(node);
            }
            (Phase::Sealing { waiting, .. }, Report::Sealed { digests, hand_over_ms })
                if waiting.contains(&node) =>
            {
                waiting.remove(&node);
                self.take_sealed(node, &digests, Duration::from_millis(hand_over_ms.into()));
                self.after_sealing(topology, now);
            }
            (Phase::Checking { check, .. }, Report::Fingerprinted { block, fingerprints }) => {
                check.take(&block, fingerprints);
                self.after_check(topology, now);
            }
            (Phase::Committing { waiting, .. }, Report::Committed) if waiting.contains(&node) => {
                waiting.remove(&node);
                self.publish_at(node);
                self.after_commit(now);
            }
            (Phase::Rereading { .. }, Report::Reread { block, digest }) => {
                self.take_reread(&block, digest, topology, now);
            }
            (Phase::Sealing { waiting, .. } | Phase::Committing { waiting, .. }, Report::Refused { why })
                if waiting.contains(&node) =>
            {
                self.requestor_failed(node, &why.to_string(), topology, now);
            }
            (_, Report::SinkFailed { block, problem }) => {
                self.requestor_failed(node, &format!("block {block}: {problem}"), topology, now);
            }
            (_, Report::BadBlock { block, problem }) => {
                self.lose_block(&block, &problem);
                self.drop_plan(format!("block {block} is {problem}"), topology, now);
            }
            _ => {}
        }
    }

    /// A block is called bad by the node that holds it, or that it is delivered to, and by nobody else.
    fn may_speak_of(&self, node: NodeId, block: &BlockId) -> bool {
        let holds =
            self.stripe.held().any(|(index, holder)| holder == node && self.stripe.block(index).id == *block);
        holds
            || self
                .goals
                .iter()
                .any(|goal| goal.requestor == node && self.stripe.block(goal.block).id == *block)
    }

    /// A node is gone: its process ended, or the coordinator cannot reach it.
    pub fn handle_node_lost(&mut self, node: NodeId, topology: &Topology, now: Duration) {
        // A node that is to take a delivery matters even before it is told so.
        let is_requestor = self.goals.iter().any(|goal| goal.requestor == node);
        if self.is_finished() || !(self.touched.contains(&node) || is_requestor) {
            return;
        }
        match &mut self.phase {
            Phase::Running(running) => {
                running.evidence.push(Evidence::Lost { node });
                running.judge_at = Some(now);
                self.judge(topology, now);
            }
            Phase::Stopping { waiting, .. } => {
                waiting.remove(&node);
                self.replace_if_requestor(node, GIVEN_UP, "it is gone", topology);
                self.policy.avoid.insert(node);
                self.plan_when_stopped(topology, now);
            }
            _ if self.goals.iter().any(|goal| goal.requestor == node) => {
                self.requestor_failed(node, "it is gone", topology, now);
            }
            Phase::Checking { .. } => {
                self.policy.avoid.insert(node);
                self.restart_check(topology, now);
            }
            _ => {}
        }
    }

    /// Time has passed.
    pub fn handle_tick(&mut self, topology: &Topology, now: Duration) {
        match &mut self.phase {
            Phase::Running(running) => {
                running.watch(&self.goals, topology, now);
                if running.judge_at.is_some_and(|at| at <= now) {
                    self.judge(topology, now);
                }
            }
            Phase::Stopping { waiting, until, .. } if *until <= now => {
                // A client that is asleep may wake up; that it is gone, its connection will say.
                let is_client = |node: &NodeId| topology.dials_out(*node);
                let (clients, silent): (BTreeSet<NodeId>, BTreeSet<NodeId>) =
                    std::mem::take(waiting).into_iter().partition(is_client);
                *waiting = clients;
                *until = now + STOP_LIMIT;
                for node in silent {
                    self.policy.avoid.insert(node);
                    self.replace_if_requestor(node, 1, "it does not answer", topology);
                }
                self.plan_when_stopped(topology, now);
            }
            Phase::Pausing { until } if *until <= now => self.plan(topology, now),
            Phase::Sealing { waiting, until } | Phase::Committing { waiting, until } if *until <= now => {
                let silent = *waiting.first().expect("somebody is awaited");
                self.requestor_failed(silent, "its disk does not answer", topology, now);
            }
            Phase::Checking { until, .. } | Phase::Rereading { until, .. } if *until <= now => {
                self.drop_plan("a check did not end in time".into(), topology, now);
            }
            _ => {}
        }
    }

    /// Calls the job off.
    pub fn cancel(&mut self) {
        if !self.is_finished() {
            self.finish(Err(JobError::Cancelled));
        }
    }

    fn succeed(&mut self, parity: ParityOutcome) {
        let outcome = Outcome {
            scheme: self.scheme,
            digests: self.goals.iter().filter_map(|goal| Some((goal.block, goal.digest?))).collect(),
            homes: self.goals.iter().map(|goal| (goal.block, goal.requestor)).collect(),
            replanned: self.replanned.clone(),
            parity,
        };
        self.finish(Ok(outcome));
    }

    fn finish(&mut self, result: Result<Outcome, JobError>) {
        self.phase = Phase::Finished;
        let job = self.id;
        self.actions.extend(self.touched.iter().map(|&node| tell(node, ToNode::Forget { job })));
        self.actions.push(JobAction::Finish(Box::new(result)));
    }
}

/// What is said to a node.
fn tell(node: NodeId, message: ToNode) -> JobAction {
    JobAction::Tell { node, message }
}

impl Goal {
    /// All of it is to be delivered again.
    fn restart(&mut self) {
        self.missing = None;
        (self.sealed, self.digest) = (false, None);
        (self.hand_over, self.committed) = (Duration::ZERO, false);
    }

    fn is_met(&self) -> bool {
        self.missing.as_ref().is_some_and(SliceSet::is_empty)
    }
}

impl Phase {
    fn kind(&self) -> JobPhase {
        match self {
            Self::Running(_) => JobPhase::MovingSlices,
            Self::Stopping { .. } => JobPhase::StoppingPlan,
            Self::Pausing { .. } => JobPhase::WaitingForNodes,
            Self::Sealing { .. } => JobPhase::MakingDurable,
            Self::Checking { .. } => JobPhase::CheckingParity,
            Self::Committing { .. } => JobPhase::Publishing,
            Self::Rereading { .. } => JobPhase::ReadingBack,
            Self::Finished => JobPhase::Finished,
        }
    }
}
