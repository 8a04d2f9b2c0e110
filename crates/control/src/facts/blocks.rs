//! Which blocks are readable now, and which are lost.

use codes::BlockIndex;
use repair::{NodeId, Stripe, StripeBlock, StripeId};
use store_api::{BlockRecord, BlockState, Replica, StripeRecord};

use repair::wire::control::ToNode;

use crate::error::RequestError;
use crate::facts::Facts;
use crate::helper_queries::Subject;
use crate::out::Out;
use crate::stripes::indices::indexed;

impl<'a> Facts<'a> {
    /// Whether enough blocks of a stripe can be read now to decode the stripe.
    pub(crate) fn is_readable(self, stripe: &StripeRecord) -> bool {
        let (lost, there): (Vec<BlockIndex>, Vec<BlockIndex>) = indexed(stripe)
            .map(|(index, _)| index)
            .partition(|index| self.is_lost(&stripe.blocks[usize::from(index.0)]));
        let code = stripe.code.build();
        lost.is_empty() || code.is_ok_and(|code| code.repair(&lost, &there).is_ok())
    }

    /// Returns a connected node from which a block can be read now, as far as is known; `None` if there is
    /// none.
    pub(crate) fn readable_at(self, block: &BlockRecord) -> Option<NodeId> {
        self.readers(block).next()
    }

    /// Returns all nodes from which a block can be read now. The block's recorded home comes first, and nodes
    /// that are being drained come last: a copy on such a node is the one that goes.
    pub(crate) fn readers(self, block: &BlockRecord) -> impl Iterator<Item = NodeId> {
        let good =
            move |holder: &Replica| self.nodes.is_connected(holder.node) && self.is_good(block, holder);
        let goes =
            move |holder: &Replica| !block.replicas.is_empty() && self.nodes.registry.is_leaving(holder.node);
        let stay = block.holders().filter(move |holder| !goes(holder));
        stay.chain(block.holders().filter(goes)).filter(good).map(|holder| holder.node)
    }

    /// Like [`readers`](Self::readers), but without nodes that have reconnected and not yet listed their
    /// blocks. A copy may be removed only if the remaining copies are on nodes that this function returns.
    pub(crate) fn proven_readers(self, block: &BlockRecord) -> impl Iterator<Item = NodeId> {
        self.readers(block).filter(|node| !self.nodes.registry.is_unproven(*node))
    }

    /// Returns the stripe as the planner sees it now, with the blocks in `lost` treated as lost too.
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
                // If a parity check found a block wrong (condemned), its recorded digest may match the wrong
                // bytes, so the digest is left out.
                digest: block.digest.filter(|_| !self.stripes.condemned.has(block)),
            })
            .collect();
        let label = record.label(&self.base.settings.cluster_id);
        let chunking = record.size().chunking(&*code)?;
        Ok(Stripe { id: record.id.clone(), code, chunking, blocks, label })
    }

    /// Whether a block is lost for the store: no server in service has a healthy copy.
    pub(crate) fn is_lost(self, block: &BlockRecord) -> bool {
        if !self.base.store.reports_service() {
            return self.readable_at(block).is_none();
        }
        !block.holders().any(|holder| self.stripes.picture.is_up(holder.node) && self.is_good(block, &holder))
    }

    /// Returns the blocks that the store has lost. Blocks that are unreadable only because their servers have
    /// no helper are not lost.
    pub(crate) fn lost_blocks(self, record: &StripeRecord) -> Vec<BlockIndex> {
        let lost = indexed(record).filter(|(_, block)| self.is_lost(block));
        lost.map(|(index, _)| index).collect()
    }

    /// Whether a healthy copy of a block is recorded, even if its helper is not connected.
    pub(crate) fn counts(self, block: &BlockRecord) -> bool {
        block.holders().any(|holder| self.is_good(block, &holder))
    }

    /// Whether a recorded copy of a block is good, as far as is known.
    pub(crate) fn is_good(self, block: &BlockRecord, holder: &Replica) -> bool {
        self.known_state(block, holder) == BlockState::Healthy
    }

    /// Returns the state of a recorded copy of a block, as far as is known. A record may be older than what was found:
    /// a bad state may still be on its way to the storage, and a plug-in that describes a stripe knows no verdicts of
    /// parity checks.
    pub(super) fn known_state(self, block: &BlockRecord, holder: &Replica) -> BlockState {
        if holder.state != BlockState::Healthy {
            return holder.state;
        }
        let found = self.stripes.unrecorded.bad(&block.id, holder.node);
        let is_condemned = || self.stripes.condemned.problem(&block.id, holder.node).is_some();
        found.unwrap_or_else(|| if is_condemned() { BlockState::Corrupt } else { BlockState::Healthy })
    }
}

impl<'a> Facts<'a> {
    /// Asks a node to verify a block. Returns the number of the query.
    pub(crate) fn ask_for_block(
        self,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
        known: BlockRecord,
        scrub: bool,
        out: &mut Out,
    ) -> u64 {
        let (block, digest) = (known.id.clone(), known.digest);
        let ask = out.queries.open(node, Subject::Block { stripe, index, known, scrub }, self.base.now);
        self.nodes.send(node, ToNode::Verify { ask, block, digest }, out);
        ask
    }
}
