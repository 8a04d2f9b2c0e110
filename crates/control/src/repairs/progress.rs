//! Progress of repairs: their speed, their limiting resources and the lower bound of their duration.

use recovery::{Pace, RepairId};
use repair::{JobPhase, NodeId, Resource};
use store_api::StripeRecord;

use crate::facts::Facts;
use crate::jobs::{Jobs, RunningJob};
use crate::repairs::Repairs;
use crate::repairs::bound::Bound;

/// Returns the kind of a limiting resource, without the names of nodes.
pub(crate) fn kind_of(facts: Facts<'_>, resource: &Resource) -> &'static str {
    let paces = facts.capping.paces(facts.base, facts.nodes);
    let is_capped = |node: &NodeId, by: fn(&Pace) -> Option<f64>| paces.get(node).and_then(by).is_some();
    match resource {
        Resource::Uplink(node) if is_capped(node, |pace| pace.up) => "cap",
        Resource::Downlink(node) if is_capped(node, |pace| pace.down) => "cap",
        Resource::Disk(node) if is_capped(node, |pace| pace.disk) => "disk cap",
        Resource::Uplink(_) => "uplink",
        Resource::Downlink(_) => "downlink",
        Resource::Disk(_) => "disk",
        Resource::Jobs(_) => "jobs",
        Resource::TrunkOut(_) | Resource::TrunkInto(_) => "trunk",
        Resource::Pair(..) => "link",
        Resource::Between(..) => "link of racks",
    }
}

/// Returns the name of a limiting resource for people.
pub(crate) fn resource_name(facts: Facts<'_>, resource: &Resource) -> String {
    let paces = facts.capping.paces(facts.base, facts.nodes);
    let is_capped = |node: &NodeId, by: fn(&Pace) -> Option<f64>| paces.get(node).and_then(by).is_some();
    match resource {
        Resource::Uplink(node) if is_capped(node, |pace| pace.up) => {
            format!("the cap of {}", facts.nodes.name(*node))
        }
        Resource::Downlink(node) if is_capped(node, |pace| pace.down) => {
            format!("the cap of {}", facts.nodes.name(*node))
        }
        Resource::Disk(node) if is_capped(node, |pace| pace.disk) => {
            format!("the cap on the disk of {}", facts.nodes.name(*node))
        }
        Resource::Uplink(node) => format!("the uplink of {}", facts.nodes.name(*node)),
        Resource::Downlink(node) => format!("the downlink of {}", facts.nodes.name(*node)),
        Resource::Disk(node) => format!("the disk of {}", facts.nodes.name(*node)),
        Resource::Jobs(node) => format!("the number of jobs on {}", facts.nodes.name(*node)),
        Resource::TrunkOut(rack) => format!("the outbound bandwidth of rack {rack}"),
        Resource::TrunkInto(rack) => format!("the inbound bandwidth of rack {rack}"),
        Resource::Pair(from, to) => {
            format!("the link from {} to {}", facts.nodes.name(*from), facts.nodes.name(*to))
        }
        Resource::Between(from, to) => format!("the link from rack {from} to rack {to}"),
    }
}

impl Repairs {
    /// Starts to record the progress of a repair whose items were added, and computes the bound of its
    /// duration.
    pub(crate) fn begin_course(&mut self, facts: Facts<'_>, id: u64, records: &[StripeRecord]) {
        let repair =
            self.queue.by_id.get_mut(&id).expect("the repair exists, as items were just added to it");
        let bound = Bound { facts, order: &repair.order }.of(records);
        let course = &mut repair.course;
        (course.began, course.bound) = (Some(facts.base.now), bound);
        course.progress.note(facts.base.now, 0);
        course.set_paused(repair.order.paused, facts.base.now);
    }

    /// Records the progress of all running repairs, and which of them wait for their turn.
    pub(crate) fn note_progress(&mut self, facts: Facts<'_>, jobs: &Jobs) {
        let due = self.queue.by_id.iter().filter(|(_, repair)| repair.course.is_due(facts.base.now));
        for id in due.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.note_progress_of(facts, jobs, id);
            if self.waits_for_turn(jobs, id) {
                let repair = self.queue.by_id.get_mut(&id).expect("just seen");
                repair.course.note_waits_for_turn(facts.base.now);
            }
        }
    }

    /// Whether a repair in the background starts no job because other repairs have jobs, which come first. A repair that
    /// the store refuses does not wait for them.
    fn waits_for_turn(&self, jobs: &Jobs, id: u64) -> bool {
        let is_of_repair =
            |running: &RunningJob| running.item.is_some() && running.job.phase() != JobPhase::OnHold;
        self.queue.is_background(id)
            && self.counters(id).running == 0
            && jobs.running.values().any(is_of_repair)
            && self.claims.refusal_of(id).is_none()
    }

    fn note_progress_of(&mut self, facts: Facts<'_>, jobs: &Jobs, id: u64) {
        let repair = &self.queue.by_id[&id];
        let bytes = repair.bytes_rebuilt + self.bytes_coming(jobs, id, repair);
        let limit = self.scheduler.limited_by(RepairId(id));
        let course = &mut self.queue.by_id.get_mut(&id).expect("just seen").course;
        course.note(facts.base.now, bytes);
        limit.into_iter().for_each(|limit| *course.limits.entry(limit).or_default() += 1);
    }

    pub(crate) fn end_course(&mut self, facts: Facts<'_>, jobs: &Jobs, id: u64) {
        self.note_progress_of(facts, jobs, id);
        self.queue.by_id.get_mut(&id).expect("just seen").course.ended = Some(facts.base.now);
    }
}
