//! Jobs of paused repairs: they stop between two slices and keep what was delivered. Once their repair is resumed they go on
//! as there is room for what they move, before anything new starts. A stripe that another repair waits for is not kept from it.

use std::collections::BTreeSet;

use repair::recovery::{ItemId, RepairId};
use repair::{Job, JobId, JobPhase};

use crate::jobs::{Owner, RunningJob};
use crate::repairs::Control;

/// Jobs that rest.
#[derive(Default)]
pub(super) struct Held(BTreeSet<JobId>);

impl Control {
    /// A repair is paused: so are its jobs.
    pub(super) fn hold_jobs(&mut self, id: u64) {
        let running: Vec<(ItemId, JobId)> = self.repairs.scheduler.running(RepairId(id)).collect();
        for (item, job) in running {
            self.with_job(job, Job::pause);
            if let Some(running) = self.jobs.running.get(&job) {
                self.repairs.scheduler.rest(item, &running.loads);
                self.repairs.held.0.insert(job);
            }
        }
    }

    /// Lets jobs go on whose repairs are not paused any more, as far as there is room; calls off those whose stripe another repair
    /// waits for.
    pub(super) fn resume_jobs(&mut self) {
        for job in self.repairs.held.0.clone() {
            if self.ends_rest(job) {
                self.repairs.held.0.remove(&job);
            }
        }
    }

    fn ends_rest(&mut self, job: JobId) -> bool {
        let Some(RunningJob { job: held, owner, item: Some(item), loads, .. }) = self.jobs.running.get(&job)
        else {
            return true;
        };
        let scheduler = &mut self.repairs.scheduler;
        let repair = match owner {
            Owner::Repair { repair } => self.repairs.by_id.get(repair),
            _ => None,
        };
        if repair.is_some_and(|repair| repair.order.paused) {
            // A job that publishes goes to its end.
            let makes_way = held.phase() == JobPhase::OnHold && scheduler.make_way(*item);
            if makes_way {
                self.jobs.cancel_job(job);
            }
            return makes_way;
        }
        let wakes = scheduler.wake(*item, loads);
        if wakes {
            self.with_job(job, Job::resume);
        }
        wakes
    }
}
