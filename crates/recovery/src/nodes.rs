//! The nodes as the scheduler sees them: a dense table of budgets, reservations and past work.

use std::collections::{BTreeMap, BTreeSet};

use repair::{Accepts, NodeId, Resource};

use super::ReservationId;
use super::budget::{Budget, Lack, Loads, NodeLoad, fits, stretched};

/// The largest factor by which budgets are increased for large blocks. With tight caps or huge blocks, a
/// larger factor would make urgent work wait for hours.
const MOST_STRETCH: f64 = 8.0;

/// Index of a node in the table.
pub(super) type NodeNo = u32;

/// The driver's facts about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Whether the node accepts tasks now.
    pub alive: bool,
    /// The node's rack, if known. The blocks in a rack may be lost together.
    pub rack: Option<String>,
    /// The node's host, if known. The blocks of all nodes on a host may be lost together.
    pub host: Option<String>,
    /// Free space for blocks, in bytes.
    pub free_bytes: u64,
    /// Number of blocks on the node.
    pub blocks: u64,
    /// The maximum that repairs may have in flight at the node.
    pub budget: Budget,
    /// The blocks that may be placed on the node.
    pub accepts: Accepts,
}

/// Budget of the trunk of a rack: bytes of repairs in flight out of the rack and into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrunkBudget {
    /// Bytes out of the rack.
    pub up_bytes: u64,
    /// Bytes into the rack.
    pub down_bytes: u64,
}

impl TrunkBudget {
    const UNLIMITED: Self = Self { up_bytes: u64::MAX, down_bytes: u64::MAX };

    fn stretched(self, stretch: f64) -> Self {
        Self { up_bytes: stretched(self.up_bytes, stretch), down_bytes: stretched(self.down_bytes, stretch) }
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub id: NodeId,
    pub facts: NodeFacts,
    /// Effective budget: the one in `facts`, increased if blocks are large.
    pub budget: Budget,
    pub rack: Option<usize>,
    pub host: Option<usize>,
    pub in_flight: InFlight,
    pub done: Done,
    /// Bytes per second that clients read from the node, as its helper reports.
    pub user_bytes: u64,
    /// Stripes with open items and with a block on the node.
    pub stripes: BTreeSet<u32>,
    /// Number of the stripes in `stripes` that are proposed or have a job.
    pub busy_stripes: u64,
}

/// A node's part in running jobs: the sum of its [`Booked`] entries.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Amounts reserved by recoveries.
    reserved: Budget,
    /// Load of foreground repairs, such as degraded reads.
    foreground: Budget,
    /// Total of recoveries and foreground, with the foreground limited to half of the budget.
    used: Budget,
    /// Blocks in transit to the node, and their bytes.
    pub coming: u64,
    pub coming_bytes: u64,
    /// Number of running repairs that read from the node, without those in the foreground: their reservations
    /// count as user load.
    pub sources: u64,
}

/// A node's part in all jobs so far.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Number of the repair in which the node last helped.
    pub helped_at: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

#[derive(Debug)]
struct Rack {
    name: String,
    trunk: TrunkBudget,
    up_bytes: u64,
    down_bytes: u64,
    /// Number of nodes in the rack.
    nodes: usize,
}

#[derive(Debug)]
struct Host {
    number: usize,
    /// Number of nodes on the host.
    nodes: usize,
}

/// The reservation of one job.
#[derive(Debug, Default)]
pub(super) struct Booking {
    nodes: Vec<Booked>,
    /// For each rack: its index, the bytes out of it, and the bytes into it.
    racks: Vec<(usize, u64, u64)>,
    /// Nodes to which the job has delivered blocks. They stay known if the reservation changes.
    delivered: Vec<NodeNo>,
}

impl Booking {
    /// Returns the nodes that take part in the job.
    pub fn nodes(&self) -> impl Iterator<Item = NodeNo> + '_ {
        self.nodes.iter().map(|booked| booked.node)
    }

    /// Whether the job stores something at a node.
    pub fn stores_at(&self, node: NodeNo) -> bool {
        self.delivered.contains(&node)
            || self.nodes.iter().any(|booked| booked.node == node && booked.stored_bytes > 0)
    }

    /// Records that the job has delivered a block to a node.
    pub fn note_delivery(&mut self, node: NodeNo) {
        if !self.delivered.contains(&node) {
            self.delivered.push(node);
        }
    }

    /// Whether the job has delivered a block.
    pub fn has_delivered(&self) -> bool {
        !self.delivered.is_empty()
    }
}

#[derive(Debug)]
struct Booked {
    node: NodeNo,
    reserved: Budget,
    foreground: bool,
    stored_bytes: u64,
    reads: bool,
}

/// The table of all known nodes and racks. See the module documentation.
#[derive(Debug)]
pub(super) struct NodeTable {
    nodes: Vec<Node>,
    numbers: BTreeMap<NodeId, NodeNo>,
    /// The place of a rack that is no longer used is given to another rack, because helpers choose the names.
    racks: Vec<Rack>,
    /// The hosts that have nodes, by name.
    hosts: BTreeMap<String, Host>,
    /// The number of the next new host.
    next_host: usize,
    /// Reservations of foreground repairs.
    foreground: BTreeMap<ReservationId, Booking>,
    /// Number of foreground reservations made so far.
    reservations: u64,
    /// Number of repairs started so far.
    repairs: u64,
    /// Size of the largest block of all stripes added so far. A node with this much free space has room for
    /// any block.
    largest_block_bytes: u64,
    /// All budgets are multiplied by the same factor, at most `MOST_STRETCH`, such that half of the nodes
    /// have room for this many bytes.
    least_bytes: u64,
    /// Factor by which all budgets are stretched.
    stretch: f64,
}

impl Default for NodeTable {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            numbers: BTreeMap::new(),
            racks: Vec::new(),
            hosts: BTreeMap::new(),
            next_host: 0,
            foreground: BTreeMap::new(),
            reservations: 0,
            repairs: 0,
            largest_block_bytes: 0,
            least_bytes: 0,
            stretch: 1.0,
        }
    }
}

impl NodeTable {
    /// Returns the index of a node. A new node counts as down until its facts are set.
    pub fn number(&mut self, id: NodeId) -> NodeNo {
        *self.numbers.entry(id).or_insert_with(|| {
            self.nodes.push(Node::unknown(id));
            self.nodes.len() as NodeNo - 1
        })
    }

    pub fn find(&self, id: NodeId) -> Option<NodeNo> {
        self.numbers.get(&id).copied()
    }

    pub fn get(&self, node: NodeNo) -> &Node {
        &self.nodes[node as usize]
    }

    pub fn get_mut(&mut self, node: NodeNo) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    pub fn all(&self) -> impl Iterator<Item = (NodeNo, &Node)> {
        (0..).zip(&self.nodes)
    }

    pub fn set(&mut self, id: NodeId, facts: NodeFacts) -> NodeNo {
        let no = self.number(id);
        self.move_to_rack(no, facts.rack.as_deref());
        self.move_to_host(no, facts.host.as_deref());
        let stretch = self.stretch;
        let node = self.get_mut(no);
        node.facts = facts;
        node.set_stretch(stretch);
        self.stretch();
        no
    }

    /// Sets a node's number of blocks and free space. Returns whether the node may now have room for a block
    /// that did not fit before.
    pub fn set_space(&mut self, id: NodeId, blocks: u64, free_bytes: u64) -> bool {
        let (no, largest) = (self.number(id), self.largest_block_bytes);
        let node = self.get_mut(no);
        let more = free_bytes > node.facts.free_bytes;
        let was_short = node.facts.free_bytes < largest.saturating_add(node.in_flight.coming_bytes);
        (node.facts.blocks, node.facts.free_bytes) = (blocks, free_bytes);
        more && was_short
    }

    /// Increases budgets such that half of the nodes have room for `ahead` blocks of this size.
    ///
    /// Budgets are what links move in a fixed number of seconds, which could be too few large blocks to keep
    /// links busy.
    pub fn hold(&mut self, block_bytes: u64, ahead: u64) {
        if block_bytes > self.largest_block_bytes {
            self.largest_block_bytes = block_bytes;
            self.least_bytes = block_bytes.saturating_mul(ahead);
            self.stretch();
        }
    }

    /// Stretches all budgets by the same factor.
    fn stretch(&mut self) {
        let bytes = |node: &Node| node.facts.budget.up_bytes.min(node.facts.budget.down_bytes);
        let live = self.nodes.iter().filter(|node| node.facts.alive).map(bytes);
        let mut budgets: Vec<u64> = live.filter(|bytes| (1..u64::MAX).contains(bytes)).collect();
        let middle = budgets.len() / 2;
        let median = if budgets.is_empty() { u64::MAX } else { *budgets.select_nth_unstable(middle).1 };
        let stretch = (self.least_bytes as f64 / median as f64).clamp(1.0, MOST_STRETCH);
        if stretch != self.stretch {
            self.stretch = stretch;
            self.nodes.iter_mut().for_each(|node| node.set_stretch(stretch));
        }
    }

    pub fn set_trunk(&mut self, rack: &str, trunk: TrunkBudget) {
        let at = self.rack(rack);
        self.racks[at].trunk = trunk;
    }

    fn move_to_rack(&mut self, no: NodeNo, name: Option<&str>) {
        if let Some(old) = self.get_mut(no).rack.take() {
            self.racks[old].nodes -= 1;
        }
        let rack = name.map(|name| self.rack(name));
        rack.into_iter().for_each(|rack| self.racks[rack].nodes += 1);
        self.get_mut(no).rack = rack;
    }

    /// Returns the index of a rack. A new rack gets the place of an unused one, if there is any.
    fn rack(&mut self, name: &str) -> usize {
        if let Some(known) = self.racks.iter().position(|rack| rack.name == name) {
            return known;
        }
        let rack = Rack::new(name);
        match self.racks.iter().position(Rack::is_unused) {
            Some(unused) => {
                self.racks[unused] = rack;
                unused
            }
            None => {
                self.racks.push(rack);
                self.racks.len() - 1
            }
        }
    }

    fn move_to_host(&mut self, no: NodeNo, name: Option<&str>) {
        let old = self.get(no).facts.host.clone();
        if old.as_deref() == name {
            return;
        }
        if let Some(old) = old
            && let Some(host) = self.hosts.get_mut(&old)
        {
            host.nodes -= 1;
            if host.nodes == 0 {
                self.hosts.remove(&old);
            }
        }
        let host = name.map(|name| self.enter_host(name));
        self.get_mut(no).host = host;
    }

    /// Counts one more node on a host, and returns the host's number.
    fn enter_host(&mut self, name: &str) -> usize {
        let new = Host { number: self.next_host, nodes: 0 };
        let host = self.hosts.entry(name.to_owned()).or_insert(new);
        host.nodes += 1;
        self.next_host = self.next_host.max(host.number + 1);
        host.number
    }

    /// Returns the first resource without room for `loads`, if any. Unknown nodes, such as clients, have no
    /// budget and never lack room.
    pub fn lacks(&self, loads: &Loads) -> Option<Lack> {
        let of_node = |load: &NodeLoad| {
            let node = self.get(self.find(load.node)?);
            node.lacks(&load.need())
        };
        loads.nodes.iter().find_map(of_node).or_else(|| {
            self.trunks(loads).iter().find_map(|&(rack, up, down)| {
                let name = &self.racks[rack].name;
                let lacks =
                    [(Resource::TrunkOut(name.clone()), up), (Resource::TrunkInto(name.clone()), down)];
                lacks
                    .map(|(resource, need)| Lack { resource, need })
                    .into_iter()
                    .find(|lack| self.still_lacks(lack))
            })
        })
    }

    /// Whether the resource still has too little room.
    pub fn still_lacks(&self, lack: &Lack) -> bool {
        let (used, repairs, budget) = match &lack.resource {
            Resource::TrunkOut(name) => self.trunk(name, |rack, trunk| (rack.up_bytes, trunk.up_bytes)),
            Resource::TrunkInto(name) => self.trunk(name, |rack, trunk| (rack.down_bytes, trunk.down_bytes)),
            Resource::Jobs(id) => self.share(*id, |budget| budget.jobs),
            Resource::Uplink(id) => self.share(*id, |budget| budget.up_bytes),
            Resource::Downlink(id) => self.share(*id, |budget| budget.down_bytes),
            Resource::Disk(id) => self.share(*id, |budget| budget.disk_bytes),
            // Nothing is reserved on links between two single nodes, so these links never lack room.
            Resource::Pair(..) | Resource::Between(..) => (0, 0, u64::MAX),
        };
        !fits((used, repairs), lack.need, budget)
    }

    /// Returns the reserved amount, the amount that repairs have reserved, and the budget. Reads reserve nothing on
    /// trunks.
    fn trunk(&self, name: &str, of: impl Fn(&Rack, TrunkBudget) -> (u64, u64)) -> (u64, u64, u64) {
        let rack = self.racks.iter().find(|rack| rack.name == name);
        let share = rack.map(|rack| of(rack, rack.trunk.stretched(self.stretch)));
        share.map_or((0, 0, u64::MAX), |(used, budget)| (used, used, budget))
    }

    /// Returns the same for a resource of a node.
    fn share(&self, id: NodeId, of: impl Fn(&Budget) -> u64) -> (u64, u64, u64) {
        let node = self.find(id).map(|no| self.get(no));
        node.map_or((0, 0, u64::MAX), |node| {
            (of(&node.used()), of(&node.in_flight.reserved), of(&node.budget))
        })
    }

    /// Reserves `loads`, whether there is room or not.
    pub fn book(&mut self, loads: &Loads) -> Booking {
        let nodes = loads.nodes.iter().filter_map(|load| self.book_node(load, false)).collect();
        let mut racks = self.trunks(loads);
        for (rack, up, down) in &mut racks {
            let rack = &mut self.racks[*rack];
            let trunk = rack.trunk.stretched(self.stretch);
            (*up, *down) = ((*up).min(trunk.up_bytes), (*down).min(trunk.down_bytes));
            rack.up_bytes += *up;
            rack.down_bytes += *down;
        }
        Booking { nodes, racks, delivered: Vec::new() }
    }

    /// Reserves the load of a foreground repair, without its load on trunks.
    pub fn reserve(&mut self, loads: &Loads) -> ReservationId {
        let nodes = loads.nodes.iter().filter_map(|load| self.book_node(load, true)).collect();
        self.reservations += 1;
        let id = ReservationId(self.reservations);
        self.foreground.insert(id, Booking { nodes, ..Booking::default() });
        id
    }

    /// Releases a foreground reservation. Returns whether it existed.
    pub fn release(&mut self, id: ReservationId) -> bool {
        let booking = self.foreground.remove(&id);
        booking.map(|mut booking| self.give_back(&mut booking)).is_some()
    }

    pub fn foreground(&self, id: ReservationId) -> Option<&Booking> {
        self.foreground.get(&id)
    }

    fn book_node(&mut self, load: &NodeLoad, foreground: bool) -> Option<Booked> {
        let no = self.find(load.node)?;
        let node = self.get_mut(no);
        let booked = node.in_flight.add(no, load, foreground, &node.budget);
        node.add_up();
        Some(booked)
    }

    /// Releases the reservation of a job.
    pub fn give_back(&mut self, booking: &mut Booking) {
        for booked in booking.nodes.drain(..) {
            let node = self.get_mut(booked.node);
            node.in_flight.take(&booked);
            node.add_up();
        }
        for (rack, up, down) in booking.racks.drain(..) {
            self.racks[rack].up_bytes -= up;
            self.racks[rack].down_bytes -= down;
        }
    }

    /// Reserves `loads` for a job whose former load was [given back](Self::give_back).
    pub fn book_again(&mut self, booking: &mut Booking, loads: &Loads) {
        let Booking { nodes, racks, .. } = self.book(loads);
        (booking.nodes, booking.racks) = (nodes, racks);
    }

    /// Adds `loads` to the past work of nodes, which some helper policies use.
    pub fn count(&mut self, loads: &Loads) {
        self.repairs += 1;
        let at = self.repairs;
        for load in &loads.nodes {
            let Some(no) = self.find(load.node) else { continue };
            let node = self.get_mut(no);
            node.done.sent_bytes += load.sent_bytes;
            node.done.received_bytes += load.received_bytes;
            if load.read_bytes > 0 {
                node.done.helped_at = at;
            }
        }
    }

    /// Returns each rack with traffic from or to other racks, the bytes out of the rack, and the bytes into
    /// it.
    fn trunks(&self, loads: &Loads) -> Vec<(usize, u64, u64)> {
        let mut trunks: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        let rack = |id: NodeId| self.find(id).and_then(|no| self.get(no).rack);
        for &(from, to, bytes) in &loads.links {
            let (from, to) = (rack(from), rack(to));
            if from != to {
                from.into_iter().for_each(|rack| trunks.entry(rack).or_default().0 += bytes);
                to.into_iter().for_each(|rack| trunks.entry(rack).or_default().1 += bytes);
            }
        }
        trunks.into_iter().map(|(rack, (up, down))| (rack, up, down)).collect()
    }

    /// Returns the reserved bytes of the ports and disks of some nodes and the trunks of their racks, without
    /// the booking `own`.
    pub fn reserved_beside(&self, nodes: &BTreeSet<NodeId>, own: Option<&Booking>) -> Vec<(Resource, u64)> {
        let numbers: Vec<NodeNo> = nodes.iter().filter_map(|&id| self.find(id)).collect();
        let racks: BTreeSet<usize> = numbers.iter().filter_map(|&no| self.get(no).rack).collect();
        let of_node = |&no: &NodeNo| {
            let booked = own.and_then(|own| own.nodes.iter().find(|booked| booked.node == no));
            let node = self.get(no);
            node.resources(node.used_beside(booked))
        };
        let of_rack = |&no: &usize| {
            let booked = own.and_then(|own| own.racks.iter().find(|&&(rack, ..)| rack == no));
            let (up, down) = booked.map_or((0, 0), |&(_, up, down)| (up, down));
            let rack = &self.racks[no];
            rack.resources((rack.up_bytes.saturating_sub(up), rack.down_bytes.saturating_sub(down)))
        };
        let all = numbers.iter().flat_map(of_node).chain(racks.iter().flat_map(of_rack));
        all.filter(|&(_, bytes)| bytes > 0).collect()
    }

    /// Returns the work that repairs have in flight at each node, in ascending order of nodes.
    pub fn under_way(&self) -> impl Iterator<Item = (NodeId, Budget)> + '_ {
        self.numbers.iter().map(|(&id, &no)| (id, self.get(no).in_flight.reserved))
    }

    /// Returns the reservation and the budget of each node, in ascending order of nodes, for tests and
    /// displays.
    pub fn reservations(&self) -> impl Iterator<Item = (NodeId, Budget, Budget)> + '_ {
        self.numbers.iter().map(|(&id, &no)| (id, self.get(no).used(), self.get(no).budget))
    }
}

impl Rack {
    fn new(name: &str) -> Self {
        let trunk = TrunkBudget::UNLIMITED;
        Self { name: name.to_owned(), trunk, up_bytes: 0, down_bytes: 0, nodes: 0 }
    }

    /// Whether no node is in the rack, nothing limits its trunk, and nothing is reserved on it.
    fn is_unused(&self) -> bool {
        (self.nodes, self.up_bytes, self.down_bytes) == (0, 0, 0) && self.trunk == TrunkBudget::UNLIMITED
    }

    fn resources(&self, (up, down): (u64, u64)) -> [(Resource, u64); 2] {
        [(Resource::TrunkOut(self.name.clone()), up), (Resource::TrunkInto(self.name.clone()), down)]
    }
}

impl InFlight {
    fn add(&mut self, node: NodeNo, load: &NodeLoad, foreground: bool, budget: &Budget) -> Booked {
        let reserved = match foreground {
            true => self.foreground.add(load.need(), &Budget::jobs(u64::MAX)),
            false => self.reserved.add(load.need(), budget),
        };
        self.coming += u64::from(load.stored_bytes > 0);
        self.coming_bytes += load.stored_bytes;
        let (stored_bytes, reads) = (load.stored_bytes, load.read_bytes > 0 && !foreground);
        self.sources += u64::from(reads);
        Booked { node, reserved, foreground, stored_bytes, reads }
    }

    fn take(&mut self, booked: &Booked) {
        let of = if booked.foreground { &mut self.foreground } else { &mut self.reserved };
        of.take(booked.reserved);
        self.coming -= u64::from(booked.stored_bytes > 0);
        self.coming_bytes -= booked.stored_bytes;
        self.sources -= u64::from(booked.reads);
    }
}

impl Node {
    fn unknown(id: NodeId) -> Self {
        let facts = NodeFacts {
            alive: false,
            rack: None,
            host: None,
            free_bytes: 0,
            blocks: 0,
            budget: Budget::default(),
            accepts: Accepts::All,
        };
        Self {
            id,
            facts,
            budget: Budget::default(),
            rack: None,
            host: None,
            in_flight: InFlight::default(),
            done: Done::default(),
            stripes: BTreeSet::new(),
            busy_stripes: 0,
            user_bytes: 0,
        }
    }

    fn set_stretch(&mut self, stretch: f64) {
        self.budget = self.facts.budget.stretched(stretch);
        self.add_up();
    }

    /// Returns the reserved amounts, those of the foreground included.
    pub fn used(&self) -> Budget {
        self.in_flight.used
    }

    /// Returns the reserved bytes to send or the reserved bytes to receive, whichever are more.
    pub fn under_way(&self) -> u64 {
        self.in_flight.used.up_bytes.max(self.in_flight.used.down_bytes)
    }

    /// Returns the number of waiting stripes with a block on this node.
    pub fn waiting_stripes(&self) -> u64 {
        self.stripes.len() as u64 - self.busy_stripes
    }

    /// Returns the speed of the node's links relative to other nodes, derived from budgets.
    pub fn width(&self) -> f64 {
        match self.facts.budget.up_bytes.min(self.facts.budget.down_bytes) {
            u64::MAX => 1.0,
            bytes => bytes.max(1) as f64,
        }
    }

    /// Returns the user traffic at the node in bytes: the bytes of the last second that its helper reported, or
    /// the reservations of reads and puts in flight, whichever is more. The next report includes these, so they
    /// are not added.
    pub fn user_load(&self) -> u64 {
        let Budget { up_bytes, down_bytes, .. } = self.in_flight.foreground;
        self.user_bytes.max(up_bytes.saturating_add(down_bytes))
    }

    fn add_up(&mut self) {
        self.in_flight.used = self.used_beside(None);
    }

    /// Returns the reserved amounts without the booking `own`.
    ///
    /// The foreground gets at most half of any budget, which keeps repairs going under any read load.
    fn used_beside(&self, own: Option<&Booked>) -> Budget {
        let (mut used, mut foreground) = (self.in_flight.reserved, self.in_flight.foreground);
        if let Some(own) = own {
            let of = if own.foreground { &mut foreground } else { &mut used };
            of.take(own.reserved);
        }
        used.add(foreground.at_most(self.budget.half()), &self.budget);
        used
    }

    fn resources(&self, used: Budget) -> [(Resource, u64); 3] {
        [
            (Resource::Uplink(self.id), used.up_bytes),
            (Resource::Downlink(self.id), used.down_bytes),
            (Resource::Disk(self.id), used.disk_bytes),
        ]
    }

    /// Whether the node has room for one more job in which it sends, receives, and reads or stores this many
    /// bytes.
    pub fn has_room(&self, sends: u64, receives: u64, disk: u64) -> bool {
        let need = Budget { jobs: 1, up_bytes: sends, down_bytes: receives, disk_bytes: disk };
        self.lacks(&need).is_none()
    }

    fn lacks(&self, need: &Budget) -> Option<Lack> {
        self.used().lacks(&self.in_flight.reserved, need, &self.budget, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(rack: &str, host: &str) -> NodeFacts {
        let (rack, host) = (Some(rack.to_owned()), Some(host.to_owned()));
        NodeFacts { alive: true, rack, host, ..Node::unknown(NodeId(0)).facts }
    }

    #[test]
    fn racks_and_hosts_that_no_node_uses_are_forgotten() {
        let mut table = NodeTable::default();
        table.set_trunk("limited", TrunkBudget { up_bytes: 5, down_bytes: 5 });
        for round in 0..100 {
            for node in 0..3 {
                table.set(NodeId(node), facts(&format!("r{round}"), &format!("m{round}-{}", node / 2)));
            }
            let at = |node| (table.get(node).rack, table.get(node).host);
            assert_eq!(at(0), at(1));
            assert!(at(0).0 == at(2).0 && at(0).1 != at(2).1);
        }
        assert!(table.racks.len() <= 3, "{:?}", table.racks);
        assert_eq!(table.racks[0].name, "limited");
        assert_eq!(table.hosts.len(), 2);
    }

    #[test]
    fn a_rack_keeps_its_place_while_bytes_are_reserved_on_its_trunk() {
        let mut table = NodeTable::default();
        table.set(NodeId(0), facts("a", "m0"));
        table.set(NodeId(1), facts("b", "m1"));
        let links = vec![(NodeId(0), NodeId(1), 7)];
        let mut booking = table.book(&Loads { links, ..Loads::default() });
        table.set(NodeId(0), facts("c", "m0"));
        assert_eq!(table.trunk("a", |rack, trunk| (rack.up_bytes, trunk.up_bytes)).0, 7);
        assert_eq!(table.trunk("c", |rack, trunk| (rack.up_bytes, trunk.up_bytes)).0, 0);
        table.give_back(&mut booking);
        table.set(NodeId(0), facts("d", "m0"));
        assert_eq!(table.racks.len(), 3);
    }
}
