//! Decides how each block leaves a node that is being drained: copied from the node, or rebuilt from blocks
//! on other nodes.
//!
//! The two ways use different links, so the drain ends soonest if both finish together. The rule applies
//! whenever an item could start: **a block is copied only if copying it, queued behind what the node already
//! sends, ends no later than the other nodes would finish rebuilding all waiting blocks, this one included.**
//! No clock is needed: both finishing times are bytes divided by rates, and budgets give the rates up to a
//! common factor.
//!
//! *Finishing time of the other nodes.* It is the longest of three times: the time until the survivors have
//! sent what the waiting blocks need; the time until the nodes that store the rebuilt blocks have received
//! them (if only a few nodes may store them, such as hot standbys); and the time until one single block has
//! been received.
//!
//! *Work in flight.* A reservation does not shrink while its job runs. Jobs of the other nodes started one
//! after another and are half done on average, so half of their reservations counts. Copies may all have
//! started together, so they count in full, both at the drained node and at the nodes that receive them. For
//! waiting work, every link is assumed to be fully used. These assumptions underestimate the time that the
//! other nodes need, rather than overestimate it. That is the safe side: one copy too few costs little when
//! everything else is rebuilt, but a copy too many has to be waited for.
//!
//! *Few takers.* The node that stores a block (the taker) receives one block's worth of data for a copy, and
//! k blocks' worth for a rebuild by a star. With few takers, such a rebuild takes as much of their downlinks
//! as several copies. While copying keeps up, a rebuild starts only on a taker that finishes it before the
//! drained node finishes its copies.

use repair::{Accepts, NodeId};

use super::budget::Loads;
use super::item::Kind;
use super::nodes::Node;
use super::queue::Class;
use super::redundancy::Redundancy;
use super::scan::{Check, Walk};
use super::view::ItemView;

/// The part of its bytes that a job still has to move, on average over jobs that started one after another.
const LEFT_OF_A_JOB: f64 = 0.5;
/// Finishing times within this factor count as equal, to absorb rounding.
const ROUNDING: f64 = 1.0 + 1e-9;

/// Bytes that a group of nodes has to move, and their total rate.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    bytes: f64,
    width: f64,
    nodes: u32,
}

impl Work {
    fn add(&mut self, bytes: f64, width: f64) {
        self.bytes += bytes;
        self.width += width;
        self.nodes += 1;
    }

    /// Returns the time that the group needs if the work is divided evenly. Zero for an empty group.
    fn ends(&self) -> f64 {
        if self.nodes == 0 { 0.0 } else { self.bytes / self.width }
    }

    /// Returns the time that one node of average rate needs to move `bytes`.
    fn moves_one(&self, bytes: f64) -> f64 {
        if self.nodes == 0 { 0.0 } else { bytes * f64::from(self.nodes) / self.width }
    }
}

impl Walk<'_> {
    /// Checks whether an item of [`Kind::Drain`] can start, and whether it is copied or rebuilt.
    pub fn check_drain(&mut self, of: &ItemView<'_>, from: NodeId, class: Class) -> Check {
        if !of.others_suffice(from, self.known.redundancy) {
            return self.check_as(of, Kind::Migrate { from }, class);
        }
        if !of.copying_keeps_up(from, self.known.redundancy) {
            return self.check_as(of, Kind::Rebuild { from }, class);
        }
        match self.check_as(of, Kind::Migrate { from }, class) {
            Check::NoHelpers if !of.crowds_out_copies(from) => {
                self.check_as(of, Kind::Rebuild { from }, class)
            }
            check => check,
        }
    }
}

impl<'a> ItemView<'a> {
    /// Whether copying this item's block would end no later than the other nodes would finish rebuilding all
    /// waiting blocks.
    fn copying_keeps_up(&self, from: NodeId, redundancy: &mut Redundancy) -> bool {
        let sends = self.blocks_sent(from, redundancy);
        let brought = self.stripe.block_bytes as f64 * self.repair.brought;
        let (senders, takers) = (self.sending_left(from, sends), self.taking_left(brought));
        let a_block = if takers.nodes > 0 { takers } else { senders }.moves_one(brought);
        let others = senders.ends().max(takers.ends()).max(a_block);
        self.copy_ends(from).is_none_or(|copy| copy <= others * ROUNDING)
    }

    /// Returns the time until a copy of the item's block would end if the copy started now.
    fn copy_ends(&self, from: NodeId) -> Option<f64> {
        let node = self.table.get(self.table.find(from)?);
        Some((node.under_way() + self.stripe.block_bytes) as f64 / node.width())
    }

    /// Returns the data that the survivors of the item's stripe still have to send if all waiting blocks of
    /// the repair are rebuilt.
    ///
    /// Each stripe is assumed to ask its survivors for `sends` blocks in total, divided evenly.
    fn sending_left(&self, from: NodeId, sends: f64) -> Work {
        let from = self.table.find(from);
        let waiting = self.repair.counters.waiting;
        let others = || self.stripe.survivors(self.table).filter(|&(_, node)| Some(node) != from);
        let share = sends * self.stripe.block_bytes as f64 / others().count().max(1) as f64;
        let mut work = Work::default();
        for (_, node) in others() {
            let node = self.table.get(node);
            // The node's count includes waiting stripes of other repairs. The minimum keeps them from causing
            // more copies in this repair.
            let waiting = node.waiting_stripes().min(waiting) as f64;
            work.add(node.under_way() as f64 * LEFT_OF_A_JOB + waiting * share, node.width());
        }
        work
    }

    /// Returns the data that the permitted takers still have to receive if all waiting blocks of the repair
    /// are rebuilt.
    ///
    /// Empty if any node may take blocks.
    fn taking_left(&self, brought: f64) -> Work {
        let mut work = Work::default();
        for node in self.takers() {
            work.add(node.used().down_bytes as f64, node.width());
        }
        work.bytes += self.repair.counters.waiting as f64 * brought;
        work
    }

    /// Returns the permitted takers of the item's repair that are up and accept its blocks. Empty if any node may
    /// take blocks.
    fn takers(&self) -> impl Iterator<Item = &'a Node> {
        let table = self.table;
        let nodes = self.allowed().map(move |no| table.get(no));
        nodes.filter(|node| node.facts.alive && node.facts.accepts == Accepts::All)
    }

    /// Whether a rebuild would take downlinks away from copies in flight.
    ///
    /// This is so if a rebuild brings its taker more than the block itself, and even the least busy taker
    /// would finish the rebuild later than the drained node finishes its copies.
    fn crowds_out_copies(&self, from: NodeId) -> bool {
        let brought = self.repair.brought;
        // If the node sends nothing, there are no copies to protect, and waiting for their end would never
        // stop.
        let sends = self.table.find(from).is_some_and(|node| self.table.get(node).under_way() > 0);
        if brought <= 1.0 || !sends {
            return false;
        }
        let bytes = brought * self.stripe.block_bytes as f64;
        let done = |node: &Node| (node.used().down_bytes as f64 + bytes) / node.width();
        let first = self.takers().map(done).reduce(f64::min);
        first.zip(self.copy_ends(from)).is_some_and(|(taker, copy)| taker > copy * ROUNDING)
    }

    /// Returns how many blocks' worth of data survivors send to rebuild the item's block without the drained
    /// node.
    fn blocks_sent(&self, from: NodeId, redundancy: &mut Redundancy) -> f64 {
        let (lost, wanted) = self.losses(Kind::Rebuild { from });
        redundancy.blocks_read(&*self.stripe.code, &lost, &wanted)
    }

    /// Whether the blocks of a node can be rebuilt without reading from it.
    pub fn others_suffice(&self, from: NodeId, redundancy: &mut Redundancy) -> bool {
        let (lost, wanted) = self.losses(Kind::Rebuild { from });
        let readable = redundancy.survives(&*self.stripe.code, &lost).is_some();
        readable && redundancy.sources(&*self.stripe.code, &lost, &wanted) > 0
    }
}

/// Returns the bytes received per byte stored, if the plan rebuilds blocks that are to leave a node. `None`
/// if the plan copies these blocks, or rebuilds lost ones.
///
/// The scheduler does not know the shape of the next rebuild and assumes the same ratio for it.
pub(super) fn brought(kind: Kind, loads: &Loads) -> Option<f64> {
    let copies = |from| loads.nodes.iter().any(|load| load.node == from && load.sent_bytes > 0);
    let rebuilds = kind.leaves().is_some_and(|from| !copies(from));
    loads.brought().filter(|_| rebuilds)
}
