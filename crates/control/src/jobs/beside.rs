//! What others move beside a job, for the plans that it makes.
//!
//! Whoever reads a lost block, or repairs a single one, while many others are repaired chooses helpers by what these have
//! reserved. The jobs of a repair of many stripes do not: the scheduler has dealt out among them who helps, and only where a
//! link keeps a stripe from going over its dealt chains is it planned by itself, and then beside the others.

use std::collections::BTreeSet;

use recovery::{Mover, Scheduler};
use repair::{JobPhase, NodeId, Resource, Stripe, Topology};

use crate::jobs::RunningJob;

impl RunningJob {
    /// What others have reserved where the job may move something. It is asked for only when another plan is due: most
    /// of what jobs hear ends in none.
    pub(crate) fn others(&self, scheduler: &Scheduler, topology: &Topology) -> Vec<(Resource, u64)> {
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
pub(crate) fn places(
    stripe: &Stripe,
    requestors: impl Iterator<Item = NodeId>,
    topology: &Topology,
) -> BTreeSet<NodeId> {
    match topology.has_links() {
        true => topology.iter().filter(|(_, profile)| profile.alive).map(|(node, _)| node).collect(),
        false => stripe.held().map(|(_, holder)| holder).chain(requestors).collect(),
    }
}
