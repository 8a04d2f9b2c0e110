//! Checks whether other helpers have room for the blocks of a helper, before a repair of the blocks is
//! promised or started.
//!
//! There is room for a block if some helper has enough space for it and no other block of its stripe. In
//! stores where a helper may have several blocks of a stripe, any helper with enough space counts. The check
//! covers every stripe, or a sample if there are many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockRecord, BlockState, StripeRecord};

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::stripes::Stripes;

/// The maximum number of a helper's blocks that are checked. If there are more, an even sample is taken.
const LOOKED_AT: usize = 1000;
/// How long the result of a check is used if the helper has few blocks. The time grows by the same amount for
/// every `MANY_BLOCKS` blocks of the helper.
const GOOD_FOR: Duration = Duration::from_secs(1);
const MANY_BLOCKS: u64 = 10_000;

/// The number of a helper's blocks, and how many of them no other helper can accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// The number of blocks that belong to files.
    pub blocks: u64,
    /// The number of blocks that no helper can accept; an estimate if only a sample was checked.
    pub stuck: u64,
    /// The length of the largest block that no helper can accept.
    pub stuck_bytes: u64,
}

impl Room {
    /// Whether there are blocks, and none of them can be placed.
    pub(crate) fn is_none(self) -> bool {
        self.blocks > 0 && !self.is_any()
    }

    /// Whether at least one block can be placed.
    pub(crate) fn is_any(self) -> bool {
        self.stuck < self.blocks
    }
}

/// The result of the latest check for room for each helper, and the time of the check.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    found: BTreeMap<NodeId, (Duration, Room)>,
}

impl Rooms {
    pub(crate) fn get(&self, node: NodeId) -> Option<Room> {
        self.found.get(&node).map(|&(_, room)| room)
    }

    pub(crate) fn note(&mut self, node: NodeId, now: Duration, room: Room) {
        self.found.insert(node, (now, room));
    }

    /// Keeps only the results for these helpers.
    pub(crate) fn retain(&mut self, nodes: &BTreeSet<NodeId>) {
        self.found.retain(|node, _| nodes.contains(node));
    }

    /// Whether the room for a helper's blocks must be checked again now.
    pub(crate) fn is_due(&self, node: NodeId, now: Duration) -> bool {
        let good_for = |room: Room| GOOD_FOR * (1 + (room.blocks / MANY_BLOCKS) as u32);
        self.found.get(&node).is_none_or(|&(at, room)| now >= at + good_for(room))
    }
}

impl Jobs {
    /// Checks the room for the blocks of a helper.
    pub(crate) fn find_room(&self, facts: Facts<'_>, node: NodeId) -> Room {
        let blocks = facts.stripes.picture.blocks_of(node);
        let step = blocks.len().div_ceil(LOOKED_AT).max(1) as u64;
        let takers = Takers::new(self, facts, facts.nodes.registry.drain_requestors(node), Some(node));
        let mut room = Room::default();
        for (stripe, index) in blocks.iter().step_by(step as usize) {
            let Ok(record) = facts.stripes.picture.stripe(stripe) else { continue };
            let is_of_file = facts.stripes.picture.is_pending(stripe) == Some(false);
            if !is_of_file || !facts.stripes.is_only_on(&record.blocks[usize::from(index.0)], node) {
                continue;
            }
            room.blocks += step;
            if !takers.take(&record) {
                room.stuck += step;
                room.stuck_bytes = room.stuck_bytes.max(record.block_bytes);
            }
        }
        let most = blocks.len() as u64;
        Room { blocks: room.blocks.min(most), stuck: room.stuck.min(most), ..room }
    }

    /// Counts the stripes for which no helper could accept a further lost block.
    pub(crate) fn spare_room(&self, facts: Facts<'_>, stripes: &[StripeRecord]) -> Room {
        let takers = Takers::new(self, facts, &[], None);
        let stuck = || stripes.iter().filter(|record| !takers.take(record));
        Room {
            blocks: stripes.len() as u64,
            stuck: stuck().count() as u64,
            stuck_bytes: stuck().map(|record| record.block_bytes).max().unwrap_or(0),
        }
    }
}

impl<'a> Facts<'a> {
    /// Returns the number of a node's blocks without a copy on another node.
    pub(crate) fn left_on(self, node: NodeId) -> u64 {
        let is_left = |(stripe, index): &(StripeId, BlockIndex)| {
            let record = self.stripes.picture.stripe(stripe);
            record.is_ok_and(|record| self.stripes.is_only_on(&record.blocks[usize::from(index.0)], node))
        };
        self.stripes.picture.blocks_of(node).iter().filter(|block| is_left(block)).count() as u64
    }
}

impl Stripes {
    /// Whether no other node has a healthy copy of a block. Stores that others run may keep a second copy for
    /// a while.
    fn is_only_on(&self, block: &BlockRecord, node: NodeId) -> bool {
        let is_good = |state: BlockState| state == BlockState::Healthy;
        !block.holders().any(|held| held.node != node && is_good(held.state) && self.picture.is_up(held.node))
    }
}

/// The helpers that accept blocks, with their free bytes.
struct Takers<'a> {
    facts: Facts<'a>,
    room: BTreeMap<NodeId, u64>,
}

impl<'a> Takers<'a> {
    fn new(jobs: &'a Jobs, facts: Facts<'a>, only: &[NodeId], but: Option<NodeId>) -> Self {
        let may = |node: &NodeId| Some(*node) != but && (only.is_empty() || only.contains(node));
        let room = jobs.takers(facts).filter(|(node, _)| may(node)).collect();
        Self { facts, room }
    }

    /// Whether any of these helpers can accept a lost block of a stripe, by the rules of
    /// [placement](recovery::Placement).
    fn take(&self, record: &StripeRecord) -> bool {
        let mut fit =
            self.room.iter().filter(|&(_, &bytes)| bytes >= record.block_bytes).map(|(&node, _)| node);
        if self.facts.base.store.shares_nodes() {
            // Placement allows each helper an even share of the stripe's blocks. The shares cover all blocks
            // and one block is lost, so some helper is below its share.
            return fit.next().is_some();
        }
        let holders: BTreeSet<NodeId> =
            record.blocks.iter().filter_map(|block| self.facts.block_facts(block).node).collect();
        fit.any(|node| !holders.contains(&node))
    }
}
