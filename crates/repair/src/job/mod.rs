//! One request carried out: plan, watch, plan anew, check, publish.
//!
//! A job moves slices, and then it ends; each half holds only what it needs:
//!
//! ```text
//!  moving: Running ──all delivered──▶ ending: seal, check, commit, read back ─▶ done
//!     │ ▲                                │
//!  evidence                    what was delivered is wrong, or a requestor failed
//!     ▼ └────────── Stopping ◀───────────┘
//! ```
//!
//! A plan that becomes slow is looked into as well ([`pace`], [`places`]), and dropped for one that is predicted to be done much sooner
//! ([`straggling`]). When something breaks, the reports of all nodes are gathered for a moment, a culprit is found
//! ([`blame`]), the plan is stopped everywhere, requestors say which slices they have, and another plan is
//! made for the slices that are still missing, without the culprit. No helper ever asks what to do next. A job that is paused
//! stops its plan in the same way, and makes another when it is resumed.
//!
//! **Always true:** at most one plan of a job runs; reports of earlier plans are dropped by their epoch; a
//! block is published only after its whole length was delivered, its digest agreed with the recorded one
//! (if there is one) and, if asked for, parity equations hold that would show what one survivor made up.

mod assigning;
mod blame;
mod check;
mod conduct;
mod ending;
mod links;
mod outcome;
mod pace;
mod places;
mod planning;
mod proof;
mod report;
mod straggling;
mod trust;
mod waiting;
mod watching;
mod ways;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use codes::BlockIndex;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

use self::blame::Evidence;
use self::check::Fault;
use self::conduct::{Conduct, GIVEN_UP};
use self::ending::{Ending, EndingContext, Turn};
pub use self::outcome::{JobError, JobPhase, JobState, Outcome, ParityOutcome};
pub use self::report::{BlockProblem, Brought, Due, Refusal, Report, Sent, SinkProblem};
use self::straggling::Stragglers;
use self::trust::{Trust, Wrong};
use self::watching::{Running, STOP_LIMIT};
use self::work::{Goal, Work};
use crate::wire::control::ToNode;
use crate::{
    Class, Digest, Epoch, Geometry, JobId, NodeId, Permit, Plan, Policy, Scheme, SliceSet, Stripe, Topology,
    Wanted,
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
    /// What the store's own processes want to see before they take these blocks.
    pub permits: Vec<(BlockIndex, Permit)>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// Whether parity equations must hold that show what any one survivor made up, if enough of them survive.
    pub parity: bool,
    /// Equations are checked of stretches of so many bytes of a block, or more, while the rest still moves.
    pub stretch_bytes: u64,
    /// Whether a committed block is read back from the disk.
    pub reread: bool,
    /// Whether blocks of the stripe were found to contradict each other: then every survivor is asked about parity, and what
    /// nothing proves is not taken.
    pub doubted: bool,
}

impl Default for Verify {
    fn default() -> Self {
        // A stretch costs every survivor a message and an opened file.
        Self { parity: false, stretch_bytes: 2 << 20, reread: false, doubted: false }
    }
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
    /// Surviving blocks contradict each other: at least one of them is wrong although its own checksums hold.
    Contradicted {
        /// The blocks that were asked.
        blocks: BTreeSet<BlockIndex>,
    },
    /// A node held the job up, as going on without it has shown; of several it may be one alone, or what is between them.
    Slow {
        /// Each with the bytes per second that it let the job have.
        nodes: BTreeMap<NodeId, f64>,
    },
    /// The job has ended. Comes once, last.
    Finish(Box<Result<Outcome, JobError>>),
}

/// Plans in a row that bring no new slice before the job gives up.
const MAX_FRUITLESS: u32 = 6;

/// See the module's documentation.
#[derive(Debug)]
pub struct Job {
    work: Work,
    trust: Trust,
    phase: Phase,
    geometry: Option<Geometry>,
    scheme: Scheme,
    keys: ChaCha20Rng,
    fruitless: u32,
    /// How often deliveries were dropped because a block was left out that they were made from, since one was last acquitted.
    restarts: u32,
    conduct: Conduct,
    /// What was found of parity in an ending that did not come to its end.
    parity: ParityOutcome,
    stragglers: Stragglers,
    /// Paused: it moves no slice until it is resumed.
    on_hold: bool,
}

#[derive(Debug)]
enum Phase {
    Running(Box<Running>),
    Stopping {
        waiting: BTreeSet<NodeId>,
        until: Duration,
        sources: BTreeSet<BlockIndex>,
    },
    Pausing {
        until: Duration,
    },
    /// Somebody has paused the job. Requestors keep what they have.
    OnHold,
    Ending(Ending),
    Finished,
}

impl Job {
    /// Starts a job: plans and hands out the first tasks.
    pub fn new(request: JobRequest, seed: [u8; 32], topology: &Topology, now: Duration) -> Self {
        let goals = request.wanted.iter().map(|wanted| Goal::new(wanted.block, wanted.requestor)).collect();
        let scheme = request.policy.scheme;
        let work = Work {
            id: request.job,
            stripe: request.stripe,
            window: request.window,
            sub_blocks: request.sub_blocks,
            policy: request.policy,
            verify: request.verify,
            publish: request.publish,
            tag: request.tag,
            permits: request.permits,
            goals,
            epoch: Epoch(0),
            check_seed: 0,
            replanned: Vec::new(),
            touched: BTreeSet::new(),
            actions: VecDeque::new(),
        };
        let trust = Trust::new(work.verify.doubted);
        let mut job = Self {
            work,
            trust,
            phase: Phase::Finished,
            geometry: None,
            scheme,
            keys: ChaCha20Rng::from_seed(seed),
            fruitless: 0,
            restarts: 0,
            conduct: Conduct::default(),
            parity: ParityOutcome::NotAsked,
            stragglers: Stragglers::default(),
            on_hold: false,
        };
        job.plan(topology, now);
        job
    }

    /// The job's number.
    pub fn id(&self) -> JobId {
        self.work.id
    }

    /// The plan that runs now; replies to anything must carry its epoch.
    pub fn epoch(&self) -> Epoch {
        self.work.epoch
    }

    /// The stripe it works on.
    pub fn stripe(&self) -> &Stripe {
        &self.work.stripe
    }

    /// The client's number for the request, if a client takes part.
    pub fn tag(&self) -> Option<u64> {
        self.work.tag
    }

    /// What it is for, which decides who goes first where caps are reached.
    pub fn class(&self) -> Class {
        self.work.class()
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
        &self.work.touched
    }

    /// Which part of its work it is at.
    pub fn phase(&self) -> JobPhase {
        self.phase.kind()
    }

    /// What it is doing.
    pub fn state(&self) -> JobState {
        let per_goal = self.geometry.as_ref().map_or(0, Geometry::slices);
        let slices = per_goal * self.work.goals.len() as u32;
        let missing: u32 =
            self.work.goals.iter().map(|goal| goal.missing.as_ref().map_or(per_goal, SliceSet::len)).sum();
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
            replanned: self.work.replanned.clone(),
        }
    }

    /// The next thing to do for the job, if there is one.
    pub fn poll(&mut self) -> Option<JobAction> {
        self.work.actions.pop_front()
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
        if self.is_finished() || epoch != self.work.epoch || !self.work.touched.contains(&node) {
            return;
        }
        if let Report::BadBlock { block, .. } = &report
            && !self.work.may_speak_of(node, block)
        {
            return;
        }
        if let Report::SinkFailed { problem: SinkProblem::NotNow(reason), .. } = &report
            && self.work.is_requestor(node)
            && self.conduct.note_not_now(node)
        {
            let (reason, replanned) = (reason.clone(), self.work.replanned.clone());
            return self.finish(Err(JobError::StoreNotReady { reason, replanned }));
        }
        match (&mut self.phase, report) {
            (Phase::Running(_), report) => self.take_running(node, report, topology, now),
            (Phase::Stopping { waiting, .. }, Report::Stopped { delivered }) => {
                if waiting.remove(&node) {
                    self.credit(node, &delivered);
                }
                self.plan_when_stopped(topology, now);
            }
            (Phase::Stopping { waiting, .. }, Report::Committed) if waiting.contains(&node) => {
                // Another requestor failed while this one was told to commit what was checked.
                self.work.publish_at(node);
            }
            (_, Report::SinkFailed { block, problem }) => {
                self.requestor_failed(node, &format!("block {block}: {problem}"), topology, now);
            }
            (_, Report::BadBlock { block, problem }) => {
                self.lose_block(&block, &problem);
                self.drop_plan(format!("block {block} is {problem}"), topology, now);
            }
            (Phase::Ending(_), report) => {
                self.end(topology, now, |ending, work, scene| {
                    ending.handle_report(node, report, work, scene)
                });
            }
            _ => {}
        }
    }

    /// Does something of the ending, and what follows from it.
    fn end(
        &mut self,
        topology: &Topology,
        now: Duration,
        step: impl FnOnce(&mut Ending, &mut Work, EndingContext<'_>) -> Turn,
    ) {
        let Phase::Ending(ending) = &mut self.phase else { return };
        let turn = step(ending, &mut self.work, EndingContext { trust: &self.trust, topology, now });
        self.parity = ending.parity();
        self.take_turn(turn, topology, now);
    }

    fn take_turn(&mut self, turn: Turn, topology: &Topology, now: Duration) {
        match turn {
            Turn::On => {}
            Turn::Done => self.succeed(),
            Turn::Wrong(wrong) => self.distrust(wrong, topology, now),
            Turn::RequestorFailed { node, reason } => self.requestor_failed(node, &reason, topology, now),
            Turn::ReadsBackWrong { node, block, problem } => {
                self.lose_block(&block, &problem);
                self.requestor_failed(node, &format!("block {block} {problem}"), topology, now);
            }
            Turn::Late => self.drop_plan("a check did not end in time".into(), topology, now),
        }
    }

    /// All wanted slices are with their requestors.
    fn all_delivered(&mut self, topology: &Topology, now: Duration) {
        let mut ahead = None;
        if let Phase::Running(running) = &mut self.phase {
            self.trust.note(trust::sources(&running.plan));
            ahead = running.proof.take();
        }
        self.work.goals.iter_mut().for_each(|goal| goal.missing = Some(SliceSet::new()));
        let scene = EndingContext { trust: &self.trust, topology, now };
        let (ending, turn) = Ending::begin(&mut self.work, self.parity, ahead, scene);
        self.parity = ending.parity();
        self.phase = Phase::Ending(ending);
        self.take_turn(turn, topology, now);
    }

    /// What was delivered is wrong, and nobody knows through whom: it is delivered to somebody else, if it may be the requestor,
    /// and then again without one of the blocks that may be bad.
    fn distrust(&mut self, wrong: Wrong, topology: &Topology, now: Duration) {
        if wrong.fault == Fault::Survivor {
            self.work.actions.push_back(JobAction::Contradicted { blocks: wrong.contradicting.clone() });
        }
        let may_be_spoilt = self.work.publish && wrong.fault != Fault::Survivor;
        if may_be_spoilt && self.conduct.may_suspect(&wrong, &self.work, topology) {
            return self.deliver_elsewhere(&wrong, topology, now);
        }
        let is_left = self.trust.distrust(&self.work.stripe, &wrong);
        self.restarts = 0;
        self.deliver_anew();
        self.work.replanned.push(wrong.reason);
        if is_left {
            self.plan(topology, now);
        } else {
            let error = self.trust.contradiction(&self.work);
            self.finish(Err(error));
        }
    }

    fn deliver_elsewhere(&mut self, wrong: &Wrong, topology: &Topology, now: Duration) {
        let names: Vec<String> = wrong.at.iter().map(|&node| topology.name(node)).collect();
        let reason = format!("{}; not delivered to {} again", wrong.reason, names.join(", "));
        self.conduct.suspect(&wrong.at);
        for &node in &wrong.at {
            self.replace_if_requestor(node, 1, &reason, topology);
        }
        self.drop_plan(reason, topology, now);
    }

    /// The blocks of the stripe contradict each other, as another job or a scrub has found. What is not published yet has to agree
    /// with every survivor.
    pub fn handle_contradiction(&mut self, topology: &Topology, now: Duration) {
        if !(self.work.publish || self.work.verify.parity) || self.is_finished() {
            return;
        }
        self.work.verify.parity = true;
        self.trust.hear_of_contradiction();
        match &mut self.phase {
            Phase::Running(running) => running.proof = None,
            Phase::Ending(_) => self.end(topology, now, Ending::hear_of_contradiction),
            Phase::Stopping { .. } | Phase::Pausing { .. } | Phase::OnHold | Phase::Finished => {}
        }
    }

    /// What was delivered is dropped. Requestors are told to forget the job, not to stop, as they would keep what they have.
    fn deliver_anew(&mut self) {
        self.forget_everywhere();
        self.trust.begin_anew();
        self.work.goals.iter_mut().filter(|goal| !goal.committed).for_each(Goal::restart);
    }

    fn forget_everywhere(&mut self) {
        let job = self.work.id;
        for node in self.work.touched.clone() {
            self.work.tell(node, ToNode::Forget { job });
        }
    }

    /// A node is gone: its process ended, or the coordinator cannot reach it.
    pub fn handle_node_lost(&mut self, node: NodeId, topology: &Topology, now: Duration) {
        // A node that is to take a delivery matters even before it is told so.
        let is_requestor = self.work.is_requestor(node);
        if self.is_finished() || !(self.work.touched.contains(&node) || is_requestor) {
            return;
        }
        match &mut self.phase {
            Phase::Running(running) if !is_requestor && !running.nodes.contains(&node) => {
                // It was asked for fingerprints, or was part of an earlier plan.
                running.proof = None;
            }
            Phase::Running(running) => {
                running.evidence.push(Evidence::Lost { node });
                running.judge_at = Some(now);
                self.judge(topology, now);
            }
            Phase::Stopping { waiting, .. } => {
                waiting.remove(&node);
                self.replace_if_requestor(node, GIVEN_UP, "it is gone", topology);
                self.work.policy.avoid.insert(node);
                self.plan_when_stopped(topology, now);
            }
            Phase::Pausing { .. } | Phase::OnHold | Phase::Ending(_) if is_requestor => {
                self.requestor_failed(node, "it is gone", topology, now);
            }
            Phase::Ending(_) => {
                self.work.policy.avoid.insert(node);
                self.end(topology, now, |ending, work, scene| ending.handle_node_lost(node, work, scene));
            }
            Phase::Pausing { .. } | Phase::OnHold | Phase::Finished => {}
        }
    }

    /// Time has passed.
    pub fn handle_tick(&mut self, topology: &Topology, now: Duration) {
        match &mut self.phase {
            Phase::Running(running) => {
                running.watch(&self.work.goals, topology, now);
                if running.judge_at.is_some_and(|at| at <= now) {
                    self.judge(topology, now);
                }
                self.watch_pace(topology, now);
            }
            Phase::Stopping { waiting, until, .. } if *until <= now => {
                // A client that is asleep may wake up; that it is gone, its connection will say.
                let is_client = |node: &NodeId| topology.dials_out(*node);
                let (clients, silent): (BTreeSet<NodeId>, BTreeSet<NodeId>) =
                    std::mem::take(waiting).into_iter().partition(is_client);
                *waiting = clients;
                *until = now + STOP_LIMIT;
                for node in silent {
                    self.work.policy.avoid.insert(node);
                    self.replace_if_requestor(node, 1, "it does not answer", topology);
                }
                self.plan_when_stopped(topology, now);
            }
            Phase::Pausing { until } if *until <= now => self.plan(topology, now),
            Phase::Ending(_) => self.end(topology, now, Ending::handle_tick),
            Phase::Stopping { .. } | Phase::Pausing { .. } | Phase::OnHold | Phase::Finished => {}
        }
    }

    /// Stops the plan that runs, between two slices, and makes no other before [`resume`](Self::resume). Delivered
    /// slices are kept; blocks that are delivered whole are still checked and published.
    pub fn pause(&mut self, topology: &Topology, now: Duration) {
        self.on_hold = true;
        match self.phase {
            Phase::Running(_) => {
                self.end_pace();
                self.stop_plan(topology, now);
            }
            Phase::Pausing { .. } => self.phase = Phase::OnHold,
            Phase::Stopping { .. } | Phase::OnHold | Phase::Ending(_) | Phase::Finished => {}
        }
    }

    /// Goes on after a [`pause`](Self::pause), with a plan for what is still missing.
    pub fn resume(&mut self, topology: &Topology, now: Duration) {
        self.on_hold = false;
        if let Phase::OnHold = self.phase {
            self.plan(topology, now);
        }
    }

    /// Calls the job off.
    pub fn cancel(&mut self) {
        if !self.is_finished() {
            self.finish(Err(JobError::Cancelled));
        }
    }

    fn succeed(&mut self) {
        let proven = match &self.phase {
            Phase::Ending(ending) => ending.proven().clone(),
            _ => BTreeSet::new(),
        };
        let outcome = Outcome {
            scheme: self.scheme,
            digests: self.work.goals.iter().filter_map(|goal| Some((goal.block, goal.digest?))).collect(),
            homes: self.work.goals.iter().map(|goal| (goal.block, goal.requestor)).collect(),
            replanned: self.work.replanned.clone(),
            parity: self.parity,
            proven,
        };
        self.finish(Ok(outcome));
    }

    fn finish(&mut self, result: Result<Outcome, JobError>) {
        self.phase = Phase::Finished;
        self.forget_everywhere();
        self.work.actions.push_back(JobAction::Finish(Box::new(result)));
    }
}

impl Phase {
    fn kind(&self) -> JobPhase {
        match self {
            Self::Running(_) => JobPhase::MovingSlices,
            Self::Stopping { .. } => JobPhase::StoppingPlan,
            Self::Pausing { .. } => JobPhase::WaitingForNodes,
            Self::OnHold => JobPhase::OnHold,
            Self::Ending(ending) => ending.phase(),
            Self::Finished => JobPhase::Finished,
        }
    }
}
