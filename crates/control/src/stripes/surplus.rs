//! Blocks that are on more nodes than one, in stores where a server that comes back brings what was made anew elsewhere.
//!
//! A surplus copy goes only when the stripe is whole without it and survives as many losses of nodes, nobody works on it, and
//! the copy that stays has just been read and is good.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use stores::{BlockRecord, FileWrite, StripeRecord, Write};

use crate::facts::Around;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::storing::Then;
use crate::stripes::Stripes;

/// How often surplus copies are looked for, and asked about again.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Copies that are to stay and are being read, and when that is asked for again.
#[derive(Default)]
pub(crate) struct Surplus {
    due: Duration,
    checking: BTreeMap<(StripeId, BlockIndex), (NodeId, Duration)>,
}

impl Stripes {
    /// Has the copies read that are to stay.
    pub(crate) fn look_for_surplus(&mut self, around: Around<'_>, jobs: &Jobs, out: &mut Out) {
        if !around.base.nature.tells_service
            || !around.nodes.settled
            || !around.with(self).may_change()
            || around.base.now < self.surplus.due
        {
            return;
        }
        self.surplus.due = around.base.now + LOOK_EVERY;
        let now = around.base.now;
        self.surplus.checking.retain(|_, (_, until)| now < *until);
        for stripe in self.picture.replicated() {
            for (index, block) in jobs.surplus_of(around.with(self), &stripe) {
                let key = (stripe.id.clone(), index);
                let Some(stays) = around.with(self).readable_at(&block) else { continue };
                if self.surplus.checking.contains_key(&key) {
                    continue;
                }
                self.surplus.checking.insert(key, (stays, now + ASK_AGAIN));
                around.with(self).ask_for_block(stays, stripe.id.clone(), index, block, false, out);
            }
        }
    }

    /// A copy has been read and is good: others of it may go.
    pub(crate) fn drop_copies_besides(
        &mut self,
        around: Around<'_>,
        jobs: &Jobs,
        stays: NodeId,
        stripe: &StripeId,
        index: BlockIndex,
        out: &mut Out,
    ) {
        let key = (stripe.clone(), index);
        if self.surplus.checking.get(&key).is_none_or(|&(node, _)| node != stays) {
            return;
        }
        self.surplus.checking.remove(&key);
        let Ok(record) = self.picture.stripe(stripe) else { return };
        let found =
            jobs.surplus_of(around.with(self), &record).into_iter().find(|&(other, _)| other == index);
        let Some((_, block)) = found.filter(|(_, block)| block.node == Some(stays)) else { return };
        for replica in &block.replicas {
            if around.nodes.is_helper(replica.node)
                && around.with(self).survives_without(&record, index, replica.node)
            {
                self.drop_copy(around, replica.node, &block.id, out);
            }
        }
    }

    /// The scheduler needs a copy of a block no more: removes it, unless the stripe would survive less without it.
    pub(crate) fn drop_surplus(
        &mut self,
        around: Around<'_>,
        jobs: &Jobs,
        (stripe, index, node): (&StripeId, BlockIndex, NodeId),
        out: &mut Out,
    ) {
        let Ok(record) = self.picture.stripe(stripe) else { return };
        let block = record.blocks[usize::from(index.0)].id.clone();
        if around.with(self).survives_without(&record, index, node) {
            self.remove_copy(around, jobs, node, block, out);
        }
    }

    fn drop_copy(&mut self, around: Around<'_>, node: NodeId, block: &BlockId, out: &mut Out) {
        tracing::info!(%block, node = %around.nodes.name(node), "removing a copy that is one too many");
        out.store(Write::Files(FileWrite::Discard(node, block.clone())), Then::Nothing);
    }
}

impl Jobs {
    /// Blocks of which copies could go, if the one that stays is good.
    fn surplus_of(&self, facts: Facts<'_>, stripe: &StripeRecord) -> Vec<(BlockIndex, BlockRecord)> {
        let whole =
            stripe.blocks.iter().all(|block| facts.readable_at(block).is_some() && !facts.is_lost(block));
        if !whole || self.is_stripe_worked_on(&stripe.id) {
            return Vec::new();
        }
        let goes = |index: BlockIndex, block: &BlockRecord| {
            block.replicas.iter().any(|copy| facts.survives_without(stripe, index, copy.node))
        };
        let surplus = crate::stripes::indexed(stripe).filter(|&(index, block)| goes(index, block));
        surplus.map(|(index, block)| (index, block.clone())).collect()
    }
}
