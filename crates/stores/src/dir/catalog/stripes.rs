//! Stripes and the nodes of their blocks: the half of the seam that repair uses.

use std::collections::BTreeSet;

use codes::BlockIndex;
use repair::{BlockId, Digest, NodeId, StripeId, StripeLabel};

use super::names::{Key, parse_count, split_block};
use super::tables::{Change, DISCARDS, META, PUT_STRIPES, STRIPES};
use super::{DirCatalog, PutRecord, block_index};
use crate::{BlockRecord, BlockState, Catalog, CatalogError, StripeRecord};

/// The counter of stripes.
pub(super) const NEXT_STRIPE: &str = "next-stripe";

/// No catalog falls behind by so many stripes: a block whose count is further ahead is not ours, whatever it is called.
pub(super) const FAR: u64 = 1 << 32;

/// A block that was published.
struct Published {
    index: BlockIndex,
    node: NodeId,
    digest: Option<Digest>,
}

impl DirCatalog {
    /// The blocks that a node holds or held last, in the order of stripes.
    ///
    /// Blocks of a put that is not committed are among them once they were published
    /// ([`is_pending`](Self::is_pending) tells).
    pub fn blocks_of(&self, node: NodeId) -> Vec<(StripeId, BlockIndex)> {
        let blocks = self.holders.get(&node).into_iter().flatten();
        blocks.map(|&(key, index)| (key.stripe(), index)).collect()
    }

    /// How many blocks a node holds or held last.
    pub fn block_count(&self, node: NodeId) -> usize {
        self.holders.get(&node).map_or(0, BTreeSet::len)
    }

    /// Whether a stripe is part of a put that is not committed, so that it need not be repaired.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchStripe`].
    pub fn is_pending(&self, stripe: &StripeId) -> Result<bool, CatalogError> {
        let key = self.key_of(stripe)?;
        Ok(self.pending_keys()?.contains(&key))
    }

    /// Records, durably and together, that several blocks of a stripe are healthy: each an index, its node
    /// and its digest.
    ///
    /// # Errors
    /// [`CatalogError`]; then nothing is recorded.
    pub fn publish_all(
        &mut self,
        stripe: &StripeId,
        blocks: &[(BlockIndex, NodeId, Option<Digest>)],
    ) -> Result<(), CatalogError> {
        let key = Key::of(stripe).ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        let (old, new) = self.change(|change| {
            let old = stored(change, key)?;
            let mut new = old.clone();
            for &(index, node, digest) in blocks {
                publish(change, &mut new, &Published { index, node, digest })?;
            }
            change.put(STRIPES, key.0, &new)?;
            Ok::<_, CatalogError>((old, new))
        })?;
        self.reindex(key, Some(&old), Some(&new));
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
                news.push((self.key_of(stripe)?, *index, *state));
            }
        }
        if news.is_empty() {
            return Ok(()); // Nothing new is nothing to write.
        }
        self.change(|change| {
            for (key, index, state) in news {
                let mut stripe = stored(change, key)?;
                block_of(&mut stripe, index)?.state = state;
                change.put(STRIPES, key.0, &stripe)?;
            }
            Ok(())
        })
    }

    /// What the blocks of a stripe say of themselves, if they say anything.
    pub fn label(&self, stripe: &StripeRecord) -> Option<StripeLabel> {
        let (cluster, file) = (self.cluster.clone(), stripe.file.clone()?);
        let (code, block_bytes) = (stripe.code.clone(), stripe.block_bytes);
        Some(StripeLabel { cluster, stripe: stripe.id.clone(), code, block_bytes, file })
    }

    fn key_of(&self, stripe: &StripeId) -> Result<Key, CatalogError> {
        Ok(Key::of(&self.stripe(stripe)?.id).expect("a stripe that is stored has a key"))
    }

    /// The stripes of puts that are not committed.
    fn pending_keys(&self) -> Result<BTreeSet<Key>, CatalogError> {
        let mut pending = BTreeSet::new();
        self.look(|view| {
            view.each(PUT_STRIPES, (0, 0).., |_, key: Key| {
                pending.insert(key);
            })
        })?;
        Ok(pending)
    }

    /// The one stripe of a count, for people who leave the era out.
    ///
    /// # Errors
    /// [`CatalogError::Ambiguous`] if there are several.
    fn only_stripe(&self, count: u64) -> Result<Option<StripeRecord>, CatalogError> {
        let mut found = Vec::new();
        self.look(|view| {
            view.each(STRIPES, Key::all_of(count), |_, stripe: StripeRecord| found.push(stripe))
        })?;
        if found.len() > 1 {
            let candidates = found.into_iter().map(|stripe| stripe.id).collect();
            return Err(CatalogError::Ambiguous { name: StripeId(count.to_string()), candidates });
        }
        Ok(found.pop())
    }

    /// Whether a block of this name would be of a stripe that this catalog has yet to count: then the catalog is
    /// older than the block.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn is_from_the_future(&self, block: &BlockId) -> Result<bool, CatalogError> {
        let Some((key, _)) = Key::of_block(block) else { return Ok(false) };
        let next: u64 = self.look(|view| view.get(META, NEXT_STRIPE))?.unwrap_or(1);
        Ok(key.count() >= next && key.count() - next < FAR)
    }

    /// Counts on beyond all these blocks, so that they are no longer newer than the catalog but merely unknown to it.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn count_beyond(&mut self, blocks: &BTreeSet<BlockId>) -> Result<(), CatalogError> {
        let counts = blocks.iter().filter_map(|block| Some(Key::of_block(block)?.0.count()));
        self.change(|change| {
            let next: u64 = change.get(META, NEXT_STRIPE)?.unwrap_or(1);
            let beyond = counts
                .filter(|count| (next..next + FAR).contains(count))
                .max()
                .map_or(next, |count| count + 1);
            change.put(META, NEXT_STRIPE, &beyond)
        })
    }
}

/// The stripe of a key.
pub(super) fn stored(change: &Change<'_>, key: Key) -> Result<StripeRecord, CatalogError> {
    change.get(STRIPES, key.0)?.ok_or_else(|| CatalogError::NoSuchStripe(key.stripe()))
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
    block.digest = news.digest;
    Ok(())
}

/// Gives a block another node. What the old one has, or may have, of it shall go; what the new one has of
/// it must stay.
pub(super) fn move_block(
    change: &Change<'_>,
    block: &mut BlockRecord,
    node: NodeId,
) -> Result<(), CatalogError> {
    if block.node != Some(node) {
        discard(change, block)?;
        block.node = Some(node);
    }
    change.remove(DISCARDS, (node.0, block.id.0.as_str()))?;
    Ok(())
}

/// Asks for a block to be removed from its node, if it has one.
pub(super) fn discard(change: &Change<'_>, block: &BlockRecord) -> Result<(), CatalogError> {
    block.node.map_or(Ok(()), |node| change.put(DISCARDS, (node.0, block.id.0.as_str()), &()))
}

impl Catalog for DirCatalog {
    fn stripe(&self, id: &StripeId) -> Result<StripeRecord, CatalogError> {
        let missing = || CatalogError::NoSuchStripe(id.clone());
        let exact = match Key::of(id) {
            Some(key) => self.look(|view| view.get(STRIPES, key.0))?,
            None => None,
        };
        match exact {
            Some(stripe) => Ok(stripe),
            None => parse_count(&id.0).map_or(Ok(None), |count| self.only_stripe(count))?.ok_or_else(missing),
        }
    }

    fn find_block(&self, block: &BlockId) -> Result<(StripeId, BlockIndex), CatalogError> {
        let missing = || CatalogError::NoSuchBlock(block.clone());
        let (stripe, index) = split_block(block).ok_or_else(missing)?;
        match self.stripe(&stripe) {
            Ok(stripe) if usize::from(index.0) < stripe.blocks.len() => Ok((stripe.id, index)),
            Ok(_) | Err(CatalogError::NoSuchStripe(_)) => Err(missing()),
            Err(error) => Err(error),
        }
    }

    /// Calls `visit` with every stripe of a file, in the order of their numbers; those of a put that is not
    /// committed are left out.
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord)) -> Result<(), CatalogError> {
        let pending = self.pending_keys()?;
        self.look(|view| {
            view.each(STRIPES, 0.., |key, stripe| {
                if !pending.contains(&Key(key)) {
                    visit(stripe);
                }
            })
        })
    }

    fn publish(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        digest: Option<Digest>,
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
    key: Key,
    put: &PutRecord,
    position: u32,
    block_bytes: u64,
    nodes: &[NodeId],
) -> StripeRecord {
    let block = |(index, &node): (usize, &NodeId)| BlockRecord {
        id: key.block(block_index(index)),
        bytes: block_bytes,
        node: Some(node),
        state: BlockState::NotStored,
        digest: None,
    };
    let blocks = nodes.iter().enumerate().map(block).collect();
    let (code, file) = (put.code.clone(), Some(put.part(position)));
    StripeRecord { id: key.stripe(), code, block_bytes, blocks, file }
}
