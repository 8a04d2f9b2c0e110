//! A plan is made and begins, or none can be made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand_chacha::rand_core::Rng;

use super::assigning::assignments;
use super::proof::Proof;
use super::straggling::crowd;
use super::watching::Running;
use super::ways::Ways;
use super::{Job, JobError, MAX_FRUITLESS, Phase};
use crate::limits::Class;
use crate::wire::control::ToNode;
use crate::{Epoch, NodeId, Pacing, Plan, Topology};

/// An edge may rest for the time of this many slices.
const PATIENT_SLICES: u32 = 16;
/// An edge of a plan in rounds may rest for as many times of the whole transfer: nothing comes until its turn does,
/// and links may be slower than assumed.
const PATIENT_TRANSFERS: u32 = 16;
/// An edge may always rest this long.
const MIN_PATIENCE: Duration = Duration::from_millis(1500);
/// Each time that so many jobs more share a node, patience is longer by what it is for one.
const CROWD: u32 = 8;
/// So many repairs in the background are taken to share a node: many begin at the same time, and are not counted yet. It may be more
/// in the end; but a node that stops shall be found by its neighbours before it is missed by its pings.
const BESIDE: u32 = 16;
/// Patience doubles so often at most.
const MAX_DOUBLINGS: u32 = 5;
/// An edge may never rest longer.
const MAX_PATIENCE: Duration = Duration::from_secs(120);
/// Pause before a plan that must use nodes which failed before.
const SECOND_CHANCE: Duration = Duration::from_millis(500);

impl Job {
    pub(super) fn plan(&mut self, topology: &Topology, now: Duration) {
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
            // Without this suspect it does not go now; without another it may.
            self.trust.postpone();
            if self.trust.used_suspect() {
                // What comes again is no progress.
                self.restarts += 1;
                self.deliver_anew();
            }
        }
        if !self.work.policy.avoid.is_empty() && self.fruitless < MAX_FRUITLESS {
            // Too few are left without those that failed before: they get another chance.
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
        self.trust.begin(&plan, &self.work);
        self.work.check_seed = self.keys.next_u64();
        self.geometry = Some(plan.geometry().clone());
        self.scheme = plan.scheme();
        if let Some(suspect) = self.trust.name_suspect() {
            let id = self.work.id_of(suspect);
            self.work.replanned.push(format!("block {id} is left out, as it may be wrong"));
        }
        let in_background = self.work.class() == Class::Repair;
        let patience = patience(&plan, topology, in_background, self.fruitless);
        let assignments = assignments(&plan, &self.work, topology, patience, &mut self.keys);
        let requestors: BTreeSet<NodeId> = plan.outputs().iter().map(|output| output.requestor).collect();
        for (node, assignment) in assignments {
            self.work.touched.insert(node);
            self.work.tell(node, ToNode::Assign(Box::new(assignment)));
        }
        let proof = self.proof_ahead(&plan, topology);
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

    /// A parity check that goes along with a plan which delivers everything that is to be published.
    fn proof_ahead(&mut self, plan: &Plan, topology: &Topology) -> Option<Proof> {
        let work = &self.work;
        let is_first = work.goals.iter().all(|goal| !goal.committed && goal.missing.is_none());
        if !(work.publish && work.verify.parity && is_first) || self.trust.is_in_doubt() {
            return None;
        }
        let check = self.trust.parity_check(work, topology, &BTreeSet::new())?;
        Proof::ahead(check, plan.geometry(), work, &mut self.keys)
    }
}

/// How long an edge may rest before its ends complain, from the plan's own predicted rate: the time of
/// some slices, or of some whole transfers where nodes wait for whole blocks; never so little that a busy
/// machine's scheduler looks like a stall. It is twice as long where eight jobs share a node, and three times with
/// sixteen, as some of many flows on a link rest longer than others. It doubles with each plan that brought
/// nothing: somebody may be slower than anything that is known of him.
fn patience(plan: &Plan, topology: &Topology, in_background: bool, fruitless: u32) -> Duration {
    // Others at its nodes are counted below.
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
