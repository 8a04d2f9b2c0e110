//! Stripes and the nodes of their blocks: the half of the seam that repair uses.

use std::collections::BTreeSet;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};

use super::tables::{Change, DISCARDS, PUT_STRIPES, STRIPES};
use super::{DirCatalog, block_index};
use crate::{BlockRecord, BlockState, Catalog, CatalogError, StripeRecord};

/// The stripe's number, if the text is one as we write them: decimal, without leading zeros.
pub(super) fn stripe_number(id: &StripeId) -> Option<u64> {
    let number: u64 = id.0.parse().ok()?;
    (number.to_string() == id.0).then_some(number)
}

/// The stripe's number and the block's index, if the text is `<stripe>.<index>`.
fn parse_block(block: &BlockId) -> Option<(u64, BlockIndex)> {
    let (stripe, index) = block.0.split_once('.')?;
    let (number, index) = (stripe_number(&StripeId(stripe.to_owned()))?, index.parse().ok()?);
    (block_id(number, BlockIndex(index)) == *block).then_some((number, BlockIndex(index)))
}

pub(super) fn block_id(stripe: u64, block: BlockIndex) -> BlockId {
    BlockId(format!("{stripe}.{}", block.0))
}

/// A block that was published.
struct Published {
    index: BlockIndex,
    node: NodeId,
    digest: u32,
}

impl DirCatalog {
    /// The blocks that a node holds or held last, in the order of stripes.
    ///
    /// Blocks of a put that is not committed are among them once they were published
    /// ([`is_pending`](Self::is_pending) tells).
    pub fn blocks_of(&self, node: NodeId) -> Vec<(StripeId, BlockIndex)> {
        let blocks = self.holders.get(&node).into_iter().flatten();
        blocks.map(|&(number, index)| (StripeId(number.to_string()), index)).collect()
    }

    /// Whether a stripe is part of a put that is not committed, so that it need not be repaired.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchStripe`].
    pub fn is_pending(&self, stripe: &StripeId) -> Result<bool, CatalogError> {
        let number = self.number_of(stripe)?;
        Ok(self.pending_numbers()?.contains(&number))
    }

    /// Records, durably and together, that several blocks of a stripe are healthy: each an index, its node
    /// and its digest.
    ///
    /// # Errors
    /// [`CatalogError`]; then nothing is recorded.
    pub fn publish_all(
        &mut self,
        stripe: &StripeId,
        blocks: &[(BlockIndex, NodeId, u32)],
    ) -> Result<(), CatalogError> {
        let number = stripe_number(stripe).ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        let (old, new) = self.change(|change| {
            let old = stored(change, number)?;
            let mut new = old.clone();
            for &(index, node, digest) in blocks {
                publish(change, &mut new, &Published { index, node, digest })?;
            }
            change.put(STRIPES, number, &new)?;
            Ok::<_, CatalogError>((old, new))
        })?;
        self.reindex(number, Some(&old), Some(&new));
        Ok(())
    }

    /// Records, durably and together, what is known of several blocks on their nodes.
    ///
    /// # Errors
    /// [`CatalogError`]; then nothing is recorded.
    pub fn set_states(&mut self, blocks: &[(StripeId, BlockIndex, BlockState)]) -> Result<(), CatalogError> {
        let mut news = Vec::new();
        for (stripe, index, state) in blocks {
            if block_of(&mut self.stripe(stripe)?, *index)?.state != *state {
                news.push((self.number_of(stripe)?, *index, *state));
            }
        }
        if news.is_empty() {
            return Ok(()); // Nothing new is nothing to write.
        }
        self.change(|change| {
            for (number, index, state) in news {
                let mut stripe = stored(change, number)?;
                block_of(&mut stripe, index)?.state = state;
                change.put(STRIPES, number, &stripe)?;
            }
            Ok(())
        })
    }

    fn number_of(&self, stripe: &StripeId) -> Result<u64, CatalogError> {
        self.stripe(stripe)?;
        Ok(stripe_number(stripe).expect("a stripe that is stored has a number"))
    }

    /// The stripes of puts that are not committed.
    fn pending_numbers(&self) -> Result<BTreeSet<u64>, CatalogError> {
        let mut pending = BTreeSet::new();
        self.view()?.each(PUT_STRIPES, (0, 0).., |_, number: u64| {
            pending.insert(number);
        })?;
        Ok(pending)
    }
}

/// The stripe of a number.
pub(super) fn stored(change: &Change<'_>, number: u64) -> Result<StripeRecord, CatalogError> {
    let missing = || CatalogError::NoSuchStripe(StripeId(number.to_string()));
    change.get(STRIPES, number)?.ok_or_else(missing)
}

fn block_of(stripe: &mut StripeRecord, index: BlockIndex) -> Result<&mut BlockRecord, CatalogError> {
    let missing = || CatalogError::NoSuchBlock(BlockId(format!("{}.{}", stripe.id, index.0)));
    if usize::from(index.0) >= stripe.blocks.len() {
        return Err(missing());
    }
    Ok(&mut stripe.blocks[usize::from(index.0)])
}

fn publish(change: &Change<'_>, stripe: &mut StripeRecord, news: &Published) -> Result<(), CatalogError> {
    let block = block_of(stripe, news.index)?;
    move_block(change, block, news.node)?;
    block.state = BlockState::Healthy;
    block.digest = Some(news.digest);
    Ok(())
}

/// Gives a block another node. What the old one has, or may have, of it shall go; what the new one has of
/// it must stay.
pub(super) fn move_block(
    change: &Change<'_>,
    block: &mut BlockRecord,
    node: NodeId,
) -> Result<(), CatalogError> {
    if block.node != node {
        discard(change, block)?;
        block.node = node;
    }
    change.remove(DISCARDS, (node.0, block.id.0.as_str()))?;
    Ok(())
}

/// Asks for a block to be removed from its node.
pub(super) fn discard(change: &Change<'_>, block: &BlockRecord) -> Result<(), CatalogError> {
    change.put(DISCARDS, (block.node.0, block.id.0.as_str()), &())
}

impl Catalog for DirCatalog {
    fn stripe(&self, id: &StripeId) -> Result<StripeRecord, CatalogError> {
        let missing = || CatalogError::NoSuchStripe(id.clone());
        let number = stripe_number(id).ok_or_else(missing)?;
        self.view()?.get(STRIPES, number)?.ok_or_else(missing)
    }

    fn find_block(&self, block: &BlockId) -> Result<(StripeId, BlockIndex), CatalogError> {
        let missing = || CatalogError::NoSuchBlock(block.clone());
        let (number, index) = parse_block(block).ok_or_else(missing)?;
        let stripe: Option<StripeRecord> = self.view()?.get(STRIPES, number)?;
        let stripe =
            stripe.filter(|stripe| usize::from(index.0) < stripe.blocks.len()).ok_or_else(missing)?;
        Ok((stripe.id, index))
    }

    /// Calls `visit` with every stripe of a file, in the order of their numbers; those of a put that is not
    /// committed are left out.
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord)) -> Result<(), CatalogError> {
        let view = self.view()?;
        let mut pending = BTreeSet::new();
        view.each(PUT_STRIPES, (0, 0).., |_, number: u64| {
            pending.insert(number);
        })?;
        view.each(STRIPES, 0.., |number, stripe| {
            if !pending.contains(&number) {
                visit(stripe);
            }
        })
    }

    fn publish(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        digest: u32,
    ) -> Result<(), CatalogError> {
        self.publish_all(stripe, &[(block, node, digest)])
    }

    fn set_state(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        state: BlockState,
    ) -> Result<(), CatalogError> {
        self.set_states(&[(stripe.clone(), block, state)])
    }
}

/// The record of a new stripe, nothing of it published.
pub(super) fn new_stripe(
    number: u64,
    code: codes::CodeSpec,
    block_bytes: u64,
    nodes: &[NodeId],
) -> StripeRecord {
    let block = |(index, &node): (usize, &NodeId)| BlockRecord {
        id: block_id(number, block_index(index)),
        bytes: block_bytes,
        node,
        state: BlockState::Healthy,
        digest: None,
    };
    let blocks = nodes.iter().enumerate().map(block).collect();
    StripeRecord { id: StripeId(number.to_string()), code, block_bytes, blocks }
}
