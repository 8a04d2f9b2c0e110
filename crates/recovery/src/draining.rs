//! Which way each block leaves a node that is emptied: copied from it, or rebuilt from the other nodes.
//!
//! The two ways use different links, so the drain is over soonest if both finish together. The rule, applied whenever
//! an item could start: **a block is copied only if its copy, queued behind what the node is sending already, ends no
//! later than the others would be done rebuilding all that waits, this block included.** Neither side needs a clock:
//! both finishing times are bytes over rates, and rates are known in proportion, from budgets.
//!
//! *The others' finishing time* is the longest of three: until the survivors have sent what the waiting blocks need,
//! until few takers (hot standbys) have received it, and until a single block has been received.
//!
//! *What is under way.* A reservation does not shrink while its job runs. The others' jobs started one after another, so
//! that on average they are half done, and half of what is reserved for them counts. Copies may all have started
//! together: they count in full, at the node and where they arrive. And what waits counts as if every link were used
//! fully. All of this takes the others' time as rather too short than too long, as it should: a copy too few costs
//! nothing beside rebuilding everything, a copy too many is waited for.
//!
//! *Few takers.* A copy brings one block to its taker; a rebuild by a star brings k. Where takers are few, such a
//! rebuild takes their downlinks from several copies. While copying keeps up, it starts only on a taker that is done
//! with it before the node is done with its copies.

use repair::NodeId;

use super::budget::Loads;
use super::item::Kind;
use super::nodes::Node;
use super::queue::Class;
use super::redundancy::Redundancy;
use super::scan::{Check, Walk};
use super::view::ItemView;

/// The part of its bytes that a job still has to move, on average over jobs that started one after another.
const LEFT_OF_A_JOB: f64 = 0.5;
/// Finishing times this close are equal, whatever rounding makes of them.
const ROUNDING: f64 = 1.0 + 1e-9;

/// Bytes that some nodes have to move, and how fast they do together.
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

    /// When they are done if each does its part; at once if there are none.
    fn ends(&self) -> f64 {
        if self.nodes == 0 { 0.0 } else { self.bytes / self.width }
    }

    /// When one of them has moved so many bytes, if it is as fast as they are on average.
    fn moves_one(&self, bytes: f64) -> f64 {
        if self.nodes == 0 { 0.0 } else { bytes * f64::from(self.nodes) / self.width }
    }
}

impl Walk<'_> {
    /// Whether an item of [`Kind::Drain`] can start, and which way.
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
    /// Whether a copy of this item's block ends no later than the others are done rebuilding all that waits.
    fn copying_keeps_up(&self, from: NodeId, redundancy: &mut Redundancy) -> bool {
        let sends = self.blocks_sent(from, redundancy);
        let brought = self.stripe.block_bytes as f64 * self.repair.brought;
        let (senders, takers) = (self.sending_left(from, sends), self.taking_left(brought));
        let a_block = if takers.nodes > 0 { takers } else { senders }.moves_one(brought);
        let others = senders.ends().max(takers.ends()).max(a_block);
        self.copy_ends(from).is_none_or(|copy| copy <= others * ROUNDING)
    }

    /// When a copy of its block ends that starts now.
    fn copy_ends(&self, from: NodeId) -> Option<f64> {
        let node = self.table.get(self.table.find(from)?);
        Some((node.under_way() + self.stripe.block_bytes) as f64 / node.width())
    }

    /// What its survivors still have to send, if all that waits of its repair is rebuilt and each stripe
    /// asks its survivors for `sends` blocks, evenly.
    fn sending_left(&self, from: NodeId, sends: f64) -> Work {
        let from = self.table.find(from);
        let waiting = self.repair.counters.waiting;
        let others = || self.stripe.survivors(self.table).filter(|&(_, node)| Some(node) != from);
        let share = sends * self.stripe.block_bytes as f64 / others().count().max(1) as f64;
        let mut work = Work::default();
        for (_, node) in others() {
            let node = self.table.get(node);
            // Stripes of other repairs may wait here as well; that there are many must not make the node copy more.
            let waiting = node.waiting_stripes().min(waiting) as f64;
            work.add(node.under_way() as f64 * LEFT_OF_A_JOB + waiting * share, node.width());
        }
        work
    }

    /// What the only takers of its repair still have to receive if all that waits is rebuilt; nothing if any node takes.
    fn taking_left(&self, brought: f64) -> Work {
        let mut work = Work::default();
        for node in self.takers() {
            work.add(node.used().down_bytes as f64, node.width());
        }
        work.bytes += self.repair.counters.waiting as f64 * brought;
        work
    }

    /// The nodes that alone may take blocks of its repair, as far as they are up; none if any node may.
    fn takers(&self) -> impl Iterator<Item = &'a Node> {
        let table = self.table;
        let allowed = self.repair.spec.requestors.iter();
        let nodes = allowed.filter_map(move |&id| Some(table.get(table.find(id)?)));
        nodes.filter(|node| node.facts.alive && !node.facts.draining)
    }

    /// Whether a rebuild would take downlinks away from copies that are under way: it brings its taker more than the
    /// block, and even the idlest of few takers is then done later than the node.
    fn crowds_out_copies(&self, from: NodeId) -> bool {
        let brought = self.repair.brought;
        // A node that sends nothing frees nothing when it ends, and would be waited for forever.
        let sends = self.table.find(from).is_some_and(|node| self.table.get(node).under_way() > 0);
        if brought <= 1.0 || !sends {
            return false;
        }
        let bytes = brought * self.stripe.block_bytes as f64;
        let done = |node: &Node| (node.used().down_bytes as f64 + bytes) / node.width();
        let first = self.takers().map(done).reduce(f64::min);
        first.zip(self.copy_ends(from)).is_some_and(|(taker, copy)| taker > copy * ROUNDING)
    }

    /// Blocks' worth that survivors send to rebuild its block without the node.
    fn blocks_sent(&self, from: NodeId, redundancy: &mut Redundancy) -> f64 {
        let (lost, wanted) = self.losses(Kind::Rebuild { from });
        redundancy.blocks_read(&*self.stripe.code, &lost, &wanted)
    }

    /// Whether the blocks of a node can be rebuilt without it.
    pub fn others_suffice(&self, from: NodeId, redundancy: &mut Redundancy) -> bool {
        let (lost, wanted) = self.losses(Kind::Rebuild { from });
        let readable = redundancy.survives(&*self.stripe.code, &lost).is_some();
        readable && redundancy.sources(&*self.stripe.code, &lost, &wanted) > 0
    }
}

/// What a rebuild of an item of this kind brings to its taker, if it is one: the scheduler knows no shapes, but the next one
/// will have the same.
pub(super) fn brought(kind: Kind, loads: &Loads) -> Option<f64> {
    let copies = |from| loads.nodes.iter().any(|load| load.node == from && load.sent_bytes > 0);
    let rebuilds = kind.leaves().is_some_and(|from| !copies(from));
    loads.brought().filter(|_| rebuilds)
}
