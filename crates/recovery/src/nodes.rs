//! The nodes as the scheduler sees them: a dense table of what each may take, has reserved and has done.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::{NodeId, Resource, StripeId};

use super::ReservationId;
use super::budget::{Budget, Lack, Loads, NodeLoad, fits, stretched};

/// Budgets are stretched no further: where caps leave little, or a block is huge, what becomes urgent must not wait for hours.
const MOST_STRETCH: f64 = 8.0;

/// A node's place in the table.
pub(super) type NodeNo = u32;

/// What the driver knows of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Whether it takes tasks now.
    pub alive: bool,
    /// Its failure domain.
    pub rack: Option<String>,
    /// Bytes free for blocks.
    pub free_bytes: u64,
    /// Blocks that it holds.
    pub blocks: u64,
    /// What repairs may have under way on it.
    pub budget: Budget,
    /// Whether it is being emptied, so that nothing new is placed on it.
    pub draining: bool,
}

/// The trunk of a rack: bytes that repairs may have under way out of it and into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrunkBudget {
    /// Out of the rack.
    pub up_bytes: u64,
    /// Into the rack.
    pub down_bytes: u64,
}

impl TrunkBudget {
    fn stretched(self, stretch: f64) -> Self {
        Self { up_bytes: stretched(self.up_bytes, stretch), down_bytes: stretched(self.down_bytes, stretch) }
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub id: NodeId,
    pub facts: NodeFacts,
    /// What repairs may have under way on it: its budget, or more where blocks are large.
    pub budget: Budget,
    pub rack: Option<usize>,
    pub in_flight: InFlight,
    pub done: Done,
    /// What users move there, as it says itself.
    pub user_bytes: u64,
    /// Blocks that it has in memory.
    pub cached: BTreeSet<(StripeId, BlockIndex)>,
    /// Stripes with open items that have a block here.
    pub stripes: BTreeSet<u32>,
    /// Those among them that are proposed or have a job.
    pub busy_stripes: u64,
}

/// A node's part in jobs that run: the sum of its [`Booked`] ones.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// What recoveries have reserved.
    reserved: Budget,
    /// What the foreground moves.
    foreground: Budget,
    /// What is spoken for in all.
    used: Budget,
    /// Blocks on their way to it, and their bytes.
    pub coming: u64,
    pub coming_bytes: u64,
    /// Running repairs that read from it.
    pub sources: u64,
}

/// A node's part in all jobs that were ever begun.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// When it last helped, counted in repairs.
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
}

/// What was reserved for one job, to be given back.
#[derive(Debug, Default)]
pub(super) struct Booking {
    nodes: Vec<Booked>,
    /// Rack, bytes out of it, bytes into it.
    racks: Vec<(usize, u64, u64)>,
    /// Nodes that took the place of requestors while the job ran.
    stand_ins: Vec<NodeNo>,
}

impl Booking {
    /// The nodes that have a part in the job.
    pub fn nodes(&self) -> impl Iterator<Item = NodeNo> + '_ {
        self.nodes.iter().map(|booked| booked.node)
    }

    /// Whether the job stores something at a node.
    pub fn stores_at(&self, node: NodeNo) -> bool {
        self.stand_ins.contains(&node)
            || self.nodes.iter().any(|booked| booked.node == node && booked.stored_bytes > 0)
    }

    /// The job has stored a block at a node.
    pub fn note_delivery(&mut self, node: NodeNo) {
        if !self.stores_at(node) {
            self.stand_ins.push(node);
        }
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

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct NodeTable {
    nodes: Vec<Node>,
    numbers: BTreeMap<NodeId, NodeNo>,
    racks: Vec<Rack>,
    /// What is reserved for repairs in the foreground.
    foreground: BTreeMap<ReservationId, Booking>,
    /// Reservations that were ever made.
    reservations: u64,
    /// Repairs that were ever begun.
    repairs: u64,
    /// Of all stripes that were ever named: a node with room for so many bytes has room for any block.
    largest_block_bytes: u64,
    /// Half of the nodes have room for so many bytes, if stretching their budgets suffices for that.
    least_bytes: u64,
    /// The factor by which all budgets are stretched.
    stretch: f64,
}

impl Default for NodeTable {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            numbers: BTreeMap::new(),
            racks: Vec::new(),
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
    /// The number of a node, which is down until something is known of it.
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
        let rack = facts.rack.as_deref().map(|name| self.rack(name));
        let no = self.number(id);
        let stretch = self.stretch;
        let node = self.get_mut(no);
        (node.facts, node.rack) = (facts, rack);
        node.set_stretch(stretch);
        self.stretch();
        no
    }

    /// Sets what a node holds and has room for; returns whether it may have room now for a block that it had none for.
    pub fn set_space(&mut self, id: NodeId, blocks: u64, free_bytes: u64) -> bool {
        let (no, largest) = (self.number(id), self.largest_block_bytes);
        let node = self.get_mut(no);
        let more = free_bytes > node.facts.free_bytes;
        let was_short = node.facts.free_bytes < largest.saturating_add(node.in_flight.coming_bytes);
        (node.facts.blocks, node.facts.free_bytes) = (blocks, free_bytes);
        more && was_short
    }

    /// Makes room for `ahead` blocks of this size on half of the nodes: a budget in seconds may hold too few large blocks for
    /// links to be kept busy.
    pub fn hold(&mut self, block_bytes: u64, ahead: u64) {
        if block_bytes > self.largest_block_bytes {
            self.largest_block_bytes = block_bytes;
            self.least_bytes = block_bytes.saturating_mul(ahead);
            self.stretch();
        }
    }

    /// Budgets keep their proportions.
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

    fn rack(&mut self, name: &str) -> usize {
        self.racks.iter().position(|rack| rack.name == name).unwrap_or_else(|| {
            let trunk = TrunkBudget { up_bytes: u64::MAX, down_bytes: u64::MAX };
            self.racks.push(Rack { name: name.to_owned(), trunk, up_bytes: 0, down_bytes: 0 });
            self.racks.len() - 1
        })
    }

    /// What is in the way of `loads`, if anything. Nodes that are not known, such as clients, have no budget.
    pub fn lacks(&self, loads: &Loads) -> Option<Lack> {
        let of_node = |load: &NodeLoad| {
            let node = self.get(self.find(load.node)?);
            node.used().lacks(&load.need(), &node.budget, node.id)
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

    /// Whether there is still no room for what lacked.
    pub fn still_lacks(&self, lack: &Lack) -> bool {
        let (used, budget) = match &lack.resource {
            Resource::TrunkOut(name) => self.trunk(name, |rack, trunk| (rack.up_bytes, trunk.up_bytes)),
            Resource::TrunkInto(name) => self.trunk(name, |rack, trunk| (rack.down_bytes, trunk.down_bytes)),
            Resource::Jobs(id) => self.share(*id, |budget| budget.jobs),
            Resource::Uplink(id) => self.share(*id, |budget| budget.up_bytes),
            Resource::Downlink(id) => self.share(*id, |budget| budget.down_bytes),
            Resource::Disk(id) => self.share(*id, |budget| budget.disk_bytes),
            // Nothing is reserved of what a single pair shares: it never lacks.
            Resource::Pair(..) | Resource::Between(..) => (0, u64::MAX),
        };
        !fits(used, lack.need, budget)
    }

    fn trunk(&self, name: &str, of: impl Fn(&Rack, TrunkBudget) -> (u64, u64)) -> (u64, u64) {
        let rack = self.racks.iter().find(|rack| rack.name == name);
        rack.map_or((0, u64::MAX), |rack| of(rack, rack.trunk.stretched(self.stretch)))
    }

    fn share(&self, id: NodeId, of: impl Fn(&Budget) -> u64) -> (u64, u64) {
        let node = self.find(id).map(|no| self.get(no));
        node.map_or((0, u64::MAX), |node| (of(&node.used()), of(&node.budget)))
    }

    /// Reserves what `loads` says, whether there is room or not.
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
        Booking { nodes, racks, stand_ins: Vec::new() }
    }

    /// Reserves for the foreground, whose trunks are not counted.
    pub fn reserve(&mut self, loads: &Loads) -> ReservationId {
        let nodes = loads.nodes.iter().filter_map(|load| self.book_node(load, true)).collect();
        self.reservations += 1;
        let id = ReservationId(self.reservations);
        self.foreground.insert(id, Booking { nodes, ..Booking::default() });
        id
    }

    /// Gives back what was reserved for the foreground; returns whether it was still reserved.
    pub fn release(&mut self, id: ReservationId) -> bool {
        let booking = self.foreground.remove(&id);
        booking.map(|booking| self.give_back(booking)).is_some()
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

    pub fn give_back(&mut self, booking: Booking) {
        for booked in booking.nodes {
            let node = self.get_mut(booked.node);
            node.in_flight.take(&booked);
            node.add_up();
        }
        for (rack, up, down) in booking.racks {
            self.racks[rack].up_bytes -= up;
            self.racks[rack].down_bytes -= down;
        }
    }

    /// Remembers who helped, for policies that go by it.
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

    /// Bytes over the trunk of each rack.
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

    /// What is reserved of ports, disks and trunks.
    pub fn reserved(&self) -> impl Iterator<Item = (Resource, u64)> + '_ {
        let of_node = |node: &Node| node.resources(node.used());
        let of_rack = |rack: &Rack| rack.resources((rack.up_bytes, rack.down_bytes));
        let all = self.nodes.iter().flat_map(of_node).chain(self.racks.iter().flat_map(of_rack));
        all.filter(|&(_, bytes)| bytes > 0)
    }

    /// What others than the owner of a booking have reserved of the ports and disks of some nodes, and of the trunks of
    /// their racks.
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

    /// What repairs have under way at each node, ascending.
    pub fn under_way(&self) -> impl Iterator<Item = (NodeId, Budget)> + '_ {
        self.numbers.iter().map(|(&id, &no)| (id, self.get(no).in_flight.reserved))
    }

    /// What each node has reserved, ascending, for tests and people.
    pub fn reservations(&self) -> impl Iterator<Item = (NodeId, Budget, Budget)> + '_ {
        self.numbers.iter().map(|(&id, &no)| (id, self.get(no).used(), self.get(no).budget))
    }
}

impl Rack {
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
        self.sources += u64::from(load.read_bytes > 0);
        let (stored_bytes, reads) = (load.stored_bytes, load.read_bytes > 0);
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
            free_bytes: 0,
            blocks: 0,
            budget: Budget::default(),
            draining: false,
        };
        Self {
            id,
            facts,
            budget: Budget::default(),
            rack: None,
            in_flight: InFlight::default(),
            done: Done::default(),
            stripes: BTreeSet::new(),
            busy_stripes: 0,
            user_bytes: 0,
            cached: BTreeSet::new(),
        }
    }

    fn set_stretch(&mut self, stretch: f64) {
        self.budget = self.facts.budget.stretched(stretch);
        self.add_up();
    }

    /// What is spoken for.
    pub fn used(&self) -> Budget {
        self.in_flight.used
    }

    /// The larger of what it is sending and receiving, in bytes of jobs that have not ended.
    pub fn under_way(&self) -> u64 {
        self.in_flight.used.up_bytes.max(self.in_flight.used.down_bytes)
    }

    /// Stripes that wait and have a block here.
    pub fn waiting_stripes(&self) -> u64 {
        self.stripes.len() as u64 - self.busy_stripes
    }

    /// How fast its links are beside others', as far as budgets tell.
    pub fn width(&self) -> f64 {
        match self.facts.budget.up_bytes.min(self.facts.budget.down_bytes) {
            u64::MAX => 1.0,
            bytes => bytes.max(1) as f64,
        }
    }

    /// What users move there: as it says itself, and what is reserved for reads.
    pub fn user_load(&self) -> u64 {
        let Budget { up_bytes, down_bytes, .. } = self.in_flight.foreground;
        self.user_bytes.saturating_add(up_bytes).saturating_add(down_bytes)
    }

    fn add_up(&mut self) {
        self.in_flight.used = self.used_beside(None);
    }

    /// What is spoken for by others than the owner of a booking. The foreground gets up to half of any budget: whatever is
    /// read, repairs go on.
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

    /// Whether the node has room for one more part: it sends, receives, and reads or stores so many bytes.
    pub fn has_room(&self, sends: u64, receives: u64, disk: u64) -> bool {
        let need = Budget { jobs: 1, up_bytes: sends, down_bytes: receives, disk_bytes: disk };
        self.used().lacks(&need, &self.budget, self.id).is_none()
    }
}
