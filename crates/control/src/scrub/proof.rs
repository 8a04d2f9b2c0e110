//! Parity checks of all stripes after the catalog was rebuilt or restored.
//!
//! Such a catalog has lost the records of wrong blocks and of contradictions, so each stripe counts as
//! unproven until a parity check has passed over all of its good blocks. The checks start by themselves, at
//! the rate of the background scrub or at a default. Stripes whose blocks have digests of different kinds
//! come first, because somebody may have replaced a block by one with a weaker digest. A stripe that was not
//! proven is checked again, but not while a helper with one of its blocks is down: the check would read all other
//! blocks, and prove as little as before.
//!
//! A store that others run is listed after the start, and stripes whose servers are down may be listed later still.
//! All of them are checked: the record of unproven stripes is removed only after the store was listed.
//!
//! A block that a rebuild could not read may be found later. The catalog has no digest of such a block, so its
//! stripe counts as unproven again, and is checked once even if a helper with another block is down.
//!
//! Other parity checks prove stripes too. A stripe whose blocks contradict each other leaves the list,
//! because its contradiction is recorded.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;
use repair::StripeId;
use serde_json::Value;
use store_api::{BlockRecord, Replaced, StripeRecord, UNPROVEN, Unproven};

use crate::counts::count;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::scrub::parity_checks::Asker;
use crate::scrub::parity_scrub::{Obstacle, YIELD_AT_MOST};
use crate::scrub::state::{Proof, Scrubs};
use crate::stripes::indices::indexed;

/// The rate of the checks if the background scrub has none, in bytes per second.
const BYTES_PER_S: u64 = 64 << 20;
/// The shortest time between two writes of the position, that is, of the first unproven stripe.
const KEEP_EVERY: Duration = Duration::from_secs(30);
/// How many stripes with found blocks the record names. If there are more, all stripes from the first one on count
/// as unproven after a restart.
const FOUND_KEPT: usize = 256;
/// The pause before stripes that could not be checked are retried.
const RETRY: Duration = Duration::from_secs(10);
/// How many stripes are passed over at a time because they cannot be checked.
const PASSED_OVER: usize = 1000;

impl Proof {
    /// Restores the list of stripes that an earlier coordinator had not checked yet.
    pub(crate) fn recall(&mut self, facts: Facts<'_>, records: &[(String, Value)]) {
        let kept = records.iter().find(|(key, _)| key == UNPROVEN);
        let Some((_, value)) = kept else { return };
        // A record that cannot be read must not make stripes count as proven.
        let all = Unproven::all(Replaced::Restored);
        let kept: Unproven = serde_json::from_value(value.clone()).unwrap_or(all);
        self.left = facts.stripes.picture.of_files().filter(|stripe| is_left(&kept, stripe)).collect();
        self.kept = Some(kept);
        let (mixed, rest): (Vec<&StripeId>, Vec<&StripeId>) = self
            .left
            .iter()
            .partition(|stripe| facts.stripes.picture.stripe(stripe).is_ok_and(|it| is_mixed(&it)));
        self.queue = mixed.into_iter().chain(rest).cloned().collect();
    }

    /// Handles a stripe that the store lists, before the picture shows it. If it was not listed before, it may be
    /// unproven.
    pub(crate) fn note_listed(&mut self, facts: Facts<'_>, now: &StripeRecord) {
        let Some(kept) = &self.kept else { return };
        if facts.base.store.owns_files() || facts.stripes.picture.is_pending(&now.id).is_some() {
            return;
        }
        // Until the store was listed, the position is that of the earlier coordinator. Afterwards, a stripe that was
        // never listed may be anywhere. In a store where stripes are created all the time, it is a new one.
        let may_be_unproven = match facts.stripes.news.unlisted() {
            Some(_) => is_left(kept, &now.id),
            None => !kept.done && facts.base.store.trusts_lists(),
        };
        if !may_be_unproven {
            return;
        }
        if kept.from.as_ref().is_some_and(|from| now.id < *from) {
            self.keep_due = Duration::ZERO;
        }
        if self.left.insert(now.id.clone()) {
            match is_mixed(now) {
                true => self.queue.push_front(now.id.clone()),
                false => self.queue.push_back(now.id.clone()),
            }
        }
    }

    /// Returns the number of unproven stripes.
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// Handles a passed parity check over these blocks. If the blocks include every block of which a healthy
    /// copy is recorded, the stripe is proven.
    pub(crate) fn note_held(&mut self, facts: Facts<'_>, stripe: &StripeId, blocks: &BTreeSet<BlockIndex>) {
        if self.left.is_empty() {
            return;
        }
        if covers(facts, stripe, blocks) {
            self.forget(stripe);
        }
    }

    /// Puts a stripe on the list again, because a block was found of which the catalog has no digest, so only its
    /// name shows that it belongs to the stripe.
    pub(crate) fn doubt(&mut self, stripe: &StripeId, out: &mut Out) {
        // No check has read the block that was found. So the next check does not wait for the stripe's other
        // helpers.
        self.tried.remove(stripe);
        if !self.left.insert(stripe.clone()) {
            return; // The record contains it already.
        }
        self.queue.push_back(stripe.clone());
        // The catalog has digests of all blocks except those that a rebuild could not read.
        let kept =
            self.kept.get_or_insert_with(|| Unproven { done: true, ..Unproven::all(Replaced::Rebuilt) });
        if kept.also.len() < FOUND_KEPT {
            kept.also.insert(stripe.clone());
        } else {
            (kept.from, kept.done) = (self.left.first().cloned(), false);
        }
        out.keep_record(UNPROVEN.to_owned(), kept);
    }

    /// Takes a stripe off the list, because it was removed, or because its contradiction is recorded
    /// elsewhere.
    pub(crate) fn forget(&mut self, stripe: &StripeId) {
        self.left.remove(stripe);
        self.tried.remove(stripe);
        self.kept.iter_mut().for_each(|kept| drop(kept.also.take(stripe)));
    }

    /// Records at intervals the first unproven stripe, from which a restarted coordinator continues. Removes
    /// the record when no stripe is left.
    fn keep(&mut self, now: Duration, out: &mut Out) {
        let Some(kept) = &mut self.kept else { return };
        if self.left.is_empty() {
            tracing::info!("the parity of all stripes has been checked since the catalog was {}", kept.since);
            self.kept = None;
            out.forget_record(UNPROVEN.to_owned());
        } else if now >= self.keep_due {
            let first = self.left.iter().find(|stripe| !kept.also.contains(stripe));
            let is_new = first.is_none() != kept.done || first.is_some() && first != kept.from.as_ref();
            (kept.from, kept.done) = (first.cloned(), first.is_none());
            if is_new {
                self.keep_due = now + KEEP_EVERY;
                out.keep_record(UNPROVEN.to_owned(), kept);
            }
        }
    }

    /// Returns how many stripes are not proven yet; `None` if all are.
    pub(crate) fn words(&self, stripes: u64) -> Option<String> {
        let since = self.kept.as_ref().filter(|_| !self.left.is_empty())?.since;
        let left = self.left.len();
        Some(format!(
            "parity of {left} of {} unchecked since the catalog was {since}",
            count(stripes, "stripe")
        ))
    }

    /// Returns a sentence for the operator about the stripes that are not proven yet.
    pub(crate) fn advice(&self, stripes: u64) -> Option<String> {
        let words = self.words(stripes)?;
        let why = self.obstacle.map(|why| format!(" (last obstacle: {why})")).unwrap_or_default();
        Some(format!(
            "{words}, so these stripes may contain undetected wrong blocks; the check runs \
             automatically{why}; to check all stripes now, run mend scrub --parity"
        ))
    }
}

/// Whether a stripe is unproven according to the record.
fn is_left(kept: &Unproven, stripe: &StripeId) -> bool {
    kept.also.contains(stripe) || !kept.done && kept.from.as_ref().is_none_or(|from| stripe >= from)
}

/// Whether these blocks include every block of a stripe of which a healthy copy is recorded.
fn covers(facts: Facts<'_>, stripe: &StripeId, blocks: &BTreeSet<BlockIndex>) -> bool {
    let Ok(record) = facts.stripes.picture.stripe(stripe) else { return false };
    indexed(&record).all(|(index, block)| blocks.contains(&index) || !facts.counts(block))
}

/// Whether the blocks of a stripe have digests of different kinds.
fn is_mixed(stripe: &StripeRecord) -> bool {
    let kinds = stripe.blocks.iter().filter(|block| block.node.is_some());
    let kinds: BTreeSet<Option<String>> =
        kinds.map(|block| block.digest.map(|digest| digest.kind().to_owned())).collect();
    kinds.len() > 1
}

impl Scrubs {
    /// Starts the checks of unproven stripes that are due.
    pub(crate) fn prove_in_background(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        let now = facts.base.now;
        if !facts.nodes.settled || facts.stripes.news.unlisted().is_some() {
            return; // Stripes that are not listed yet may be unproven.
        }
        self.proof.keep(now, out);
        if self.proof.left.is_empty() || facts.stripes.newer.is_behind() || self.is_scrubbing() {
            return;
        }
        let rate = facts.base.settings.scrub_bytes_per_s.filter(|&rate| rate > 0).unwrap_or(BYTES_PER_S);
        let mut passed_over = 0;
        while passed_over < PASSED_OVER && self.proof.pace.is_due(now) {
            let Some(stripe) = self.next_unproven(now) else { return };
            let Some(bytes) = self.prove(facts, jobs, stripe, out) else { return };
            self.proof.pace.spend(bytes, rate, now);
            passed_over += usize::from(bytes == 0);
        }
    }

    /// Returns the next unproven stripe. After the last one, the remaining stripes are queued for a retry.
    fn next_unproven(&mut self, now: Duration) -> Option<StripeId> {
        let proof = &mut self.proof;
        while let Some(stripe) = proof.queue.pop_front() {
            if proof.left.contains(&stripe) {
                return Some(stripe);
            }
        }
        proof.queue = proof.left.iter().cloned().collect();
        proof.pace.rest_until(now + RETRY);
        None
    }

    /// Checks a stripe. Returns the number of bytes that the check reads, or `None` if it must wait for busy
    /// helpers.
    fn prove(&mut self, facts: Facts<'_>, jobs: &Jobs, stripe: StripeId, out: &mut Out) -> Option<u64> {
        let now = facts.base.now;
        if self.proof.tried.contains(&stripe) && has_blocks_away(facts, &stripe) {
            self.proof.obstacle = Some("a helper with one of the blocks is down");
            return Some(0);
        }
        let patient = now < *self.proof.yields_since.get_or_insert(now) + YIELD_AT_MOST;
        let begun = self.begin_check(facts, jobs, &stripe, Asker::Proof, patient, out);
        match begun {
            Err(Obstacle::Busy) => {
                self.proof.queue.push_front(stripe);
                return None;
            }
            Err(Obstacle::Gone) => self.proof.forget(&stripe),
            Err(Obstacle::Cannot(why)) => self.proof.obstacle = Some(why),
            Ok(_) => self.proof.obstacle = None,
        }
        self.proof.yields_since = None;
        if self.proof.left.contains(&stripe) {
            self.proof.tried.insert(stripe);
        }
        Some(begun.unwrap_or(0))
    }
}

/// Whether healthy copies of some blocks of a stripe are recorded, but can be read on no connected helper.
fn has_blocks_away(facts: Facts<'_>, stripe: &StripeId) -> bool {
    let is_away = |block: &BlockRecord| facts.counts(block) && facts.readable_at(block).is_none();
    facts.stripes.picture.stripe(stripe).is_ok_and(|record| record.blocks.iter().any(is_away))
}
