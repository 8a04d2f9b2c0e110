//! Moves items from one phase to another.

use super::item::{Action, ItemId, ItemPhase, Stopping};
use super::view::ItemView;
use super::{Scheduler, preparation};

impl Scheduler {
    pub(super) fn view(&self, no: u32) -> ItemView<'_> {
        ItemView::of(no, &self.backlog, &self.stripes, &self.table)
    }

    pub(super) fn settle_stripes_of(&mut self, node: u32) {
        for stripe in self.table.get(node).stripes.clone() {
            self.settle_stripe(stripe);
            self.stop_needless(stripe);
            self.drop_surplus_of(stripe);
        }
    }

    /// Cancels the job of a stripe if none of the stripe's blocks is wanted any more, because a node came
    /// back. A job that has delivered a block runs to its end.
    pub(super) fn stop_needless(&mut self, stripe: u32) {
        let Some(no) = self.stripes.try_get(stripe).and_then(|stripe| stripe.busy) else { return };
        let of = self.view(no);
        let ItemPhase::Running(job, booking) = &of.item.phase else { return };
        let job = *job;
        if of.item.stopping == Stopping::No && !booking.has_delivered() && of.wanted().is_empty() {
            self.backlog.item_mut(no).stop(Stopping::Requeue);
            self.actions.push_back(Action::CancelJob { job });
        }
    }

    pub(super) fn settle_stripe(&mut self, stripe: u32) {
        for no in self.stripes.get(stripe).items.clone() {
            self.settle(no);
        }
    }

    /// Moves an item to the phase that the facts call for, unless it is proposed, running or ended.
    pub(super) fn settle(&mut self, no: u32) {
        if self.backlog.item(no).waits() {
            self.requeue(no);
        }
    }

    /// Moves an item to the phase that the current facts call for.
    pub(super) fn requeue(&mut self, no: u32) {
        let of = ItemView::of(no, &self.backlog, &self.stripes, &self.table);
        let phase = of.phase(self.stripes.is_held(&of.stripe.id), self.now, &mut self.redundancy);
        self.move_to(no, phase);
    }

    pub(super) fn move_to(&mut self, no: u32, to: ItemPhase) {
        let item = self.backlog.item(no);
        if let (ItemPhase::Queued(before), ItemPhase::Queued(after)) = (&item.phase, &to)
            && before == after
        {
            return;
        }
        // Another item may be able to start now: the move frees a place in the queue or capacity of nodes, or
        // it changes the amount of waiting work, by which a drain chooses between copying and rebuilding.
        self.scan.restart();
        let (repair, stripe) = (item.repair, item.stripe);
        let is_busy = |phase: &ItemPhase| matches!(phase, ItemPhase::Proposed | ItemPhase::Running(..));
        let (busy, end) = (is_busy(&to), to.end());
        let from = self.backlog.put(no, to);
        let was_busy = is_busy(&from);
        if let Some(end) = end {
            let stripe = self.stripes.get(stripe).id.clone();
            self.actions.push_back(Action::ItemEnded { repair, item: ItemId(no), stripe, end });
        }
        if let ItemPhase::Running(_, mut booking) = from {
            self.table.give_back(&mut booking);
        }
        if end.is_some() {
            preparation::forget(&mut self.backlog, no, &mut self.table);
            self.stripes.get_mut(stripe).items.retain(|&other| other != no);
        }
        if was_busy != busy {
            self.stripes.set_busy(stripe, busy.then_some(no), &mut self.table);
            self.settle_stripe(stripe);
        }
        if end.is_some() {
            self.drop_surplus_of(stripe);
            // Other items of the stripe may have ended as well.
            if self.stripes.is_idle(stripe) {
                self.stripes.remove(stripe, &mut self.table);
            }
        }
    }

    /// Requests removal of a stripe's surplus copies, if the stripe is whole and no job works on it.
    pub(super) fn drop_surplus_of(&mut self, no: u32) {
        if let Some(stripe) = self.stripes.try_get(no) {
            self.actions.extend(self.surplus.drop_of(stripe, &self.table));
        }
    }
}
