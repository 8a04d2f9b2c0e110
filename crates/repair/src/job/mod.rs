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
mod report;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use codes::BlockIndex;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use self::blame::{Evidence, Standing, Worth};
use self::check::ParityCheck;
pub use self::report::{BlockProblem, Report, SinkProblem};
use crate::assignment::{Inlet, LocalBlock, Outlet, Sink};
use crate::{
    Assignment, BlockId, EdgeKey, Epoch, Geometry, JobId, NodeId, Pacing, Plan, PlanError, PlanRequest,
    Policy, Scheme, SliceSet, Stripe, Topology, Wanted, plan,
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
    /// The digests that the delivered blocks must have.
    pub digests: BTreeMap<BlockIndex, u32>,
    /// Whether one parity equation that the repair did not use must hold, if enough blocks survive.
    pub parity: bool,
    /// Whether a committed block is read back from the disk.
    pub reread: bool,
}

/// What the driver of a job does for it.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAction {
    /// Send a node its share of the plan.
    Assign {
        /// The node.
        node: NodeId,
        /// Its share.
        assignment: Box<Assignment>,
    },
    /// Tell a node to stop.
    Stop {
        /// The node.
        node: NodeId,
        /// The plan to be stopped.
        epoch: Epoch,
    },
    /// Tell a requestor to make its deliveries durable.
    Seal {
        /// The requestor.
        node: NodeId,
    },
    /// Ask a node for a block's fingerprints.
    Fingerprint {
        /// The node.
        node: NodeId,
        /// The block.
        block: BlockId,
        /// The seed of the check.
        seed: u64,
    },
    /// Tell a requestor to make its deliveries visible.
    Commit {
        /// The requestor.
        node: NodeId,
    },
    /// Record in the catalog that a block is healthy on a node.
    Publish {
        /// The block.
        block: BlockIndex,
        /// The node.
        node: NodeId,
        /// Its digest.
        digest: u32,
    },
    /// Tell a node to read a committed block back.
    Reread {
        /// The node.
        node: NodeId,
        /// The block.
        block: BlockId,
    },
    /// Record in the catalog that a block is not good where it was thought to be.
    BlockLost {
        /// The block.
        block: BlockIndex,
        /// What is wrong with it.
        problem: BlockProblem,
    },
    /// Tell a node that the job is over; it drops what it has not committed.
    Forget {
        /// The node.
        node: NodeId,
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
    pub digests: BTreeMap<BlockIndex, u32>,
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
    /// The phase's name.
    pub phase: &'static str,
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

/// How long the reports of other nodes are awaited once something looks wrong.
const GATHER: Duration = Duration::from_millis(250);
/// How long requestors have to say what they have.
const STOP_LIMIT: Duration = Duration::from_secs(3);
/// How long sealing, fingerprinting, committing and rereading may take with no report at all.
const DISK_LIMIT: Duration = Duration::from_secs(120);
/// Plans in a row that bring no new slice before the job gives up.
const MAX_FRUITLESS: u32 = 6;
/// An edge may rest for the time of this many slices.
const PATIENT_SLICES: u32 = 16;
/// An edge may always rest this long.
const MIN_PATIENCE: Duration = Duration::from_millis(1500);
/// An edge may never rest longer.
const MAX_PATIENCE: Duration = Duration::from_secs(120);
/// A node that was given up so often as a requestor does not become one again, so that replacing ends.
const GIVEN_UP: u32 = 2;
/// Pause before a plan that must use nodes which failed before.
const SECOND_CHANCE: Duration = Duration::from_millis(500);

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
    actions: Vec<JobAction>,
}

/// A wanted block and what is left of it.
#[derive(Debug)]
struct Goal {
    block: BlockIndex,
    requestor: NodeId,
    missing: Option<SliceSet>,
    digest: Option<u32>,
    /// It was checked and is a block of its requestor's store.
    committed: bool,
    /// Who held it before that, if somebody did: still does, until the job is over.
    former: Option<NodeId>,
}

/// What was delivered was wrong once, so some block that was read is not what its checksums say. One after
/// another is left out, until what is delivered is right, and is known to be.
#[derive(Debug)]
struct Doubt {
    /// The blocks that may be wrong; the first is left out now. There is at least one.
    suspects: VecDeque<BlockIndex>,
    /// Whether the history says which is left out.
    named: bool,
}

#[derive(Debug)]
enum Phase {
    Running(Box<Running>),
    Stopping { waiting: BTreeSet<NodeId>, until: Duration, sources: BTreeSet<BlockIndex> },
    Pausing { until: Duration },
    Sealing { waiting: BTreeSet<NodeId>, until: Duration },
    Checking { check: ParityCheck, until: Duration },
    Committing { waiting: BTreeSet<NodeId>, until: Duration },
    Rereading { waiting: BTreeSet<BlockIndex>, until: Duration },
    Finished,
}

#[derive(Debug)]
struct Running {
    plan: Plan,
    waiting: BTreeSet<NodeId>,
    progress: BTreeMap<NodeId, (u32, Duration)>,
    patience: Duration,
    evidence: Vec<Evidence>,
    judge_at: Option<Duration>,
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
                digest: None,
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

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
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
            phase: self.phase.name(),
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
        match (&mut self.phase, report) {
            (Phase::Running(running), report) => {
                running.take(node, report, now);
                self.after_report(topology, now);
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
            (Phase::Sealing { waiting, .. }, Report::Sealed { digests }) if waiting.contains(&node) => {
                waiting.remove(&node);
                self.take_digests(node, &digests);
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
                let is_client =
                    |node: &NodeId| topology.get(*node).is_some_and(|view| view.address.is_none());
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

    // ---- planning ----

    fn plan(&mut self, topology: &Topology, now: Duration) {
        let turns = self.doubt.as_ref().map_or(1, |doubt| doubt.suspects.len());
        let mut error = None;
        for _ in 0..turns {
            match self.make_plan(topology) {
                Ok(plan) if self.can_be_trusted(&plan, topology) => return self.start(plan, topology, now),
                Ok(_) => {}
                Err(reason) => error = Some(reason),
            }
            // Without this suspect it does not go now; without another it may.
            self.doubt.iter_mut().for_each(Doubt::postpone);
        }
        if !self.policy.avoid.is_empty() && self.fruitless < MAX_FRUITLESS {
            // Too few are left without those that failed before: they get another chance.
            self.policy.avoid.clear();
            self.fruitless += 1;
            self.phase = Phase::Pausing { until: now + SECOND_CHANCE };
            return;
        }
        let replanned = self.replanned.clone();
        self.finish(Err(match error {
            Some(error) if self.doubt.is_none() => JobError::Plan { error, replanned },
            _ => JobError::Contradiction { replanned },
        }));
    }

    /// Whether what a plan delivers can be known to be right, if there is reason to doubt.
    fn can_be_trusted(&self, plan: &Plan, topology: &Topology) -> bool {
        let mut used = self.used.clone();
        used.insert(sources(plan));
        !self.needs_parity() || self.parity_check(&used, topology).is_some()
    }

    fn make_plan(&mut self, topology: &Topology) -> Result<Plan, PlanError> {
        let unmet: Vec<&Goal> = self.goals.iter().filter(|goal| !goal.is_met()).collect();
        let resume = self.geometry.clone().map(|geometry| {
            let all = SliceSet::all(geometry.slices());
            let missing = |goal: &&Goal| goal.missing.clone().unwrap_or_else(|| all.clone());
            let slices = unmet.iter().map(missing).reduce(|a, b| a.union(&b));
            (geometry, slices.unwrap_or_default())
        });
        let wanted =
            unmet.iter().map(|goal| Wanted { block: goal.block, requestor: goal.requestor }).collect();
        let request = PlanRequest {
            wanted,
            window: self.window.clone(),
            sub_blocks: self.sub_blocks.clone(),
            resume,
            policy: self.policy.clone(),
        };
        plan(&self.trusted_stripe(), &request, topology)
    }

    /// The stripe without a block that is under suspicion.
    fn trusted_stripe(&self) -> Cow<'_, Stripe> {
        let Some(doubt) = &self.doubt else { return Cow::Borrowed(&self.stripe) };
        let mut stripe = self.stripe.clone();
        stripe.blocks[usize::from(doubt.suspect().0)].holder = None;
        Cow::Owned(stripe)
    }

    fn start(&mut self, plan: Plan, topology: &Topology, now: Duration) {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.check_seed = self.keys.next_u64();
        self.geometry = Some(plan.geometry().clone());
        self.scheme = plan.scheme();
        if let Some(doubt) = &mut self.doubt
            && !std::mem::replace(&mut doubt.named, true)
        {
            let id = &self.stripe.block(doubt.suspect()).id;
            self.replanned.push(format!("block {id} is left out, as it may be wrong"));
        }
        let patience = patience(&plan, topology);
        let assignments = self.assignments(&plan, topology, patience);
        let requestors: BTreeSet<NodeId> = plan.outputs().iter().map(|output| output.requestor).collect();
        for (node, assignment) in assignments {
            self.touched.insert(node);
            self.actions.push(JobAction::Assign { node, assignment: Box::new(assignment) });
        }
        self.phase = Phase::Running(Box::new(Running {
            progress: requestors.iter().map(|&node| (node, (0, now))).collect(),
            waiting: requestors,
            plan,
            patience,
            evidence: Vec::new(),
            judge_at: None,
        }));
    }

    /// Cuts a plan into one assignment per node and gives every edge its key.
    fn assignments(
        &mut self,
        plan: &Plan,
        topology: &Topology,
        patience: Duration,
    ) -> Vec<(NodeId, Assignment)> {
        let mut keys = BTreeMap::new();
        for edge in plan.edges() {
            let mut key = [0; 16];
            self.keys.fill_bytes(&mut key);
            keys.insert(edge, EdgeKey(key));
        }
        plan.nodes()
            .into_iter()
            .map(|node| (node, self.assignment(plan, node, topology, &keys, patience)))
            .collect()
    }

    fn assignment(
        &self,
        plan: &Plan,
        node: NodeId,
        topology: &Topology,
        keys: &BTreeMap<(NodeId, NodeId), EdgeKey>,
        patience: Duration,
    ) -> Assignment {
        let address = |node: NodeId| topology.get(node).and_then(|view| view.address.clone());
        let lanes: Vec<_> = plan
            .lanes()
            .iter()
            .map(|lane| lane.tasks.iter().find(|task| task.node == node).cloned())
            .collect();
        let locals: BTreeSet<BlockIndex> =
            lanes.iter().flatten().flat_map(|task| &task.reads).map(|read| read.block).collect();
        let sinks: BTreeSet<BlockIndex> = plan
            .outputs()
            .iter()
            .filter(|output| output.requestor == node)
            .map(|output| output.sub_block.block)
            .collect();
        let block =
            |index: BlockIndex| (index, self.stripe.block(index).id.clone(), self.stripe.block(index).bytes);
        let inlet =
            |(&(from, _), &key): (&(NodeId, NodeId), &EdgeKey)| Inlet { from, dial: address(from), key };
        // The downstream end dials, unless the upstream end is a client, which nobody can dial.
        let outlet = |(&(from, to), &key): (&(NodeId, NodeId), &EdgeKey)| Outlet {
            to,
            dial: if address(from).is_none() { address(to) } else { None },
            key,
        };
        Assignment {
            job: self.id,
            epoch: self.epoch,
            tag: if address(node).is_none() { self.tag } else { None },
            geometry: plan.geometry().clone(),
            slices: plan.slices().clone(),
            pattern: plan.pattern().to_vec(),
            pacing: plan.pacing(),
            sub_block_bytes: plan.sub_block_bytes(),
            lanes,
            locals: locals
                .into_iter()
                .map(block)
                .map(|(index, id, bytes)| LocalBlock { index, id, bytes })
                .collect(),
            inlets: keys.iter().filter(|((_, to), _)| *to == node).map(inlet).collect(),
            outlets: keys.iter().filter(|((from, _), _)| *from == node).map(outlet).collect(),
            outputs: plan.outputs().iter().map(|output| output.sub_block).collect(),
            sinks: sinks.into_iter().map(block).map(|(index, id, bytes)| Sink { index, id, bytes }).collect(),
            stall_ms: patience.as_millis() as u32,
        }
    }

    // ---- running ----

    fn after_report(&mut self, topology: &Topology, now: Duration) {
        let Phase::Running(running) = &self.phase else { return };
        if running.waiting.is_empty() {
            return self.all_delivered(topology, now);
        }
        if running.judge_at.is_some_and(|at| at <= now) {
            self.judge(topology, now);
        }
    }

    /// Finds out who is to blame and drops the plan.
    fn judge(&mut self, topology: &Topology, now: Duration) {
        let Phase::Running(running) = &mut self.phase else { return };
        let evidence = std::mem::take(&mut running.evidence);
        running.judge_at = None;
        let verdict = blame::judge(&evidence, |node| self.worth(node, topology));
        let Some(verdict) = verdict else { return };
        for (block, problem) in &verdict.bad_blocks {
            self.lose_block(block, problem);
        }
        for culprit in &verdict.culprits {
            self.policy.avoid.insert(culprit.node);
            *self.blamed.entry(culprit.node).or_insert(0) += 1;
        }
        let named = |text: &str, node: NodeId| text.replace("{}", &topology.name(node));
        let mut reasons: Vec<String> =
            verdict.culprits.iter().map(|culprit| named(&culprit.why, culprit.node)).collect();
        reasons
            .extend(verdict.bad_blocks.iter().map(|(block, problem)| format!("block {block} is {problem}")));
        for culprit in &verdict.culprits {
            // A requestor that others complain of is kept if nobody can take its place. If it is really
            // gone, it will not say either what it has.
            if !culprit.hearsay || self.can_be_replaced(culprit.node, topology) {
                let weight = if culprit.hearsay { 1 } else { GIVEN_UP };
                self.replace_if_requestor(culprit.node, weight, &named(&culprit.why, culprit.node), topology);
            }
        }
        self.drop_plan(reasons.join(", "), topology, now);
    }

    fn worth(&self, node: NodeId, topology: &Topology) -> Worth {
        let standing = if topology.get(node).is_some_and(|view| view.address.is_none()) {
            Standing::Client
        } else if self.goals.iter().any(|goal| goal.requestor == node) {
            Standing::Requestor
        } else {
            Standing::Helper
        };
        Worth { standing, blamed: self.blamed.get(&node).copied().unwrap_or(0) }
    }

    /// Stops the plan everywhere; requestors will say what they have.
    fn drop_plan(&mut self, reason: String, topology: &Topology, now: Duration) {
        if self.is_finished() {
            return;
        }
        if !reason.is_empty() && self.replanned.last() != Some(&reason) {
            self.replanned.push(reason);
        }
        self.fruitless += 1;
        if self.fruitless > MAX_FRUITLESS {
            let (attempts, replanned) = (self.fruitless, self.replanned.clone());
            return self.finish(Err(JobError::NoProgress { attempts, replanned }));
        }
        for &node in &self.touched {
            if topology.is_alive(node) {
                self.actions.push(JobAction::Stop { node, epoch: self.epoch });
            }
        }
        let sources = match &mut self.phase {
            Phase::Running(running) => sources(&running.plan),
            Phase::Stopping { sources, .. } => std::mem::take(sources),
            _ => BTreeSet::new(),
        };
        let waiting = self
            .goals
            .iter()
            .map(|goal| goal.requestor)
            .filter(|node| self.touched.contains(node) && topology.is_alive(*node))
            .collect();
        self.phase = Phase::Stopping { waiting, until: now + STOP_LIMIT, sources };
        self.plan_when_stopped(topology, now);
    }

    fn plan_when_stopped(&mut self, topology: &Topology, now: Duration) {
        if let Phase::Stopping { waiting, .. } = &self.phase
            && waiting.is_empty()
        {
            if self.goals.iter().all(Goal::is_met) {
                self.all_delivered(topology, now);
            } else {
                self.plan(topology, now);
            }
        }
    }

    /// Notes what a requestor says it has, over all plans.
    fn credit(&mut self, node: NodeId, delivered: &SliceSet) {
        let Some(geometry) = &self.geometry else { return };
        let missing = SliceSet::all(geometry.slices()).minus(delivered);
        for goal in self.goals.iter_mut().filter(|goal| goal.requestor == node && !goal.is_met()) {
            if missing.len() < goal.missing.as_ref().map_or(geometry.slices(), SliceSet::len) {
                self.fruitless = 0;
                if let Phase::Stopping { sources, .. } = &self.phase {
                    self.used.insert(sources.clone());
                }
            }
            goal.missing = Some(missing.clone());
        }
    }

    fn lose_block(&mut self, block: &BlockId, problem: &BlockProblem) {
        let Some(index) = self.stripe.indices().find(|&index| self.stripe.block(index).id == *block) else {
            return;
        };
        if self.stripe.blocks[usize::from(index.0)].holder.take().is_some() {
            self.fruitless = 0; // It can happen only once per block.
            self.actions.push(JobAction::BlockLost { block: index, problem: problem.clone() });
        }
    }

    fn can_be_replaced(&self, node: NodeId, topology: &Topology) -> bool {
        let deliveries = self.goals.iter().filter(|goal| goal.requestor == node).count();
        let mut taken = self.taken();
        (0..deliveries).all(|_| self.stand_in(&taken, topology).is_some_and(|other| taken.insert(other)))
    }

    /// Nodes that hold a block of the stripe or are to get one.
    fn taken(&self) -> BTreeSet<NodeId> {
        let holders = self.stripe.held().map(|(_, holder)| holder);
        holders.chain(self.goals.iter().map(|goal| goal.requestor)).collect()
    }

    /// Gives the deliveries of `node` to other nodes, from the start. Fails the job if nobody can.
    fn replace_if_requestor(&mut self, node: NodeId, weight: u32, reason: &str, topology: &Topology) {
        self.policy.avoid.insert(node);
        if self.is_finished() {
            return;
        }
        if self.goals.iter().any(|goal| goal.requestor == node) {
            *self.given_up.entry(node).or_insert(0) += weight;
            // What it says it has must not count for another block, should it ever be given one.
            self.actions.push(JobAction::Forget { node });
        }
        let mut taken = self.taken();
        for at in 0..self.goals.len() {
            if self.is_finished() || self.goals[at].requestor != node {
                continue;
            }
            if topology.get(node).is_some_and(|view| view.address.is_none()) {
                return self.finish(Err(JobError::Client { reason: reason.to_owned() }));
            }
            let Some(other) = self.stand_in(&taken, topology) else {
                let block = self.stripe.block(self.goals[at].block).id.clone();
                let (reason, replanned) = (reason.to_owned(), self.replanned.clone());
                return self.finish(Err(JobError::NoRequestor { block, reason, replanned }));
            };
            taken.insert(other);
            if self.goals[at].committed {
                let former = self.goals[at].former.take();
                self.stripe.blocks[usize::from(self.goals[at].block.0)].holder = former;
            }
            self.goals[at].requestor = other;
            self.goals[at].restart();
        }
    }

    /// A live helper that holds no block of the stripe and has room for one; rather one that has not failed.
    fn stand_in(&self, taken: &BTreeSet<NodeId>, topology: &Topology) -> Option<NodeId> {
        topology
            .iter()
            .filter(|(node, view)| view.alive && view.address.is_some() && !taken.contains(node))
            .filter(|(node, view)| {
                let given_up = self.given_up.get(node).is_some_and(|&times| times >= GIVEN_UP);
                !given_up && view.free_bytes >= self.stripe.block_bytes
            })
            .min_by_key(|(node, view)| {
                let failed = self.policy.avoid.contains(node);
                (failed, self.blamed.get(node), view.load, std::cmp::Reverse(view.free_bytes))
            })
            .map(|(node, _)| node)
    }

    fn requestor_failed(&mut self, node: NodeId, reason: &str, topology: &Topology, now: Duration) {
        let reason = format!("{}: {reason}", topology.name(node));
        self.replace_if_requestor(node, GIVEN_UP, &reason, topology);
        self.drop_plan(reason, topology, now);
    }

    // ---- checking and publishing ----

    fn all_delivered(&mut self, topology: &Topology, now: Duration) {
        if let Phase::Running(running) = &self.phase {
            self.used.insert(sources(&running.plan));
        }
        for goal in &mut self.goals {
            goal.missing = Some(SliceSet::new());
        }
        if !self.publish {
            return self.succeed(ParityOutcome::NotAsked);
        }
        let waiting = self.uncommitted();
        self.actions.extend(waiting.iter().map(|&node| JobAction::Seal { node }));
        self.phase = Phase::Sealing { waiting, until: now + DISK_LIMIT };
        self.after_sealing(topology, now);
    }

    /// The requestors that hold deliveries which are not blocks of their stores yet.
    fn uncommitted(&self) -> BTreeSet<NodeId> {
        self.goals.iter().filter(|goal| !goal.committed).map(|goal| goal.requestor).collect()
    }

    fn take_digests(&mut self, node: NodeId, digests: &[(BlockId, u32)]) {
        for goal in self.goals.iter_mut().filter(|goal| goal.requestor == node && !goal.committed) {
            let id = &self.stripe.blocks[usize::from(goal.block.0)].id;
            goal.digest = digests.iter().find(|(block, _)| block == id).map(|&(_, digest)| digest);
        }
    }

    fn after_sealing(&mut self, topology: &Topology, now: Duration) {
        let Phase::Sealing { waiting, .. } = &self.phase else { return };
        if !waiting.is_empty() {
            return;
        }
        let wrong = self.goals.iter().find(|goal| {
            goal.digest.is_none()
                || self.verify.digests.get(&goal.block).is_some_and(|&digest| goal.digest != Some(digest))
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
    fn distrust(&mut self, reason: String, topology: &Topology, now: Duration) {
        // Requestors must drop what they have, so they are told to forget the job, not to stop.
        for &node in &self.touched {
            self.actions.push(JobAction::Forget { node });
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

    fn start_check(&mut self, topology: &Topology, now: Duration) {
        if !self.verify.parity || self.goals.iter().all(|goal| goal.committed) {
            return self.start_commit(self.parity, now);
        }
        match self.parity_check(&self.used, topology) {
            None if self.needs_parity() => {
                self.distrust("no block is left to check what was rebuilt with".into(), topology, now);
            }
            None => self.start_commit(ParityOutcome::NoSpareBlock, now),
            Some(check) => {
                for (node, block) in check.questions() {
                    self.touched.insert(node);
                    self.actions.push(JobAction::Fingerprint { node, block, seed: self.check_seed });
                }
                self.phase = Phase::Checking { check, until: now + DISK_LIMIT };
            }
        }
    }

    /// Whether there is reason to doubt, and no digest to dispel it.
    fn needs_parity(&self) -> bool {
        let mut open = self.goals.iter().filter(|goal| !goal.committed);
        self.doubt.is_some() && !open.all(|goal| self.verify.digests.contains_key(&goal.block))
    }

    /// A check of what is rebuilt from the sets of blocks in `used`, if enough other blocks can be asked.
    /// Nodes that failed before are asked only if it does not go without them.
    fn parity_check(
        &self,
        used: &BTreeSet<BTreeSet<BlockIndex>>,
        topology: &Topology,
    ) -> Option<ParityCheck> {
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

    fn restart_check(&mut self, topology: &Topology, now: Duration) {
        if let Phase::Checking { .. } = &self.phase {
            self.start_check(topology, now);
        }
    }

    fn after_check(&mut self, topology: &Topology, now: Duration) {
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

    fn start_commit(&mut self, parity: ParityOutcome, now: Duration) {
        self.parity = parity;
        let waiting = self.uncommitted();
        self.actions.extend(waiting.iter().map(|&node| JobAction::Commit { node }));
        self.phase = Phase::Committing { waiting, until: now + DISK_LIMIT };
        self.after_commit(now);
    }

    fn publish_at(&mut self, node: NodeId) {
        for goal in self.goals.iter_mut().filter(|goal| goal.requestor == node && !goal.committed) {
            let digest = goal.digest.expect("sealed before committed");
            goal.committed = true;
            self.actions.push(JobAction::Publish { block: goal.block, node, digest });
            goal.former = self.stripe.blocks[usize::from(goal.block.0)].holder.replace(node);
        }
    }

    fn after_commit(&mut self, now: Duration) {
        let Phase::Committing { waiting, .. } = &self.phase else { return };
        if !waiting.is_empty() {
            return;
        }
        if !self.verify.reread {
            return self.succeed(self.parity);
        }
        for goal in &self.goals {
            let block = self.stripe.block(goal.block).id.clone();
            self.actions.push(JobAction::Reread { node: goal.requestor, block });
        }
        let waiting = self.goals.iter().map(|goal| goal.block).collect();
        self.phase = Phase::Rereading { waiting, until: now + DISK_LIMIT };
    }

    fn take_reread(&mut self, block: &BlockId, digest: u32, topology: &Topology, now: Duration) {
        let Phase::Rereading { waiting, .. } = &mut self.phase else { return };
        let goal = self.goals.iter().find(|goal| self.stripe.block(goal.block).id == *block);
        let Some(goal) = goal.filter(|goal| waiting.contains(&goal.block)) else { return };
        if goal.digest == Some(digest) {
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
        self.actions.extend(self.touched.iter().map(|&node| JobAction::Forget { node }));
        self.actions.push(JobAction::Finish(Box::new(result)));
    }
}

/// How long an edge may rest before its ends complain, from the plan's own predicted rate: the time of
/// some slices, or of the whole transfer where nodes wait for whole blocks; never so little that a busy
/// machine's scheduler looks like a stall.
fn patience(plan: &Plan, topology: &Topology) -> Duration {
    let whole = plan.predict(topology);
    let rest = match plan.pacing() {
        Pacing::WholeBlock => whole * 2,
        Pacing::Pipelined | Pacing::Serial => whole / plan.slices().len().max(1) * PATIENT_SLICES,
    };
    rest.clamp(MIN_PATIENCE, MAX_PATIENCE)
}

/// The blocks that a plan reads.
fn sources(plan: &Plan) -> BTreeSet<BlockIndex> {
    plan.tasks().flat_map(|task| &task.reads).map(|read| read.block).collect()
}

impl Doubt {
    /// Suspects the blocks that were used, then all others, since one of those may have contradicted.
    fn new(stripe: &Stripe, used: &BTreeSet<BTreeSet<BlockIndex>>) -> Option<Self> {
        let used: BTreeSet<BlockIndex> = used.iter().flatten().copied().collect();
        let unused = stripe.held().map(|(block, _)| block).filter(|block| !used.contains(block));
        let suspects: VecDeque<BlockIndex> = used.iter().copied().chain(unused).collect();
        (!suspects.is_empty()).then_some(Self { suspects, named: false })
    }

    fn suspect(&self) -> BlockIndex {
        self.suspects[0]
    }

    /// It was not this suspect; false if there is no other.
    fn acquit(&mut self) -> bool {
        self.named = false;
        self.suspects.pop_front();
        !self.suspects.is_empty()
    }

    fn postpone(&mut self) {
        self.named &= self.suspects.len() == 1;
        self.suspects.rotate_left(1);
    }
}

impl Goal {
    /// All of it is to be delivered again.
    fn restart(&mut self) {
        self.missing = None;
        self.digest = None;
        self.committed = false;
    }

    fn is_met(&self) -> bool {
        self.missing.as_ref().is_some_and(SliceSet::is_empty)
    }
}

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Self::Running(_) => "moving slices",
            Self::Stopping { .. } => "stopping a plan",
            Self::Pausing { .. } => "waiting for nodes",
            Self::Sealing { .. } => "making durable",
            Self::Checking { .. } => "checking parity",
            Self::Committing { .. } => "publishing",
            Self::Rereading { .. } => "reading back",
            Self::Finished => "finished",
        }
    }
}

impl Running {
    fn take(&mut self, node: NodeId, report: Report, now: Duration) {
        match report {
            Report::Progress { slices } => {
                if let Some(progress) = self.progress.get_mut(&node)
                    && slices > progress.0
                {
                    *progress = (slices, now);
                }
            }
            Report::Delivered => {
                self.waiting.remove(&node);
            }
            report => {
                if let Some((evidence, gather)) = Evidence::from_report(node, report) {
                    self.evidence.push(evidence);
                    let judge_at = now + if gather { GATHER } else { Duration::ZERO };
                    self.judge_at = Some(self.judge_at.map_or(judge_at, |at| at.min(judge_at)));
                }
            }
        }
    }

    /// Requestors on helpers must make progress even if nobody complains about them.
    fn watch(&mut self, goals: &[Goal], topology: &Topology, now: Duration) {
        if self.judge_at.is_some() {
            return;
        }
        let limit = self.patience * 3 + Duration::from_secs(2);
        let silent = |node: &NodeId| {
            let helper = topology.get(*node).is_some_and(|view| view.address.is_some());
            helper && self.progress.get(node).is_some_and(|&(_, since)| since + limit <= now)
        };
        let stuck: Vec<NodeId> = self.waiting.iter().copied().filter(silent).collect();
        if !stuck.is_empty() && goals.iter().any(|goal| stuck.contains(&goal.requestor)) {
            self.evidence.extend(stuck.into_iter().map(|node| Evidence::Silent { node }));
            self.judge_at = Some(now);
        }
    }
}
