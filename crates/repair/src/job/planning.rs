//! Makes and starts the next plan of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand_chacha::rand_core::Rng;

use super::assigning::assignments;
use super::proof::Proof;
use super::straggling::crowd;
use super::watching::Running;
use super::ways::Ways;
use super::work::Work;
use super::{Job, JobError, MAX_FRUITLESS, Phase};
use crate::limits::{Class, longest_caps};
use crate::wire::control::ToNode;
use crate::{Epoch, NodeId, Pacing, Plan, Topology};

/// The number of slice times that an edge may be idle, unless the plan works in rounds.
const PATIENT_SLICES: u32 = 16;
/// The number of whole transfer times that an edge may be idle if the plan works in rounds of whole blocks:
/// an edge is idle until its round, and links may be slower than assumed.
const PATIENT_TRANSFERS: u32 = 16;
/// An edge may always be idle this long.
const MIN_PATIENCE: Duration = Duration::from_millis(1500);
/// An edge may be idle for a base time, plus the same time again for every `CROWD` jobs that share a node.
const CROWD: u32 = 8;
/// The minimum number of jobs that a background repair assumes on its busiest node, because many such repairs
/// start at once, before they are counted. A higher number would let edges be idle for so long that
/// neighbours would notice a stopped node only after its pings time out.
const BESIDE: u32 = 16;
/// The maximum number of doublings of the time that an edge may be idle.
const MAX_DOUBLINGS: u32 = 5;
/// An edge may never be idle longer than this.
const MAX_PATIENCE: Duration = Duration::from_secs(120);
/// The pause before a plan that must use nodes which failed before.
const SECOND_CHANCE: Duration = Duration::from_millis(500);

impl Job {
    pub(super) fn plan(&mut self, topology: &Topology, now: Duration) {
        if let Some(error) = self.doomed.clone() {
            return self.finish(Err(error));
        }
        if self.on_hold {
            self.phase = Phase::OnHold;
            return;
        }
        let turns = self.trust.turns();
        let mut error = None;
        for _ in 0..turns {
            match self.ways().make_plan(topology) {
                Ok(plan) if self.trust.can_be_known(&plan, &self.work, topology) => {
                    return self.start(plan, topology, now);
                }
                Ok(_) => {}
                Err(reason) => error = Some(reason),
            }
            // Leaving out the current suspect allows no usable plan, so leave out the next suspect instead.
            self.trust.postpone();
            if self.trust.used_suspect() {
                // Count this restart: delivering the same slices a second time is no progress.
                self.restarts += 1;
                self.deliver_anew();
            }
        }
        if !self.work.policy.avoid.is_empty() && self.fruitless < MAX_FRUITLESS {
            // Too few nodes remain without those that failed before, so readmit them.
            self.work.policy.avoid.clear();
            self.fruitless += 1;
            self.phase = Phase::Pausing { until: now + SECOND_CHANCE };
            return;
        }
        let replanned = self.work.replanned.clone();
        let error = match error {
            Some(error) if !self.trust.is_in_doubt() => JobError::Plan { error, replanned },
            _ => self.trust.contradiction(&self.work),
        };
        self.finish(Err(error));
    }

    pub(super) fn start(&mut self, plan: Plan, topology: &Topology, now: Duration) {
        self.work.epoch = Epoch(self.work.epoch.0 + 1);
        self.work.take_back_commits();
        self.trust.begin(&plan, &self.work);
        self.work.check_seed = self.keys.next_u64();
        self.geometry = Some(plan.geometry().clone());
        self.scheme = plan.scheme();
        if let Some(suspect) = self.trust.name_suspect() {
            let id = self.work.id_of(suspect);
            self.work.replanned.push(format!("block {id} is not used, because it may be wrong"));
        }
        let in_background = self.work.class() == Class::Repair;
        let patience = patience(&plan, topology, in_background, self.fruitless);
        let is_checked =
            !self.work.publish && (self.work.verify.parity || self.trust.needs_parity(&self.work));
        let assignments = assignments(&plan, (&self.work, is_checked), topology, patience, &mut self.keys);
        let requestors: BTreeSet<NodeId> = plan.outputs().iter().map(|output| output.requestor).collect();
        for (node, assignment) in assignments {
            self.work.touched.insert(node);
            self.work.tell(node, ToNode::Assign(Box::new(assignment)));
        }
        if self.at_risk {
            self.work.tell_at_risk(&plan.nodes().into_iter().collect::<Vec<_>>());
        }
        let proof = self.proof_ahead(&plan, topology);
        let longest_excuse = longest_excuse(&plan, &self.work);
        self.phase = Phase::Running(Box::new(Running {
            pace: self.stragglers.begin_pace(&plan, topology, now),
            progress: requestors.iter().map(|&node| (node, (0, now))).collect(),
            waiting: requestors,
            nodes: plan.nodes().into_iter().collect(),
            plan,
            patience,
            evidence: Vec::new(),
            judge_at: None,
            limited: BTreeMap::new(),
            arrived: now,
            longest_excuse,
            proof,
        }));
    }

    pub(super) fn ways(&self) -> Ways<'_> {
        Ways {
            work: &self.work,
            trust: &self.trust,
            geometry: self.geometry.as_ref(),
            conduct: &self.conduct,
            stragglers: &self.stragglers,
        }
    }

    /// Starts a parity check that runs alongside the plan, if the plan delivers everything to be published.
    fn proof_ahead(&mut self, plan: &Plan, topology: &Topology) -> Option<Proof> {
        let work = &self.work;
        let is_first = work.goals.iter().all(|goal| !goal.committed && goal.missing.is_none());
        // A put has no survivors that could be asked meanwhile.
        let is_asked_for = work.publish && work.verify.parity && !work.is_put();
        if !(is_asked_for && is_first) || self.trust.is_in_doubt() {
            return None;
        }
        let check = self.trust.parity_check(work, topology, &BTreeSet::new())?;
        Proof::ahead(check, plan.geometry(), work, &mut self.keys)
    }
}

/// How long caps excuse that no slice arrives. In rounds of whole blocks, the first slice may arrive after all blocks
/// of a decoding have crossed one capped link.
fn longest_excuse(plan: &Plan, work: &Work) -> Duration {
    match plan.pacing() {
        Pacing::WholeBlock => longest_caps(work.stripe.block_bytes()) * work.stripe.code.data_blocks() as u32,
        Pacing::Pipelined | Pacing::Serial => longest_caps(work.stripe.block_bytes()),
    }
}

/// How long an edge may be idle before its ends complain (the patience). The base is the predicted time of
/// several slices or, if nodes wait for whole blocks, of several whole transfers. The base is never so short
/// that scheduling delays on a busy machine look like a stall. The patience is twice the base if eight jobs
/// share a node, and three times the base with sixteen, since flows on a crowded link progress unevenly.
/// After the first plan without progress, each further one doubles the patience, because a node may be slower
/// than any known figure says.
fn patience(plan: &Plan, topology: &Topology, in_background: bool, fruitless: u32) -> Duration {
    // Other jobs at the plan's nodes are accounted for below.
    let whole = plan.predict_alone(topology);
    let rest = match plan.pacing() {
        Pacing::WholeBlock => whole * PATIENT_TRANSFERS,
        Pacing::Pipelined | Pacing::Serial => whole / plan.slices().len().max(1) * PATIENT_SLICES,
    };
    let nodes = plan.nodes().into_iter().collect();
    let beside = if in_background { BESIDE } else { 0 };
    let crowded = (CROWD + crowd(&nodes, topology).max(beside)) / CROWD;
    let longer = 1 << fruitless.saturating_sub(1).min(MAX_DOUBLINGS);
    (rest.max(MIN_PATIENCE) * crowded * longer).min(MAX_PATIENCE)
}
