//! The plans that a job can make now: around broken links, without slow nodes, for the missing slices.

use std::collections::BTreeSet;

use super::conduct::Conduct;
use super::straggling::{Stragglers, TRUST};
use super::trust::Trust;
use super::work::{Goal, Work};
use crate::{
    Epoch, Geometry, NodeId, Plan, PlanError, PlanRequest, Policy, SliceSet, Topology, Wanted, plan,
};

/// The read-only inputs to the job's next plan.
pub(super) struct Ways<'a> {
    pub(super) work: &'a Work,
    pub(super) trust: &'a Trust,
    pub(super) geometry: Option<&'a Geometry>,
    pub(super) conduct: &'a Conduct,
    pub(super) stragglers: &'a Stragglers,
}

impl Ways<'_> {
    /// Makes a plan that avoids slow nodes, or uses them if that is faster or the only way.
    pub(super) fn make_plan(&self, topology: &Topology) -> Result<Plan, PlanError> {
        let known = self.conduct.links.known(topology);
        let topology = &*known;
        let slow = self.stragglers.nodes();
        if slow.is_empty() {
            return self.plan_without(&BTreeSet::new(), topology);
        }
        let known = self.stragglers.known(topology);
        self.fastest(&slow, &known)
    }

    /// Makes a plan without these nodes, or one that uses them at their low rates, if that is clearly faster
    /// or the only possible plan, or if nothing could prove the result of a plan without them.
    pub(super) fn fastest(&self, slow: &BTreeSet<NodeId>, known: &Topology) -> Result<Plan, PlanError> {
        let with = self.plan_without(&BTreeSet::new(), known);
        match (self.plan_without(slow, known), with) {
            (Ok(without), Ok(with))
                if with.predict(known).mul_f64(TRUST) < without.predict(known)
                    || !self.trust.can_be_known(&without, self.work, known) =>
            {
                Ok(with)
            }
            (Ok(without), _) => Ok(without),
            (Err(_), with) => with,
        }
    }

    /// Makes a plan that reads nothing from these nodes.
    fn plan_without(&self, slow: &BTreeSet<NodeId>, topology: &Topology) -> Result<Plan, PlanError> {
        let unmet: Vec<&Goal> = self.work.goals.iter().filter(|goal| !goal.is_met()).collect();
        let resume = self.geometry.map(|geometry| {
            let all = SliceSet::all(geometry.slices());
            let missing = |goal: &&Goal| goal.missing.clone().unwrap_or_else(|| all.clone());
            let slices = unmet.iter().map(missing).reduce(|a, b| a.union(&b));
            (geometry.clone(), slices.unwrap_or_default())
        });
        let wanted =
            unmet.iter().map(|goal| Wanted { block: goal.block, requestor: goal.requestor }).collect();
        let mut request = PlanRequest {
            wanted,
            window: self.work.window.clone(),
            sub_blocks: self.work.sub_blocks.clone(),
            resume,
            policy: self.work.policy.clone(),
        };
        request.policy.avoid.extend(slow);
        let stripe = self.trust.trusted_stripe(self.work);
        match self.conduct.links.plan_around(&stripe, &request, topology) {
            // The remaining slices cannot be moved with the requested pacing; another pacing is better than
            // failing.
            Err(PlanError::Pacing { .. }) if self.work.epoch > Epoch(0) => {
                let policy = Policy { pacing: None, ..request.policy };
                plan(&stripe, &PlanRequest { policy, ..request }, topology)
            }
            made => made,
        }
    }
}
