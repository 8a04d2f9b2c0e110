//! Watches a running plan: tracks deliveries, finds the culprit of a failure, and replaces failed requestors.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::blame::{self, Evidence};
use super::conduct::GIVEN_UP;
use super::pace::Pace;
use super::proof::Proof;
use super::trust::sources;
use super::waiting::Rules;
use super::work::{Goal, Work};
use super::{BlockProblem, Job, JobError, MAX_FRUITLESS, Phase, Report};
use crate::wire::control::ToNode;
use crate::{BlockId, NodeId, Pacing, Plan, SliceSet, Topology};

/// How long to gather the reports of other nodes after the first complaint.
const GATHER: Duration = Duration::from_millis(250);
/// The maximum number of times that the gathering time doubles.
const MAX_DOUBLINGS: u32 = 3;
/// How long requestors may take to report their slices after a stop.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(3);
/// A running plan.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) plan: Plan,
    /// The nodes that have a task in the plan.
    pub(super) nodes: BTreeSet<NodeId>,
    pub(super) waiting: BTreeSet<NodeId>,
    pub(super) progress: BTreeMap<NodeId, (u32, Duration)>,
    pub(super) patience: Duration,
    pub(super) evidence: Vec<Evidence>,
    pub(super) judge_at: Option<Duration>,
    /// Nodes that are throttled by their own caps, with the time at which they last reported this.
    pub(super) limited: BTreeMap<NodeId, Duration>,
    /// The time at which a requestor last reported new slices.
    pub(super) arrived: Duration,
    /// How long caps excuse that no slice arrives.
    pub(super) longest_excuse: Duration,
    pub(super) pace: Pace,
    /// The parity check that runs alongside the plan.
    pub(super) proof: Option<Proof>,
}

impl Job {
    /// Handles a report on the running plan.
    pub(super) fn take_running(&mut self, node: NodeId, report: Report, topology: &Topology, now: Duration) {
        // If several plans in a row were dropped, gather for longer: some node may just be slow to answer.
        let gather = GATHER * (1 << self.fruitless.min(MAX_DOUBLINGS));
        let Phase::Running(running) = &mut self.phase else { return };
        if !running.nodes.contains(&node) && !self.work.is_requestor(node) {
            return self.take_beside(node, report);
        }
        running.take_of_proof(node, &report, &mut self.work);
        running.pace.take(node, &report);
        if running.take(node, report, gather, now) {
            self.ask_all(topology);
        }
        self.after_report(topology, now);
    }

    /// Handles a report from a node that is only asked for fingerprints and has no part in the plan.
    fn take_beside(&mut self, node: NodeId, report: Report) {
        let Phase::Running(running) = &mut self.phase else { return };
        running.take_of_proof(node, &report, &mut self.work);
        match report {
            Report::BadBlock { block, problem } => {
                // The plan does not need this block. The check starts again at the end, with another block.
                running.proof = None;
                self.lose_block(&block, &problem);
            }
            Report::Refused { .. } => running.proof = None,
            _ => {}
        }
    }

    pub(super) fn after_report(&mut self, topology: &Topology, now: Duration) {
        let Phase::Running(running) = &self.phase else { return };
        if running.waiting.is_empty() {
            return self.all_delivered(topology, now);
        }
        if running.judge_at.is_some_and(|at| at <= now) {
            self.judge(topology, now);
        }
        self.watch_pace(topology, now);
    }

    /// Finds the culprits and drops the plan.
    pub(super) fn judge(&mut self, topology: &Topology, now: Duration) {
        let Phase::Running(running) = &mut self.phase else { return };
        let evidence = std::mem::take(&mut running.evidence);
        running.judge_at = None;
        let (rules, limited) = (running.rules(), running.limited_at(now));
        self.conduct.links.note(&evidence, rules);
        let verdict =
            blame::judge(&evidence, |node| self.conduct.worth(node, &self.work, topology), rules, &limited);
        let Some(verdict) = verdict else { return self.excuse_silence(now) };
        for (block, problem) in &verdict.bad_blocks {
            self.lose_block(block, problem);
        }
        for culprit in &verdict.culprits {
            self.work.policy.avoid.insert(culprit.node);
            self.conduct.blame(culprit.node);
        }
        let named = |text: &str, node: NodeId| text.replace("{}", &topology.name(node));
        let mut reasons: Vec<String> =
            verdict.culprits.iter().map(|culprit| named(&culprit.why, culprit.node)).collect();
        reasons
            .extend(verdict.bad_blocks.iter().map(|(block, problem)| format!("block {block} is {problem}")));
        for culprit in &verdict.culprits {
            // A requestor accused only by others is kept if no node can replace it. If it is really dead, it
            // will not report its slices in time and is replaced then.
            if !culprit.hearsay || self.conduct.can_be_replaced(culprit.node, &self.work, topology) {
                let weight = if culprit.hearsay { 1 } else { GIVEN_UP };
                self.replace_if_requestor(culprit.node, weight, &named(&culprit.why, culprit.node), topology);
            }
        }
        self.drop_plan(reasons.join(", "), topology, now);
    }

    /// Resets the progress timers: the requestors are not at fault, because all nodes wait for a client or a
    /// throttled node, or have resumed.
    fn excuse_silence(&mut self, now: Duration) {
        if let Phase::Running(running) = &mut self.phase {
            running.progress.values_mut().for_each(|(_, since)| *since = now);
        }
    }

    /// Stops the plan on all nodes; requestors then report their slices.
    pub(super) fn drop_plan(&mut self, reason: String, topology: &Topology, now: Duration) {
        // A doomed job whose plan is stopped only waits for commits. No other failure may extend that wait.
        let only_waits = self.doomed.is_some() && matches!(self.phase, Phase::Stopping { .. });
        if self.is_finished() || only_waits {
            return;
        }
        self.end_pace();
        if !reason.is_empty() && self.work.replanned.last() != Some(&reason) {
            self.work.replanned.push(reason);
        }
        self.fruitless += 1;
        let attempts = self.fruitless.max(self.restarts);
        if attempts > MAX_FRUITLESS {
            let replanned = self.work.replanned.clone();
            self.fail(JobError::NoProgress { attempts, replanned });
        }
        if !self.is_finished() {
            self.stop_plan(topology, now);
        }
    }

    /// Tells every node to stop, and waits for the requestors' reports.
    pub(super) fn stop_plan(&mut self, topology: &Topology, now: Duration) {
        let (job, epoch) = (self.work.id, self.work.epoch);
        let alive = self.work.touched.iter().copied().filter(|&node| topology.is_alive(node));
        for node in alive.collect::<Vec<_>>() {
            self.work.tell(node, ToNode::Stop { job, epoch });
        }
        // A block that a store is accepting right now must not be given to another node too, so the store
        // gets more time to report.
        let under_way = match &self.phase {
            Phase::Ending(ending) => ending.committing().map(|nodes| self.work.hand_over_limit(nodes)),
            _ => None,
        };
        // Another failure in the meantime must not shorten the deadline of nodes that are already being
        // waited for.
        let granted = match &self.phase {
            Phase::Stopping { until, .. } => *until,
            _ => Duration::ZERO,
        };
        let until = granted.max(now + STOP_LIMIT + under_way.unwrap_or_default());
        let sources = match &mut self.phase {
            Phase::Running(running) => sources(&running.plan),
            Phase::Stopping { sources, .. } => std::mem::take(sources),
            _ => BTreeSet::new(),
        };
        let unanswered = match &self.phase {
            Phase::Stopping { waiting, .. } => waiting.clone(),
            _ => BTreeMap::new(),
        };
        let requestors = self.work.requestors().into_iter();
        let waiting = requestors
            .filter(|node| self.work.touched.contains(node) && topology.is_alive(*node))
            .map(|node| (node, unanswered.get(&node).copied().unwrap_or(0) + 1))
            .collect();
        self.phase = Phase::Stopping { waiting, until, sources };
        self.plan_when_stopped(topology, now);
    }

    pub(super) fn plan_when_stopped(&mut self, topology: &Topology, now: Duration) {
        if let Phase::Stopping { waiting, .. } = &self.phase
            && waiting.is_empty()
        {
            let may_end = self.doomed.is_none() || self.is_publishing();
            if may_end && self.work.goals.iter().all(Goal::is_met) {
                self.all_delivered(topology, now);
            } else {
                self.plan(topology, now);
            }
        }
    }

    /// Records the slices that a requestor has received under all plans so far, according to its report.
    pub(super) fn credit(&mut self, node: NodeId, delivered: &SliceSet) {
        let Some(geometry) = &self.geometry else { return };
        let missing = SliceSet::all(geometry.slices()).minus(delivered);
        for goal in self.work.goals.iter_mut().filter(|goal| goal.requestor == node && !goal.is_met()) {
            if missing.len() < goal.missing.as_ref().map_or(geometry.slices(), SliceSet::len) {
                self.fruitless = 0;
                if let Phase::Stopping { sources, .. } = &self.phase {
                    self.trust.note(sources.iter().copied());
                }
            }
            goal.missing = Some(missing.clone());
        }
    }

    pub(super) fn lose_block(&mut self, block: &BlockId, problem: &BlockProblem) {
        let is_wanted = self.work.delivers(block);
        let copies = self.work.stripe.held().filter(|&(index, _)| self.work.id_of(index) == block);
        self.conduct.unreadable.extend(copies);
        // A copy of a block that is not wanted is lost at most once, so resets are bounded.
        if self.work.lose_block(block, problem) && !is_wanted {
            self.fruitless = 0;
        }
    }

    /// Moves the deliveries of `node` to other nodes, starting from scratch. Fails the job if no node can
    /// take them.
    pub(super) fn replace_if_requestor(
        &mut self,
        node: NodeId,
        weight: u32,
        reason: &str,
        topology: &Topology,
    ) {
        self.work.policy.avoid.insert(node);
        if self.is_finished() {
            return;
        }
        if self.work.is_requestor(node) {
            self.conduct.give_up(node, weight);
            // If the node becomes a requestor again, its old slices must not count for another block.
            self.work.tell(node, ToNode::Forget { job: self.work.id });
        }
        let mut taken = self.work.requestors();
        for at in 0..self.work.goals.len() {
            if self.is_finished() || self.work.goals[at].requestor != node {
                continue;
            }
            if topology.dials_out(node) {
                return self.finish(Err(JobError::Client { reason: reason.to_owned() }));
            }
            let Some(other) = self.conduct.stand_in(self.work.goals[at].block, &taken, &self.work, topology)
            else {
                let block = self.work.stripe.block(self.work.goals[at].block).id.clone();
                let (reason, replanned) = (reason.to_owned(), self.work.replanned.clone());
                self.work.restart_at(node);
                return self.fail(JobError::NoRequestor { block, node, reason, replanned });
            };
            taken.insert(other);
            if self.work.goals[at].committed {
                self.work.take_back(at);
            }
            self.work.goals[at].requestor = other;
            self.work.goals[at].restart();
        }
    }

    pub(super) fn requestor_failed(
        &mut self,
        node: NodeId,
        reason: &str,
        topology: &Topology,
        now: Duration,
    ) {
        let reason = format!("{}: {reason}", topology.name(node));
        self.replace_if_requestor(node, GIVEN_UP, &reason, topology);
        self.drop_plan(reason, topology, now);
    }
}

impl Running {
    /// Whether the plan's pace is meaningless for now: a complaint is pending, or a node is throttled.
    pub(super) fn is_in_question(&self, now: Duration) -> bool {
        self.judge_at.is_some() || !self.limited_at(now).is_empty()
    }

    /// The total number of slices at the requestors; 0 until each of them has at least one.
    fn slices_there(&self) -> u32 {
        let all = self.plan.slices().len();
        let has_none = |node: &NodeId| self.progress.get(node).is_some_and(|&(slices, _)| slices == 0);
        if self.waiting.iter().any(has_none) {
            return 0;
        }
        let of = |(node, &(slices, _)): (&NodeId, &(u32, Duration))| {
            if self.waiting.contains(node) { slices } else { all }
        };
        self.progress.iter().map(of).sum()
    }

    fn rules(&self) -> Rules {
        let in_rounds = self.plan.pacing() == Pacing::WholeBlock;
        Rules { in_rounds, patience_ms: self.patience.as_millis() as u32 }
    }

    /// Nodes that are currently throttled by their caps. Such a node reports this at least twice within the
    /// time that the plan allows an edge to be idle. If no slice arrives for very long, caps are no excuse.
    fn limited_at(&self, now: Duration) -> BTreeSet<NodeId> {
        if now > self.arrived + self.longest_excuse {
            return BTreeSet::new();
        }
        let lately = |&(_, &at): &(&NodeId, &Duration)| at + self.patience + GATHER * 4 >= now;
        self.limited.iter().filter(lately).map(|(&node, _)| node).collect()
    }

    /// Passes reports to the parity check.
    fn take_of_proof(&mut self, node: NodeId, report: &Report, work: &mut Work) {
        let Some(proof) = &mut self.proof else { return };
        match report {
            Report::Progress { whole, .. } => proof.handle_progress(node, *whole, work),
            Report::Fingerprinted { block, seed, fingerprints } => {
                proof.take(node, block, *seed, fingerprints.clone());
            }
            _ => {}
        }
    }

    /// Handles a report; returns whether to ask all nodes what they wait for.
    pub(super) fn take(&mut self, node: NodeId, report: Report, gather: Duration, now: Duration) -> bool {
        match report {
            Report::Progress { slices, .. } => {
                if let Some(progress) = self.progress.get_mut(&node)
                    && slices > progress.0
                {
                    *progress = (slices, now);
                    self.arrived = now;
                    let there = self.slices_there();
                    self.pace.note(there, now);
                }
            }
            Report::Delivered => {
                self.waiting.remove(&node);
                self.arrived = now;
                let there = self.slices_there();
                self.pace.note(there, now);
            }
            Report::Limited => {
                self.limited.insert(node, now);
            }
            report => {
                let Some((evidence, needs_others)) = Evidence::from_report(node, report) else {
                    return false;
                };
                let is_first = self.judge_at.is_none();
                // A wait that is no complaint is recorded only after another node has complained.
                let complains = evidence.complains(self.rules());
                if is_first && !complains {
                    return false;
                }
                self.evidence.push(evidence);
                if complains {
                    let judge_at = now + if needs_others { gather } else { Duration::ZERO };
                    self.judge_at = Some(self.judge_at.map_or(judge_at, |at| at.min(judge_at)));
                }
                return is_first && needs_others;
            }
        }
        false
    }

    /// Checks that requestors other than clients make progress, even if no node complains.
    pub(super) fn watch(&mut self, goals: &[Goal], topology: &Topology, now: Duration) {
        if self.judge_at.is_some() || !self.limited_at(now).is_empty() {
            return;
        }
        let limit = self.patience * 3 + Duration::from_secs(2);
        let silent = |node: &NodeId| {
            let helper = topology.get(*node).is_some() && !topology.dials_out(*node);
            helper && self.progress.get(node).is_some_and(|&(_, since)| since + limit <= now)
        };
        let stuck: Vec<NodeId> = self.waiting.iter().copied().filter(silent).collect();
        if !stuck.is_empty() && goals.iter().any(|goal| stuck.contains(&goal.requestor)) {
            self.evidence.extend(stuck.into_iter().map(|node| Evidence::Silent { node }));
            self.judge_at = Some(now);
        }
    }
}
