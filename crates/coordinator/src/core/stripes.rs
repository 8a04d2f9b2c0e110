//! From the catalog's record of a stripe to what the planner and people see of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use codes::{BlockIndex, Code, CodeSpec};
use repair::{BlockId, NodeId, Stripe, StripeBlock, StripeId};
use stores::{BlockRecord, BlockState, StripeRecord};

use super::Core;
use crate::error::RequestError;
use views::{BlockPlace, BlockView, StripeView};

/// Codes, built once and shared.
#[derive(Default)]
pub(super) struct Codes {
    built: BTreeMap<String, Arc<dyn Code>>,
}

impl Codes {
    pub(super) fn get(&mut self, spec: &CodeSpec) -> Result<Arc<dyn Code>, RequestError> {
        let name = spec.to_string();
        if let Some(code) = self.built.get(&name) {
            return Ok(code.clone());
        }
        let code = spec.build()?;
        self.built.insert(name, code.clone());
        Ok(code)
    }
}

impl Core {
    pub(super) fn stripe_record(&self, id: &StripeId) -> Result<StripeRecord, RequestError> {
        match self.given.get(id) {
            Some(given) => Ok(given.clone()),
            None => Ok(self.picture.stripe(id)?),
        }
    }

    /// Where a block can be read now: it is healthy, as far as is known, and its node is connected.
    pub(super) fn readable_at(&self, block: &BlockRecord) -> Option<NodeId> {
        let good = block.state == BlockState::Healthy && !self.storing.doubted.contains(&block.id);
        block.node.filter(|node| good && self.peers.contains_key(node))
    }

    /// The stripe as the planner sees it now, as if `lost` were lost too.
    pub(super) fn stripe_now(
        &mut self,
        record: &StripeRecord,
        lost: &[BlockIndex],
    ) -> Result<Stripe, RequestError> {
        let code = self.codes.get(&record.code)?;
        let holder = |(index, block): (BlockIndex, &BlockRecord)| {
            self.readable_at(block).filter(|_| !lost.contains(&index))
        };
        let blocks = indexed(record)
            .map(|(index, block)| StripeBlock {
                id: block.id.clone(),
                bytes: block.bytes,
                holder: holder((index, block)),
                digest: block.digest,
            })
            .collect();
        let label = record.label(&self.settings.cluster_id);
        Ok(Stripe { id: record.id.clone(), code, block_bytes: record.block_bytes, blocks, label })
    }

    /// The blocks that cannot be read now.
    pub(super) fn lost_blocks(&self, record: &StripeRecord) -> Vec<BlockIndex> {
        let lost = indexed(record).filter(|(_, block)| self.readable_at(block).is_none());
        lost.map(|(index, _)| index).collect()
    }

    pub(super) fn check_indices(record: &StripeRecord, indices: &[BlockIndex]) -> Result<(), RequestError> {
        match indices.iter().find(|index| usize::from(index.0) >= record.blocks.len()) {
            None => Ok(()),
            Some(index) => Err(RequestError::NoSuchIndex {
                stripe: record.id.to_string(),
                index: index.0,
                blocks: record.blocks.len(),
            }),
        }
    }

    pub(super) fn stripe_view_of(&mut self, id: &StripeId) -> Result<StripeView, RequestError> {
        let record = self.stripe_record(id)?;
        self.stripe_view(&record)
    }

    pub(super) fn stripe_view(&mut self, record: &StripeRecord) -> Result<StripeView, RequestError> {
        let code = self.codes.get(&record.code)?;
        let lost = self.lost_blocks(record);
        let survives = self.risks.survives(&*code, &lost);
        Ok(StripeView {
            stripe: record.id.to_string(),
            code: record.code.to_string(),
            block_bytes: record.block_bytes,
            readable: survives.is_some(),
            survives: survives.unwrap_or(0),
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
        }
    }

    fn state_of(&self, block: &BlockRecord) -> views::BlockState {
        match block.state {
            BlockState::Missing => views::BlockState::Missing,
            BlockState::Corrupt => views::BlockState::Corrupt,
            BlockState::NotStored => views::BlockState::NotStored,
            BlockState::Healthy if self.readable_at(block).is_some() => views::BlockState::Healthy,
            BlockState::Healthy => views::BlockState::Down,
        }
    }

    pub(super) fn block_place(&mut self, block: &str) -> Result<BlockPlace, RequestError> {
        let (stripe, index) = self.picture.find_block(&BlockId(block.to_owned()))?;
        Ok(BlockPlace { index: index.0, stripe: self.stripe_view_of(&stripe)? })
    }

    /// Blocks that a node holds, or is about to get from running jobs.
    pub(super) fn used(&self, node: NodeId) -> usize {
        let coming = self.jobs.values().filter(|running| running.targets.contains(&node)).count();
        self.picture.block_count(node) + coming
    }
}

/// The blocks of a stripe with their indices.
pub(super) fn indexed(record: &StripeRecord) -> impl Iterator<Item = (BlockIndex, &BlockRecord)> {
    record.blocks.iter().zip(0..).map(|(block, index)| (BlockIndex(index), block))
}
