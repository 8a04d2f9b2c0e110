//! Copies of blocks that the catalog does not count: orphans, and copies that their helpers are about to remove.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};

use crate::facts::Facts;
use crate::stripes::state::holdings::Holdings;

/// Returns the copies on a node that are worth verifying, for example because the catalog places the block on
/// another node, which has lost it. Candidates are the node's [spare copies](spare_copies).
pub(crate) fn wanted_copies(facts: Facts<'_>, node: NodeId) -> Vec<(StripeId, BlockIndex)> {
    wanted_among(facts, node, spare_copies(facts, node, None, usize::MAX))
}

/// Returns at most `most` of a node's spare copies, in the order of their names, beginning after `after`. Spare
/// copies are the node's orphans and the copies that it is about to remove.
pub(crate) fn spare_copies<'f, 'a: 'f>(
    facts: Facts<'a>,
    node: NodeId,
    after: Option<&'f BlockId>,
    most: usize,
) -> Vec<&'f BlockId> {
    let held = facts.stripes.inventory.get(node);
    let Some(Holdings { orphans, removing, .. }) = held else { return Vec::new() };
    let start = after.map_or(Unbounded, Excluded);
    let orphans = orphans.range::<BlockId, _>((start, Unbounded));
    let is_later = |block: &&BlockId| after.is_none_or(|after| *block > after);
    let leaving = facts.stripes.picture.files().discards_after(node, after).take_while(is_later);
    let leaving = leaving.filter(|block| !removing.contains(*block));
    let sorted: BTreeSet<&BlockId> = orphans.take(most).chain(leaving.take(most)).collect();
    sorted.into_iter().take(most).collect()
}

/// Whether a node has a spare copy of a block.
pub(crate) fn has_spare_copy(facts: Facts<'_>, node: NodeId, block: &BlockId) -> bool {
    let is_leaving = || facts.stripes.picture.files().is_discarded(node, block);
    let held = facts.stripes.inventory.get(node);
    held.is_some_and(|held| held.orphans.contains(block) || is_leaving() && !held.removing.contains(block))
}

/// Returns those of a node's spare copies that are worth verifying.
pub(crate) fn wanted_among<'b>(
    facts: Facts<'_>,
    node: NodeId,
    copies: impl IntoIterator<Item = &'b BlockId>,
) -> Vec<(StripeId, BlockIndex)> {
    let unadopted = &facts.stripes.inventory.unadopted;
    let candidates = copies.into_iter().filter(|block| !unadopted.has(node, block));
    let recorded = candidates.filter_map(|block| facts.stripes.record_of(block));
    let copies = recorded.map(|(stripe, index, _)| (stripe, index));
    copies.filter(|(stripe, index)| facts.is_wanted_from(node, stripe, *index)).collect()
}
