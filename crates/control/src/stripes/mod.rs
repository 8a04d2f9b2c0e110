//! From the catalog's record of a stripe to what the planner and people see of it.

mod changes;
pub(crate) mod condemned;
pub(crate) mod continuation;
pub(crate) mod contradictions;
pub(crate) mod given;
pub(crate) mod given_bytes;
pub(crate) mod inventory;
pub(crate) mod layout;
pub(crate) mod made_lately;
pub(crate) mod newer;
pub(crate) mod orphans;
pub(crate) mod picture;
pub(crate) mod readers;
pub(crate) mod removals;
pub(crate) mod returned;
mod states;
pub(crate) mod store_news;
pub(crate) mod surplus;
pub(crate) mod unjudged;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code, CodeSpec};
use recovery::Redundancy;
use repair::{BlockId, NodeId, StripeId, Verify};
use store_api::{BlockRecord, BlockState, Replica, StripeRecord};

use crate::error::{PlanningError, RequestError};
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::stripes::condemned::Condemned;
use crate::stripes::contradictions::Contradictions;
use crate::stripes::given::Given;
use crate::stripes::inventory::Holdings;
use crate::stripes::made_lately::MadeLately;
use crate::stripes::newer::Newer;
use crate::stripes::orphans::Orphans;
use crate::stripes::picture::Picture;
use crate::stripes::readers::Readers;
use crate::stripes::store_news::StoreNews;
use crate::stripes::unjudged::UnjudgedStripes;
use views::{BlockView, LostBlock, ReplicaView, StripeView};

/// Codes, built once and shared, and what stripes of each survive.
#[derive(Default)]
pub(crate) struct Codes {
    built: RefCell<BTreeMap<String, Arc<dyn Code>>>,
    redundancy: RefCell<Redundancy>,
}

impl Codes {
    pub(crate) fn get(&self, spec: &CodeSpec) -> Result<Arc<dyn Code>, RequestError> {
        let (name, mut built) = (spec.to_string(), self.built.borrow_mut());
        if let Some(code) = built.get(&name) {
            return Ok(code.clone());
        }
        let code = spec.build()?;
        built.insert(name, code.clone());
        Ok(code)
    }

    /// How many further blocks a stripe survives the loss of; `None` if it cannot be read.
    pub(crate) fn survives(&self, code: &dyn Code, lost: &[BlockIndex]) -> Option<u32> {
        self.redundancy.borrow_mut().survives(code, lost)
    }
}

/// Where each block is, and what is doubted, claimed or asked of it.
#[derive(Default)]
pub(crate) struct Stripes {
    /// What the storage says.
    pub picture: Picture,
    pub codes: Codes,
    pub contradictions: Contradictions,
    pub given: Given,
    pub orphans: Orphans,
    /// What the helpers hold that are connected.
    pub holdings: BTreeMap<NodeId, Holdings>,
    pub condemned: Condemned,
    pub newer: Newer,
    pub unjudged: UnjudgedStripes,
    pub news: StoreNews,
    /// What the store says keeps it from its work.
    pub troubles: Vec<String>,
    /// Blocks of which something bad is known and not stored yet. Nobody reads them, and no other copy of
    /// them goes.
    pub doubted: BTreeSet<(BlockId, NodeId)>,
    pub made_lately: MadeLately,
    pub readers: Readers,
    pub lost_lately: VecDeque<LostBlock>,
    /// When removals that had to wait are looked at again.
    pub removals_due: Duration,
}

impl Stripes {
    /// Whether something bad is known of a block on a node and not stored yet.
    pub(crate) fn is_doubted(&self, block: &BlockId, node: NodeId) -> bool {
        !self.doubted.is_empty() && self.doubted.contains(&(block.clone(), node))
    }

    /// Stripes with a block of which something bad is known and not stored yet.
    pub(crate) fn doubted_blocks(&self) -> impl Iterator<Item = &BlockId> {
        self.doubted.iter().map(|(block, _)| block)
    }

    /// A block is as it is stored, and no longer as it was thought to be.
    pub(crate) fn settle_doubts(&mut self, before: Option<&StripeRecord>, now: Option<&StripeRecord>) {
        if self.doubted.is_empty() {
            return;
        }
        let known = |record: Option<&StripeRecord>, at: usize, node| {
            record.and_then(|record| record.blocks[at].state_on(node))
        };
        for (at, block) in before.or(now).map_or(&[][..], |record| &record.blocks).iter().enumerate() {
            self.doubted
                .retain(|(id, node)| *id != block.id || known(before, at, *node) == known(now, at, *node));
        }
    }

    /// Whether a node has been told to remove this block and has not answered.
    pub(crate) fn is_removing(&self, node: NodeId, block: &BlockId) -> bool {
        self.holdings.get(&node).is_some_and(|held| held.removing.contains(block))
    }

    /// Nodes that have been told to remove something and have not answered.
    pub(crate) fn removers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.holdings.iter().filter(|(_, held)| !held.removing.is_empty()).map(|(&node, _)| node)
    }

    pub(crate) fn new(picture: Picture, unlisted: Option<String>) -> Self {
        Self { picture, news: StoreNews::new(unlisted), ..Self::default() }
    }

    /// Where the catalog has a block of exactly this name.
    pub(crate) fn record_of(&self, block: &BlockId) -> Option<(StripeId, BlockIndex, BlockRecord)> {
        let (stripe, index) = self.picture.find_block(block).ok()?;
        let record = self.picture.stripe(&stripe).ok()?.blocks.swap_remove(usize::from(index.0));
        (record.id == *block).then_some((stripe, index, record))
    }

    /// What a job checks that publishes blocks of a stripe, or decodes them for a reader, if it was to check
    /// so much.
    pub(crate) fn verify(&self, stripe: &StripeId, parity: bool) -> Verify {
        let doubted = self.contradictions.has(stripe);
        Verify { parity: parity || doubted, doubted, ..Verify::default() }
    }
}

impl Jobs {
    /// Blocks that a node holds, or is about to get from running jobs.
    pub(crate) fn used(&self, facts: Facts<'_>, node: NodeId) -> usize {
        let coming = self.running.values().filter(|running| running.targets.contains(&node)).count();
        facts.stripes.picture.block_count(node) + coming
    }
}

impl Stripes {
    pub(crate) fn stripe_record(&self, id: &StripeId) -> Result<StripeRecord, RequestError> {
        match self.given.get(id).or_else(|| self.readers.get(id)) {
            Some(known) => Ok(known.clone()),
            None => Ok(self.picture.stripe(id)?),
        }
    }
}

/// The blocks of a stripe with their indices.
pub(crate) fn indexed(record: &StripeRecord) -> impl Iterator<Item = (BlockIndex, &BlockRecord)> {
    record.blocks.iter().zip(0..).map(|(block, index)| (BlockIndex(index), block))
}

/// The index of a block in a stripe's record.
pub(crate) fn index_of(record: &StripeRecord, block: &BlockId) -> Option<BlockIndex> {
    indexed(record).find(|(_, other)| other.id == *block).map(|(index, _)| index)
}

pub(crate) fn check_indices(record: &StripeRecord, indices: &[BlockIndex]) -> Result<(), RequestError> {
    match indices.iter().find(|index| usize::from(index.0) >= record.blocks.len()) {
        None => Ok(()),
        Some(index) => Err(PlanningError::NoSuchIndex {
            stripe: record.id.to_string(),
            index: index.0,
            blocks: record.blocks.len(),
        }
        .into()),
    }
}

/// The API's views of the blocks of a stripe.
struct BlockViews<'a> {
    facts: Facts<'a>,
}

impl BlockViews<'_> {
    fn state_on(&self, block: &BlockRecord, node: Option<NodeId>, state: BlockState) -> views::BlockState {
        match state {
            BlockState::Missing => views::BlockState::Missing,
            BlockState::Corrupt => views::BlockState::Corrupt,
            BlockState::NotStored => views::BlockState::NotStored,
            BlockState::Healthy if self.facts.readers(block).any(|reader| Some(reader) == node) => {
                views::BlockState::Healthy
            }
            BlockState::Healthy
                if self.facts.base.store.reports_service()
                    && node.is_some_and(|node| self.facts.stripes.picture.is_up(node)) =>
            {
                views::BlockState::OutOfReach
            }
            BlockState::Healthy => views::BlockState::Down,
        }
    }

    fn state_of(&self, block: &BlockRecord) -> views::BlockState {
        self.state_on(block, block.node, block.state)
    }

    fn replica_view(&self, block: &BlockRecord, replica: Replica) -> ReplicaView {
        ReplicaView {
            node: self.facts.nodes.name(replica.node),
            state: self.state_on(block, Some(replica.node), replica.state),
        }
    }

    fn block_view(&self, index: BlockIndex, block: &BlockRecord) -> BlockView {
        BlockView {
            block: block.id.to_string(),
            index: index.0,
            bytes: block.bytes,
            node: block.node.map(|node| self.facts.nodes.name(node)),
            state: self.state_of(block),
            digest: block.digest.map(|digest| digest.to_string()),
            replicas: block.replicas.iter().map(|replica| self.replica_view(block, *replica)).collect(),
        }
    }
}

impl<'a> Facts<'a> {
    pub(crate) fn stripe_view(self, record: &StripeRecord) -> Result<StripeView, RequestError> {
        let code = self.stripes.codes.get(&record.code)?;
        let lost = self.lost_blocks(record);
        let survives = self.stripes.codes.survives(&*code, &lost);
        let together = self.stripes.picture.together(&self.stripes.picture.readers_of(&record.id));
        let views = BlockViews { facts: self };
        Ok(StripeView {
            stripe: record.id.to_string(),
            code: record.code.to_string(),
            block_bytes: record.block_bytes,
            chunk_bytes: record.chunk_bytes,
            readable: survives.is_some(),
            survives: survives.unwrap_or(0),
            helpers: survives.map_or(0, |blocks| together.survives(blocks).nodes),
            blocks: indexed(record).map(|(index, block)| views.block_view(index, block)).collect(),
        })
    }
}
