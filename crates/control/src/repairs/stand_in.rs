//! Orders that cover a damaged stripe, and what they mean for its automatic repair.
//!
//! An order makes the automatic repair of a block needless only if the order rebuilds the block at least as
//! early as the automatic repair would. A paused order does not, nor does a drain or a rebalance that has not
//! reached the stripe.

use std::collections::BTreeSet;

use codes::BlockIndex;
use recovery::{ItemState, Priority, Scheduler, Target};
use repair::{BlockId, StripeId};
use store_api::StripeRecord;

use crate::facts::Facts;
use crate::repairs::orders::Order;
use crate::repairs::queue::Queue;
use crate::repairs::repair::Repair;

/// The open orders and the states of their items.
#[derive(Clone, Copy)]
pub(crate) struct OpenOrders<'a> {
    pub queue: &'a Queue,
    pub scheduler: &'a Scheduler,
}

impl OpenOrders<'_> {
    /// Returns the blocks of a stripe that open orders rebuild at least as early as an automatic repair
    /// would.
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
                // If an order names the helpers that may receive blocks, they may lack room for a long time.
                // One in the background waits for all others.
                _ => {
                    let is_background = order.priority == Priority::Background;
                    !order.moves() && order.requestors.is_empty() && !is_background
                }
            }
    }

    /// Returns the paused automatic repair of a block. Other paused repairs do not stop a new automatic
    /// repair of the block.
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
