//! Orders that cover a damaged stripe, and what they mean for its automatic repair.
//!
//! An order makes the automatic repair of a block needless only if it rebuilds the block as soon. A paused
//! order does not, nor does a drain or a rebalance that has not reached the stripe. Jobs that only move blocks
//! of a stripe give way to its automatic repair.

use std::collections::BTreeSet;

use codes::BlockIndex;
use recovery::{ItemState, Scheduler, Target};
use repair::{BlockId, JobId, JobPhase, StripeId};
use store_api::StripeRecord;

use crate::facts::Facts;
use crate::jobs::owner::Owner;
use crate::jobs::{Jobs, RunningJob};
use crate::out::Out;
use crate::repairs::Repairs;
use crate::repairs::orders::Order;
use crate::repairs::queue::Queue;
use crate::repairs::repair::Repair;
use crate::signal::Signal;

/// The open orders and the states of their items.
#[derive(Clone, Copy)]
pub(crate) struct OpenOrders<'a> {
    pub queue: &'a Queue,
    pub scheduler: &'a Scheduler,
}

impl OpenOrders<'_> {
    /// The blocks of a stripe that open orders rebuild as soon as an automatic repair would.
    pub(crate) fn rebuilt(self, facts: Facts<'_>, record: &StripeRecord) -> BTreeSet<BlockIndex> {
        let orders = self.queue.of_stripe(&record.id).map(|id| &self.queue.by_id[&id]);
        let soon = orders.filter(|repair| self.rebuilds_soon(repair, &record.id));
        soon.flat_map(|repair| facts.wanted_of(&repair.order, record)).collect()
    }

    fn rebuilds_soon(self, repair: &Repair, stripe: &StripeId) -> bool {
        let order = &repair.order;
        repair.is_open()
            && !order.paused
            && match self.scheduler.state(repair.items[stripe].id) {
                ItemState::Running(_) => true,
                ItemState::Ended(_) => false,
                // The named helpers may have no room for a long time.
                _ => !order.moves() && order.requestors.is_empty(),
            }
    }

    /// The paused automatic repair of a block. Only it holds back the repair of the block.
    pub(crate) fn paused(self, stripe: &StripeId, block: &BlockId) -> Option<u64> {
        let is_it = |order: &Order| match &order.target {
            Target::Stripe(of) => of == stripe,
            Target::Block(of) => of == block,
            _ => false,
        };
        let mut paused =
            self.queue.by_id.iter().filter(|(_, repair)| repair.is_open() && repair.order.paused);
        paused.find(|(_, repair)| repair.order.heals() && is_it(&repair.order)).map(|(&id, _)| id)
    }
}

impl Repairs {
    /// Cancels jobs that only move blocks of a stripe whose automatic repair waits. They start again after
    /// it.
    pub(crate) fn make_way_for_healing(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let heals = self.queue.by_id.values().filter(|repair| {
            let order = &repair.order;
            repair.is_open() && !order.paused && order.heals()
        });
        let waits = |item| self.scheduler.state(item) == ItemState::Waiting;
        let items = heals.flat_map(|repair| &repair.items);
        let stripes: Vec<StripeId> =
            items.filter(|(_, item)| waits(item.id)).map(|(stripe, _)| stripe.clone()).collect();
        for job in stripes.iter().flat_map(|stripe| jobs.makers_of(stripe)) {
            if self.is_stopped_move(facts, jobs, job) {
                out.tell(Signal::Cancel(job));
            }
        }
    }

    /// Stops a job if it only moves blocks and does not publish yet. Returns whether it did.
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
