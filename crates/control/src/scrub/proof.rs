//! Parity checks of all stripes after the catalog was rebuilt or restored.
//!
//! Such a catalog has lost the records of wrong blocks and of contradictions, so each stripe counts as
//! unproven until a parity check has passed over all of its blocks. That includes lost blocks: one of them may
//! return with wrong bytes and matching checksums. They are checked once they have returned or were rebuilt. The
//! checks start automatically, at the rate of the background scrub or at a default. Stripes whose blocks have
//! digests of different kinds come first, because a block may have been replaced by one with a weaker digest.
//! While blocks of a stripe cannot be read, it is checked again only if another copy can: the check would read the
//! same blocks, and prove as little as before.
//!
//! A store that others run is listed after the start, and stripes whose servers are down may be listed later still.
//! All of them are checked. Stripes of unknown state are unproven too, and the record of unproven stripes is removed
//! only after the store has listed its stripes.
//!
//! A block that a rebuild could not read may be found later. The catalog has no digest of such a block, so its
//! stripe counts as unproven again, and is checked once even if a helper with another block is down.
//!
//! Other parity checks prove stripes too. A stripe whose blocks contradict each other leaves the list,
//! because its contradiction is recorded.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use serde_json::Value;
use store_api::{BlockRecord, Replaced, StripeRecord, UNPROVEN, Unjudged, Unproven};

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
/// How many stripes the record names: those with found blocks, and those whose checks could not read all blocks. If
/// there are more, all stripes from the first one on count as unproven after a restart.
const NAMED_KEPT: usize = 256;
/// The pause before stripes that could not be checked are retried.
const RETRY: Duration = Duration::from_secs(10);
/// How many stripes are passed over at a time because they cannot be checked.
const PASSED_OVER: usize = 1000;

const AWAY: &str = "a helper with one of the blocks is down";
const LOST: &str = "one of the blocks is lost";
const UNKNOWN: &str = "the state of the stripe is unknown";

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
        if self.kept.is_some() {
            self.note_new(facts, &now.id, is_mixed(now));
        }
    }

    /// Handles the stripes of unknown state. A stripe that the picture does not show may be unproven.
    pub(crate) fn note_unjudged(&mut self, facts: Facts<'_>, unjudged: &[Unjudged]) {
        unjudged.iter().for_each(|it| self.note_new(facts, &it.stripe, false));
    }

    /// Adds a stripe to the list if the picture does not show it and it may be unproven.
    fn note_new(&mut self, facts: Facts<'_>, stripe: &StripeId, is_mixed: bool) {
        let Some(kept) = &self.kept else { return };
        let is_old = facts.base.store.owns_files() || facts.stripes.picture.is_pending(stripe).is_some();
        if is_old || !may_be_left(facts, kept, stripe) {
            return;
        }
        if kept.from.as_ref().is_some_and(|from| stripe < from) {
            self.keep_due = Duration::ZERO;
        }
        if self.left.insert(stripe.clone()) {
            match is_mixed {
                true => self.queue.push_front(stripe.clone()),
                false => self.queue.push_back(stripe.clone()),
            }
        }
    }

    /// Returns the number of unproven stripes.
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// Handles a passed parity check over these blocks. If they are all blocks of the stripe, it is proven.
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
        if kept.also.len() < NAMED_KEPT {
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

    /// Records at intervals the first unproven stripe, from which a restarted coordinator continues, and stripes
    /// before it whose checks could not read all blocks. Removes the record when no stripe is left.
    fn keep(&mut self, facts: Facts<'_>, out: &mut Out) {
        let now = facts.base.now;
        let Some(kept) = &mut self.kept else { return };
        if facts.stripes.news.has_late_stripes {
            return; // The position of stripes that are not listed yet is unknown.
        }
        if self.left.is_empty() {
            let lists_none = facts.stripes.picture.of_files().next().is_none();
            if lists_none && !facts.base.store.owns_files() {
                return; // The store's servers may still be starting.
            }
            tracing::info!("the parity of all stripes has been checked since the catalog was {}", kept.since);
            self.kept = None;
            out.forget_record(UNPROVEN.to_owned());
        } else if now >= self.keep_due {
            self.keep_due = now + KEEP_EVERY;
            let mut also = kept.also.clone();
            also.extend(self.tried.keys().take(NAMED_KEPT).cloned());
            if also.len() > NAMED_KEPT {
                also.clone_from(&kept.also);
            }
            let first = self.left.iter().find(|stripe| !also.contains(stripe)).cloned();
            let is_done = first.is_none();
            let position = Unproven { since: kept.since, from: first, done: is_done, also };
            if *kept != position {
                *kept = position;
                out.keep_record(UNPROVEN.to_owned(), kept);
            }
        }
    }

    /// Notes which copies the check of an unproven stripe could read.
    fn note_tried(&mut self, facts: Facts<'_>, stripe: StripeId) {
        if self.left.contains(&stripe) {
            let record = facts.stripes.picture.stripe(&stripe);
            let copies = record.map(|record| readable_copies(facts, &record)).unwrap_or_default();
            self.tried.entry(stripe).or_default().extend(copies);
        }
    }

    /// Returns why another check of a stripe would prove no more than the checks so far; `None` if it may prove more.
    fn waits_for(&self, facts: Facts<'_>, stripe: &StripeId) -> Option<&'static str> {
        let tried = self.tried.get(stripe)?;
        let record = facts.stripes.picture.stripe(stripe).ok()?;
        let copies = readable_copies(facts, &record);
        if copies.len() == record.blocks.len() || !copies.is_subset(tried) {
            return None;
        }
        let is_away = |block: &BlockRecord| facts.counts(block) && facts.readable_at(block).is_none();
        Some(if record.blocks.iter().any(is_away) { AWAY } else { LOST })
    }

    /// Returns how many stripes are not proven yet; `None` if all are. `listed` is the number of stripes in the picture.
    pub(crate) fn words(&self, facts: Facts<'_>, listed: u64) -> Option<String> {
        let since = self.kept.as_ref().filter(|_| !self.left.is_empty())?.since;
        let is_unlisted = |stripe: &&StripeId| {
            self.left.contains(*stripe) && facts.stripes.picture.is_pending(stripe).is_none()
        };
        let unlisted = facts.stripes.unjudged.names().iter().filter(is_unlisted).count() as u64;
        let left = self.left.len();
        Some(format!(
            "parity of {left} of {} unchecked since the catalog was {since}",
            count(listed + unlisted, "stripe")
        ))
    }

    /// Returns a sentence for the operator about the stripes that are not proven yet.
    pub(crate) fn advice(&self, facts: Facts<'_>, listed: u64) -> Option<String> {
        let words = self.words(facts, listed)?;
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

/// Whether a stripe that the picture does not show may be unproven. Until all stripes that were there before are
/// listed, the position is that of the earlier coordinator. Afterwards, a stripe that was never listed may be anywhere,
/// also if the listing is the first one after an outage of the store. In a store where stripes are created all the time,
/// it is a new one.
fn may_be_left(facts: Facts<'_>, kept: &Unproven, stripe: &StripeId) -> bool {
    let (news, trusts_lists) = (&facts.stripes.news, facts.base.store.trusts_lists());
    // The start-up phase ends only after a complete listing.
    let was_listed = trusts_lists && facts.nodes.settled;
    match (news.unlisted().is_some() || news.has_late_stripes) && !was_listed {
        true => is_left(kept, stripe),
        false => trusts_lists,
    }
}

/// Whether these are all blocks of a stripe.
fn covers(facts: Facts<'_>, stripe: &StripeId, blocks: &BTreeSet<BlockIndex>) -> bool {
    let Ok(record) = facts.stripes.picture.stripe(stripe) else { return false };
    indexed(&record).all(|(index, _)| blocks.contains(&index))
}

/// Returns the copies that a check of a stripe would read now.
pub(super) fn readable_copies(facts: Facts<'_>, record: &StripeRecord) -> BTreeSet<(BlockIndex, NodeId)> {
    indexed(record).filter_map(|(index, block)| Some((index, facts.readable_at(block)?))).collect()
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
        self.proof.keep(facts, out);
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
        if let Some(why) = self.proof.waits_for(facts, &stripe) {
            self.proof.obstacle = Some(why);
            return Some(0);
        }
        let patient = now < *self.proof.yields_since.get_or_insert(now) + YIELD_AT_MOST;
        let begun = self.begin_check(facts, jobs, &stripe, Asker::Proof, patient, out);
        match begun {
            Err(Obstacle::Busy) => {
                self.proof.queue.push_front(stripe);
                return None;
            }
            Err(Obstacle::Gone) if facts.stripes.unjudged.contain(&stripe) => {
                self.proof.obstacle = Some(UNKNOWN);
            }
            Err(Obstacle::Gone) => self.proof.forget(&stripe),
            Err(Obstacle::Cannot(why)) => self.proof.obstacle = Some(why),
            Ok(_) => self.proof.obstacle = None,
        }
        self.proof.yields_since = None;
        self.proof.note_tried(facts, stripe);
        Some(begun.unwrap_or(0))
    }
}
