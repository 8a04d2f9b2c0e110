//! A repair and its items: the order and the results so far.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use recovery::ItemId;
use repair::{BlockId, NodeId, Outcome, ParityOutcome, Scheme, StripeId};
use store_api::{BlockRecord, StripeRecord};

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
    /// The part of the rebuilt blocks that was moved: blocks that were not lost when the repair began.
    pub(crate) moved: Amount,
    pub(crate) ended_unix_ms: Option<u64>,
    /// The number of blocks left on the drained node when the repair ended.
    pub(crate) left_on_node: u64,
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
    pub(crate) parity: Option<ParityOutcome>,
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
            moved: Amount::default(),
            ended_unix_ms: None,
            left_on_node: 0,
            waiting: Vec::new(),
            asked: Duration::ZERO,
            course: Course::default(),
            lost_from: BTreeMap::new(),
            rebuilt_on: BTreeMap::new(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.ended_unix_ms.is_none()
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
            parity: None,
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
        self.scheme = Some(outcome.scheme);
        self.parity = Some(outcome.parity);
        self.replanned.extend(outcome.replanned);
        (self.reason, self.next_step) = (None, None);
    }
}
