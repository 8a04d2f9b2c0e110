//! Helpers that return while their blocks are being rebuilt.
//!
//! A returned helper describes its blocks by their checksum files, without reading the blocks. The
//! descriptions are compared with the recorded digests. Until this is done, the scheduler suspends the
//! stripes of these blocks: it starts no repair that may be unnecessary, and ends no repair that may still be
//! necessary.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::Description;
use repair::{BlockId, NodeId, StripeId};
use store_api::BlockState;

use crate::facts::OuterFacts;
use crate::out::Out;
use crate::stripes::Stripes;

/// How long the scheduler suspends stripes while it waits for descriptions.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

impl Stripes {
    /// Returns the stripe and index of a described block if the block is recorded as healthy on this node,
    /// but with another digest.
    pub(crate) fn contradicted_by(&self, node: NodeId, told: &Description) -> Option<(StripeId, BlockIndex)> {
        let (stripe, index) = self.picture.find_block(&told.id).ok()?;
        let record = self.picture.stripe(&stripe).ok()?;
        let known = &record.blocks[usize::from(index.0)];
        let differs = known.digest.is_some() && told.digest.is_some() && known.digest != told.digest;
        let is_here = known.id == told.id && known.node == Some(node) && known.state == BlockState::Healthy;
        (is_here && differs).then_some((stripe, index))
    }

    /// Verifies the blocks of a returned helper that were not described.
    pub(crate) fn look_at_silent(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        described: &BTreeSet<BlockId>,
        out: &mut Out,
    ) {
        let is_silent = |(stripe, index): &(StripeId, BlockIndex)| {
            let record = self.picture.stripe(stripe);
            record.is_ok_and(|record| !described.contains(&record.blocks[usize::from(index.0)].id))
        };
        let silent: Vec<_> = self.picture.blocks_of(node).into_iter().filter(is_silent).collect();
        let Some(held) = self.inventory.get_mut(node) else { return };
        held.undescribed.extend(silent);
        if !out.queries.is_rechecking(node) {
            self.verify_undescribed(outer, node, out);
        }
    }

    /// Asks a helper to verify the next block that it has not described. After the answer, the following one is
    /// verified.
    pub(in crate::stripes) fn verify_undescribed(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        out: &mut Out,
    ) {
        while let Some(held) = self.inventory.get_mut(node)
            && let Some((stripe, index)) = held.undescribed.pop_first()
        {
            let Ok(record) = self.picture.stripe(&stripe) else { continue };
            let Some(known) = record.block(index).cloned() else { continue };
            let is_healthy = self.unrecorded.latest(&known, node) == Some(BlockState::Healthy);
            if is_healthy && !out.queries.is_verifying_block(node, &known.id) {
                return self.look_again(outer, node, stripe, index, known, out);
            }
        }
    }
}
