//! Recording and settling contradictions between the blocks of a stripe.

use std::collections::BTreeSet;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use serde_json::Value;
use store_api::{BlockRecord, StripeRecord};

use crate::counts::count;
use crate::error::list;
use crate::facts::Facts;
use crate::facts::OuterFacts;
use crate::out::Out;
use crate::records::recall;
use crate::signal::Signal;
use crate::stripes::Stripes;
use crate::stripes::indices::indexed;
use crate::stripes::state::contradictions::{Contradiction, Contradictions};
use views::{ContradictoryStripes, FoundBy, HistoryEvent};

/// The prefix of the record keys of contradictions; the stripe's name follows.
const PREFIX: &str = "contradiction/";

impl Stripes {
    /// Restores the contradictions that an earlier coordinator recorded.
    pub(crate) fn recall_contradictions(
        &mut self,
        outer: OuterFacts<'_>,
        records: &[(String, Value)],
        out: &mut Out,
    ) {
        for (stripe, kept) in recall::<Contradiction>(records, PREFIX) {
            let id = StripeId(stripe.to_owned());
            // In a store that others run, an existing stripe may be missing from the picture now, because
            // stripes are listed after the start or described by plug-ins.
            let is_gone = outer.base.store.owns_files() && self.picture.stripe(&id).is_err();
            match kept {
                Some(kept) if !is_gone => drop(self.contradictions.0.insert(id, kept)),
                _ => out.forget_record(format!("{PREFIX}{stripe}")),
            }
        }
    }

    /// Records that parity equations over these blocks failed and that the wrong block is unknown.
    pub(crate) fn note_contradiction(
        &mut self,
        outer: OuterFacts<'_>,
        stripe: &StripeId,
        blocks: &BTreeSet<BlockIndex>,
        found_by: FoundBy,
        out: &mut Out,
    ) {
        let is_known = self.contradictions.has(stripe);
        let Some(kept) = self.contradictions.add(stripe, blocks, found_by, outer.base.unix_ms) else {
            return;
        };
        out.keep_record(format!("{PREFIX}{stripe}"), &kept);
        if is_known {
            return;
        }
        let names = self.block_names(stripe, &kept.blocks);
        tracing::warn!(%stripe, blocks = list(&names), %found_by, "the blocks of a stripe contradict each other");
        out.note(HistoryEvent::Contradiction { stripe: stripe.to_string(), blocks: names, found_by });
        out.tell(Signal::ContradictionAdded(stripe.clone()));
    }

    /// Handles a passed parity check over these blocks. If the blocks include every block of which a healthy
    /// copy is recorded, the stripe's contradiction is settled.
    pub(crate) fn parity_held(
        &mut self,
        outer: OuterFacts<'_>,
        stripe: &StripeId,
        blocks: &BTreeSet<BlockIndex>,
        out: &mut Out,
    ) {
        if !self.contradictions.has(stripe) {
            return;
        }
        let Ok(record) = self.stripe_record(stripe) else { return };
        let proven = |(index, block): (BlockIndex, &BlockRecord)| {
            blocks.contains(&index) || !outer.with(self).counts(block)
        };
        if indexed(&record).all(proven) {
            tracing::info!(%stripe, "parity holds again");
            self.contradictions.forget(stripe, out);
            out.note(HistoryEvent::ContradictionSettled { stripe: stripe.to_string() });
        }
    }
}

impl Contradictions {
    /// Ends the contradiction of a stripe and removes its record.
    pub(crate) fn forget(&mut self, stripe: &StripeId, out: &mut Out) {
        if self.0.remove(stripe).is_some() {
            out.forget_record(format!("{PREFIX}{stripe}"));
        }
    }
}

impl Stripes {
    /// Returns the stripes with a contradiction, except those that are missing from the picture (the catalog in
    /// memory).
    pub(crate) fn contradictory(&self) -> impl Iterator<Item = &StripeId> {
        self.contradictions.0.keys().filter(move |stripe| self.stripe_record(stripe).is_ok())
    }

    pub(crate) fn block_names(&self, stripe: &StripeId, blocks: &BTreeSet<u16>) -> Vec<String> {
        let Ok(record) = self.stripe_record(stripe) else { return Vec::new() };
        let block = |&index: &u16| record.blocks.get(usize::from(index));
        blocks.iter().filter_map(block).map(|block: &BlockRecord| block.id.to_string()).collect()
    }
}

/// Returns the stripes that contain wrong blocks with matching checksums: contradictory stripes, and stripes with
/// condemned blocks. Includes stripes that are missing from the picture (the catalog in memory), because the store was
/// not listed yet since the coordinator's start.
pub(crate) fn tainted(stripes: &Stripes) -> ContradictoryStripes {
    let Stripes { contradictions, condemned, .. } = stripes;
    let may_be_there = |block: &BlockId, node: NodeId| {
        stripes.record_of(block).is_none_or(|(_, _, record)| record.state_on(node).is_some())
    };
    let wrong = condemned.blocks.iter().filter(|((block, node), _)| may_be_there(block, *node));
    let names: BTreeSet<&StripeId> = contradictions.0.keys().chain(wrong.map(|(_, stripe)| stripe)).collect();
    ContradictoryStripes { stripes: names.into_iter().map(StripeId::to_string).collect() }
}

/// Returns the part of the status line about contradictions; `None` if there are none.
pub(crate) fn words(contradictory: u64, stripes: u64) -> Option<String> {
    (contradictory > 0).then(|| {
        format!(
            "the blocks of {contradictory} of {} contradict each other, so at least one block of each is \
             wrong",
            count(stripes, "stripe")
        )
    })
}

impl<'a> Facts<'a> {
    /// Returns advice on how to settle a stripe's contradiction.
    pub(crate) fn settled_by(self, record: &StripeRecord) -> String {
        let waits = |block: &&BlockRecord| self.counts(block) && self.readable_at(block).is_none();
        let down = record.blocks.iter().filter(waits).flat_map(BlockRecord::holders);
        let down: BTreeSet<String> = down.map(|holder| self.nodes.name(holder.node)).collect();
        let again = match &record.file {
            Some(part) => format!("put {} again from another copy", part.name),
            None => "write the data again from another copy".to_owned(),
        };
        if down.is_empty() {
            return format!("run mend scrub --parity; if that cannot tell which block is wrong, {again}");
        }
        let down: Vec<String> = down.into_iter().collect();
        format!(
            "start {}, then run mend scrub --parity and mend repair --all: with more blocks Mend may find \
             the wrong one; if no helper can be started, {again}",
            list(&down)
        )
    }
}
