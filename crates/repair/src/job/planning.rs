//! From what is still missing to a plan, and from a plan to one assignment per node.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use rand_chacha::rand_core::Rng;

use super::publishing::Doubt;
use super::watching::{Running, sources};
use super::{Goal, Job, JobError, MAX_FRUITLESS, Phase, tell};
use crate::assignment::{Inlet, Outlet, Sink, SinkEnd};
use crate::wire::control::ToNode;
use crate::{
    Assignment, EdgeKey, Epoch, NodeId, Pacing, Plan, PlanError, PlanRequest, SliceSet, Stripe, StripeBlock,
    Topology, Wanted, plan,
};

/// An edge may rest for the time of this many slices.
const PATIENT_SLICES: u32 = 16;
/// An edge of a plan in rounds may rest for as many times of the whole transfer: nothing comes until its turn does,
/// and links may be slower than assumed.
const PATIENT_TRANSFERS: u32 = 16;
/// An edge may always rest this long.
const MIN_PATIENCE: Duration = Duration::from_millis(1500);
/// An edge may never rest longer.
const MAX_PATIENCE: Duration = Duration::from_secs(120);
/// Pause before a plan that must use nodes which failed before.
const SECOND_CHANCE: Duration = Duration::from_millis(500);

impl Job {
    pub(super) fn plan(&mut self, topology: &Topology, now: Duration) {
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
    pub(super) fn can_be_trusted(&self, plan: &Plan, topology: &Topology) -> bool {
        let mut used = self.used.clone();
        used.extend(sources(plan));
        !self.needs_parity() || self.parity_check(&used, topology).is_some()
    }

    pub(super) fn make_plan(&mut self, topology: &Topology) -> Result<Plan, PlanError> {
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
    pub(super) fn trusted_stripe(&self) -> Cow<'_, Stripe> {
        let Some(doubt) = &self.doubt else { return Cow::Borrowed(&self.stripe) };
        let mut stripe = self.stripe.clone();
        stripe.blocks[usize::from(doubt.suspect().0)].holder = None;
        // A read has no other judge than a block to spare, so one is not read.
        let is_wanted = |index| self.goals.iter().any(|goal| goal.block == index);
        let spare = stripe.held().map(|(index, _)| index).filter(|&index| !is_wanted(index)).last();
        if let Some(spare) =
            spare.filter(|_| !self.publish && stripe.held().count() > stripe.code.data_blocks())
        {
            stripe.blocks[usize::from(spare.0)].holder = None;
        }
        Cow::Owned(stripe)
    }

    pub(super) fn start(&mut self, plan: Plan, topology: &Topology, now: Duration) {
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
            self.actions.push(tell(node, ToNode::Assign(Box::new(assignment))));
        }
        self.phase = Phase::Running(Box::new(Running {
            progress: requestors.iter().map(|&node| (node, (0, now))).collect(),
            waiting: requestors,
            plan,
            patience,
            evidence: Vec::new(),
            judge_at: None,
            limited: BTreeMap::new(),
        }));
    }

    /// Cuts a plan into one assignment per node and gives every edge its key.
    pub(super) fn assignments(
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

    pub(super) fn assignment(
        &self,
        plan: &Plan,
        node: NodeId,
        topology: &Topology,
        keys: &BTreeMap<(NodeId, NodeId), EdgeKey>,
        patience: Duration,
    ) -> Assignment {
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
        let sink = |index: BlockIndex| {
            let StripeBlock { id, bytes, .. } = self.stripe.block(index).clone();
            let end = if self.publish {
                SinkEnd::Kept { label: self.stripe.label.clone() }
            } else {
                SinkEnd::Taken
            };
            Sink { index, id, bytes, end }
        };
        let inlet = |(&(from, _), &key): (&(NodeId, NodeId), &EdgeKey)| Inlet {
            from,
            dial: topology.address(from),
            key,
            tls_name: topology.tls_name(from),
        };
        // The downstream end dials, unless the upstream end is a client, which nobody can dial.
        let outlet = |(&(from, to), &key): (&(NodeId, NodeId), &EdgeKey)| Outlet {
            to,
            dial: if topology.dials_out(from) { topology.address(to) } else { None },
            key,
            tls_name: topology.tls_name(to),
        };
        Assignment {
            job: self.id,
            epoch: self.epoch,
            class: self.class(),
            tag: if topology.dials_out(node) { self.tag } else { None },
            geometry: plan.geometry().clone(),
            slices: plan.slices().clone(),
            dealing: plan.dealing().clone(),
            pacing: plan.pacing(),
            chunking: *plan.chunking(),
            lanes,
            locals: locals.into_iter().map(|index| self.stripe.local(index)).collect(),
            inlets: keys.iter().filter(|((_, to), _)| *to == node).map(inlet).collect(),
            outlets: keys.iter().filter(|((from, _), _)| *from == node).map(outlet).collect(),
            outputs: plan.outputs().iter().map(|output| output.sub_block).collect(),
            sinks: sinks.into_iter().map(sink).collect(),
            stall_ms: patience.as_millis() as u32,
        }
    }
}

/// How long an edge may rest before its ends complain, from the plan's own predicted rate: the time of
/// some slices, or of some whole transfers where nodes wait for whole blocks; never so little that a busy
/// machine's scheduler looks like a stall.
fn patience(plan: &Plan, topology: &Topology) -> Duration {
    let whole = plan.predict(topology);
    let rest = match plan.pacing() {
        Pacing::WholeBlock => whole * PATIENT_TRANSFERS,
        Pacing::Pipelined | Pacing::Serial => whole / plan.slices().len().max(1) * PATIENT_SLICES,
    };
    rest.clamp(MIN_PATIENCE, MAX_PATIENCE)
}
