//! Verifies copies that the store lists in place of recently rebuilt blocks.

use codes::BlockIndex;
use repair::{JobId, StripeId};
use store_api::StripeRecord;

use crate::facts::OuterFacts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::stripes::Stripes;

impl Stripes {
    /// Remembers the rebuilt blocks of a stripe. The store may already list an older copy instead, which is
    /// then verified.
    pub(crate) fn note_made(
        &mut self,
        outer: OuterFacts<'_>,
        jobs: &Jobs,
        job: JobId,
        stripe: &StripeId,
        blocks: &[BlockIndex],
        out: &mut Out,
    ) {
        let (Some(running), Ok(record)) = (jobs.running.get(&job), self.picture.stripe(stripe)) else {
            return;
        };
        if !outer.base.store.claims_stripes() {
            return;
        }
        let target_of =
            |block| running.job.targets().find_map(|(made, node)| (made == block).then_some(node));
        for &block in blocks {
            let listed = record.block(block).and_then(|block| block.node);
            let made_on = listed.filter(|&node| running.is_target(node));
            if let Some(home) = made_on.or(target_of(block)) {
                self.made_lately.note(stripe, block, home);
            }
        }
        self.read_displaced(outer, &record, out);
    }

    /// Verifies copies that displaced recently rebuilt blocks in the store's new listing of a stripe.
    pub(crate) fn read_displaced(&mut self, outer: OuterFacts<'_>, now: &StripeRecord, out: &mut Out) {
        for (index, node) in self.made_lately.displaced(now) {
            let block = now.blocks[usize::from(index.0)].clone();
            tracing::info!(
                block = %block.id, helper = %outer.nodes.name(node),
                "the store lists an older copy in place of a rebuilt block; verifying the copy"
            );
            if outer.nodes.is_helper(node) {
                outer.with(self).ask_for_block(node, now.id.clone(), index, block, false, out);
            }
        }
    }
}
