//! Misplaced stripes: stripes with several blocks on one helper. If this helper failed, all of these blocks
//! would be lost.
//!
//! Puts and repairs never place a stripe this way. A stripe becomes misplaced when the only copy of one of
//! its blocks is adopted on a helper that already has another of its blocks, or when a catalog is rebuilt. If
//! a helper lists a better placed copy, this copy replaces the block. Otherwise the block moves to a helper
//! without a block of the stripe. While a stripe is misplaced, no other copies of its blocks are removed. If all
//! moves fail, they are repeated at growing intervals.

use std::collections::BTreeSet;
use std::time::Duration;

use recovery::{Counters, RepairId, Target};
use repair::{BlockId, NodeId, StripeId};
use store_api::StripeRecord;

use crate::facts::Facts;
use crate::facts::spare_copies::wanted_copies;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::attempts::Attempts;
use crate::repairs::continuation::{Ordered, OrderedBy};
use crate::repairs::node_recovery::NodeRecovery;
use crate::repairs::orders::Order;
use crate::repairs::queue::Queue;
use crate::repairs::repair::Repair;
use crate::repairs::stand_in::OpenOrders;
use crate::signal::Signal;

/// How often the coordinator looks for misplaced stripes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The maximum number of blocks that one order moves. A later order moves the remaining blocks.
const MOVES: usize = 1000;

/// The time of the next check, and the repair that moves the blocks.
#[derive(Default)]
pub(crate) struct Misplaced {
    due: Duration,
    repair: Option<u64>,
    attempts: Attempts,
    /// The stripes of the last order. The next order takes others first, so that moves that fail do not hold them up.
    tried: BTreeSet<StripeId>,
}

/// The reason for not moving blocks of misplaced stripes yet.
pub(crate) enum Waits {
    /// An absent helper may return with a better placed copy.
    Helper(String),
    /// Helpers have better placed copies, which are put into service first.
    Copies,
    /// Each other helper lacks room or already has a block of the stripe.
    Room,
}

impl Misplaced {
    /// Moves blocks of misplaced stripes to helpers without a block of the same stripe, unless a better
    /// placed copy may appear.
    pub(crate) fn mend(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        (orders, nodes): (OpenOrders<'_>, &NodeRecovery),
        out: &mut Out,
    ) {
        if !facts.base.store.owns_files()
            || facts.base.is_dry_run()
            || !facts.nodes.settled
            || !facts.may_change()
            || facts.base.now < self.due
        {
            return;
        }
        self.due = facts.base.now + LOOK_EVERY;
        if facts.storing.orders().any(is_own_move) || self.is_moving(orders, facts.base.now) {
            return;
        }
        if facts.stripes.picture.doubled().next().is_none() {
            (self.attempts, self.tried) = (Attempts::default(), BTreeSet::new());
            return;
        }
        // Better placed copies are put into service first. If a block moved at the same time, it could move to such a
        // copy, and both would be moved back later.
        out.tell(Signal::SeekHomes);
        if self.attempts.wait(facts.base.now).is_zero()
            && let Ok(moves) = moves(facts, jobs, (orders.queue, nodes), &self.tried)
        {
            self.begin_moves(facts, moves, out);
        }
    }

    /// Returns the time until the moves are tried again, if they have failed.
    pub(crate) fn tried_again_in(&self, now: Duration) -> Option<Duration> {
        Some(self.attempts.wait(now)).filter(|wait| !wait.is_zero())
    }

    /// Whether a repair that moves blocks is open. Notes the result of the last repair when it has ended.
    fn is_moving(&mut self, orders: OpenOrders<'_>, now: Duration) -> bool {
        if open_move(orders.queue).is_some() {
            return true;
        }
        if let Some(ended) = self.repair.take().and_then(|id| orders.scheduler.repair(RepairId(id))) {
            self.note_end(ended.counters, now);
        }
        false
    }

    /// Notes the result of a repair. Only one that has moved nothing delays the next: thousands of other blocks must not
    /// wait because single ones cannot be moved.
    fn note_end(&mut self, ended: Counters, now: Duration) {
        match (ended.done, ended.failed) {
            (0, 1..) => self.attempts.fail(now, Duration::ZERO),
            _ => self.attempts = Attempts::default(),
        }
    }

    fn begin_moves(&mut self, facts: Facts<'_>, moves: Vec<BlockId>, out: &mut Out) {
        let blocks = moves.len();
        let stripe_of = |block: &BlockId| facts.stripes.picture.find_block(block).ok();
        let stripes: BTreeSet<StripeId> =
            moves.iter().filter_map(stripe_of).map(|(stripe, _)| stripe).collect();
        let order = facts.own_order(Target::Rebalance(moves));
        let (Ok(order), Ok(id)) = (order, out.next_number()) else { return };
        tracing::info!(repair = id, blocks, "moving blocks off helpers that hold several of a stripe");
        self.repair = Some(id);
        self.tried = stripes;
        let (write, then) = Ordered::new(id, order, OrderedBy::Damage).stored();
        out.store(write, then);
    }
}

/// Returns the open repair that moves blocks of misplaced stripes, perhaps one of an earlier coordinator.
pub(crate) fn open_move(queue: &Queue) -> Option<u64> {
    let is_open = |repair: &Repair| repair.is_open() && is_own_move(&repair.order);
    queue.by_id.iter().find(|(_, repair)| is_open(repair)).map(|(&id, _)| id)
}

/// Whether the coordinator itself has ordered to move certain blocks.
fn is_own_move(order: &Order) -> bool {
    order.by_itself && matches!(order.target, Target::Rebalance(_))
}

/// Returns one block of each misplaced stripe, if another helper can accept this block; those of the stripes `tried`
/// come last. If no block can be moved, the error is the reason.
pub(crate) fn moves(
    facts: Facts<'_>,
    jobs: &Jobs,
    (queue, nodes): (&Queue, &NodeRecovery),
    tried: &BTreeSet<StripeId>,
) -> Result<Vec<BlockId>, Waits> {
    if let Some(node) = nodes.awaited_helper(facts, queue) {
        return Err(Waits::Helper(facts.nodes.name(node)));
    }
    let seeks = !facts.base.is_dry_run();
    let copies = facts.nodes.live_helpers().filter(|_| seeks).flat_map(|node| wanted_copies(facts, node));
    let has_copies: BTreeSet<StripeId> = copies.map(|(stripe, _)| stripe).collect();
    let (better_placed, mut others): (Vec<StripeRecord>, Vec<StripeRecord>) =
        facts.stripes.picture.doubled().partition(|stripe| has_copies.contains(&stripe.id));
    others.sort_by_key(|stripe| tried.contains(&stripe.id)); // Otherwise the order stays.
    let movable = |stripe: StripeRecord| {
        let block = facts.doubled_block(&stripe)?;
        jobs.has_taker(facts, &stripe).then_some(block)
    };
    let moves: Vec<BlockId> = others.into_iter().filter_map(movable).take(MOVES).collect();
    match (moves.is_empty(), better_placed.is_empty()) {
        (false, _) => Ok(moves),
        (true, false) => Err(Waits::Copies),
        (true, true) => Err(Waits::Room),
    }
}

impl Jobs {
    fn has_taker(&self, facts: Facts<'_>, stripe: &StripeRecord) -> bool {
        let holders: BTreeSet<NodeId> = stripe.blocks.iter().filter_map(|block| block.node).collect();
        let maintained = |node: NodeId| facts.nodes.maintenance.left(facts.base, node).is_some();
        let mut takers =
            self.candidates(facts, stripe.block_bytes).into_iter().map(|candidate| candidate.node);
        takers.any(|node| !holders.contains(&node) && !maintained(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_repairs_that_have_moved_nothing_delay_the_next() {
        let mut misplaced = Misplaced::default();
        let ended = |done, failed| Counters { done, failed, ..Counters::default() };
        misplaced.note_end(ended(0, 1), Duration::ZERO);
        assert!(misplaced.tried_again_in(Duration::ZERO).is_some());
        misplaced.note_end(ended(999, 1), Duration::ZERO);
        assert_eq!(misplaced.tried_again_in(Duration::ZERO), None);
    }
}
