//! Stripes whose digests the store doubts. Only parity tells whether their blocks are right. So the parity of such
//! a stripe is checked at once, whatever the rate of the background scrub, and the stripe counts as unproven until a
//! check has passed over all of its good blocks. A check without a result is repeated at growing intervals.
//!
//! **Invariant:** a stripe leaves the list only because parity holds, because its contradiction is recorded, because
//! its blocks have digests again, or because it was removed.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockRecord, StripeRecord};

use crate::counts::count;
use crate::error::list;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::repairs::attempts::Attempts;
use crate::scrub::parity_checks::Asker;
use crate::scrub::parity_scrub::Obstacle;
use crate::scrub::proof::covers;
use crate::scrub::state::{Distrusted, Scrubs};
use crate::stripes::indices::indexed;

/// How many stripes the advice names.
const NAMED: usize = 5;

impl Distrusted {
    /// Applies the store's list of stripes with doubted digests.
    pub(crate) fn set(&mut self, facts: Facts<'_>, doubted: BTreeSet<StripeId>) {
        for stripe in doubted.difference(&self.doubted) {
            self.open.entry(stripe.clone()).or_default();
        }
        let lacks_digests = |stripe: &StripeId| {
            let record = facts.stripes.picture.stripe(stripe);
            record.is_ok_and(|record| record.blocks.iter().any(|block| block.digest.is_none()))
        };
        self.open.retain(|stripe, _| doubted.contains(stripe) || lacks_digests(stripe));
        self.doubted = doubted;
    }

    /// Handles a stripe that the store lists, before the picture shows it. A copy that did not count as good
    /// before, or that was not the one to read, was not checked, so the stripe is unproven again. A repair checks
    /// the block that it publishes by itself.
    pub(crate) fn note_listed(&mut self, facts: Facts<'_>, jobs: &Jobs, now: &StripeRecord) {
        if !self.doubted.contains(&now.id) {
            return;
        }
        let before = facts.stripes.picture.stripe(&now.id).ok();
        let counted = |index, node| {
            let block = before.as_ref().and_then(|before| before.block(index));
            block.is_some_and(|block| block.node == node && facts.counts(block))
        };
        let is_made =
            |index, node: Option<NodeId>| node.is_some_and(|node| jobs.makes(&now.id, (index, node)));
        let is_new = |(index, block): (BlockIndex, &BlockRecord)| {
            facts.counts(block) && !counted(index, block.node) && !is_made(index, block.node)
        };
        if indexed(now).any(is_new) {
            self.open.insert(now.id.clone(), Attempts::default());
        }
    }

    /// Handles a passed parity check over these blocks.
    pub(crate) fn note_held(&mut self, facts: Facts<'_>, stripe: &StripeId, blocks: &BTreeSet<BlockIndex>) {
        if self.open.contains_key(stripe) && covers(facts, stripe, blocks) {
            tracing::info!(%stripe, "parity holds in a stripe whose digests the store doubts");
            self.forget(stripe);
        }
    }

    /// Takes a stripe off the list, because parity holds, or because its contradiction is recorded elsewhere.
    pub(crate) fn forget(&mut self, stripe: &StripeId) {
        self.open.remove(stripe);
    }

    /// Takes a removed stripe off the list. A stripe whose digests the store still doubts is only not listed for a
    /// while.
    pub(crate) fn note_removed(&mut self, stripe: &StripeId) {
        if !self.doubted.contains(stripe) {
            self.forget(stripe);
        }
    }

    /// Returns the names of the unproven stripes.
    pub(crate) fn names(&self) -> Vec<String> {
        self.open.keys().map(StripeId::to_string).collect()
    }

    /// Returns the number of unproven stripes with blocks on these nodes.
    pub(crate) fn count_on(&self, facts: Facts<'_>, nodes: &BTreeSet<NodeId>) -> u64 {
        let is_there = |stripe: &&StripeId| {
            let record = facts.stripes.picture.stripe(stripe);
            record.is_ok_and(|record| {
                record.blocks.iter().flat_map(|block| block.holders()).any(|it| nodes.contains(&it.node))
            })
        };
        self.open.keys().filter(is_there).count() as u64
    }

    /// Returns how many stripes are not proven; `None` if there are none.
    pub(crate) fn words(&self) -> Option<String> {
        let stripes = count(self.open.len() as u64, "stripe");
        (!self.open.is_empty())
            .then(|| format!("checksums of {stripes} doubted, and parity has not confirmed the blocks yet"))
    }

    /// Returns a sentence for the operator about the stripes that are not proven.
    pub(crate) fn advice(&self) -> Option<String> {
        let names: Vec<String> = self.names().into_iter().take(NAMED).collect();
        let why = self.obstacle.map(|why| format!(" (last obstacle: {why})")).unwrap_or_default();
        (!names.is_empty()).then(|| {
            format!(
                "the checksums of {} contradict too many blocks, so blocks there may be wrong without being \
                 counted as lost; the parity check runs automatically{why}; start helpers that are down",
                list(&names)
            )
        })
    }

    /// Puts a further check of a stripe off while some of its blocks cannot be read: the check would read all others
    /// again, and prove as little as before.
    fn waits_for_helpers(&mut self, facts: Facts<'_>, stripe: &StripeId) -> bool {
        let Some(attempts) = self.open.get_mut(stripe).filter(|attempts| attempts.have_failed()) else {
            return false;
        };
        let record = facts.stripes.picture.stripe(stripe);
        let is_away = |block: &BlockRecord| facts.counts(block) && facts.readable_at(block).is_none();
        let waits = record.is_ok_and(|record| record.blocks.iter().any(is_away));
        if waits {
            attempts.put_off(facts.base.now);
            self.obstacle = Some("a helper with one of its blocks is down");
        }
        waits
    }

    fn due(&self, now: Duration) -> Vec<StripeId> {
        let due = self.open.iter().filter(|(_, attempts)| attempts.wait(now).is_zero());
        due.map(|(stripe, _)| stripe.clone()).collect()
    }
}

impl Scrubs {
    /// Starts the checks of stripes with doubted digests that are due. They do not wait for other jobs.
    pub(crate) fn check_distrusted(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        if self.distrusted.open.is_empty() || !facts.nodes.settled || facts.stripes.newer.is_behind() {
            return;
        }
        let now = facts.base.now;
        for stripe in self.distrusted.due(now) {
            if self.distrusted.waits_for_helpers(facts, &stripe) {
                continue;
            }
            let begun = self.begin_check(facts, jobs, &stripe, Asker::Distrust, false, out);
            let distrusted = &mut self.distrusted;
            let Some(attempts) = distrusted.open.get_mut(&stripe) else { continue };
            match begun {
                Ok(_) => {
                    distrusted.obstacle = None;
                    attempts.fail(now, Duration::ZERO);
                }
                Err(Obstacle::Busy) => {}
                // A stripe may be missing from the store's list for a while.
                Err(Obstacle::Gone) => attempts.put_off(now),
                Err(Obstacle::Cannot(why)) => {
                    distrusted.obstacle = Some(why);
                    attempts.put_off(now);
                }
            }
        }
    }
}
