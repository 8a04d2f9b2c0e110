//! Stripes of which one helper holds several blocks, so that its death costs all of these at once.
//!
//! Puts and repairs never place a stripe so. It comes about when a copy is adopted that nobody else has, or when a catalog
//! is made anew. A better placed copy takes over as soon as its helper shows it; otherwise a block moves to a helper that has
//! none of the stripe. As long as a stripe is misplaced, no other copy of its blocks is removed.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;
use repair::recovery::Target;
use repair::{BlockId, NodeId};
use stores::StripeRecord;

use super::Control;
use super::safety::count;
use super::storing::Then;
use super::stripes::indexed;
use views::Census;

/// How often misplaced stripes are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Blocks that one order moves; the next one goes on from there.
const MOVES: usize = 1000;

/// When misplaced stripes are looked for, and the repair that moves their blocks.
#[derive(Default)]
pub(crate) struct Misplaced {
    due: Duration,
    repair: Option<u64>,
}

/// Why blocks of misplaced stripes stay where they are for now.
enum Waits {
    /// A helper is gone that may come back with a better placed copy.
    ForHelper(String),
    /// No helper without a block of the stripe has room.
    ForRoom,
}

impl Control {
    /// Whether another block of a stripe can be read on a node.
    pub(crate) fn shares_helper(&self, stripe: &StripeRecord, index: BlockIndex, node: NodeId) -> bool {
        indexed(stripe)
            .any(|(other, block)| other != index && self.readers(block).any(|reader| reader == node))
    }

    /// Whether a stripe can do without a node's copy of a block: each block is readable, on a node of its own, or, in stores
    /// where a node may have several, the stripe survives as many losses of nodes as with all of its copies. Of other blocks
    /// one copy counts, as their other copies may be about to go.
    pub(crate) fn survives_without(&self, stripe: &StripeRecord, index: BlockIndex, node: NodeId) -> bool {
        let stays = |(at, block)| self.proven_readers(block).find(|&reader| at != index || reader != node);
        let Some(rest) = indexed(stripe).map(stays).collect::<Option<Vec<NodeId>>>() else { return false };
        let rest = self.stripes.picture.together(&rest);
        if !rest.shares_nodes() || !self.base.nature.shares_nodes {
            return !rest.shares_nodes();
        }
        if !self.proven_readers(&stripe.blocks[usize::from(index.0)]).any(|reader| reader == node) {
            return true; // Nobody can read that copy.
        }
        let spare = (stripe.code.blocks() - stripe.code.data_blocks()) as u32;
        let with_all = self.stripes.picture.together(&self.least_shared(stripe));
        rest.survives(spare).nodes >= with_all.survives(spare).nodes
    }

    /// A node for each readable block, such that none has many of them.
    fn least_shared(&self, stripe: &StripeRecord) -> Vec<NodeId> {
        let mut copies: Vec<Vec<NodeId>> =
            stripe.blocks.iter().map(|block| self.proven_readers(block).collect()).collect();
        copies.sort_by_key(Vec::len); // Blocks without a choice first.
        let mut chosen: Vec<NodeId> = Vec::with_capacity(copies.len());
        for nodes in copies {
            let taken = |node: &NodeId| chosen.iter().filter(|other| *other == node).count();
            let least = nodes.into_iter().min_by_key(taken);
            chosen.extend(least);
        }
        chosen
    }

    /// Moves blocks of misplaced stripes to helpers that have none of them, unless a better placed copy may show up.
    pub(crate) fn mend_placement(&mut self) {
        if !self.base.nature.files
            || !self.nodes.settled
            || !self.may_change()
            || self.base.now < self.stripes.misplaced.due
        {
            return;
        }
        self.stripes.misplaced.due = self.base.now + LOOK_EVERY;
        let open = self.stripes.misplaced.repair.is_some_and(|repair| self.is_repair_open(repair));
        if open || self.stripes.picture.doubled().next().is_none() {
            return;
        }
        self.find_all_homes();
        if let Ok(moves) = self.placement_moves() {
            self.begin_moves(moves);
        }
    }

    fn begin_moves(&mut self, moves: Vec<BlockId>) {
        let blocks = moves.len();
        let order = self.own_order(Target::Rebalance(moves));
        let (Ok(order), Ok(id)) = (order, self.next_number()) else { return };
        tracing::info!(repair = id, blocks, "moving blocks off helpers that hold several of a stripe");
        self.stripes.misplaced.repair = Some(id);
        self.store(Self::kept(id, &order), Then::Healed { id, order: Box::new(order) });
    }

    /// One block of each misplaced stripe that some helper can take.
    fn placement_moves(&self) -> Result<Vec<BlockId>, Waits> {
        if let Some(node) = self.awaited_helper() {
            return Err(Waits::ForHelper(self.name(node)));
        }
        let movable = |stripe: StripeRecord| {
            let block = self.doubled_block(&stripe)?;
            self.has_taker(&stripe).then_some(block)
        };
        let moves: Vec<BlockId> = self.stripes.picture.doubled().filter_map(movable).take(MOVES).collect();
        if moves.is_empty() { Err(Waits::ForRoom) } else { Ok(moves) }
    }

    /// The last block of a stripe that shares its helper with another one.
    fn doubled_block(&self, stripe: &StripeRecord) -> Option<BlockId> {
        let mut blocks = indexed(stripe).collect::<Vec<_>>().into_iter().rev();
        let shares = |(index, block): &(BlockIndex, &stores::BlockRecord)| {
            self.readable_at(block).is_some_and(|node| self.shares_helper(stripe, *index, node))
        };
        blocks.find(shares).map(|(_, block)| block.id.clone())
    }

    fn has_taker(&self, stripe: &StripeRecord) -> bool {
        let holders: BTreeSet<NodeId> = stripe.blocks.iter().filter_map(|block| block.node).collect();
        let maintained = |node: NodeId| self.maintenance_left(node).is_some();
        let mut takers = self.candidates(stripe.block_bytes).into_iter().map(|candidate| candidate.node);
        takers.any(|node| !holders.contains(&node) && !maintained(node))
    }

    /// The status line about misplaced stripes: the repair that moves them apart, or the reason why they wait.
    pub(crate) fn misplaced_advice(&self, census: &Census) -> Option<String> {
        if census.misplaced == 0 || !self.nodes.settled || self.is_behind() {
            return None;
        }
        let stripes = count(census.misplaced, "stripe");
        let does = match self.stripes.misplaced.repair.filter(|&repair| self.is_repair_open(repair)) {
            Some(repair) => format!("repair {repair} moves them apart"),
            None => match self.placement_moves() {
                Ok(_) => "they are moved apart next".to_owned(),
                Err(Waits::ForHelper(node)) => {
                    format!("they wait for {node}, which may have better placed copies")
                }
                Err(Waits::ForRoom) => {
                    "no helper without a block of theirs has room: add a helper or make room".to_owned()
                }
            },
        };
        Some(format!("{stripes} with several blocks on one helper: {does}"))
    }
}
