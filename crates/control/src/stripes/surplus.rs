//! Surplus copies: a block that was rebuilt or moved may still be on its earlier node.
//!
//! A surplus copy is removed only under three conditions: the stripe is whole without it and tolerates as
//! many node failures; no job works on the stripe; and the copy that stays was proven less than a minute ago,
//! or a job has just written it and read it back. Copies are kept while blocks of the stripe contradict each
//! other, and for some time after a read of the stripe has failed.
//!
//! A copy is proven if its digest is the recorded one. If no digest is recorded, copies may differ although
//! each of them can be read: a server may have returned with a shard of an earlier encoding. Such a copy is
//! proven only by a parity check that has read it.
//!
//! Each helper verifies one block at a time, within a rate. A restart forgets the verifications, so they are
//! repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, Outcome, StripeId};
use store_api::{BlockRecord, RecordWrite, StripeRecord, Write};

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::pace::Pace;
use crate::signal::Signal;
use crate::storing::then::Then;
use crate::stripes::indices::{indexed, indices_of};

/// How often the coordinator looks for removable copies among those that the store lists.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a verified copy allows the removal of the other copies.
const FRESH: Duration = Duration::from_secs(60);
/// How long a copy that a job has read back allows the removal of the other copies. A short time is enough,
/// because a drain removes the earlier copy of a block right after the job.
const READ_BACK_COUNTS: Duration = Duration::from_secs(5);
/// How long the copies of a stripe are kept after a read that failed for an unknown reason.
const HELD: Duration = Duration::from_secs(60);
/// How long to wait before the parity of a stripe is checked again, if a check has proven nothing.
const PROVE_AGAIN: Duration = Duration::from_secs(300);
/// The maximum rate at which a helper reads to verify copies that stay, in bytes per second.
const BYTES_PER_S: u64 = 64 << 20;

type Key = (StripeId, BlockIndex);

/// The copies that must be verified before other copies of the same blocks are removed.
#[derive(Default)]
pub(crate) struct Surplus {
    due: Duration,
    /// For each helper, the blocks that it must verify, with the nodes of their surplus copies.
    waiting: BTreeMap<NodeId, BTreeMap<Key, BTreeSet<NodeId>>>,
    reading: BTreeMap<NodeId, Reading>,
    /// For each verified block, the node of the verified copy, and the time until which the verification is
    /// valid.
    verified: BTreeMap<Key, (NodeId, Duration)>,
    /// Stripes whose parity was to be checked, and the time of the request.
    asked: BTreeMap<StripeId, Duration>,
    /// Stripes of which a read has failed, and the time until which their copies are kept.
    failed: BTreeMap<StripeId, Duration>,
}

/// The latest verification by a helper.
struct Reading {
    question: u64,
    key: Key,
    copies: BTreeSet<NodeId>,
    pace: Pace,
    /// Whether the stripe was removed meanwhile, so that the answer proves nothing.
    is_void: bool,
}

impl Surplus {
    /// Looks for copies in the store's listing that could be removed, and starts the verifications that are
    /// due.
    pub(crate) fn handle_tick(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let now = facts.base.now;
        if now >= self.due {
            self.due = now + LOOK_EVERY;
            self.verified.retain(|_, (_, until)| now < *until);
            self.failed.retain(|_, until| now < *until);
            self.asked.retain(|_, asked| now < *asked + PROVE_AGAIN);
            self.look_for_holders(facts, jobs, out);
        }
        self.verify_next(facts, out);
    }

    fn look_for_holders(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        if !facts.base.store.reports_service() || !facts.nodes.settled || !facts.may_change() {
            return;
        }
        for stripe in facts.stripes.picture.replicated() {
            for (index, block) in jobs.surplus_of(facts, &stripe) {
                let key = (stripe.id.clone(), index);
                // If the remaining copy is already verified, the store is still removing the other copies.
                if !self.failed.contains_key(&stripe.id) && !self.verified.contains_key(&key) {
                    self.queue(facts, &block, key, other_copies(facts, &block), out);
                }
            }
        }
    }

    /// Queues the verification of the copy that stays.
    fn queue(
        &mut self,
        facts: Facts<'_>,
        block: &BlockRecord,
        key: Key,
        copies: impl IntoIterator<Item = NodeId>,
        out: &mut Out,
    ) {
        if block.digest.is_none() {
            if !self.asked.contains_key(&key.0) {
                self.asked.insert(key.0.clone(), facts.base.now);
                out.tell(Signal::Doubtful(key.0));
            }
            return;
        }
        if let Some(stays) = facts.readable_at(block) {
            self.waiting.entry(stays).or_default().entry(key).or_default().extend(copies);
        }
    }

    /// Whether a node's copy of a block may be removed now, because the copy that stays was just verified. If
    /// only this verification is missing, queues it. After the verification, the copy is reported to the
    /// scheduler again.
    pub(crate) fn may_drop(
        &mut self,
        facts: Facts<'_>,
        (stripe, index, node): (&StripeId, BlockIndex, NodeId),
        out: &mut Out,
    ) -> bool {
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return false };
        let Some(block) = record.block(index) else { return false };
        if self.failed.contains_key(stripe) || !facts.survives_without(&record, index, node) {
            return false;
        }
        let key = (stripe.clone(), index);
        let stays = facts.readable_at(block).filter(|&stays| stays != node);
        let verified = self.verified.get(&key).filter(|&&(_, until)| facts.base.now < until);
        if stays.is_some() && verified.map(|&(node, _)| node) == stays {
            return true;
        }
        self.queue(facts, block, key, [node], out);
        false
    }

    /// Starts the verifications that are due.
    fn verify_next(&mut self, facts: Facts<'_>, out: &mut Out) {
        self.waiting.retain(|&node, blocks| facts.nodes.is_connected(node) && !blocks.is_empty());
        for (&node, blocks) in &mut self.waiting {
            let now = facts.base.now;
            let is_busy = |reading: &Reading| {
                !reading.pace.is_due(now) || out.queries.subject(node, reading.question).is_some()
            };
            if self.reading.get(&node).is_some_and(is_busy) {
                continue;
            }
            while let Some((key, copies)) = blocks.pop_first() {
                let record = facts.stripes.picture.stripe(&key.0).ok();
                let block = record.and_then(|record| record.block(key.1).cloned());
                let Some(block) = block.filter(|block| facts.readable_at(block) == Some(node)) else {
                    continue; // The surplus copy is reported again later.
                };
                let mut pace = self.reading.get(&node).map_or(Pace::default(), |reading| reading.pace);
                pace.spend(block.bytes, BYTES_PER_S, now);
                let question = facts.ask_for_block(node, key.0.clone(), key.1, block, false, out);
                self.reading.insert(node, Reading { question, key, copies, pace, is_void: false });
                break;
            }
        }
    }

    /// Handles a helper's answer to a query about a block.
    pub(crate) fn note_answer(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        (node, question): (NodeId, u64),
        is_good: bool,
        out: &mut Out,
    ) {
        if let Some(reading) = self.reading.get_mut(&node).filter(|reading| reading.question == question) {
            let (key, mut copies) = (reading.key.clone(), std::mem::take(&mut reading.copies));
            if is_good && !reading.is_void {
                let more = self.waiting.get_mut(&node).and_then(|blocks| blocks.remove(&key));
                copies.extend(more.into_iter().flatten());
                self.verified.insert(key.clone(), (node, facts.base.now + FRESH));
                self.drop_copies(facts, jobs, node, (&key, copies), out);
            }
        }
        self.verify_next(facts, out);
    }

    /// Handles a passed parity check that has read these copies: removes other copies of the same blocks. A check of
    /// a job may read only a part of the stripe's blocks. Then the requested check still counts.
    pub(crate) fn note_parity(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        (stripe, read): (&StripeId, &BTreeMap<BlockIndex, NodeId>),
        out: &mut Out,
    ) {
        if !self.asked.contains_key(stripe) {
            return;
        }
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return };
        // A copy that the check has found wrong was not the one that stays. Another check reads the others.
        let is_done = |index: BlockIndex, block: &BlockRecord| {
            let condemned = &facts.stripes.condemned;
            read.contains_key(&index)
                || block.digest.is_some()
                || block.holders().any(|holder| condemned.problem(&block.id, holder.node).is_some())
        };
        if indexed(&record).all(|(index, block)| is_done(index, block)) {
            self.asked.remove(stripe);
        }
        for (&index, &node) in read {
            if let Some(block) = record.block(index).filter(|block| block.digest.is_none()) {
                let key = (stripe.clone(), index);
                self.verified.insert(key.clone(), (node, facts.base.now + FRESH));
                let copies = block.holders().map(|holder| holder.node).filter(|&other| other != node);
                self.drop_copies(facts, jobs, node, (&key, copies.collect()), out);
            }
        }
    }

    /// Removes those copies that are still surplus, after the copy that stays was verified.
    fn drop_copies(
        &self,
        facts: Facts<'_>,
        jobs: &Jobs,
        stays: NodeId,
        ((stripe, index), copies): (&Key, BTreeSet<NodeId>),
        out: &mut Out,
    ) {
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return };
        let Some(block) = record.block(*index) else { return };
        for node in copies {
            if block.state_on(node).is_none() {
                out.tell(Signal::Surplus { node, stripe: stripe.clone(), index: *index });
            } else if facts.readable_at(block) == Some(stays)
                && !self.failed.contains_key(stripe)
                && jobs.surplus_of(facts, &record).iter().any(|(other, _)| other == index)
                && facts.nodes.is_helper(node)
                && facts.survives_without(&record, *index, node)
            {
                tracing::info!(block = %block.id, helper = %facts.nodes.name(node), "removing a surplus copy");
                out.store(Write::Records(RecordWrite::Discard(node, block.id.clone())), Then::Nothing);
            }
        }
    }

    /// Records that a job has stored blocks and read them back. Without a recorded digest, this proves a block only
    /// if the job's parity check covered it: the block may be made from a wrong survivor.
    pub(crate) fn note_made(&mut self, facts: Facts<'_>, stripe: &StripeId, outcome: &Outcome) {
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return };
        let until = facts.base.now + READ_BACK_COUNTS;
        for (&index, &home) in &outcome.homes {
            let has_digest = record.block(index).is_some_and(|block| block.digest.is_some());
            if has_digest || outcome.proven.contains(&index) {
                self.verified.insert((stripe.clone(), index), (home, until));
            }
        }
    }

    /// Drops all state about a stripe that was removed.
    pub(crate) fn forget_stripe(&mut self, stripe: &StripeId) {
        for blocks in self.waiting.values_mut() {
            blocks.extract_if(indices_of(stripe), |_, _| true).for_each(drop);
        }
        self.verified.extract_if(indices_of(stripe), |_, _| true).for_each(drop);
        self.reading
            .values_mut()
            .filter(|reading| reading.key.0 == *stripe)
            .for_each(|reading| reading.is_void = true);
        self.asked.remove(stripe);
    }

    /// Records that a read of a stripe has failed and that it is unknown whether a block is bad. Copies of
    /// the stripe may then be needed and are kept for some time.
    pub(crate) fn note_failed_read(&mut self, stripe: &StripeId, now: Duration) {
        self.failed.insert(stripe.clone(), now + HELD);
    }
}

/// Returns the holders of a block, except the one that is read.
fn other_copies(facts: Facts<'_>, block: &BlockRecord) -> impl Iterator<Item = NodeId> {
    let stays = facts.readable_at(block);
    block.holders().map(|holder| holder.node).filter(move |node| Some(*node) != stays)
}

impl Jobs {
    /// Returns the blocks with copies that could be removed if the remaining copy is good.
    fn surplus_of(&self, facts: Facts<'_>, stripe: &StripeRecord) -> Vec<(BlockIndex, BlockRecord)> {
        let whole =
            stripe.blocks.iter().all(|block| facts.readable_at(block).is_some() && !facts.is_lost(block));
        if !whole || self.is_stripe_worked_on(&stripe.id) {
            return Vec::new();
        }
        let goes = |index: BlockIndex, block: &BlockRecord| {
            other_copies(facts, block).any(|node| facts.survives_without(stripe, index, node))
        };
        let surplus = indexed(stripe).filter(|&(index, block)| goes(index, block));
        surplus.map(|(index, block)| (index, block.clone())).collect()
    }
}
