//! A plan that runs: who delivers, who is to blame when something breaks, and who takes whose place.

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

/// How long the reports of other nodes are awaited once something looks wrong.
const GATHER: Duration = Duration::from_millis(250);
/// The time for reports doubles so often at most.
const MAX_DOUBLINGS: u32 = 3;
/// How long requestors have to say what they have.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(3);
/// A plan that is being carried out.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) plan: Plan,
    /// Those that have a part in it.
    pub(super) nodes: BTreeSet<NodeId>,
    pub(super) waiting: BTreeSet<NodeId>,
    pub(super) progress: BTreeMap<NodeId, (u32, Duration)>,
    pub(super) patience: Duration,
    pub(super) evidence: Vec<Evidence>,
    pub(super) judge_at: Option<Duration>,
    /// Nodes that their own caps hold back, and when they last said so.
    pub(super) limited: BTreeMap<NodeId, Duration>,
    pub(super) pace: Pace,
    /// Parity, as far as it can be checked already.
    pub(super) proof: Option<Proof>,
}

impl Job {
    /// Takes a report on the plan that runs.
    pub(super) fn take_running(&mut self, node: NodeId, report: Report, topology: &Topology, now: Duration) {
        // Where one plan after another is dropped, somebody may be slow to answer.
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

    /// Takes the report of a node that is asked for fingerprints and has no part in the plan.
    fn take_beside(&mut self, node: NodeId, report: Report) {
        let Phase::Running(running) = &mut self.phase else { return };
        running.take_of_proof(node, &report, &mut self.work);
        match report {
            Report::BadBlock { block, problem } => {
                // The plan does without it; the check begins anew at the end, with another.
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

    /// Finds out who is to blame and drops the plan.
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
            // A requestor that others complain of is kept if nobody can take its place. If it is really
            // gone, it will not say either what it has.
            if !culprit.hearsay || self.conduct.can_be_replaced(culprit.node, &self.work, topology) {
                let weight = if culprit.hearsay { 1 } else { GIVEN_UP };
                self.replace_if_requestor(culprit.node, weight, &named(&culprit.why, culprit.node), topology);
            }
        }
        self.drop_plan(reasons.join(", "), topology, now);
    }

    /// Everybody waits for a client, or goes on by now: that a requestor makes no progress is not its fault.
    fn excuse_silence(&mut self, now: Duration) {
        if let Phase::Running(running) = &mut self.phase {
            running.progress.values_mut().for_each(|(_, since)| *since = now);
        }
    }

    /// Stops the plan everywhere; requestors will say what they have.
    pub(super) fn drop_plan(&mut self, reason: String, topology: &Topology, now: Duration) {
        if self.is_finished() {
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
            return self.finish(Err(JobError::NoProgress { attempts, replanned }));
        }
        self.stop_plan(topology, now);
    }

    /// Has every node stop, and waits for what requestors have.
    pub(super) fn stop_plan(&mut self, topology: &Topology, now: Duration) {
        let (job, epoch) = (self.work.id, self.work.epoch);
        let alive = self.work.touched.iter().copied().filter(|&node| topology.is_alive(node));
        for node in alive.collect::<Vec<_>>() {
            self.work.tell(node, ToNode::Stop { job, epoch });
        }
        // What a store is taking over at this moment is not given to another node as well.
        let under_way = match &self.phase {
            Phase::Ending(ending) => ending.committing().map(|nodes| self.work.hand_over_limit(nodes)),
            _ => None,
        };
        // That something else fails meanwhile does not cut off those who are waited for already.
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
        let waiting = self
            .work
            .goals
            .iter()
            .map(|goal| goal.requestor)
            .filter(|node| self.work.touched.contains(node) && topology.is_alive(*node))
            .collect();
        self.phase = Phase::Stopping { waiting, until, sources };
        self.plan_when_stopped(topology, now);
    }

    pub(super) fn plan_when_stopped(&mut self, topology: &Topology, now: Duration) {
        if let Phase::Stopping { waiting, .. } = &self.phase
            && waiting.is_empty()
        {
            if self.work.goals.iter().all(Goal::is_met) {
                self.all_delivered(topology, now);
            } else {
                self.plan(topology, now);
            }
        }
    }

    /// Notes what a requestor says it has, over all plans.
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
        if self.work.lose_block(block, problem) {
            self.fruitless = 0; // It can happen only once per block.
        }
    }

    /// Gives the deliveries of `node` to other nodes, from the start. Fails the job if nobody can.
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
            // What it says it has must not count for another block, should it ever be given one.
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
            let Some(other) = self.conduct.stand_in(&taken, &self.work, topology) else {
                let block = self.work.stripe.block(self.work.goals[at].block).id.clone();
                let (reason, replanned) = (reason.to_owned(), self.work.replanned.clone());
                return self.finish(Err(JobError::NoRequestor { block, node, reason, replanned }));
            };
            taken.insert(other);
            if self.work.goals[at].committed {
                let former = self.work.goals[at].former.take();
                self.work.stripe.blocks[usize::from(self.work.goals[at].block.0)].holder = former;
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
    /// Whether its pace says nothing: somebody complains, or is slow because they shall be.
    pub(super) fn is_in_question(&self, now: Duration) -> bool {
        self.judge_at.is_some() || !self.limited_at(now).is_empty()
    }

    /// Slices that are there, over all requestors; none until each has some.
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

    /// Nodes that their caps hold back these days: they say so twice within the plan's patience.
    fn limited_at(&self, now: Duration) -> BTreeSet<NodeId> {
        let lately = |&(_, &at): &(&NodeId, &Duration)| at + self.patience + GATHER * 4 >= now;
        self.limited.iter().filter(lately).map(|(&node, _)| node).collect()
    }

    /// Takes what concerns the check of parity.
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

    /// Takes a report; whether all nodes are to be asked what they wait for.
    pub(super) fn take(&mut self, node: NodeId, report: Report, gather: Duration, now: Duration) -> bool {
        match report {
            Report::Progress { slices, .. } => {
                if let Some(progress) = self.progress.get_mut(&node)
                    && slices > progress.0
                {
                    *progress = (slices, now);
                    let there = self.slices_there();
                    self.pace.note(there, now);
                }
            }
            Report::Delivered => {
                self.waiting.remove(&node);
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
                // What a node waits for without complaining matters only when another one complains.
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

    /// Requestors on helpers must make progress even if nobody complains about them.
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
