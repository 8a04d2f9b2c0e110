//! Jobs that rest, as their repair is paused: they keep the space of what they are to store, and others have the links and
//! disks meanwhile.

use super::budget::Loads;
use super::item::Place;
use super::{ItemId, Scheduler};

impl Scheduler {
    /// The job of an item moves nothing until [`wake`](Self::wake): it gives back what it has reserved, but for space.
    /// It is not late meanwhile.
    pub fn rest(&mut self, item: ItemId, loads: &Loads) {
        self.forget_due(item.0);
        self.handle_replanned(item, &loads.at_rest());
    }

    /// Reserves what the job of an item that rests is to move from now on. Without room for that it goes on resting; returns
    /// whether it may move.
    pub fn wake(&mut self, item: ItemId, loads: &Loads) -> bool {
        let Place::Running(_, booking) = &mut self.item_mut(item.0).place else { return true };
        let before = std::mem::take(booking);
        self.table.give_back(before);
        let is_room = self.table.lacks(loads).is_none();
        let after = if is_room { self.table.book(loads) } else { self.table.book(&loads.at_rest()) };
        if let Place::Running(_, booking) = &mut self.item_mut(item.0).place {
            *booking = after;
        }
        is_room
    }

    /// Whether a repair that is not paused waits for the stripe of an item whose job rests. That job is to be called off then; its
    /// item waits for its turn again.
    pub fn make_way(&mut self, item: ItemId) -> bool {
        let stripe = self.stripes.get(self.item(item.0).stripe);
        let mut others = stripe.items.iter().filter(|&&no| no != item.0);
        let waits = others.any(|&no| !self.repairs[&self.item(no).repair].paused);
        if waits {
            self.item_mut(item.0).stopping = true;
        }
        waits
    }
}
