//! From the catalog's record of a stripe to what the planner and people see of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use codes::{BlockIndex, Code, CodeSpec};
use repair::recovery::Redundancy;
use repair::{BlockId, NodeId, Stripe, StripeBlock, StripeId};
use stores::{BlockRecord, BlockState, Replica, StripeRecord};

use super::Control;
use super::condemned::Condemned;
use super::contradictions::Contradictions;
use super::given::Given;
use super::made_lately::MadeLately;
use super::misplaced::Misplaced;
use super::newer::Newer;
use super::orphans::Orphans;
use super::picture::Picture;
use super::questions::Question;
use super::readers::Readers;
use super::repairs::Unproven;
use super::store_news::StoreNews;
use super::surplus::Surplus;
use super::unjudged::UnjudgedStripes;
use crate::error::RequestError;
use views::{BlockPlace, BlockView, LostBlock, ReplicaView, StripeView};

/// Codes, built once and shared.
#[derive(Default)]
pub(crate) struct Codes {
    built: BTreeMap<String, Arc<dyn Code>>,
}

impl Codes {
    pub(crate) fn get(&mut self, spec: &CodeSpec) -> Result<Arc<dyn Code>, RequestError> {
        let name = spec.to_string();
        if let Some(code) = self.built.get(&name) {
            return Ok(code.clone());
        }
        let code = spec.build()?;
        self.built.insert(name, code.clone());
        Ok(code)
    }
}

/// Where each block is, and what is doubted, claimed or asked of it.
#[derive(Default)]
pub(crate) struct Stripes {
    /// What the storage says.
    pub picture: Picture,
    pub codes: Codes,
    pub risks: Redundancy,
    pub contradictions: Contradictions,
    pub given: Given,
    pub surplus: Surplus,
    pub misplaced: Misplaced,
    pub orphans: Orphans,
    pub condemned: Condemned,
    /// Helpers that are back and have not said what their blocks are.
    pub unproven: BTreeMap<NodeId, Unproven>,
    pub newer: Newer,
    pub unjudged: UnjudgedStripes,
    pub news: StoreNews,
    /// What the store says keeps it from its work.
    pub troubles: Vec<String>,
    pub made_lately: MadeLately,
    pub readers: Readers,
    pub lost_lately: VecDeque<LostBlock>,
    pub asks: BTreeMap<u64, Question>,
    pub next_ask: u64,
    /// When removals that had to wait are looked at again.
    pub removals_due: Duration,
}

impl Stripes {
    pub(crate) fn new(picture: Picture, unlisted: Option<String>) -> Self {
        Self { picture, news: StoreNews::new(unlisted), ..Self::default() }
    }
}

impl Control {
    pub(crate) fn stripe_record(&self, id: &StripeId) -> Result<StripeRecord, RequestError> {
        match self.stripes.given.get(id).or_else(|| self.stripes.readers.get(id)) {
            Some(known) => Ok(known.clone()),
            None => Ok(self.stripes.picture.stripe(id)?),
        }
    }

    /// Where a block can be read now: it is healthy there, as far as is known, and the node is connected.
    pub(crate) fn readable_at(&self, block: &BlockRecord) -> Option<NodeId> {
        self.readers(block).next()
    }

    /// All nodes where a block can be read now; the one where it belongs first.
    pub(crate) fn readers(&self, block: &BlockRecord) -> impl Iterator<Item = NodeId> {
        let good = |holder: &Replica| {
            holder.state == BlockState::Healthy
                && self.nodes.peers.contains_key(&holder.node)
                && !self.storing.is_doubted(&block.id, holder.node)
        };
        block.holders().filter(good).map(|holder| holder.node)
    }

    /// The same for what may be removed elsewhere: not on a node that is back and has not said what it has.
    pub(crate) fn proven_readers(&self, block: &BlockRecord) -> impl Iterator<Item = NodeId> {
        self.readers(block).filter(|node| !self.stripes.unproven.contains_key(node))
    }

    /// The stripe as the planner sees it now, as if `lost` were lost too.
    pub(crate) fn stripe_now(
        &mut self,
        record: &StripeRecord,
        lost: &[BlockIndex],
    ) -> Result<Stripe, RequestError> {
        let code = self.stripes.codes.get(&record.code)?;
        let holder = |(index, block): (BlockIndex, &BlockRecord)| {
            self.readable_at(block).filter(|_| !lost.contains(&index))
        };
        let blocks = indexed(record)
            .map(|(index, block)| StripeBlock {
                id: block.id.clone(),
                bytes: block.bytes,
                holder: holder((index, block)),
                // The recorded digest of a wrong block may be that of its wrong bytes.
                digest: block.digest.filter(|_| !self.stripes.condemned.has(&block.id)),
            })
            .collect();
        let label = record.label(&self.base.settings.cluster_id);
        let chunking = record.size().chunking(&*code)?;
        Ok(Stripe { id: record.id.clone(), code, chunking, blocks, label })
    }

    /// Whether the store does not have a block: it is good nowhere where it would be in service.
    pub(crate) fn is_lost(&self, block: &BlockRecord) -> bool {
        if !self.base.nature.tells_service {
            return self.readable_at(block).is_none();
        }
        let good = |holder: &Replica| {
            holder.state == BlockState::Healthy
                && self.stripes.picture.is_up(holder.node)
                && !self.storing.is_doubted(&block.id, holder.node)
        };
        !block.holders().any(|holder| good(&holder))
    }

    /// The blocks that the store does not have now. Others may be there that cannot be read, for want of a helper.
    pub(crate) fn lost_blocks(&self, record: &StripeRecord) -> Vec<BlockIndex> {
        let lost = indexed(record).filter(|(_, block)| self.is_lost(block));
        lost.map(|(index, _)| index).collect()
    }

    pub(crate) fn check_indices(record: &StripeRecord, indices: &[BlockIndex]) -> Result<(), RequestError> {
        match indices.iter().find(|index| usize::from(index.0) >= record.blocks.len()) {
            None => Ok(()),
            Some(index) => Err(RequestError::NoSuchIndex {
                stripe: record.id.to_string(),
                index: index.0,
                blocks: record.blocks.len(),
            }),
        }
    }

    pub(crate) fn stripe_view_of(&mut self, id: &StripeId) -> Result<StripeView, RequestError> {
        let record = self.stripe_record(id)?;
        self.stripe_view(&record)
    }

    pub(crate) fn stripe_view(&mut self, record: &StripeRecord) -> Result<StripeView, RequestError> {
        let code = self.stripes.codes.get(&record.code)?;
        let lost = self.lost_blocks(record);
        let survives = self.stripes.risks.survives(&*code, &lost);
        let together = self.stripes.picture.together(&self.stripes.picture.readers_of(&record.id));
        Ok(StripeView {
            stripe: record.id.to_string(),
            code: record.code.to_string(),
            block_bytes: record.block_bytes,
            chunk_bytes: record.chunk_bytes,
            readable: survives.is_some(),
            survives: survives.unwrap_or(0),
            helpers: survives.map_or(0, |blocks| together.survives(blocks).nodes),
            blocks: indexed(record).map(|(index, block)| self.block_view(index, block)).collect(),
        })
    }

    fn block_view(&self, index: BlockIndex, block: &BlockRecord) -> BlockView {
        BlockView {
            block: block.id.to_string(),
            index: index.0,
            bytes: block.bytes,
            node: block.node.map(|node| self.name(node)),
            state: self.state_of(block),
            digest: block.digest.map(|digest| digest.to_string()),
            replicas: block.replicas.iter().map(|replica| self.replica_view(block, *replica)).collect(),
        }
    }

    fn replica_view(&self, block: &BlockRecord, replica: Replica) -> ReplicaView {
        ReplicaView {
            node: self.name(replica.node),
            state: self.state_on(block, Some(replica.node), replica.state),
        }
    }

    fn state_of(&self, block: &BlockRecord) -> views::BlockState {
        self.state_on(block, block.node, block.state)
    }

    fn state_on(&self, block: &BlockRecord, node: Option<NodeId>, state: BlockState) -> views::BlockState {
        match state {
            BlockState::Missing => views::BlockState::Missing,
            BlockState::Corrupt => views::BlockState::Corrupt,
            BlockState::NotStored => views::BlockState::NotStored,
            BlockState::Healthy if self.readers(block).any(|reader| Some(reader) == node) => {
                views::BlockState::Healthy
            }
            BlockState::Healthy
                if self.base.nature.tells_service
                    && node.is_some_and(|node| self.stripes.picture.is_up(node)) =>
            {
                views::BlockState::OutOfReach
            }
            BlockState::Healthy => views::BlockState::Down,
        }
    }

    pub(crate) fn block_place(&mut self, block: &str) -> Result<BlockPlace, RequestError> {
        let (stripe, index) = self.stripes.picture.find_block(&BlockId(block.to_owned()))?;
        Ok(BlockPlace { index: index.0, stripe: self.stripe_view_of(&stripe)? })
    }

    /// Blocks that a node holds, or is about to get from running jobs.
    pub(crate) fn used(&self, node: NodeId) -> usize {
        let coming = self.jobs.running.values().filter(|running| running.targets.contains(&node)).count();
        self.stripes.picture.block_count(node) + coming
    }
}

/// The blocks of a stripe with their indices.
pub(crate) fn indexed(record: &StripeRecord) -> impl Iterator<Item = (BlockIndex, &BlockRecord)> {
    record.blocks.iter().zip(0..).map(|(block, index)| (BlockIndex(index), block))
}
