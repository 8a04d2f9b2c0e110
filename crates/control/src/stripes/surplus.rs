//! Surplus copies, in stores where a returning server may bring back blocks that were rebuilt elsewhere.
//!
//! A surplus copy is removed only if the stripe is whole without it and tolerates as many node failures, no
//! job works on the stripe, and the copy that stays was just verified.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use store_api::{BlockRecord, RecordWrite, StripeRecord, Write};

use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::storing::then::Then;

/// How often surplus copies are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// The copies that will stay, while they are being verified, and the time at which to retry.
#[derive(Default)]
pub(crate) struct Surplus {
    due: Duration,
    checking: BTreeMap<(StripeId, BlockIndex), (NodeId, Duration)>,
}

impl Surplus {
    /// Verifies the copies that will stay.
    pub(crate) fn look_for_surplus(&mut self, facts: Facts<'_>, jobs: &Jobs, out: &mut Out) {
        if !facts.base.store.reports_service()
            || !facts.nodes.settled
            || !facts.may_change()
            || facts.base.now < self.due
        {
            return;
        }
        self.due = facts.base.now + LOOK_EVERY;
        let now = facts.base.now;
        self.checking.retain(|_, (_, until)| now < *until);
        for stripe in facts.stripes.picture.replicated() {
            for (index, block) in jobs.surplus_of(facts, &stripe) {
                let key = (stripe.id.clone(), index);
                let Some(stays) = facts.readable_at(&block) else { continue };
                if self.checking.contains_key(&key) {
                    continue;
                }
                self.checking.insert(key, (stays, now + ASK_AGAIN));
                facts.ask_for_block(stays, stripe.id.clone(), index, block, false, out);
            }
        }
    }

    /// A copy was verified: the other copies of the block may be removed.
    pub(crate) fn drop_copies_besides(
        &mut self,
        facts: Facts<'_>,
        jobs: &Jobs,
        stays: NodeId,
        stripe: &StripeId,
        index: BlockIndex,
        out: &mut Out,
    ) {
        let key = (stripe.clone(), index);
        if self.checking.get(&key).is_none_or(|&(node, _)| node != stays) {
            return;
        }
        self.checking.remove(&key);
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return };
        let found = jobs.surplus_of(facts, &record).into_iter().find(|&(other, _)| other == index);
        let Some((_, block)) = found.filter(|(_, block)| block.node == Some(stays)) else { return };
        for replica in &block.replicas {
            if facts.nodes.is_helper(replica.node) && facts.survives_without(&record, index, replica.node) {
                drop_copy(facts, replica.node, &block.id, out);
            }
        }
    }
}

impl Jobs {
    /// Blocks with copies that could be removed if the remaining copy is good.
    fn surplus_of(&self, facts: Facts<'_>, stripe: &StripeRecord) -> Vec<(BlockIndex, BlockRecord)> {
        let whole =
            stripe.blocks.iter().all(|block| facts.readable_at(block).is_some() && !facts.is_lost(block));
        if !whole || self.is_stripe_worked_on(&stripe.id) {
            return Vec::new();
        }
        let goes = |index: BlockIndex, block: &BlockRecord| {
            block.replicas.iter().any(|copy| facts.survives_without(stripe, index, copy.node))
        };
        let surplus = crate::stripes::indices::indexed(stripe).filter(|&(index, block)| goes(index, block));
        surplus.map(|(index, block)| (index, block.clone())).collect()
    }
}

fn drop_copy(facts: Facts<'_>, node: NodeId, block: &BlockId, out: &mut Out) {
    tracing::info!(%block, node = %facts.nodes.name(node), "removing a surplus copy");
    out.store(Write::Records(RecordWrite::Discard(node, block.clone())), Then::Nothing);
}
