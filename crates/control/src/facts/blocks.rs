//! Where blocks can be read now, and which are lost.

use codes::BlockIndex;
use repair::{NodeId, Stripe, StripeBlock, StripeId};
use store_api::{BlockRecord, BlockState, Replica, StripeRecord};

use repair::wire::control::ToNode;

use crate::error::RequestError;
use crate::facts::Facts;
use crate::out::Out;
use crate::questions::Subject;
use crate::stripes::indices::indexed;

impl<'a> Facts<'a> {
    /// Whether enough blocks of a stripe can be read now.
    pub(crate) fn is_readable(self, stripe: &StripeRecord) -> bool {
        let (lost, there): (Vec<BlockIndex>, Vec<BlockIndex>) = indexed(stripe)
            .map(|(index, _)| index)
            .partition(|index| self.is_lost(&stripe.blocks[usize::from(index.0)]));
        let code = stripe.code.build();
        lost.is_empty() || code.is_ok_and(|code| code.repair(&lost, &there).is_ok())
    }

    /// Where a block can be read now: it is healthy there, as far as is known, and the node is connected.
    pub(crate) fn readable_at(self, block: &BlockRecord) -> Option<NodeId> {
        self.readers(block).next()
    }

    /// All nodes where a block can be read now; the one where it belongs first.
    pub(crate) fn readers(self, block: &BlockRecord) -> impl Iterator<Item = NodeId> {
        let good = |holder: &Replica| {
            holder.state == BlockState::Healthy
                && self.nodes.is_connected(holder.node)
                && !self.stripes.is_doubted(&block.id, holder.node)
        };
        block.holders().filter(good).map(|holder| holder.node)
    }

    /// The same for what may be removed elsewhere: not on a node that is back and has not said what it has.
    pub(crate) fn proven_readers(self, block: &BlockRecord) -> impl Iterator<Item = NodeId> {
        self.readers(block).filter(|node| !self.nodes.registry.is_unproven(*node))
    }

    /// The stripe as the planner sees it now, as if `lost` were lost too.
    pub(crate) fn stripe_now(
        self,
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
    pub(crate) fn is_lost(self, block: &BlockRecord) -> bool {
        if !self.base.store.reports_service() {
            return self.readable_at(block).is_none();
        }
        let good = |holder: &Replica| {
            holder.state == BlockState::Healthy
                && self.stripes.picture.is_up(holder.node)
                && !self.stripes.is_doubted(&block.id, holder.node)
        };
        !block.holders().any(|holder| good(&holder))
    }

    /// The blocks that the store does not have now. Others may be there that cannot be read, for want of a
    /// helper.
    pub(crate) fn lost_blocks(self, record: &StripeRecord) -> Vec<BlockIndex> {
        let lost = indexed(record).filter(|(_, block)| self.is_lost(block));
        lost.map(|(index, _)| index).collect()
    }

    /// Whether a block counts as good, wherever its helper is.
    pub(crate) fn counts(self, block: &BlockRecord) -> bool {
        let good = |holder: Replica| {
            holder.state == BlockState::Healthy && !self.stripes.is_doubted(&block.id, holder.node)
        };
        block.holders().any(good)
    }
}

impl<'a> Facts<'a> {
    /// Has a block verified.
    pub(crate) fn ask_for_block(
        self,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
        known: BlockRecord,
        scrub: bool,
        out: &mut Out,
    ) -> u64 {
        let block = known.id.clone();
        let ask = out.questions.open(node, Subject::Block { stripe, index, known, scrub }, self.base.now);
        self.nodes.send(node, ToNode::Verify { ask, block }, out);
        ask
    }
}
