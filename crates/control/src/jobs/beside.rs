//! What others move beside a job, for the plans that it makes.
//!
//! Whoever reads a lost block, or repairs a single one, while many others are repaired chooses helpers by what these have
//! reserved. The jobs of a repair of many stripes do not: the scheduler has dealt out among them who helps, and only where a
//! link keeps a stripe from going over its dealt chains is it planned by itself, and then beside the others.

use std::collections::BTreeSet;
use std::time::Duration;

use repair::recovery::{Mover, Scheduler};
use repair::{Job, JobId, JobPhase, NodeId, Policy, Resource, Stripe, Topology};

use crate::Control;
use crate::jobs::{Owner, RunningJob};

impl Control {
    /// Whether a job chooses its helpers by what others move.
    pub(crate) fn minds_others(&self, owner: &Owner, policy: &Policy) -> bool {
        match owner {
            Owner::Read { .. } => true,
            Owner::Repair { repair } => {
                !self.repairs.is_wide(*repair)
                    || (!policy.stretches.is_empty() && self.nodes.topology.has_links())
            }
            Owner::Put { .. } | Owner::Probe | Owner::Trial => false,
        }
    }

    /// Tells the topology what others have reserved where a job that begins may move something.
    pub(crate) fn tell_others(&mut self, stripe: &Stripe, requestors: impl Iterator<Item = NodeId>) {
        let nodes = places(stripe, requestors, &self.nodes.topology);
        let reserved = self.repairs.scheduler.reserved_beside(&nodes, None);
        reserved.into_iter().for_each(|(resource, bytes)| self.nodes.topology.reserve(resource, bytes));
    }

    /// Has a job do what may end in another plan.
    pub(crate) fn with_job(&mut self, id: JobId, act: impl FnOnce(&mut Job, &Topology, Duration)) {
        let Some(running) = self.jobs.running.get_mut(&id) else { return };
        let others = running.others(&self.repairs.scheduler, &self.nodes.topology);
        others.into_iter().for_each(|(resource, bytes)| self.nodes.topology.reserve(resource, bytes));
        let before = running.job.phase();
        act(&mut running.job, &self.nodes.topology, self.base.now);
        let phase = running.job.phase();
        if phase != before {
            tracing::debug!(job = %id, stripe = %running.stripe, ?phase, after = ?before, "goes on");
        }
        self.nodes.topology.clear_reserved();
        self.jobs.stirred.insert(id);
    }

    /// The same for all jobs.
    pub(crate) fn with_all_jobs(&mut self, act: impl Fn(&mut Job, &Topology, Duration)) {
        let ids: Vec<JobId> = self.jobs.running.keys().copied().collect();
        ids.into_iter().for_each(|id| self.with_job(id, &act));
    }
}

impl RunningJob {
    /// What others have reserved where the job may move something. It is asked for only when another plan is due: most
    /// of what jobs hear ends in none.
    fn others(&self, scheduler: &Scheduler, topology: &Topology) -> Vec<(Resource, u64)> {
        let is_due =
            matches!(self.job.phase(), JobPhase::StoppingPlan | JobPhase::WaitingForNodes | JobPhase::OnHold);
        if !self.minds_others || !is_due {
            return Vec::new();
        }
        let nodes = places(self.job.stripe(), self.targets.iter().copied(), topology);
        let own = self.reservation.map(Mover::Foreground).or(self.item.map(Mover::Item));
        scheduler.reserved_beside(&nodes, own)
    }
}

/// The nodes that may have a part in a plan. Where links are known, any helper may pass on what others send.
fn places(
    stripe: &Stripe,
    requestors: impl Iterator<Item = NodeId>,
    topology: &Topology,
) -> BTreeSet<NodeId> {
    match topology.has_links() {
        true => topology.iter().filter(|(_, profile)| profile.alive).map(|(node, _)| node).collect(),
        false => stripe.held().map(|(_, holder)| holder).chain(requestors).collect(),
    }
}
