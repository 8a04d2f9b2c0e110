//! Checks of contradictions that were opened again, because a copy of a block has returned.
//!
//! The check follows at once, but the helper with the copy may not be connected yet, or a block cannot be read for
//! another reason. So the stripe is checked again once another copy can be read than those of the last check, or once
//! the blocks that it could not read do not count as good any more.

use std::time::Duration;

use repair::{StripeId, StripeParity};

use crate::facts::Facts;
use crate::scrub::parity_checks::{Checked, Verdict};
use crate::scrub::proof::readable_copies;
use crate::scrub::state::{LastCheck, Reopened, Scrubs};

/// The time between two searches for stripes that need another check. A block that repeatedly cannot be read causes one
/// check each time.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Reopened {
    /// Notes what a check has read.
    pub(super) fn note_checked(&mut self, facts: Facts<'_>, checked: &Checked) {
        let stripe = &checked.record.id;
        let is_same = facts.stripes.picture.stripe(stripe).is_ok_and(|now| now == checked.record);
        let Verdict::Parity(parity) = &checked.verdict else { return };
        if !is_same || !facts.stripes.contradictions.is_reopened(stripe) {
            return;
        }
        let has_held = match parity {
            StripeParity::Holds { unproven } => unproven.is_empty(),
            StripeParity::Wrong(_) => true,
            StripeParity::Contradictory(_) | StripeParity::Unknown => false,
        };
        let read = checked.read.iter().map(|(&index, &node)| (index, node)).collect();
        self.checked.insert(stripe.clone(), LastCheck { read, has_held });
    }

    /// Whether another check of a stripe may prove more than the last one.
    fn needs_check(&self, facts: Facts<'_>, stripe: &StripeId) -> bool {
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return false };
        let Some(last) = self.checked.get(stripe) else { return true };
        let can_all_be_read = || {
            let mut blocks = record.blocks.iter();
            blocks.all(|block| !facts.counts(block) || facts.readable_at(block).is_some())
        };
        !readable_copies(facts, &record).is_subset(&last.read) || last.has_held && can_all_be_read()
    }
}

impl Scrubs {
    /// Queues a stripe for a check, even if earlier checks have read the same copies.
    pub(crate) fn doubt(&mut self, stripe: &StripeId, now: Duration) {
        self.reopened.checked.remove(stripe);
        self.doubted.doubt(stripe, now);
    }

    /// Queues the stripes whose contradictions were opened again and that need another check.
    pub(crate) fn look_at_reopened(&mut self, facts: Facts<'_>) {
        let (now, contradictions) = (facts.base.now, &facts.stripes.contradictions);
        if now < self.reopened.look_due || !facts.nodes.settled || facts.stripes.newer.is_behind() {
            return;
        }
        self.reopened.look_due = now + LOOK_EVERY;
        self.reopened.checked.retain(|stripe, _| contradictions.is_reopened(stripe));
        for stripe in contradictions.reopened() {
            if !self.checks.has_stripe(stripe) && self.reopened.needs_check(facts, stripe) {
                self.doubted.doubt(stripe, now);
            }
        }
    }
}
