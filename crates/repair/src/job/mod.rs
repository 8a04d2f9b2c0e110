//! Carries out one request: plan, watch, replan, check, publish.
//!
//! A job first moves slices and then ends; each phase holds only the state that it needs:
//!
//! ```text
//!  moving: Running ──all delivered──▶ ending: seal, check, commit, read back ─▶ done
//!     │ ▲                                │
//!  evidence                    the delivery is wrong, or a requestor failed
//!     ▼ └────────── Stopping ◀───────────┘
//! ```
//!
//! If something breaks, the job gathers the reports of all nodes for a moment and finds a culprit
//! ([`blame`]). It stops the plan on all nodes, requestors report the slices that they have, and a new plan
//! without the culprit moves the missing slices. Helpers never ask what to do next. A plan that becomes slow
//! is examined as well ([`pace`], [`bottleneck`]), and is dropped if another plan is predicted to finish much
//! sooner ([`straggling`]). A paused job stops its plan in the same way, and makes another one when it is
//! resumed.
//!
//! **Invariant:** at most one plan of a job runs; reports of earlier plans are dropped by their epoch; a
//! block is published only after its whole length was delivered, its digest matched the recorded one (if
//! there is one) and, if requested, parity equations hold that would show an error in any one survivor.

mod assigning;
mod blame;
mod bottleneck;
mod check;
mod conduct;
mod ending;
mod links;
mod outcome;
mod pace;
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

/// A request: what to deliver and what to verify.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// The job's id.
    pub job: JobId,
    /// The current state of the stripe, from the catalog and the cluster.
    pub stripe: Stripe,
    /// The wanted blocks and their requestors.
    pub wanted: Vec<Wanted>,
    /// The permits that the storage system's own processes require before they accept the wanted blocks.
    pub permits: Vec<(BlockIndex, Permit)>,
    /// The range of offsets to deliver in each sub-block, in bytes.
    pub window: Range<u64>,
    /// Restricts the request to these sub-blocks of the wanted blocks; `None` means all.
    pub sub_blocks: Option<Range<u16>>,
    /// The scheme, slice size and nodes to avoid.
    pub policy: Policy,
    /// The checks to make before publishing.
    pub verify: Verify,
    /// Whether the deliveries become blocks of the store. If not, they belong to a client, and the job ends
    /// once they are delivered.
    pub publish: bool,
    /// The client's number for the request, if a client takes part.
    pub tag: Option<u64>,
}

/// The checks to make before a block is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// Whether to check parity equations that show an error in any one survivor, if enough blocks survive.
    pub parity: bool,
    /// The minimum size of a stretch, in bytes of the block. Parity equations are checked stretch by stretch,
    /// while later stretches are still moving.
    pub stretch_bytes: u64,
    /// Whether to read a committed block back from disk.
    pub reread: bool,
    /// Whether blocks of the stripe are known to contradict each other. Then every survivor takes part in the
    /// parity check, and the job rejects a delivery that is not proven correct. A read without `parity` may return
    /// stored blocks unchecked, but no decoded ones.
    pub doubted: bool,
    /// Whether parity may overrule the recorded digest of a parity block. The digest of such a block was stated
    /// by the helper that stored it, and is wrong for ever if that helper lied.
    pub replaces_digests: bool,
    /// Whether a rebuilt block is published only if parity equations prove it, because the stripe's blocks have no
    /// checksums. A copied block is published all the same.
    pub proven: bool,
}

impl Default for Verify {
    fn default() -> Self {
        // Smaller stretches cost more: each stretch costs every survivor a message and a file open.
        Self {
            parity: false,
            stretch_bytes: 2 << 20,
            reread: false,
            doubted: false,
            replaces_digests: false,
            proven: false,
        }
    }
}

/// An action for the job's driver to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAction {
    /// Send a node a message about this job.
    Tell {
        /// The recipient.
        node: NodeId,
        /// The message; it always concerns this job.
        message: ToNode,
    },
    /// Record in the catalog that a node has a healthy copy of a block.
    Publish {
        /// The block.
        block: BlockIndex,
        /// The node that has the copy.
        node: NodeId,
        /// The digest of the copy, if the store has digests.
        digest: Option<Digest>,
        /// The recorded digest of the block, if it was another one and parity has refuted it.
        replaces: Option<Digest>,
    },
    /// Record in the catalog that a block is missing or bad on a node.
    BlockLost {
        /// The block.
        block: BlockIndex,
        /// The node that was to read the block.
        node: NodeId,
        /// The problem.
        problem: BlockProblem,
    },
    /// Surviving blocks contradict each other: at least one of them is wrong although its own checksums hold.
    Contradicted {
        /// The blocks that took part in the failed check.
        blocks: BTreeSet<BlockIndex>,
    },
    /// Nodes slowed the job down, as proven by the faster plan without them. If several nodes are listed, the
    /// cause may be one of them or the links between them.
    Slow {
        /// Each node, with the bytes per second that the job achieved through it.
        nodes: BTreeMap<NodeId, f64>,
    },
    /// The job has ended. This is always the last action and occurs once.
    Finish(Box<Result<Outcome, JobError>>),
}

/// The copies of a block that are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// The nodes with a good copy from which the block can be read now, the preferred one first.
    pub good: Vec<NodeId>,
    /// The nodes whose copy is known to be bad.
    pub bad: Vec<NodeId>,
}

/// The number of consecutive plans without a new slice after which the job gives up.
const MAX_FRUITLESS: u32 = 6;

/// A request that is being carried out; see the module's documentation.
#[derive(Debug)]
pub struct Job {
    work: Work,
    trust: Trust,
    phase: Phase,
    geometry: Option<Geometry>,
    scheme: Scheme,
    keys: ChaCha20Rng,
    fruitless: u32,
    /// How often all deliveries were discarded because they were made from the suspect that is now left out.
    /// Reset when a wrong delivery changes the list of suspects.
    restarts: u32,
    conduct: Conduct,
    /// The outcome of the parity check so far; kept if the ending is interrupted.
    parity: ParityOutcome,
    stragglers: Stragglers,
    /// Whether the job is paused: it moves no slices until it is resumed.
    on_hold: bool,
    /// Whether the stripe cannot lose another block.
    at_risk: bool,
    /// The error of a job that was cancelled or cannot deliver all blocks. The job makes no other plan, and ends
    /// with this error unless it is still publishing blocks.
    doomed: Option<JobError>,
}

#[derive(Debug)]
enum Phase {
    Running(Box<Running>),
    Stopping {
        /// The requestors that have not reported their slices, each with the number of its unanswered messages.
        waiting: BTreeMap<NodeId, u32>,
        until: Duration,
        sources: BTreeSet<BlockIndex>,
    },
    Pausing {
        until: Duration,
    },
    /// The job is paused. Requestors keep their slices.
    OnHold,
    Ending(Box<Ending>),
    Finished,
}

impl Job {
    /// Starts a job: makes a plan and hands out the first tasks.
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
            doomed: None,
            at_risk: false,
        };
        job.plan(topology, now);
        job
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.work.id
    }

    /// The epoch of the current plan; every report must carry it.
    pub fn epoch(&self) -> Epoch {
        self.work.epoch
    }

    /// The stripe that the job works on.
    pub fn stripe(&self) -> &Stripe {
        &self.work.stripe
    }

    /// The client's number for the request, if a client takes part.
    pub fn tag(&self) -> Option<u64> {
        self.work.tag
    }

    /// The class of the job's traffic, which decides its priority when a rate cap is reached.
    pub fn class(&self) -> Class {
        self.work.class()
    }

    /// Whether the job has ended.
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// The running plan, if there is one.
    pub fn running_plan(&self) -> Option<&Plan> {
        match &self.phase {
            Phase::Running(running) => Some(&running.plan),
            _ => None,
        }
    }

    /// All nodes that hold state of this job or work for it.
    pub fn nodes(&self) -> &BTreeSet<NodeId> {
        &self.work.touched
    }

    /// Whether it is known that the stripe cannot lose another block.
    pub fn is_at_risk(&self) -> bool {
        self.at_risk
    }

    /// Whether the deliveries become blocks of the store.
    pub fn publishes(&self) -> bool {
        self.work.publish
    }

    /// The blocks that this job stores, each with its node. The nodes change when the job replaces a requestor.
    pub fn targets(&self) -> impl Iterator<Item = (BlockIndex, NodeId)> + '_ {
        self.work.goals.iter().filter(|_| self.work.publish).map(|goal| (goal.block, goal.requestor))
    }

    /// The current phase.
    pub fn phase(&self) -> JobPhase {
        self.phase.kind()
    }

    /// The number of slices of all wanted blocks.
    fn slices(&self) -> u32 {
        self.geometry.as_ref().map_or(0, Geometry::slices) * self.work.goals.len() as u32
    }

    /// The number of slices of all wanted blocks that are known to be delivered.
    pub fn delivered(&self) -> u32 {
        let per_goal = self.geometry.as_ref().map_or(0, Geometry::slices);
        let missing: u32 =
            self.work.goals.iter().map(|goal| goal.missing.as_ref().map_or(per_goal, SliceSet::len)).sum();
        let running = match &self.phase {
            Phase::Running(running) => running.progress.values().map(|&(slices, _)| slices).sum(),
            _ => 0,
        };
        (self.slices() - missing + running).min(self.slices())
    }

    /// The current state, for display.
    pub fn state(&self) -> JobState {
        JobState {
            phase: self.phase.kind(),
            scheme: self.scheme,
            delivered: self.delivered(),
            slices: self.slices(),
            slice_bytes: self.geometry.as_ref().map_or(0, |geometry| geometry.slice_bytes),
            replanned: self.work.replanned.clone(),
        }
    }

    /// The next action for the driver.
    pub fn poll(&mut self) -> Option<JobAction> {
        if let Some(error) = &self.doomed
            && self.work.actions.is_empty()
            && !self.is_finished()
            && !self.is_publishing()
        {
            let error = error.clone();
            self.finish(Err(error));
        }
        self.work.actions.pop_front()
    }

    /// Handles a node's report on plan `epoch`.
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
            return self.conduct.hear_of_left_copy(node, &report, &mut self.work);
        }
        if let Report::SinkFailed { problem: SinkProblem::NotNow(reason), .. } = &report
            && self.work.is_requestor(node)
            && self.conduct.note_not_now(node)
        {
            let (reason, replanned) = (reason.clone(), self.work.replanned.clone());
            self.work.restart_at(node);
            self.fail(JobError::StoreNotReady { reason, replanned });
            return self.drop_plan(String::new(), topology, now);
        }
        match (&mut self.phase, report) {
            (Phase::Running(_), report) => self.take_running(node, report, topology, now),
            (Phase::Stopping { .. }, Report::Stopped { delivered }) => {
                self.take_stopped(node, &delivered, topology, now);
            }
            (Phase::Stopping { waiting, .. }, Report::Committed) if waiting.contains_key(&node) => {
                // Another requestor failed after the job had told this requestor to commit its verified
                // block. The commit still counts.
                self.work.publish_at(node);
            }
            (_, Report::SinkFailed { block, problem }) => {
                self.requestor_failed(node, &format!("block {block}: {problem}"), topology, now);
            }
            (_, Report::BadBlock { block, problem }) if self.work.is_receiving(node, &block) => {
                // This says nothing about the block's holder, from which it may have been moved.
                self.requestor_failed(node, &format!("block {block} is {problem}"), topology, now);
            }
            (Phase::Ending(_), Report::BadBlock { block, problem }) if !self.work.delivers(&block) => {
                self.lose_block(&block, &problem);
                let why = format!("block {block} is {problem}");
                self.end(topology, now, |ending, work, scene| ending.handle_block_lost(why, work, scene));
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

    /// Handles the report of a node that has stopped the plan. Between two messages the requestor may have been told
    /// to discard slices, so only the last answer counts.
    fn take_stopped(&mut self, node: NodeId, delivered: &SliceSet, topology: &Topology, now: Duration) {
        let Phase::Stopping { waiting, .. } = &mut self.phase else { return };
        let unanswered = waiting.get_mut(&node).map(|unanswered| {
            *unanswered -= 1;
            *unanswered
        });
        if unanswered == Some(0) {
            waiting.remove(&node);
            self.credit(node, delivered);
        }
        self.plan_when_stopped(topology, now);
    }

    /// Runs a step of the ending and handles its result.
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
            Turn::SurvivorReadsBackWrong { block, problem } => {
                self.lose_block(&block, &problem);
                self.deliver_anew();
                self.work.replanned.push(format!("block {block} {problem}"));
                self.plan(topology, now);
            }
            Turn::Unprovable => {
                let readable =
                    self.work.stripe.held().filter(|&(block, _)| !self.work.is_wanted(block)).count();
                let replanned = self.work.replanned.clone();
                self.finish(Err(JobError::Unproven { readable, replanned }));
            }
            Turn::Late => self.drop_plan("a check did not finish in time".into(), topology, now),
        }
    }

    /// Starts the ending, after all wanted slices were delivered to their requestors.
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
        self.phase = Phase::Ending(Box::new(ending));
        self.take_turn(turn, topology, now);
    }

    /// Handles a wrong delivery whose cause is unknown. If the requestors may be at fault, the job delivers
    /// to other nodes; otherwise, or if that delivery is wrong too, it delivers again without one of the
    /// suspected blocks.
    fn distrust(&mut self, wrong: Wrong, topology: &Topology, now: Duration) {
        if wrong.fault == Fault::Survivor {
            self.work.actions.push_back(JobAction::Contradicted { blocks: wrong.contradicting.clone() });
        }
        self.trust.note_refuting(&wrong.refuting);
        let may_be_spoilt = self.work.publish && wrong.fault != Fault::Survivor;
        if may_be_spoilt && self.conduct.may_suspect(&wrong, &self.work, topology) {
            return self.deliver_elsewhere(&wrong, topology, now);
        }
        if self.work.is_put() {
            let at = if wrong.at.is_empty() { self.work.requestors() } else { wrong.at };
            let mut nodes: Vec<String> = at.into_iter().map(|node| topology.name(node)).collect();
            nodes.sort_unstable();
            let replanned = self.work.replanned.clone();
            return self.finish(Err(JobError::StoredWrong { reason: wrong.reason, nodes, replanned }));
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
        let reason =
            format!("{}; this job avoids {} as a target from now on", wrong.reason, names.join(", "));
        self.conduct.suspect(&wrong.at);
        for &node in &wrong.at {
            self.replace_if_requestor(node, 1, &reason, topology);
        }
        self.drop_plan(reason, topology, now);
    }

    /// Handles the case that another job or a scrub found blocks of the stripe that contradict each other.
    /// From now on, deliveries that are not published yet must agree with every survivor, except stored blocks that
    /// a client reads as they are.
    pub fn handle_contradiction(&mut self, topology: &Topology, now: Duration) {
        if self.is_finished() {
            return;
        }
        self.work.verify.parity |= self.work.publish;
        self.trust.hear_of_contradiction();
        match &mut self.phase {
            Phase::Running(running) => running.proof = None,
            Phase::Ending(_) => self.end(topology, now, Ending::hear_of_contradiction),
            Phase::Stopping { .. } | Phase::Pausing { .. } | Phase::OnHold | Phase::Finished => {}
        }
    }

    /// Handles that the stripe cannot lose another block: the nodes of this plan and of later ones let the job go
    /// on at full speed while clients read from them.
    pub fn handle_at_risk(&mut self) {
        if std::mem::replace(&mut self.at_risk, true) {
            return;
        }
        if let Phase::Running(running) = &self.phase {
            let nodes: Vec<NodeId> = running.nodes.iter().copied().collect();
            self.work.tell_at_risk(&nodes);
        }
    }

    /// Handles what is known of the copies of each block now, because blocks are moved while jobs read them. Later plans
    /// read no copy that is bad or that this job could not read, and prefer good copies on nodes that have not failed.
    /// Blocks that the job stores, and blocks that it never could read, stay as they are. While blocks contradict each
    /// other, the job stays with the copies that it has compared.
    pub fn handle_copies(&mut self, copies: &[Copies]) {
        for (index, Copies { good, bad }) in self.work.stripe.indices().zip(copies) {
            if self.work.publish && self.work.is_wanted(index) {
                continue;
            }
            let holder = self.work.stripe.block(index).holder;
            if let Some(node) = holder.filter(|node| bad.contains(node)) {
                self.conduct.unreadable.insert((index, node));
                self.work.stripe.blocks[usize::from(index.0)].holder = None;
            }
            let better = self.work.better_copy(index, good, &self.conduct.unreadable);
            if let Some(node) = better.filter(|_| self.trust.compares_nothing()) {
                self.conduct.left.extend(holder.map(|left| (index, left)));
                self.work.stripe.blocks[usize::from(index.0)].holder = Some(node);
                self.trust.note_moved(index);
            }
        }
    }

    /// Discards all deliveries. Requestors are sent `Forget` rather than `Stop`, since a stop would make them
    /// keep their slices.
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

    /// Handles the loss of a node: its process ended, or the coordinator cannot reach it.
    pub fn handle_node_lost(&mut self, node: NodeId, topology: &Topology, now: Duration) {
        // The loss of a requestor matters even before the node has received its assignment.
        let is_requestor = self.work.is_requestor(node);
        if self.is_finished() || !(self.work.touched.contains(&node) || is_requestor) {
            return;
        }
        match &mut self.phase {
            Phase::Running(running) if !is_requestor && !running.nodes.contains(&node) => {
                // The node was asked only for fingerprints, or belonged to an earlier plan, so only the
                // parity check is lost.
                running.proof = None;
            }
            Phase::Running(running) => {
                running.evidence.push(Evidence::Lost { node });
                running.judge_at = Some(now);
                self.judge(topology, now);
            }
            Phase::Stopping { waiting, .. } => {
                waiting.remove(&node);
                self.replace_if_requestor(node, GIVEN_UP, "it disconnected", topology);
                self.work.policy.avoid.insert(node);
                self.plan_when_stopped(topology, now);
            }
            Phase::Pausing { .. } | Phase::OnHold | Phase::Ending(_) if is_requestor => {
                self.requestor_failed(node, "it disconnected", topology, now);
            }
            Phase::Ending(_) => {
                self.work.policy.avoid.insert(node);
                self.end(topology, now, |ending, work, scene| ending.handle_node_lost(node, work, scene));
            }
            Phase::Pausing { .. } | Phase::OnHold | Phase::Finished => {}
        }
    }

    /// Handles the passing of time.
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
                // A client that does not answer may be asleep, so keep waiting for it. If it dies, its
                // connection closes, and the job handles the loss of the node.
                let is_silent = |node: &NodeId, _: &mut u32| !topology.dials_out(*node);
                let silent: Vec<NodeId> = waiting.extract_if(.., is_silent).map(|(node, _)| node).collect();
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

    /// Stops the running plan between two slices. The job makes no other plan until [`resume`](Self::resume).
    /// Delivered slices are kept; completely delivered blocks are still checked and published.
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

    /// Continues after a [`pause`](Self::pause), with a plan for the missing slices.
    pub fn resume(&mut self, topology: &Topology, now: Duration) {
        self.on_hold = false;
        if let Phase::OnHold = self.phase {
            self.plan(topology, now);
        }
    }

    /// Cancels the job. If requestors were told to commit blocks, the job first waits for their answers and publishes these
    /// blocks: otherwise copies would remain that the coordinator does not know. If all blocks are published, the job reads
    /// them back and succeeds. Otherwise it ends as cancelled; it makes no other plan.
    pub fn cancel(&mut self) {
        self.doomed = Some(JobError::Cancelled);
    }

    /// Whether the job was cancelled. It may still wait for requestors that commit blocks.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.doomed, Some(JobError::Cancelled))
    }

    /// Whether a requestor has been told to commit a block and has not answered.
    fn is_committing(&self) -> bool {
        let awaits = |node: &NodeId| match &self.phase {
            Phase::Ending(ending) => ending.committing().is_some_and(|nodes| nodes.contains(node)),
            Phase::Stopping { waiting, .. } => waiting.contains_key(node),
            _ => false,
        };
        let mut told = self.work.goals.iter().filter(|goal| goal.told_to_commit && !goal.committed);
        told.any(|goal| awaits(&goal.requestor))
    }

    /// Whether it is too late to end the job with an error: a requestor is committing a block, or all blocks are
    /// published and only have to be read back.
    fn is_publishing(&self) -> bool {
        self.is_committing() || self.work.goals.iter().all(|goal| goal.committed)
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

    /// Ends the job with an error. If requestors were told to commit blocks, the job first stops its plan, waits
    /// for their answers and publishes these blocks.
    fn fail(&mut self, error: JobError) {
        match self.is_committing() {
            true => self.doomed = self.doomed.take().or(Some(error)),
            false => self.finish(Err(error)),
        }
    }

    fn finish(&mut self, result: Result<Outcome, JobError>) {
        let result = result.map_err(|error| self.doomed.clone().unwrap_or(error));
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
