//! Blocks that clients received with wrong bytes. The helpers of these blocks verify them.
//!
//! **Invariant:** a report causes a verification and nothing else. A helper verifies one reported block at a
//! time, and not while it verifies other blocks. In any [`PERIOD`] a block is verified at most once, and at most
//! [`MOST`] blocks are; further reports are dropped.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::StripeId;

use crate::facts::Facts;
use crate::out::Out;
use crate::scrub::state::Scrubs;

/// The time after its verification in which a block is not verified again.
const PERIOD: Duration = Duration::from_secs(60);
/// The most blocks that wait for verification or were verified lately.
const MOST: usize = 100;

/// The reported blocks, each with the time of its verification if that has begun.
#[derive(Default)]
pub(crate) struct Reported(BTreeMap<(StripeId, BlockIndex), Option<Duration>>);

impl Reported {
    /// Takes a report about an existing block.
    pub(crate) fn note(&mut self, stripe: StripeId, index: BlockIndex) {
        if self.0.len() < MOST {
            self.0.entry((stripe, index)).or_default();
        }
    }
}

impl Scrubs {
    /// Asks idle helpers to verify their reported blocks.
    pub(crate) fn verify_reported(&mut self, facts: Facts<'_>, out: &mut Out) {
        let now = facts.base.now;
        self.reported.0.retain(|_, begun| begun.is_none_or(|begun| now < begun + PERIOD));
        for ((stripe, index), begun) in self.reported.0.iter_mut().filter(|(_, begun)| begun.is_none()) {
            let record = facts.stripes.picture.stripe(stripe).ok();
            let known = record.and_then(|record| record.blocks.into_iter().nth(usize::from(index.0)));
            // A block that is lost, or whose stripe was removed in the meantime, needs no verification.
            let holder = known.and_then(|known| Some((facts.readable_at(&known)?, known)));
            match holder {
                Some((node, _)) if out.questions.is_verifying(node) => continue,
                Some((node, known)) => {
                    facts.ask_for_block(node, stripe.clone(), *index, known, false, out);
                }
                None => {}
            }
            *begun = Some(now);
        }
    }
}
