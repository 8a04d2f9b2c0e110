//! Reasons why a stripe is not repaired, and next steps.

use std::collections::BTreeSet;

use codes::BlockIndex;
use recovery::{End, ItemState};
use repair::{Stripe, StripeId};
use store_api::StripeRecord;

use crate::facts::Facts;
use crate::repairs::obstacle::Obstacle;
use crate::repairs::orders::Order;
use crate::repairs::verify_first::Reads;
use crate::repairs::{Repairs, UNPROVEN_NEXT};
use crate::stripes::indices::indexed;

/// The next step for a stripe without known losses if one of its blocks could not be read.
const UNREAD_NEXT: &str = "see the logs of these helpers, or start helpers that are down (mend node list), then repair \
     again; mend scrub reads all blocks";

impl Repairs {
    /// Records why an item ended, in three cases: nothing was lost, its blocks were lost again, or its stripe
    /// is unreadable. In the first case, a reason that is recorded already or a rebuilt block takes precedence.
    pub(crate) fn explain_end(&mut self, facts: Facts<'_>, repair: u64, stripe: &StripeId, end: End) {
        let (reason, next_step) = match end {
            End::NothingLost => ("nothing is lost".to_owned(), None),
            End::LostAgain => (
                "its blocks were lost again after each repair".to_owned(),
                Some("check mend status and the helpers for failing disks".to_owned()),
            ),
            End::Unreadable { .. } => match self.why_unreadable(facts, stripe) {
                Some(obstacle) => (obstacle.reason, Some(obstacle.next_step)),
                None => return,
            },
            End::Repaired | End::Failed | End::Cancelled => return,
        };
        let Some(item) = self.queue.item(repair, stripe) else { return };
        if item.reason.is_none() && item.rebuilt.is_empty() || end != End::NothingLost {
            (item.reason, item.next_step) = (Some(reason), next_step);
        }
    }
}

impl Repairs {
    /// Resumes the stripes whose blocks were read before a repair. If some of the blocks could not be read and none is
    /// lost as far as is known, the item fails: without an answer, it is not known whether there is anything to repair.
    pub(crate) fn follow_reads(&mut self, facts: Facts<'_>) {
        for ((repair, stripe), reads) in self.verify_first.take_answered() {
            if !reads.found_bad && self.wants_nothing(facts, repair, &stripe) {
                self.explain_reads(facts, repair, &stripe, &reads);
            }
            self.scheduler.let_go(&stripe);
        }
    }

    /// Whether none of the blocks that a repair names in a stripe is lost.
    fn wants_nothing(&self, facts: Facts<'_>, repair: u64, stripe: &StripeId) -> bool {
        let (repair, record) = (self.queue.by_id.get(&repair), facts.stripes.stripe_record(stripe).ok());
        repair.zip(record).is_some_and(|(repair, record)| facts.wanted_of(&repair.order, &record).is_empty())
    }

    fn explain_reads(&mut self, facts: Facts<'_>, repair: u64, stripe: &StripeId, reads: &Reads) {
        let Some(item) = self.queue.item(repair, stripe) else { return };
        if matches!(self.scheduler.state(item.id), ItemState::Running(_) | ItemState::Ended(_)) {
            return;
        }
        match reads.obstacle(facts) {
            None => item.reason = Some(reads.nothing_lost(facts)),
            Some(obstacle) => {
                item.fail(obstacle, UNREAD_NEXT);
                self.scheduler.decline(item.id, End::Failed);
            }
        }
    }
}

impl<'a> Facts<'a> {
    /// Returns the step that would make a stripe repairable again.
    fn bring_back(self, record: &StripeRecord) -> String {
        let down = indexed(record).flat_map(|(_, block)| block.holders()).map(|holder| holder.node);
        let down = down.filter(|node| !self.nodes.is_connected(*node));
        let down: BTreeSet<String> = down.map(|node| self.nodes.name(node)).collect();
        if down.is_empty() {
            return "restore the bad blocks' files from a backup of their helpers, then run mend scrub and mend \
                    repair --all"
                .to_owned();
        }
        let names: Vec<String> = down.into_iter().collect();
        format!("start {}, then run mend repair --all", names.join(" or "))
    }
}

impl Repairs {
    fn why_unreadable(&mut self, facts: Facts<'_>, stripe: &StripeId) -> Option<Obstacle> {
        let record = facts.stripes.stripe_record(stripe).ok()?;
        let stripe = facts.stripe_now(&record, &[]).ok()?;
        let lost = facts.lost_blocks(&record);
        self.check_decodable(facts, &record, &stripe, &lost).err()
    }

    /// Checks that parity can prove rebuilt blocks of a stripe without checksums. With exactly as many blocks as
    /// decoding needs, it cannot: a wrong block among them would make the new ones wrong, and nothing would show it.
    pub(crate) fn check_provable(
        &self,
        facts: Facts<'_>,
        order: &Order,
        record: &StripeRecord,
        stripe: &Stripe,
    ) -> Result<(), Obstacle> {
        let (held, needed) = (stripe.held().count(), stripe.code.data_blocks());
        if !must_prove(facts, order, record) || held > needed {
            return Ok(());
        }
        let reason = format!(
            "the rebuilt blocks could not be checked: no checksums are in use, and only {held} blocks are readable, \
             as many as decoding needs"
        );
        Err(Obstacle { end: End::Failed, reason, next_step: UNPROVEN_NEXT.to_owned() })
    }

    pub(crate) fn check_decodable(
        &mut self,
        facts: Facts<'_>,
        record: &StripeRecord,
        stripe: &Stripe,
        wanted: &[BlockIndex],
    ) -> Result<(), Obstacle> {
        let (available, gone): (Vec<BlockIndex>, Vec<BlockIndex>) =
            stripe.indices().partition(|&index| stripe.block(index).holder.is_some());
        // For most stripes the scheduler has the answer cached, and the equations need not be solved here.
        if self.scheduler.redundancy().survives(&*stripe.code, &gone).is_some() {
            return Ok(());
        }
        let Err(error) = stripe.code.repair(wanted, &available) else { return Ok(()) };
        let (n, lost) = (record.blocks.len(), record.blocks.len() - available.len());
        let most = n - stripe.code.data_blocks();
        let reason = if lost > most {
            format!("unrecoverable: {lost} of {n} blocks are lost, and the code tolerates {most}")
        } else {
            format!(
                "unrecoverable: {lost} of {n} blocks are lost, and the remaining ones cannot decode them: \
                 {error}"
            )
        };
        let end = End::Unreadable { lost: lost as u16 };
        Err(Obstacle { end, reason, next_step: facts.bring_back(record) })
    }
}

/// Whether rebuilt blocks of a stripe must be proven by parity, because the stripe's blocks have no checksums. An
/// operator may forgo all parity checks.
pub(crate) fn must_prove(facts: Facts<'_>, order: &Order, record: &StripeRecord) -> bool {
    facts.base.store.needs_digests()
        && order.verify_parity
        && record.blocks.iter().any(|block| block.digest.is_none())
}
