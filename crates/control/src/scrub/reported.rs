//! Blocks that clients received with wrong bytes, and blocks that a helper found bad for a job that had ended by
//! then. The helpers of these blocks verify them.
//!
//! **Invariant:** a report causes a verification and nothing else. It is kept until the helper has answered, also
//! if the helper disconnects meanwhile. A helper verifies one reported block at a time, and not while it verifies
//! other blocks. In any [`PERIOD`], each block is verified at most once. At most
//! [`MOST_REPORTED`](crate::scrub::state::MOST_REPORTED) blocks on connected helpers are listed, and as many for each
//! helper that is away; further reports are dropped.

use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use store_api::BlockState;

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::scrub::state::Scrubs;
use crate::stripes::indices::check_indices;

/// The time after its verification in which a block is not verified again.
const PERIOD: Duration = Duration::from_secs(60);

impl Scrubs {
    /// Queues a block that a client received with wrong bytes, so that its helper verifies it.
    pub(crate) fn take_garbled(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        client: NodeId,
        stripe: StripeId,
        block: BlockIndex,
    ) {
        let may_report = jobs.clients.contains_key(&client) && !facts.nodes.is_plugin(client);
        let Ok(record) = facts.stripes.picture.stripe(&stripe) else { return };
        if may_report
            && check_indices(&record, &[block]).is_ok()
            && let Some(node) = facts.readable_at(&record.blocks[usize::from(block.0)])
        {
            self.reported.note(facts.nodes, node, stripe, block);
        }
    }

    /// Queues a block that a helper has found bad, although the job that had asked for it no longer listens. The
    /// helper verifies the block.
    pub(crate) fn take_late_finding(&mut self, facts: Facts<'_>, node: NodeId, block: &BlockId) {
        let Ok((stripe, index)) = facts.stripes.picture.find_block(block) else { return };
        let Ok(record) = facts.stripes.picture.stripe(&stripe) else { return };
        if record.blocks[usize::from(index.0)].state_on(node).is_some() {
            self.reported.note(facts.nodes, node, stripe, index);
        }
    }

    /// Asks idle helpers to verify their reported blocks.
    pub(crate) fn verify_reported(&mut self, facts: Facts<'_>, out: &mut Out) {
        let now = facts.base.now;
        self.reported.0.retain(|_, begun| begun.is_none_or(|begun| now < begun + PERIOD));
        for ((node, stripe, index), begun) in self.reported.0.iter_mut().filter(|(_, begun)| begun.is_none())
        {
            let record = facts.stripes.picture.stripe(stripe).ok();
            let known = record.and_then(|record| record.blocks.into_iter().nth(usize::from(index.0)));
            // A block that is lost, or whose stripe was removed in the meantime, needs no verification.
            let known = known.filter(|known| known.state_on(*node) == Some(BlockState::Healthy));
            match known {
                Some(_) if !facts.nodes.is_connected(*node) || out.queries.is_verifying(*node) => continue,
                Some(known) => {
                    facts.ask_for_block(*node, stripe.clone(), *index, known, false, out);
                }
                None => {}
            }
            *begun = Some(now);
        }
    }
}
