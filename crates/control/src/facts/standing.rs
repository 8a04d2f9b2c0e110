//! The lost blocks of a stripe, and the number of further losses that the stripe tolerates.
//!
//! The counts of the picture (the catalog in memory) omit two facts: blocks found bad whose state is not
//! recorded yet, and contradictions. The status, the checks before a stop, and the views of stripes all add
//! these here, so that their answers agree.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, CodeSpec};
use repair::{NodeId, StripeId};
use store_api::StripeRecord;

use crate::error::RequestError;
use crate::facts::Facts;
use crate::stripes::indices::indexed;
use crate::stripes::picture::{Slot, Survives, Together};

/// The lost blocks of a stripe, and how its other blocks share failure domains.
pub(crate) struct Standing {
    pub lost: Vec<BlockIndex>,
    pub together: Together,
    /// Whether some block is wrong and it is unknown which.
    pub contradictory: bool,
}

/// Stripes (of files) for which the picture, the catalog in memory, does not count all losses: because a bad
/// copy is not recorded yet, or because the stripe's blocks contradict each other.
pub(crate) struct Doubts {
    /// Copies found bad whose state is not recorded yet.
    bad: BTreeMap<Slot, BTreeSet<(BlockIndex, NodeId)>>,
    contradictory: BTreeSet<Slot>,
}

impl Doubts {
    /// Returns all stripes with bad copies or contradictions.
    pub(crate) fn slots(&self) -> BTreeSet<Slot> {
        self.bad.keys().chain(&self.contradictory).copied().collect()
    }
}

impl<'a> Facts<'a> {
    pub(crate) fn doubts(self) -> Doubts {
        let picture = &self.stripes.picture;
        let mut bad: BTreeMap<Slot, BTreeSet<(BlockIndex, NodeId)>> = BTreeMap::new();
        for (block, node) in self.stripes.unrecorded.all_bad() {
            let found = picture.find_block(block).ok();
            let slot = found.as_ref().and_then(|(stripe, _)| picture.slot_of_file(stripe));
            if let Some(((_, index), slot)) = found.zip(slot) {
                bad.entry(slot).or_default().insert((index, *node));
            }
        }
        let contradictory = self.stripes.contradictions.open.keys();
        let contradictory = contradictory.filter_map(|stripe| picture.slot_of_file(stripe)).collect();
        Doubts { bad, contradictory }
    }

    fn doubts_about(self, slot: Slot, record: &StripeRecord) -> Doubts {
        let bad = indexed(record).flat_map(|(index, block)| {
            let holders = block.holders().map(|holder| holder.node);
            holders
                .filter(move |&node| self.stripes.unrecorded.is_bad(&block.id, node))
                .map(move |node| (index, node))
        });
        let contradictory = self.stripes.contradictions.has(&record.id).then_some(slot);
        Doubts { bad: [(slot, bad.collect())].into(), contradictory: contradictory.into_iter().collect() }
    }

    /// Returns the losses that a stripe would have if only those nodes remained that are in service and for
    /// which `stays` is true.
    pub(crate) fn standing(self, doubts: &Doubts, slot: Slot, stays: impl Fn(NodeId) -> bool) -> Standing {
        let picture = &self.stripes.picture;
        let bad = doubts.bad.get(&slot);
        let is_bad = |index, node| bad.is_some_and(|bad| bad.contains(&(BlockIndex(index), node)));
        let counts = |index, node| picture.is_up(node) && stays(node) && !is_bad(index, node);
        let (lost, together) = picture.losses(slot, counts);
        Standing { lost, together, contradictory: doubts.contradictory.contains(&slot) }
    }

    /// Returns the losses of any stripe, even if no file in the picture (the catalog in memory) contains the
    /// stripe.
    pub(crate) fn standing_of(self, record: &StripeRecord) -> Standing {
        if let Some(slot) = self.stripes.picture.slot_of_file(&record.id) {
            return self.standing(&self.doubts_about(slot, record), slot, |_| true);
        }
        let readers: Vec<NodeId> = record.blocks.iter().filter_map(|block| self.readable_at(block)).collect();
        Standing {
            lost: self.lost_blocks(record),
            together: self.stripes.picture.together(&readers),
            contradictory: self.stripes.contradictions.has(&record.id),
        }
    }

    /// Whether a stripe has lost blocks or contradicts itself, and cannot lose another helper. The status counts
    /// such stripes as `AT_RISK`.
    pub(crate) fn is_at_risk(self, stripe: &StripeId) -> bool {
        let Ok(record) = self.stripes.stripe_record(stripe) else { return false };
        let standing = self.standing_of(&record);
        let is_weakened = standing.contradictory || !standing.lost.is_empty();
        let survives = self.survives(&record.code, &standing).ok().flatten();
        is_weakened && survives.is_some_and(|survives| survives.nodes == 0)
    }

    /// Returns the losses that a stripe surely survives. `None` if the stripe cannot be read. While blocks
    /// contradict each other, every remaining block may be needed to find the wrong one, so the stripe can
    /// lose no block.
    pub(crate) fn survives(
        self,
        code: &CodeSpec,
        standing: &Standing,
    ) -> Result<Option<Survives>, RequestError> {
        let code = self.stripes.codes.get(code)?;
        let blocks = self.stripes.codes.survives(&*code, &standing.lost);
        let surely = |blocks| if standing.contradictory { 0 } else { blocks };
        Ok(blocks.map(|blocks| standing.together.survives(surely(blocks))))
    }
}
