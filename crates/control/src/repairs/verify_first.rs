//! Reads before repairs. An order may name blocks that are healthy according to the catalog. Because the
//! operator may have better information, helpers read these blocks first.
//!
//! **Invariant:** an order ends because nothing is lost only if all blocks that it names were read without errors.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use recovery::{BlockFacts, Scheduler, Target};
use repair::{BlockId, NodeId, StripeId};
use store_api::{BlockState, StripeRecord};

use crate::facts::{Facts, copy_state};
use crate::out::Out;
use crate::repairs::orders::Order;
use crate::stripes::indices::indexed;

/// The maximum number of blocks that a reason names.
const NAMED: usize = 5;

/// Reads in flight before repairs.
#[derive(Default)]
pub(crate) struct VerifyFirst {
    /// The repair, the stripe and the block of each query that is not answered.
    open: BTreeMap<u64, (u64, StripeId, BlockId)>,
    /// The reads of each repair, by stripe. The scheduler suspends the stripe until all are answered.
    reads: BTreeMap<(u64, StripeId), Reads>,
}

/// The reads of a stripe's blocks before a repair.
#[derive(Default)]
pub(crate) struct Reads {
    /// The number of queries that are not answered.
    open: usize,
    /// The helpers whose blocks are healthy.
    healthy: BTreeSet<NodeId>,
    /// The blocks of unknown state, each with the helper that could not read it; `None` if no helper that is up has it.
    unread: BTreeMap<BlockId, Option<NodeId>>,
    /// Whether a block was found bad.
    pub(crate) found_bad: bool,
}

impl VerifyFirst {
    /// Drops the reads of a stripe that was removed.
    pub(crate) fn forget(&mut self, stripe: &StripeId, scheduler: &mut Scheduler) {
        let dropped = self.reads.extract_if(.., |(_, of), _| of == stripe).count();
        (0..dropped).for_each(|_| scheduler.let_go(stripe));
    }

    /// Asks helpers to read the blocks that an order names. The scheduler suspends the stripe until the
    /// answers arrive. If one of the blocks is already lost, there is something to repair and nothing is
    /// read. Automatic repairs know no more than the catalog, so nothing is read for them either.
    pub(crate) fn begin(
        &mut self,
        facts: Facts<'_>,
        (repair, order): (u64, &Order),
        record: &StripeRecord,
        scheduler: &mut Scheduler,
        out: &mut Out,
    ) {
        let named: Vec<BlockIndex> = match (&order.target, &order.given) {
            (Target::Block(block), None) if !order.by_itself => {
                crate::stripes::indices::index_of(record, block).into_iter().collect()
            }
            (Target::Stripe(_), None) if !order.by_itself => {
                indexed(record).map(|(index, _)| index).collect()
            }
            _ => return,
        };
        let lost = facts.lost_blocks(record);
        if named.is_empty() || named.iter().any(|index| lost.contains(index)) {
            return;
        }
        let mut reads = Reads::default();
        for index in named {
            let block = record.blocks[usize::from(index.0)].clone();
            let name = block.id.clone();
            match facts.readable_at(&block).filter(|&node| facts.nodes.is_helper(node)) {
                Some(node) => {
                    let ask = facts.ask_for_block(node, record.id.clone(), index, block, false, out);
                    self.open.insert(ask, (repair, record.id.clone(), name));
                    reads.open += 1;
                }
                None => drop(reads.unread.insert(name, None)),
            }
        }
        scheduler.hold(&record.id);
        self.reads.insert((repair, record.id.clone()), reads);
    }

    /// Handles the result of reading a block; `found` is `None` if the block's state is unknown.
    pub(crate) fn answered(
        &mut self,
        (ask, node): (u64, NodeId),
        index: Option<BlockIndex>,
        found: Option<BlockState>,
        scheduler: &mut Scheduler,
    ) {
        let Some((repair, stripe, block)) = self.open.remove(&ask) else { return };
        let bad = found.filter(|&state| state != BlockState::Healthy);
        if let (Some(bad), Some(index)) = (bad, index) {
            // The stripe may be resumed before the new state is recorded, so the scheduler must know of the loss
            // now.
            let facts = BlockFacts { node: Some(node), copy: copy_state(bad) };
            scheduler.handle_block(&stripe, index, facts);
        }
        let Some(reads) = self.reads.get_mut(&(repair, stripe)) else { return };
        reads.open -= 1;
        match found {
            Some(BlockState::Healthy) => drop(reads.healthy.insert(node)),
            Some(_) => reads.found_bad = true,
            None => drop(reads.unread.insert(block, Some(node))),
        }
    }

    /// Removes and returns the reads of stripes whose queries are all answered.
    pub(crate) fn take_answered(&mut self) -> Vec<((u64, StripeId), Reads)> {
        self.reads.extract_if(.., |_, reads| reads.open == 0).collect()
    }
}

impl Reads {
    /// Returns the reason that it is not known whether any of the blocks is lost; `None` if all were read.
    pub(crate) fn obstacle(&self, facts: Facts<'_>) -> Option<String> {
        let text = |(block, node): (&BlockId, &Option<NodeId>)| match node {
            Some(node) => format!("{} could not verify block {block}", facts.nodes.name(*node)),
            None => format!("no helper that is up has block {block}"),
        };
        let named: Vec<String> = self.unread.iter().take(NAMED).map(text).collect();
        let more = if self.unread.len() > NAMED { "; …" } else { "" };
        (!named.is_empty()).then(|| format!("{}{more}", named.join("; ")))
    }

    /// Returns the reason that no block was repaired, if all were read.
    pub(crate) fn nothing_lost(&self, facts: Facts<'_>) -> String {
        let names: Vec<String> = self.healthy.iter().map(|&node| facts.nodes.name(node)).collect();
        match names.as_slice() {
            [one] => format!("nothing is lost: {one} has just read its block without errors"),
            some => {
                format!("nothing is lost: {} helpers have just read their blocks without errors", some.len())
            }
        }
    }
}
