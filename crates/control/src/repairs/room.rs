//! Room for the blocks of a helper, checked before a repair is promised or begun.
//!
//! A block has room if some helper takes blocks of its size and has no other block of its stripe; in stores
//! where a helper may have several, any helper with space has room. The check looks at each stripe, or at a
//! sample if there are many.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockRecord, BlockState, StripeRecord};

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::stripes::Stripes;

/// The most blocks of a helper that are checked; of more blocks, an even sample.
const LOOKED_AT: usize = 1000;
/// How long a finding is valid, plus as long again per so many blocks.
const GOOD_FOR: Duration = Duration::from_secs(1);
const MANY_BLOCKS: u64 = 10_000;

/// Where the blocks of a helper could go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Blocks of files.
    pub blocks: u64,
    /// Blocks among them that no helper can take; an estimate where only a sample was looked at.
    pub stuck: u64,
    /// Bytes of the largest block that no helper can take.
    pub stuck_bytes: u64,
}

impl Room {
    /// Whether there are blocks, and nothing can take any of them.
    pub(crate) fn is_none(self) -> bool {
        self.blocks > 0 && !self.is_any()
    }

    /// Whether some block can go somewhere.
    pub(crate) fn is_any(self) -> bool {
        self.stuck < self.blocks
    }
}

/// The latest findings, by helper.
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

    /// Forgets the findings about all other helpers.
    pub(crate) fn retain(&mut self, nodes: &BTreeSet<NodeId>) {
        self.found.retain(|node, _| nodes.contains(node));
    }

    /// Whether it is time to look again.
    pub(crate) fn is_due(&self, node: NodeId, now: Duration) -> bool {
        let good_for = |room: Room| GOOD_FOR * (1 + (room.blocks / MANY_BLOCKS) as u32);
        self.found.get(&node).is_none_or(|&(at, room)| now >= at + good_for(room))
    }
}

impl Jobs {
    /// Where the blocks of a helper could go.
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

    /// Room for one more lost block of each of these stripes.
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
    /// Blocks of a node that are nowhere else.
    pub(crate) fn left_on(self, node: NodeId) -> u64 {
        let is_left = |(stripe, index): &(StripeId, BlockIndex)| {
            let record = self.stripes.picture.stripe(stripe);
            record.is_ok_and(|record| self.stripes.is_only_on(&record.blocks[usize::from(index.0)], node))
        };
        self.stripes.picture.blocks_of(node).iter().filter(|block| is_left(block)).count() as u64
    }
}

impl Stripes {
    /// Whether a block can be read nowhere but on a node. Stores that others run may keep a second copy for a
    /// while.
    fn is_only_on(&self, block: &BlockRecord, node: NodeId) -> bool {
        let is_good = |state: BlockState| state == BlockState::Healthy;
        !block.holders().any(|held| held.node != node && is_good(held.state) && self.picture.is_up(held.node))
    }
}

/// The helpers that get blocks, with the bytes that each has room for.
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

    /// Whether one of them may take a lost block of a stripe, as [placement](recovery::Placement)
    /// decides.
    fn take(&self, record: &StripeRecord) -> bool {
        let mut fit =
            self.room.iter().filter(|&(_, &bytes)| bytes >= record.block_bytes).map(|(&node, _)| node);
        if self.facts.base.store.shares_nodes() {
            // Their even shares add up to all blocks, of which one is lost, so one of them has less than its
            // share.
            return fit.next().is_some();
        }
        let holders: BTreeSet<NodeId> =
            record.blocks.iter().filter_map(|block| self.facts.block_facts(block).node).collect();
        fit.any(|node| !holders.contains(&node))
    }
}
