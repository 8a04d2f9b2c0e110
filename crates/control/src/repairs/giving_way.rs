//! Jobs that give way: a job that only moves blocks of a stripe is cancelled for the stripe's automatic
//! repair.

use crate::facts::Facts;
use crate::jobs::owner::Owner;
use crate::jobs::{Jobs, RunningJob};
use crate::out::Out;
use crate::repairs::Repairs;
use crate::repairs::orders::Order;
use crate::repairs::repair::Item;
use crate::signal::Signal;
use repair::{JobId, JobPhase, StripeId};

impl Repairs {
    /// Cancels jobs that only move blocks of a stripe whose automatic repair waits and was not attempted yet. These jobs
    /// start again after the repair.
    pub(crate) fn make_way_for_healing(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let heals = self.queue.by_id.values().filter(|repair| {
            let order = &repair.order;
            repair.is_open() && !order.paused && order.heals()
        });
        // A repair that lacks room or budget would gain nothing, and one that was refused or has failed probably
        // nothing either. The moving job would be cancelled whenever it starts again.
        let waits = |(stripe, item): &(&StripeId, &Item)| {
            self.scheduler.may_start(item.id) && !self.healing.is_retry(stripe)
        };
        let items = heals.flat_map(|repair| &repair.items).filter(waits);
        let stripes: Vec<StripeId> = items.map(|(stripe, _)| stripe.clone()).collect();
        for job in stripes.iter().flat_map(|stripe| jobs.makers_of(stripe)) {
            if self.is_stopped_move(facts, jobs, job) {
                out.tell(Signal::Cancel(job));
            }
        }
    }

    /// Stops a job if it only moves blocks and does not publish yet. Returns whether the job was stopped.
    fn is_stopped_move(&mut self, facts: Facts<'_>, jobs: &Jobs, job: JobId) -> bool {
        let Some(RunningJob { job, owner: Owner::Repair { repair }, stripe, item: Some(item), .. }) =
            jobs.running.get(&job)
        else {
            return false;
        };
        let is_early =
            matches!(job.phase(), JobPhase::MovingSlices | JobPhase::WaitingForNodes | JobPhase::OnHold);
        let order = self.queue.by_id.get(repair).map(|repair| &repair.order);
        is_early
            && order.is_some_and(|order| only_moves(facts, order, stripe))
            && self.scheduler.make_way(*item)
    }
}

/// Whether an order moves blocks of a stripe and rebuilds none.
fn only_moves(facts: Facts<'_>, order: &Order, stripe: &StripeId) -> bool {
    let Ok(record) = facts.stripes.stripe_record(stripe) else { return false };
    let lost = facts.lost_blocks(&record);
    order.moves() && !facts.wanted_of(order, &record).iter().any(|index| lost.contains(index))
}
