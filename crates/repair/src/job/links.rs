//! Broken links: pairs of nodes that cannot exchange data although both answer the coordinator.
//!
//! A node blamed over such a link is first left out of the plan, which is the cheapest remedy. If too few
//! nodes remain, the job readmits all of them and plans around the broken links: the same nodes use other
//! links or take other roles. A stream with no other path, such as a block that a client reads from its
//! holder, is relayed by a third node.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::blame::Evidence;
use super::waiting::{self, Rules};
use crate::{NodeId, Plan, PlanError, PlanRequest, Policy, Scheme, Stripe, Topology, plan};

/// The broken links that a job has found; each pair has the lower node first.
#[derive(Debug, Default)]
pub(super) struct BrokenLinks(BTreeSet<(NodeId, NodeId)>);

impl BrokenLinks {
    /// Adds the links that these reports show to be broken.
    pub(super) fn note(&mut self, evidence: &[Evidence], rules: Rules) {
        self.0.extend(waiting::broken_links(evidence, rules));
    }

    fn is_used_by(&self, plan: &Plan) -> bool {
        plan.edges().iter().any(|&(from, to)| self.0.contains(&(from.min(to), from.max(to))))
    }

    /// Returns the topology, with the job's broken links marked.
    pub(super) fn known<'a>(&self, topology: &'a Topology) -> Cow<'a, Topology> {
        if self.0.is_empty() {
            return Cow::Borrowed(topology);
        }
        let mut known = topology.clone();
        self.0.iter().for_each(|&(a, b)| known.break_link(a, b));
        Cow::Owned(known)
    }

    /// Plans with the requested scheme. If that scheme uses broken links but `auto` avoids them, plans with
    /// `auto`.
    pub(super) fn plan_around(
        &self,
        stripe: &Stripe,
        request: &PlanRequest,
        topology: &Topology,
    ) -> Result<Plan, PlanError> {
        let made = plan(stripe, request, topology);
        let is_free = !matches!(request.policy.scheme, Scheme::Auto | Scheme::Migration);
        let goes_around = made.as_ref().is_ok_and(|plan| !self.is_used_by(plan));
        if self.0.is_empty() || goes_around || !is_free {
            return made;
        }
        let policy = Policy { scheme: Scheme::Auto, ..request.policy.clone() };
        match plan(stripe, &PlanRequest { policy, ..request.clone() }, topology) {
            Ok(around) if !self.is_used_by(&around) => Ok(around),
            _ => made,
        }
    }
}
