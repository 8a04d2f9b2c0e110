//! Applies changes of the storage to the picture (the catalog in memory).

use repair::{NodeId, StripeId};
use store_api::{BlockRecord, StoreChange, StripeRecord};

use crate::facts::OuterFacts;
use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::indices::indexed;
use crate::stripes::state::holdings::Inventory;
use crate::stripes::{Stripes, finding};

impl Stripes {
    /// Applies a change to the picture (the catalog in memory). Returns the nodes that hold blocks of the
    /// changed stripe.
    pub(crate) fn apply_change(
        &mut self,
        outer: OuterFacts<'_>,
        change: StoreChange,
        out: &mut Out,
    ) -> Vec<NodeId> {
        let stripe = match &change {
            StoreChange::Stripe(stripe, _) => Some(stripe.id.clone()),
            StoreChange::StripeGone(stripe) => Some(stripe.clone()),
            _ => None,
        };
        let record = |stripes: &Self| stripes.picture.stripe(stripe.as_ref()?).ok();
        let before = record(self);
        self.picture.apply(change);
        let now = record(self);
        let homes = before.iter().chain(&now).flat_map(|record| &record.blocks);
        let nodes = homes.flat_map(BlockRecord::holders).map(|holder| holder.node).collect();
        self.unrecorded.settle_changed(before.as_ref(), now.as_ref());
        match (stripe, now) {
            (Some(stripe), Some(now)) => {
                // A store that others run may have encoded the data anew. What is known of the former blocks is not
                // true of the new ones, although they may have the same names.
                let before = before.filter(|before| {
                    let is_same = now.has_same_blocks(before);
                    if !is_same {
                        self.forget_stripe(outer, stripe.clone(), Some(before.clone()), out);
                    }
                    is_same
                });
                if let Some(before) = &before {
                    self.contradictions.note_moved(before, &now, out);
                }
                self.given.note_listed(before.as_ref(), &now);
                reconsider(&mut self.inventory, before.as_ref(), &now);
                self.read_displaced(outer, &now, out);
                finding::look_for_lost(self, outer, before.as_ref(), &now, out);
                out.tell(Signal::Blocks(stripe));
            }
            (Some(stripe), None) => self.forget_stripe(outer, stripe, before, out),
            (None, _) => {}
        }
        nodes
    }

    /// Drops all state about a stripe that was removed.
    pub(crate) fn forget_stripe(
        &mut self,
        outer: OuterFacts<'_>,
        stripe: StripeId,
        before: Option<StripeRecord>,
        out: &mut Out,
    ) {
        // What is known of the blocks stays true of a stripe whose state is unknown for the time being.
        if !self.unjudged.contain(&stripe) {
            self.condemned.forget_stripe(&stripe, out);
            self.contradictions.forget(&stripe, out);
        }
        self.made_lately.forget_stripe(&stripe);
        self.inventory.forget_stripe(&stripe, before.as_ref());
        self.unrecorded.settle_changed(before.as_ref(), None);
        before.into_iter().for_each(|stripe| self.readers.retire(stripe, outer.base.now));
        out.tell(Signal::Removed(stripe));
    }
}

/// Has found copies of blocks considered again if the blocks' nodes, states or digests have changed.
fn reconsider(inventory: &mut Inventory, before: Option<&StripeRecord>, now: &StripeRecord) {
    if inventory.unadopted.is_empty() {
        return;
    }
    for (index, block) in indexed(now) {
        let before = before.and_then(|before| before.block(index));
        let key = |block: &BlockRecord| (block.node, block.state, block.digest);
        if before.is_none_or(|before| key(before) != key(block)) {
            inventory.unadopted.reconsider(&block.id);
        }
    }
}
