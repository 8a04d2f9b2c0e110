//! Blocks that are on more nodes than one, in stores where a server that comes back brings what was made anew elsewhere.
//!
//! A surplus copy goes only when the stripe is whole without it and survives as many losses of nodes, nobody works on it, and
//! the copy that stays has just been read and is good.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use stores::{BlockRecord, FileWrite, StripeRecord, Write};

use super::Control;
use super::storing::Then;
use crate::facts::Facts;
use crate::jobs::Jobs;

/// How often surplus copies are looked for, and asked about again.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Copies that are to stay and are being read, and when that is asked for again.
#[derive(Default)]
pub(crate) struct Surplus {
    due: Duration,
    checking: BTreeMap<(StripeId, BlockIndex), (NodeId, Duration)>,
}

impl Control {
    /// Has the copies read that are to stay.
    pub(crate) fn look_for_surplus(&mut self) {
        if !self.base.nature.tells_service
            || !self.nodes.settled
            || !self.facts().may_change()
            || self.base.now < self.stripes.surplus.due
        {
            return;
        }
        self.stripes.surplus.due = self.base.now + LOOK_EVERY;
        let now = self.base.now;
        self.stripes.surplus.checking.retain(|_, (_, until)| now < *until);
        for stripe in self.stripes.picture.replicated() {
            for (index, block) in self.jobs.surplus_of(facts!(self), &stripe) {
                let key = (stripe.id.clone(), index);
                let Some(stays) = self.facts().readable_at(&block) else { continue };
                if self.stripes.surplus.checking.contains_key(&key) {
                    continue;
                }
                self.stripes.surplus.checking.insert(key, (stays, now + ASK_AGAIN));
                facts!(self).ask_for_block(stays, stripe.id.clone(), index, block, false, &mut self.out);
            }
        }
    }

    /// A copy has been read and is good: others of it may go.
    pub(crate) fn drop_copies_besides(&mut self, stays: NodeId, stripe: &StripeId, index: BlockIndex) {
        let key = (stripe.clone(), index);
        if self.stripes.surplus.checking.get(&key).is_none_or(|&(node, _)| node != stays) {
            return;
        }
        self.stripes.surplus.checking.remove(&key);
        let Ok(record) = self.stripes.picture.stripe(stripe) else { return };
        let found =
            self.jobs.surplus_of(facts!(self), &record).into_iter().find(|&(other, _)| other == index);
        let Some((_, block)) = found.filter(|(_, block)| block.node == Some(stays)) else { return };
        for replica in &block.replicas {
            if self.nodes.is_helper(replica.node)
                && self.facts().survives_without(&record, index, replica.node)
            {
                self.drop_copy(replica.node, &block.id);
            }
        }
    }

    fn drop_copy(&mut self, node: NodeId, block: &BlockId) {
        tracing::info!(%block, node = %self.nodes.name(node), "removing a copy that is one too many");
        self.out.store(Write::Files(FileWrite::Discard(node, block.clone())), Then::Nothing);
    }
}

impl Jobs {
    /// Blocks of which copies could go, if the one that stays is good.
    pub(crate) fn surplus_of(
        &self,
        facts: Facts<'_>,
        stripe: &StripeRecord,
    ) -> Vec<(BlockIndex, BlockRecord)> {
        let whole =
            stripe.blocks.iter().all(|block| facts.readable_at(block).is_some() && !facts.is_lost(block));
        if !whole || self.is_stripe_worked_on(&stripe.id) {
            return Vec::new();
        }
        let goes = |index: BlockIndex, block: &BlockRecord| {
            block.replicas.iter().any(|copy| facts.survives_without(stripe, index, copy.node))
        };
        let surplus = super::stripes::indexed(stripe).filter(|&(index, block)| goes(index, block));
        surplus.map(|(index, block)| (index, block.clone())).collect()
    }
}
