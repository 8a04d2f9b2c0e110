//! Planning around bandwidth that other jobs have reserved.
//!
//! A read, or the repair of a single stripe, chooses helpers by the bandwidth that concurrent jobs have
//! reserved. The jobs of a repair of many stripes do not: the scheduler has already assigned their helpers.
//! There is one exception: if a slow link between nodes would delay the assigned chains of a stripe, this
//! stripe is planned individually, around the bandwidth that other jobs have reserved.
//!
//! On each link, helpers send the bytes of reads before those of repairs. So a read does not wait for all
//! bytes that repairs have reserved there, and counts at most as many as it reads of a block itself. If it
//! counted all, every plan would seem to take as long as the recovery that is running, and the planner could not
//! tell a chain from a star.

use std::collections::BTreeSet;
use std::ops::Range;

use recovery::{Mover, Scheduler};
use repair::{NodeId, Resource, Stripe, Topology};

use crate::jobs::RunningJob;

impl RunningJob {
    /// Returns the bandwidth that other jobs have reserved on the nodes that may take part in this job, as far as
    /// the job's plans mind it.
    pub(crate) fn others(&self, scheduler: &Scheduler, topology: &Topology) -> Vec<(Resource, u64)> {
        let Some(limit) = self.minds_others else { return Vec::new() };
        let targets = self.job.targets().map(|(_, node)| node);
        let nodes = places(self.job.stripe(), targets, topology);
        let own = self.reservation.map(Mover::Foreground).or(self.item.map(Mover::Item));
        limited(scheduler.reserved_beside(&nodes, own), limit)
    }
}

/// Returns how many of the bytes that other jobs have reserved at a resource count in the plan of a read: as
/// many as the read takes of a block. `window` is the range that it reads of each sub-block.
pub(crate) fn counted_by_read(stripe: &Stripe, window: &Range<u64>) -> u64 {
    window.end.saturating_sub(window.start) * stripe.code.sub_blocks() as u64
}

/// Limits the reserved bytes of each resource.
pub(crate) fn limited(reserved: Vec<(Resource, u64)>, limit: u64) -> Vec<(Resource, u64)> {
    reserved.into_iter().map(|(resource, bytes)| (resource, bytes.min(limit))).collect()
}

/// Returns the nodes that may take part in a plan. If links are known, any helper may relay slices of other
/// helpers.
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
