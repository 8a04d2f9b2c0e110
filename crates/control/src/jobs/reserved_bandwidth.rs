//! Planning around bandwidth that other jobs have reserved.
//!
//! A read of a lost block, or the repair of a single block, chooses helpers by what concurrent repairs have
//! reserved. The jobs of a repair of many stripes do not: the scheduler has already assigned their helpers.
//! Only a stripe that cannot use its assigned chains, because of a link, is planned individually outer_facts the
//! others.

use std::collections::BTreeSet;

use recovery::{Mover, Scheduler};
use repair::{JobPhase, NodeId, Resource, Stripe, Topology};

use crate::jobs::RunningJob;

impl RunningJob {
    /// Returns the amounts that others have reserved on the nodes that may take part. To save time, the list
    /// is left empty if the job does not have to make another plan, which is so after most events.
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

/// Returns the nodes that may take part in a plan. If links are known, any helper may relay the slices of
/// others.
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
