//! Links on which nothing passes, although the nodes at both ends answer.
//!
//! A node that is blamed over such a link is first gone without, since that is the cheapest thing to try. If too few are
//! left, all get another chance, and this is where that chance differs from the first one: plans are made as if the link did not
//! exist, so that the same nodes send over other links or in other roles.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::Job;
use super::blame::Evidence;
use super::waiting::{self, Rules};
use crate::{NodeId, Plan, PlanError, PlanRequest, Policy, Scheme, Stripe, Topology, plan};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct BrokenLinks(BTreeSet<(NodeId, NodeId)>);

impl BrokenLinks {
    /// Notes the links that these reports say are broken.
    pub(super) fn note(&mut self, evidence: &[Evidence], rules: Rules) {
        self.0.extend(waiting::broken_links(evidence, rules));
    }

    /// Those between nodes that a plan may use.
    fn between(&self, avoid: &BTreeSet<NodeId>) -> Vec<(NodeId, NodeId)> {
        let usable = |(a, b): &&(NodeId, NodeId)| !avoid.contains(a) && !avoid.contains(b);
        self.0.iter().filter(usable).copied().collect()
    }

    fn is_used_by(&self, plan: &Plan) -> bool {
        plan.edges().iter().any(|&(from, to)| self.0.contains(&(from.min(to), from.max(to))))
    }
}

impl Job {
    /// What is known of nodes, without the links that are broken.
    pub(super) fn known<'topology>(&self, topology: &'topology Topology) -> Cow<'topology, Topology> {
        let broken = self.broken.between(&self.work.policy.avoid);
        if broken.is_empty() {
            return Cow::Borrowed(topology);
        }
        let mut known = topology.clone();
        broken.into_iter().for_each(|(a, b)| known.break_link(a, b));
        Cow::Owned(known)
    }

    /// A plan as it was asked for; or by another scheme, if that goes around broken links and the one that was asked for does not.
    pub(super) fn plan_around(
        &self,
        stripe: &Stripe,
        request: &PlanRequest,
        topology: &Topology,
    ) -> Result<Plan, PlanError> {
        let made = plan(stripe, request, topology)?;
        let is_free = !matches!(request.policy.scheme, Scheme::Auto | Scheme::Migration);
        if !(is_free && self.broken.is_used_by(&made)) {
            return Ok(made);
        }
        let policy = Policy { scheme: Scheme::Auto, ..request.policy.clone() };
        match plan(stripe, &PlanRequest { policy, ..request.clone() }, topology) {
            Ok(around) if !self.broken.is_used_by(&around) => Ok(around),
            _ => Ok(made),
        }
    }
}
