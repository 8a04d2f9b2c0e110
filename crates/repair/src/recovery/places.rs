//! Where an item is by what is known now, and its way from there to there.

use std::cmp::Reverse;

use super::Scheduler;
use super::item::{Action, BlockFacts, End, Item, ItemId, Place};
use super::queue::{Class, Key};
use crate::StripeId;

impl Scheduler {
    pub(super) fn item(&self, no: u32) -> &Item {
        self.items[no as usize].as_ref().expect("its repair is not forgotten")
    }

    pub(super) fn item_mut(&mut self, no: u32) -> &mut Item {
        self.items[no as usize].as_mut().expect("its repair is not forgotten")
    }

    pub(super) fn settle_stripes_of(&mut self, node: u32) {
        for stripe in self.table.get(node).stripes.clone() {
            self.settle_stripe(stripe);
            self.stop_needless(stripe);
            self.drop_surplus_of(stripe);
        }
    }

    /// Whether a block came from the stripe's own job, which goes to its end.
    pub(super) fn is_delivered(&self, stripe: u32, facts: BlockFacts) -> bool {
        let busy = self.stripes.get(stripe).busy.map(|no| &self.item(no).place);
        let node = facts.node.and_then(|id| self.table.find(id));
        matches!((busy, node), (Some(Place::Running(_, booking)), Some(node)) if booking.stores_at(node))
    }

    /// Calls off the job of a stripe of which nothing is wanted any more, as a node is back.
    pub(super) fn stop_needless(&mut self, stripe: u32) {
        let Some(no) = self.stripes.try_get(stripe).and_then(|stripe| stripe.busy) else { return };
        let Place::Running(job, _) = self.item(no).place else { return };
        let (item, stripe) = (self.item(no), self.stripes.get(stripe));
        let wanted = stripe.wanted(self.kind_now(item), &item.only, &stripe.lost(&self.table), &self.table);
        if wanted.is_empty() && !item.stopping {
            self.item_mut(no).stopping = true;
            self.actions.push_back(Action::CancelJob { job });
        }
    }

    pub(super) fn settle_named(&mut self, stripe: &StripeId) {
        if let Some(no) = self.stripes.find(stripe) {
            self.settle_stripe(no);
        }
    }

    pub(super) fn settle_stripe(&mut self, stripe: u32) {
        for no in self.stripes.get(stripe).items.clone() {
            self.settle(no);
        }
    }

    /// Puts an item where it belongs, unless something is being done for it.
    pub(super) fn settle(&mut self, no: u32) {
        if !matches!(self.item(no).place, Place::Proposed | Place::Running(..) | Place::Ended(_)) {
            self.requeue(no);
        }
    }

    /// Puts an item where it belongs by what is known now.
    pub(super) fn requeue(&mut self, no: u32) {
        let place = self.place_of(no);
        self.move_to(no, place);
    }

    pub(super) fn place_of(&mut self, no: u32) -> Place {
        let item = self.item(no);
        let stripe = self.stripes.get(item.stripe);
        let lost = stripe.lost(&self.table);
        let kind = self.kind_now(item);
        let nothing_left = stripe.wanted(kind, &item.only, &lost, &self.table).is_empty();
        if nothing_left && item.rounds > 0 {
            return Place::Ended(End::Repaired);
        }
        if self.repairs[&item.repair].cancelled {
            return Place::Ended(End::Cancelled);
        }
        // Whoever holds it may find out otherwise.
        if nothing_left && !self.holds.contains_key(&stripe.id) {
            return Place::Ended(End::NothingLost);
        }
        if let Some(at) = item.not_before.filter(|&at| at > self.now) {
            return Place::BackingOff(at);
        }
        if stripe.busy.is_some_and(|busy| busy != no) || self.holds.contains_key(&stripe.id) {
            return Place::Held;
        }
        let (repair, sequence) = (item.repair, item.sequence);
        match self.class(no) {
            None => Place::Aside,
            Some(class) => {
                let lost = Reverse(lost.len() as u16);
                Place::Queued(Key { class, lost, repair, sequence, item: no })
            }
        }
    }

    /// How urgent an item is; `None` if its stripe cannot be read.
    pub(super) fn class(&mut self, no: u32) -> Option<Class> {
        let item = self.item(no);
        let priority = self.repairs[&item.repair].spec.priority;
        let stripe = self.stripes.get(item.stripe);
        let survives = self.redundancy.survives(&*stripe.code, &stripe.lost(&self.table));
        // What can be copied is worth copying, whatever became of the rest.
        let copies = self.kind_now(self.item(no)).leaves().is_some();
        survives.or(copies.then_some(0)).map(|survives| Class { priority, survives })
    }

    pub(super) fn move_to(&mut self, no: u32, to: Place) {
        if let (Place::Queued(before), Place::Queued(after)) = (&self.item(no).place, &to)
            && before == after
        {
            return;
        }
        // Its place in the queue is free, its nodes are, or how much waits is different, by which a drain copies or rebuilds.
        self.scan.restart();
        let from = std::mem::replace(&mut self.item_mut(no).place, Place::Held);
        let item = self.item(no);
        let (repair, stripe) = (item.repair, item.stripe);
        let of = self.repairs.get_mut(&repair).expect("it has items");
        *of.counters.of(&from) -= 1;
        *of.counters.of(&to) += 1;
        match &from {
            Place::Queued(key) => drop(self.queue.remove(key)),
            Place::Aside => drop(of.aside.remove(&no)),
            Place::BackingOff(at) => drop(self.timers.remove(&(*at, no))),
            Place::Running(..) => {
                of.running.remove(&no);
                self.forget_due(no);
            }
            Place::Held | Place::Proposed | Place::Ended(_) => {}
        }
        let of = self.repairs.get_mut(&repair).expect("it has items");
        match &to {
            Place::Queued(key) => drop(self.queue.insert(*key)),
            Place::Aside => {
                of.aside.insert(no);
                self.stirred.insert(repair);
            }
            Place::BackingOff(at) => drop(self.timers.insert((*at, no))),
            Place::Running(..) => drop(of.running.insert(no)),
            Place::Held | Place::Proposed => {}
            Place::Ended(end) => {
                self.stirred.insert(repair);
                let stripe = self.stripes.get(stripe).id.clone();
                self.actions.push_back(Action::ItemEnded { repair, item: ItemId(no), stripe, end: *end });
            }
        }
        let is_busy = |place: &Place| matches!(place, Place::Proposed | Place::Running(..));
        let (was_busy, busy, ended) = (is_busy(&from), is_busy(&to), matches!(to, Place::Ended(_)));
        self.item_mut(no).place = to;
        if let Place::Running(_, booking) = from {
            self.table.give_back(booking);
        }
        if ended {
            self.stripes.get_mut(stripe).items.retain(|&other| other != no);
        }
        if was_busy != busy {
            self.stripes.set_busy(stripe, busy.then_some(no), &mut self.table);
            self.settle_stripe(stripe);
        }
        if ended {
            self.drop_surplus_of(stripe);
        }
        // Those that waited for it may have ended with it.
        if ended && self.stripes.is_idle(stripe) {
            self.stripes.remove(stripe, &mut self.table);
        }
    }
}
