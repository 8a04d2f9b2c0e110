//! A read-only view of an item with its repair, its stripe and the nodes. It is created for each decision.

use std::cmp::Reverse;
use std::time::Duration;

use codes::BlockIndex;

use super::backlog::{Backlog, Repair};
use super::item::{End, Item, ItemPhase, Kind};
use super::nodes::{NodeNo, NodeTable};
use super::queue::{Class, Key};
use super::redundancy::Redundancy;
use super::stripes::{Stripe, Stripes};

#[derive(Clone, Copy)]
pub(super) struct ItemView<'a> {
    pub no: u32,
    pub item: &'a Item,
    pub repair: &'a Repair,
    pub stripe: &'a Stripe,
    pub table: &'a NodeTable,
}

impl<'a> ItemView<'a> {
    /// Creates the view of an item.
    ///
    /// # Panics
    /// If the item has ended and its stripe is forgotten.
    pub fn of(no: u32, backlog: &'a Backlog, stripes: &'a Stripes, table: &'a NodeTable) -> Self {
        let item = backlog.item(no);
        Self { no, item, repair: backlog.repair_of(no), stripe: stripes.get(item.stripe), table }
    }

    /// Returns the blocks of the item's stripe that cannot be read now, in ascending order.
    pub fn lost(&self) -> Vec<BlockIndex> {
        self.stripe.lost(self.table)
    }

    /// Returns the blocks that the item still has to repair or move.
    pub fn wanted(&self) -> Vec<BlockIndex> {
        self.stripe.wanted(self.kind_now(), &self.item.only, &self.lost(), self.table)
    }

    /// Returns the blocks that must not be read, and the wanted blocks.
    pub fn losses(&self, kind: Kind) -> (Vec<BlockIndex>, Vec<BlockIndex>) {
        let mut lost = self.lost();
        let wanted = self.stripe.wanted(kind, &self.item.only, &lost, self.table);
        if let Kind::Rebuild { .. } = kind {
            lost.extend(self.stripe.wanted(kind, &[], &lost, self.table));
            lost.sort_unstable();
            lost.dedup();
        }
        (lost, wanted)
    }

    /// Returns the blocks that the item may read, and their nodes.
    pub fn sources(&self, kind: Kind) -> impl Iterator<Item = (BlockIndex, NodeNo)> + use<'a> {
        let from = kind.leaves().and_then(|from| self.table.find(from));
        let survivors = self.stripe.survivors(self.table);
        survivors.filter(move |&(_, node)| match kind {
            Kind::Migrate { .. } => from == Some(node),
            Kind::Rebuild { .. } => from != Some(node),
            Kind::Reconstruct | Kind::Drain { .. } => true,
        })
    }

    /// Returns the kind that applies now. If the node that blocks move away from cannot be read, the kind is
    /// [`Kind::Reconstruct`].
    pub fn kind_now(&self) -> Kind {
        let Some(from) = self.item.kind.leaves() else { return Kind::Reconstruct };
        let from_no = self.table.find(from).filter(|&no| self.table.get(no).facts.alive);
        let readable = |no| self.stripe.survivors(self.table).any(|(_, node)| node == no);
        if from_no.is_some_and(readable) { self.item.kind } else { Kind::Reconstruct }
    }

    /// Returns the only node that the item may read, if its blocks are copied.
    pub fn only_source(&self) -> Option<NodeNo> {
        match self.kind_now() {
            Kind::Migrate { from } => self.table.find(from),
            Kind::Reconstruct | Kind::Rebuild { .. } | Kind::Drain { .. } => None,
        }
    }

    /// Returns the only nodes that may get the item's blocks. Empty if any node may.
    pub fn allowed(&self) -> impl Iterator<Item = NodeNo> + use<'a> {
        let table = self.table;
        self.repair.spec.requestors.iter().filter_map(move |&id| table.find(id))
    }

    /// Returns the item's urgency class. `None` if the stripe cannot be read.
    pub fn class(&self, redundancy: &mut Redundancy) -> Option<Class> {
        let survives = redundancy.survives(&*self.stripe.code, &self.lost());
        // A block that can be copied is worth copying, whatever the state of the rest of the stripe.
        let copies = self.kind_now().leaves().is_some();
        let priority = self.repair.spec.priority;
        survives.or(copies.then_some(0)).map(|survives| Class { priority, survives })
    }

    /// Returns the phase that the current facts call for. `is_held` is whether the driver itself works on the
    /// stripe.
    pub fn phase(&self, is_held: bool, now: Duration, redundancy: &mut Redundancy) -> ItemPhase {
        let nothing_left = self.wanted().is_empty();
        if nothing_left && self.item.rounds > 0 {
            return ItemPhase::Ended(End::Repaired);
        }
        if self.repair.cancelled {
            return ItemPhase::Ended(End::Cancelled);
        }
        // While the driver holds the stripe, it may still report a lost block, so the item must not end.
        if nothing_left && !is_held {
            return ItemPhase::Ended(End::NothingLost);
        }
        if let Some(at) = self.item.not_before.filter(|&at| at > now) {
            return ItemPhase::BackingOff(at);
        }
        if self.stripe.busy.is_some_and(|busy| busy != self.no) || is_held {
            return ItemPhase::Held;
        }
        let (repair, sequence) = (self.item.repair, self.item.sequence);
        match self.class(redundancy) {
            None => ItemPhase::Aside,
            Some(class) => {
                let lost = Reverse(self.lost().len() as u16);
                ItemPhase::Queued(Key { class, lost, repair, sequence, item: self.no })
            }
        }
    }
}
