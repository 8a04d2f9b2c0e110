//! A repair and its items: the order and the results so far.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use recovery::ItemId;
use repair::{BlockId, NodeId, Outcome, ParityOutcome, Scheme, StripeId};
use store_api::{BlockRecord, StripeRecord};
use views::Condition;

use crate::effect::Reply;
use crate::repairs::course::Course;
use crate::repairs::orders::Order;
use crate::repairs::timeline::Timeline;
use crate::totals::Amount;

/// A repair, from its order until it is forgotten.
pub(crate) struct Repair {
    pub(crate) order: Order,
    pub(crate) items: BTreeMap<StripeId, Item>,
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    pub(crate) blocks_rebuilt: u64,
    pub(crate) bytes_rebuilt: u64,
    /// Bytes of the blocks that ended items did not rebuild, for example because the blocks came back.
    not_rebuilt_bytes: u64,
    /// The part of the rebuilt blocks that was moved: blocks that were not lost when the repair began.
    pub(crate) moved: Amount,
    pub(crate) end: Option<RepairEnd>,
    pub(crate) waiting: Vec<Waiting>,
    /// The last time at which somebody waited for the repair or requested its state, since the coordinator's
    /// start.
    pub(crate) asked: Duration,
    pub(crate) course: Course,
    /// Lost blocks to rebuild, counted by the helper that had them. Blocks that are only moved do not count.
    pub(crate) lost_from: BTreeMap<NodeId, u64>,
    /// Rebuilt blocks, counted by the helper that has them.
    pub(crate) rebuilt_on: BTreeMap<NodeId, u64>,
}

/// The end of a repair, and what remained then.
pub(crate) struct RepairEnd {
    pub(crate) unix_ms: u64,
    /// The number of blocks left on the drained node.
    pub(crate) left_on_node: u64,
    /// The conditions under which the state of some blocks was unknown, for the API.
    pub(crate) unknown: Vec<Condition>,
}

/// A request that waits until a repair ends or its version differs from `since`.
pub(crate) struct Waiting {
    pub(crate) since: Option<u64>,
    /// The latest time for the answer.
    pub(crate) until: Duration,
    pub(crate) reply: Reply<()>,
}

/// A stripe of a repair. The scheduler keeps the item's state under the same id.
pub(crate) struct Item {
    pub(crate) id: ItemId,
    pub(crate) block_bytes: u64,
    pub(crate) blocks: Vec<BlockId>,
    /// Blocks that were not lost when the item was added. The repair moves them.
    pub(crate) moving: Vec<BlockId>,
    pub(crate) rebuilt: BTreeMap<BlockId, NodeId>,
    pub(crate) scheme: Option<Scheme>,
    pub(crate) checks: ParityChecks,
    pub(crate) reason: Option<String>,
    pub(crate) next_step: Option<String>,
    pub(crate) replanned: Vec<String>,
    /// Whether the item failed because blocks of its stripe contradict each other and the wrong one is
    /// unknown.
    pub(crate) contradictory: bool,
    pub(crate) timeline: Timeline,
}

impl Repair {
    pub(crate) fn new(order: Order) -> Self {
        Self {
            order,
            items: BTreeMap::new(),
            blocks: 0,
            bytes: 0,
            blocks_rebuilt: 0,
            bytes_rebuilt: 0,
            not_rebuilt_bytes: 0,
            moved: Amount::default(),
            end: None,
            waiting: Vec::new(),
            asked: Duration::ZERO,
            course: Course::default(),
            lost_from: BTreeMap::new(),
            rebuilt_on: BTreeMap::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    pub(crate) fn ended_unix_ms(&self) -> Option<u64> {
        self.end.as_ref().map(|end| end.unix_ms)
    }

    /// Returns the number of blocks that were left on the drained node when the repair ended.
    pub(crate) fn left_on_node(&self) -> u64 {
        self.end.as_ref().map_or(0, |end| end.left_on_node)
    }

    /// Adds an item with the wanted blocks of its stripe. `is_lost` returns whether a block is lost.
    pub(crate) fn add_item(
        &mut self,
        id: ItemId,
        record: &StripeRecord,
        wanted: &[BlockIndex],
        is_lost: impl Fn(&BlockRecord) -> bool,
    ) {
        self.blocks += wanted.len() as u64;
        self.bytes += wanted.len() as u64 * record.block_bytes;
        let mut item = Item::new(id, record, wanted);
        for index in wanted {
            let block = &record.blocks[usize::from(index.0)];
            match block.node {
                Some(node) if is_lost(block) => *self.lost_from.entry(node).or_default() += 1,
                Some(_) => item.moving.push(block.id.clone()),
                None => {}
            }
        }
        self.items.insert(record.id.clone(), item);
    }

    /// Adds to the item those blocks of a started job that the item does not contain yet. These blocks were
    /// lost after the item was added.
    pub(crate) fn note_started(&mut self, stripe: &StripeId, blocks: Vec<BlockId>) {
        let item = self.items.get_mut(stripe).expect("the item was added when the repair began");
        for block in blocks {
            if !item.blocks.contains(&block) {
                item.blocks.push(block);
                self.blocks += 1;
                self.bytes += item.block_bytes;
            }
        }
    }

    /// Records that the item of a stripe has ended: none of its remaining blocks is rebuilt any more.
    pub(super) fn item_ended(&mut self, stripe: &StripeId) {
        self.not_rebuilt_bytes += self.items.get(stripe).map_or(0, Item::bytes_left);
    }

    /// Returns the bytes that are still to be moved. `coming` is what running jobs have delivered of them.
    pub(crate) fn bytes_left(&self, coming: u64) -> u64 {
        self.bytes.saturating_sub(self.bytes_rebuilt + self.not_rebuilt_bytes + coming)
    }

    /// Records that a job has rebuilt blocks of a stripe.
    pub(crate) fn note_rebuilt(
        &mut self,
        stripe: &StripeId,
        record: Option<&StripeRecord>,
        outcome: Outcome,
    ) {
        let Some(item) = self.items.get_mut(stripe) else { return };
        let (before, moved_before) = (item.rebuilt.len(), item.moved());
        outcome.homes.values().for_each(|&node| *self.rebuilt_on.entry(node).or_default() += 1);
        item.succeed(record, outcome);
        let more = (item.rebuilt.len() - before) as u64;
        self.blocks_rebuilt += more;
        self.bytes_rebuilt += more * item.block_bytes;
        let moved = item.moved() - moved_before;
        self.moved += Amount { blocks: moved, bytes: moved * item.block_bytes };
    }
}

impl Item {
    fn new(id: ItemId, record: &StripeRecord, wanted: &[BlockIndex]) -> Self {
        let name = |index: &BlockIndex| record.blocks[usize::from(index.0)].id.clone();
        Self {
            id,
            block_bytes: record.block_bytes,
            blocks: wanted.iter().map(name).collect(),
            moving: Vec::new(),
            rebuilt: BTreeMap::new(),
            scheme: None,
            checks: ParityChecks::default(),
            reason: None,
            next_step: None,
            replanned: Vec::new(),
            contradictory: false,
            timeline: Timeline::default(),
        }
    }

    pub(crate) fn fail(&mut self, reason: String, next_step: &str) {
        self.reason = Some(reason);
        self.next_step = Some(next_step.to_owned());
    }

    /// Returns the bytes of the blocks that are not rebuilt yet.
    pub(super) fn bytes_left(&self) -> u64 {
        let left = self.blocks.iter().filter(|block| !self.rebuilt.contains_key(block)).count() as u64;
        left * self.block_bytes
    }

    /// Returns the number of blocks that were moved so far.
    fn moved(&self) -> u64 {
        self.moving.iter().filter(|block| self.rebuilt.contains_key(block)).count() as u64
    }

    fn succeed(&mut self, record: Option<&StripeRecord>, outcome: Outcome) {
        for (index, &node) in &outcome.homes {
            if let Some(block) = record.and_then(|record| record.block(*index)) {
                self.rebuilt.insert(block.id.clone(), node);
            }
        }
        self.checks.add(&outcome);
        self.scheme = Some(outcome.scheme);
        self.replanned.extend(outcome.replanned);
        (self.reason, self.next_step) = (None, None);
    }
}

/// The outcomes of the parity checks of an item's rebuilt blocks, by the blocks' indices. Several jobs may have rebuilt
/// them, each from other survivors.
#[derive(Default)]
pub(crate) struct ParityChecks(BTreeMap<BlockIndex, ParityOutcome>);

impl ParityChecks {
    /// Adds the check of the blocks that a job has rebuilt. It may also prove blocks that an earlier job has rebuilt.
    fn add(&mut self, outcome: &Outcome) {
        self.0.extend(outcome.homes.keys().map(|&block| (block, outcome.parity)));
        for (block, known) in &mut self.0 {
            if outcome.parity == ParityOutcome::Holds && outcome.proven.contains(block) {
                *known = ParityOutcome::Holds;
            }
        }
    }

    /// Returns the outcome for the block about which the checks prove least; `None` if no block was rebuilt.
    pub(crate) fn weakest(&self) -> Option<ParityOutcome> {
        let proves = |parity: &ParityOutcome| match parity {
            ParityOutcome::NotAsked => 0,
            ParityOutcome::NoSpareBlock => 1,
            ParityOutcome::Overruled => 2,
            ParityOutcome::Holds => 3,
        };
        self.0.values().copied().min_by_key(proves)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use ParityOutcome::{Holds, NoSpareBlock};

    fn blocks(indices: &[u16]) -> BTreeSet<BlockIndex> {
        indices.iter().copied().map(BlockIndex).collect()
    }

    /// Returns the outcome of a job that has rebuilt blocks, and whose check covers `proven`.
    fn outcome(rebuilt: &[u16], parity: ParityOutcome, proven: &[u16]) -> Outcome {
        Outcome {
            scheme: Scheme::Pipelined,
            digests: BTreeMap::new(),
            homes: blocks(rebuilt).into_iter().map(|block| (block, NodeId(u32::from(block.0)))).collect(),
            replanned: Vec::new(),
            parity,
            proven: blocks(proven),
        }
    }

    #[test]
    fn a_later_check_proves_an_unchecked_block_only_if_it_covers_the_block() {
        for (covered, weakest) in [(&[0, 1, 2, 3, 4][..], Holds), (&[0, 1, 2, 4], NoSpareBlock)] {
            let mut checks = ParityChecks::default();
            assert_eq!(checks.weakest(), None);
            checks.add(&outcome(&[3], NoSpareBlock, &[]));
            assert_eq!(checks.weakest(), Some(NoSpareBlock));
            checks.add(&outcome(&[4], Holds, covered));
            assert_eq!(checks.weakest(), Some(weakest), "{covered:?}");
        }
    }

    #[test]
    fn only_the_last_check_of_a_block_counts() {
        let mut checks = ParityChecks::default();
        checks.add(&outcome(&[3], NoSpareBlock, &[]));
        checks.add(&outcome(&[3], Holds, &[]));
        assert_eq!(checks.weakest(), Some(Holds));
    }
}
