//! Stripes and the nodes of their blocks: the part of the catalog that repairs use.

use std::collections::BTreeSet;

use codes::BlockIndex;
use repair::{BlockId, Digest, NodeId, StripeId};
use store_api::names::{Key, parse_count};
use store_api::{
    BlockRecord, BlockSize, BlockState, CatalogError, PutRecord, StoreChange, StripeRecord, StripeWrite,
};

use super::tables::{Change, DISCARDS, PUT_STRIPES, STRIPES};
use super::{DirCatalog, block_index};

/// The key of the counter of stripes.
pub(super) const NEXT_STRIPE: &str = "next-stripe";

/// A block that was published.
struct Published {
    index: BlockIndex,
    node: NodeId,
    digest: Option<Digest>,
}

impl DirCatalog {
    /// Records blocks of a stripe as healthy, durably and atomically. Each block is given by index, node and
    /// digest.
    ///
    /// # Errors
    /// [`CatalogError`]; nothing is recorded then.
    pub fn publish_all(
        &mut self,
        stripe: &StripeId,
        blocks: &[(BlockIndex, NodeId, Option<Digest>)],
    ) -> Result<(), CatalogError> {
        let key = Key::of(stripe).ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        self.change(|change| {
            let mut stripe = stored(change, key)?;
            for &(index, node, digest) in blocks {
                publish(change, &mut stripe, &Published { index, node, digest })?;
            }
            store_again(change, key, stripe)
        })
    }

    /// Records the states of blocks on their nodes, durably and atomically. Skips a block that has since
    /// moved to another node or was removed.
    ///
    /// # Errors
    /// [`CatalogError`]; nothing is recorded then.
    pub fn set_states(
        &mut self,
        blocks: &[(StripeId, BlockIndex, NodeId, BlockState)],
    ) -> Result<(), CatalogError> {
        let mut news = Vec::new();
        for (stripe, index, node, state) in blocks {
            let mut stripe = match self.stripe(stripe) {
                Err(CatalogError::NoSuchStripe(_)) => continue, // The stripe was removed meanwhile.
                found => found?,
            };
            let key = Key::of(&stripe.id).expect("a stored stripe has a key");
            let block = block_of(&mut stripe, *index)?;
            if block.node == Some(*node) && block.state != *state {
                news.push((key, *index, *state));
            }
        }
        if news.is_empty() {
            return Ok(()); // Nothing has changed, so nothing is written.
        }
        self.change(|change| {
            for (key, index, state) in news {
                let mut stripe = stored(change, key)?;
                block_of(&mut stripe, index)?.state = state;
                store_again(change, key, stripe)?;
            }
            Ok(())
        })
    }

    /// Returns the keys of the stripes of uncommitted puts.
    fn pending_keys(&self) -> Result<BTreeSet<Key>, CatalogError> {
        let mut pending = BTreeSet::new();
        self.look(|view| {
            view.each(PUT_STRIPES, (0, 0).., |_, key: Key| {
                pending.insert(key);
            })
        })?;
        Ok(pending)
    }

    /// Returns the stripe whose name has this count, if there is only one. The rest of a stripe's name is the
    /// era, which users may omit.
    ///
    /// # Errors
    /// [`CatalogError::Ambiguous`] if several stripes have this count.
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
}

/// Returns the stripe with this key.
pub(super) fn stored(change: &Change<'_>, key: Key) -> Result<StripeRecord, CatalogError> {
    change.get(STRIPES, key.0)?.ok_or_else(|| CatalogError::NoSuchStripe(key.stripe()))
}

/// Stores a stripe; `pending` if it belongs to an uncommitted put.
pub(super) fn store(
    change: &Change<'_>,
    key: Key,
    stripe: StripeRecord,
    pending: bool,
) -> Result<(), CatalogError> {
    change.put(STRIPES, key.0, &stripe)?;
    change.tell(StoreChange::Stripe(stripe, pending));
    Ok(())
}

/// Stores a changed stripe, and reports whether the stripe still belongs to an uncommitted put.
fn store_again(change: &Change<'_>, key: Key, stripe: StripeRecord) -> Result<(), CatalogError> {
    // The stripe's record names its put, so no search through all puts is needed.
    let put =
        stripe.file.as_ref().and_then(|part| Some((Key::of(&StripeId(part.put.clone()))?, part.position)));
    let listed: Option<Key> = match put {
        Some((put, position)) => change.get(PUT_STRIPES, (put.count(), position))?,
        None => None,
    };
    store(change, key, stripe, listed == Some(key))
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
    block.publish(news.node, news.digest);
    Ok(())
}

/// Records that a block moves to another node: marks the copy on the old node for removal, and cancels a
/// removal on the new node.
pub(super) fn move_block(
    change: &Change<'_>,
    block: &mut BlockRecord,
    node: NodeId,
) -> Result<(), CatalogError> {
    if block.node != Some(node) {
        discard(change, block)?;
        block.node = Some(node);
    }
    keep(change, node, &block.id)
}

/// Marks a block for removal from its node, if the record names a node.
pub(super) fn discard(change: &Change<'_>, block: &BlockRecord) -> Result<(), CatalogError> {
    block.node.map_or(Ok(()), |node| discard_from(change, node, &block.id))
}

/// Marks a block for removal from a node.
pub(super) fn discard_from(change: &Change<'_>, node: NodeId, block: &BlockId) -> Result<(), CatalogError> {
    change.tell(StoreChange::Discard(node, block.clone()));
    change.put(DISCARDS, (node.0, block.0.as_str()), &())
}

/// Cancels the removal of a block from a node.
pub(super) fn keep(change: &Change<'_>, node: NodeId, block: &BlockId) -> Result<(), CatalogError> {
    if change.remove(DISCARDS, (node.0, block.0.as_str()))? {
        change.tell(StoreChange::DiscardGone(node, block.clone()));
    }
    Ok(())
}

impl DirCatalog {
    /// Returns the stripe with this name. The name may omit the era if only one stripe has the count.
    ///
    /// # Errors
    /// [`CatalogError::NoSuchStripe`].
    pub fn stripe(&self, id: &StripeId) -> Result<StripeRecord, CatalogError> {
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
}

impl DirCatalog {
    /// Calls `visit` with every stripe, sorted by count.
    pub(super) fn visit_stripes(
        &self,
        visit: &mut dyn FnMut(StripeRecord, bool),
    ) -> Result<(), CatalogError> {
        let pending = self.pending_keys()?;
        self.look(|view| view.each(STRIPES, 0.., |key, stripe| visit(stripe, pending.contains(&Key(key)))))
    }

    /// Carries out a change of stripes in the open transaction.
    pub(super) fn change_stripes(&mut self, write: &StripeWrite) -> Result<(), CatalogError> {
        match write {
            StripeWrite::Publish { stripe, blocks, .. } => self.publish_all(stripe, blocks),
            StripeWrite::SetStates(states) => self.set_states(states),
            // Nothing to do. Stripes need no lock, because Mend is the only writer. There are no metadata
            // files to inspect, because only checksum files are stored beside blocks.
            StripeWrite::Claim { .. } | StripeWrite::Release(_) | StripeWrite::Inspect => Ok(()),
        }
    }
}

/// Returns the record of a new stripe without published blocks.
pub(super) fn new_stripe(
    key: Key,
    put: &PutRecord,
    position: u32,
    size: BlockSize,
    nodes: &[NodeId],
) -> StripeRecord {
    let blocks = nodes.iter().enumerate().map(|(index, &node)| (key.block(block_index(index)), node));
    let file = Some(put.part(position));
    StripeRecord { file, ..StripeRecord::new(key.stripe(), put.code.clone(), size, blocks) }
}
