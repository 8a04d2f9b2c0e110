//! Stripes of which one helper holds several blocks, so that its death costs all of these at once.
//!
//! Puts and repairs never place a stripe so. It comes about when a copy is adopted that nobody else has, or when a catalog
//! is made anew. A better placed copy takes over as soon as its helper shows it; otherwise a block moves to a helper that has
//! none of the stripe. As long as a stripe is misplaced, no other copy of its blocks is removed.

use std::collections::BTreeSet;
use std::time::Duration;

use repair::recovery::Target;
use repair::{BlockId, NodeId};
use stores::StripeRecord;

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::Repairs;
use crate::signal::Signal;
use crate::storing::Then;

/// How often misplaced stripes are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Blocks that one order moves; the next one goes on from there.
const MOVES: usize = 1000;

/// When misplaced stripes are looked for, and the repair that moves their blocks.
#[derive(Default)]
pub(crate) struct Misplaced {
    due: Duration,
    pub(crate) repair: Option<u64>,
}

/// Why blocks of misplaced stripes stay where they are for now.
pub(crate) enum Waits {
    /// A helper is gone that may come back with a better placed copy.
    ForHelper(String),
    /// No helper without a block of the stripe has room.
    ForRoom,
}

impl Repairs {
    /// Moves blocks of misplaced stripes to helpers that have none of them, unless a better placed copy may show up.
    pub(crate) fn mend_placement(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        if !facts.base.nature.files
            || !facts.nodes.settled
            || !facts.may_change()
            || facts.base.now < self.misplaced.due
        {
            return;
        }
        self.misplaced.due = facts.base.now + LOOK_EVERY;
        let open = self.misplaced.repair.is_some_and(|repair| self.is_repair_open(repair));
        if open || facts.stripes.picture.doubled().next().is_none() {
            return;
        }
        out.tell(Signal::SeekHomes);
        if let Ok(moves) = self.placement_moves(facts, jobs) {
            self.begin_moves(facts, moves, out);
        }
    }
}

impl Repairs {
    /// One block of each misplaced stripe that some helper can take.
    pub(crate) fn placement_moves(&self, facts: Facts<'_>, jobs: &Jobs) -> Result<Vec<BlockId>, Waits> {
        if let Some(node) = self.awaited_helper(facts) {
            return Err(Waits::ForHelper(facts.nodes.name(node)));
        }
        let movable = |stripe: StripeRecord| {
            let block = facts.doubled_block(&stripe)?;
            jobs.has_taker(facts, &stripe).then_some(block)
        };
        let moves: Vec<BlockId> = facts.stripes.picture.doubled().filter_map(movable).take(MOVES).collect();
        if moves.is_empty() { Err(Waits::ForRoom) } else { Ok(moves) }
    }
}

impl Repairs {
    fn begin_moves(&mut self, facts: Facts<'_>, moves: Vec<BlockId>, out: &mut Out) {
        let blocks = moves.len();
        let order = facts.own_order(Target::Rebalance(moves));
        let (Ok(order), Ok(id)) = (order, out.next_number()) else { return };
        tracing::info!(repair = id, blocks, "moving blocks off helpers that hold several of a stripe");
        self.misplaced.repair = Some(id);
        out.store(crate::repairs::kept(id, &order), Then::Healed { id, order: Box::new(order) });
    }
}

impl Jobs {
    fn has_taker(&self, facts: Facts<'_>, stripe: &StripeRecord) -> bool {
        let holders: BTreeSet<NodeId> = stripe.blocks.iter().filter_map(|block| block.node).collect();
        let maintained = |node: NodeId| facts.nodes.registry.maintenance_left(facts.base, node).is_some();
        let mut takers =
            self.candidates(facts, stripe.block_bytes).into_iter().map(|candidate| candidate.node);
        takers.any(|node| !holders.contains(&node) && !maintained(node))
    }
}
