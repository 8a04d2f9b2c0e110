//! Recording and settling contradictions between the blocks of a stripe.

use std::collections::{BTreeMap, BTreeSet};

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
    /// Restores the contradictions that an earlier coordinator recorded. Opens an ended one again if a copy that was
    /// left out has returned meanwhile.
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
                Some(kept) if !is_gone => self.contradictions.restore(id, kept),
                _ => out.forget_record(format!("{PREFIX}{stripe}")),
            }
        }
        self.look_for_all_left_out(outer, |_, _| false, out);
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

    /// Handles a passed parity check over these blocks, each on its node. If the blocks include every block of which a
    /// healthy copy is recorded, the stripe's contradiction ends. The storage's listing counts, even if a plug-in's
    /// description lacks a block. A copy that is only described counts too, until the description is dropped: the
    /// listing may be older.
    pub(crate) fn parity_held(
        &mut self,
        outer: OuterFacts<'_>,
        stripe: &StripeId,
        read: &BTreeMap<BlockIndex, NodeId>,
        out: &mut Out,
    ) {
        let Some(open) = self.contradictions.open.get(stripe) else { return };
        let Some(record) = listed_or_described(self, stripe) else { return };
        let (facts, known) = (outer.with(self), &open.left_out);
        let is_unread =
            |(index, block): &(BlockIndex, &BlockRecord)| !read.contains_key(index) && facts.counts(block);
        if indexed(&record).any(|it| is_unread(&it)) {
            return;
        }
        let is_other = |(index, block): &(BlockIndex, &BlockRecord)| {
            let copy = copy_in_service(facts, block);
            known.contains_key(&index.0) && copy.is_some_and(|node| read.get(index) != Some(&node))
        };
        let described = self.given.get(stripe).into_iter().flat_map(indexed);
        let waits = described.filter(|it| is_unread(it) || is_other(it));
        let waits: Vec<u16> = waits.map(|(index, _)| index.0).collect();
        if !waits.is_empty() {
            return self.contradictions.leave_out(stripe, waits, out);
        }
        let stays = |(index, block): &(BlockIndex, &BlockRecord)| {
            let is_unsure = known.contains_key(&index.0) || !read.contains_key(index);
            is_unsure && !self.condemned.has_all(block)
        };
        let left_out = indexed(&record).filter(stays);
        let left_out = left_out.map(|(index, _)| (index.0, read.get(&index).copied())).collect();
        tracing::info!(%stripe, "parity holds again");
        self.contradictions.end(stripe, left_out, out);
        out.note(HistoryEvent::ContradictionSettled { stripe: stripe.to_string() });
    }

    /// Opens an ended contradiction of a stripe again if Mend would read a copy next, as listed or as described, that no check
    /// has read, unless a running job `makes` it.
    pub(crate) fn look_for_left_out(
        &self,
        outer: OuterFacts<'_>,
        makes: impl Fn(&StripeId, (BlockIndex, NodeId)) -> bool,
        stripe: &StripeId,
        out: &mut Out,
    ) {
        let Some(ended) = self.contradictions.ended.get(stripe) else { return };
        let facts = outer.with(self);
        let has_returned = |(index, block): (BlockIndex, &BlockRecord)| {
            let Some(known) = ended.left_out.get(&index.0) else { return false };
            let copy = copy_in_service(facts, block).filter(|node| Some(*node) != *known);
            copy.is_some_and(|node| !makes(stripe, (index, node)))
        };
        let records = [listed_or_described(self, stripe), self.given.get(stripe).cloned()];
        if !records.iter().flatten().flat_map(indexed).any(has_returned) {
            return;
        }
        let (blocks, found_by) = (ended.blocks.iter().copied().map(BlockIndex).collect(), ended.found_by);
        tracing::warn!(%stripe, "a copy of a block has returned that no check has read since parity failed");
        out.tell(Signal::Contradiction { stripe: stripe.clone(), blocks, found_by });
        out.tell(Signal::Doubtful(stripe.clone()));
    }

    /// Opens all ended contradictions again whose stripes have such copies. Nodes may have returned, or others with
    /// further copies may be down.
    pub(crate) fn look_for_all_left_out(
        &self,
        outer: OuterFacts<'_>,
        makes: impl Fn(&StripeId, (BlockIndex, NodeId)) -> bool,
        out: &mut Out,
    ) {
        for stripe in self.contradictions.ended.keys() {
            self.look_for_left_out(outer, &makes, stripe, out);
        }
    }
}

/// Returns a stripe as the storage lists it or, if the storage does not list it, as a plug-in described it.
fn listed_or_described(stripes: &Stripes, stripe: &StripeId) -> Option<StripeRecord> {
    stripes.picture.stripe(stripe).ok().or_else(|| stripes.stripe_record(stripe).ok())
}

/// Returns the node whose copy of a block Mend would read. While no helper can read a copy, a server of the store may.
/// Copies on machines that are down have not returned, even if the store counts them as good.
fn copy_in_service(facts: Facts<'_>, block: &BlockRecord) -> Option<NodeId> {
    let is_up = |node| facts.stripes.picture.is_up(node);
    let mut served = block.holders().filter(|holder| is_up(holder.node) && facts.is_good(block, holder));
    facts.readable_at(block).or_else(|| served.next().map(|holder| holder.node))
}

impl Contradictions {
    /// Removes the contradiction of a stripe and its record, also if it has ended.
    pub(crate) fn forget(&mut self, stripe: &StripeId, out: &mut Out) {
        let (open, ended) = (self.open.remove(stripe), self.ended.remove(stripe));
        if open.or(ended).is_some() {
            out.forget_record(format!("{PREFIX}{stripe}"));
        }
    }

    /// Ends the open contradiction of a stripe. Its record is kept if copies of these blocks may not have been checked.
    fn end(&mut self, stripe: &StripeId, left_out: BTreeMap<u16, Option<NodeId>>, out: &mut Out) {
        match self.open.remove(stripe) {
            Some(contradiction) if !left_out.is_empty() => {
                self.keep_ended(stripe, Contradiction { has_ended: true, left_out, ..contradiction }, out);
            }
            _ => out.forget_record(format!("{PREFIX}{stripe}")),
        }
    }

    /// Handles blocks of a stripe that a job has made, each on its node. They do not open its ended contradiction again,
    /// but other copies of them do, also if the contradiction is still open.
    pub(crate) fn note_made(&mut self, stripe: &StripeId, made: &[(BlockIndex, NodeId)], out: &mut Out) {
        self.leave_out(stripe, made.iter().map(|(index, _)| index.0), out);
        let Some(mut ended) = self.ended.get(stripe).cloned() else { return };
        for (index, node) in made {
            if let Some(known) = ended.left_out.get_mut(&index.0) {
                *known = Some(*node);
            }
        }
        self.keep_ended(stripe, ended, out);
    }

    /// Handles a stripe that the storage lists otherwise than before. If its contradiction is open, no check has read
    /// the former copies of blocks that were rebuilt or moved.
    pub(in crate::stripes) fn note_moved(
        &mut self,
        before: &StripeRecord,
        now: &StripeRecord,
        out: &mut Out,
    ) {
        let was_on = |index| before.block(index).and_then(|block| block.node);
        let moved = indexed(now).filter(|(index, block)| block.node != was_on(*index));
        self.leave_out(&now.id, moved.map(|(index, _)| index.0), out);
    }

    /// Notes that an open contradiction's stripe has copies of these blocks that no check has read.
    fn leave_out(&mut self, stripe: &StripeId, blocks: impl IntoIterator<Item = u16>, out: &mut Out) {
        let Some(open) = self.open.get_mut(stripe) else { return };
        let known = open.left_out.len();
        open.left_out.extend(blocks.into_iter().map(|index| (index, None)));
        if open.left_out.len() > known {
            out.keep_record(format!("{PREFIX}{stripe}"), open);
        }
    }

    fn keep_ended(&mut self, stripe: &StripeId, ended: Contradiction, out: &mut Out) {
        if self.ended.get(stripe) != Some(&ended) {
            out.keep_record(format!("{PREFIX}{stripe}"), &ended);
        }
        self.ended.insert(stripe.clone(), ended);
    }
}

impl Stripes {
    /// Returns the stripes with a contradiction, except those that are missing from the picture (the catalog in
    /// memory).
    pub(crate) fn contradictory(&self) -> impl Iterator<Item = &StripeId> {
        self.contradictions.open.keys().filter(move |stripe| self.stripe_record(stripe).is_ok())
    }

    pub(crate) fn block_names(&self, stripe: &StripeId, blocks: &BTreeSet<u16>) -> Vec<String> {
        let Ok(record) = self.stripe_record(stripe) else { return Vec::new() };
        let block = |&index: &u16| record.blocks.get(usize::from(index));
        blocks.iter().filter_map(block).map(|block: &BlockRecord| block.id.to_string()).collect()
    }
}

/// Returns the stripes that contain wrong blocks with matching checksums: contradictory stripes, and stripes with
/// condemned blocks. Includes stripes that are missing from the picture (the catalog in memory), because the store was
/// not listed yet since the coordinator's start. Until then, blocks that a check left out may have returned.
pub(crate) fn tainted(stripes: &Stripes) -> ContradictoryStripes {
    let Stripes { contradictions, condemned, .. } = stripes;
    let may_be_there = |block: &BlockId, node: NodeId| {
        stripes.record_of(block).is_none_or(|(_, _, record)| record.state_on(node).is_some())
    };
    let wrong = condemned.blocks.iter().filter(|((block, node), _)| may_be_there(block, *node));
    let is_unseen =
        |stripe: &&StripeId| stripes.news.unlisted().is_some() && stripes.stripe_record(stripe).is_err();
    let ended = contradictions.ended.keys().filter(is_unseen);
    let names: BTreeSet<&StripeId> =
        contradictions.open.keys().chain(ended).chain(wrong.map(|(_, stripe)| stripe)).collect();
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
