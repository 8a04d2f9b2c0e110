//! Placement: on which DataNodes the blocks of a stripe stay, and the moves that get them there.
//!
//! A stripe of n blocks must survive as many lost DataNodes as its code tolerates losses, and one lost rack if
//! there are racks enough. So each block has one replica, its *seat*, on a DataNode without another seat of the
//! stripe, and no rack has more seats than tolerated losses. Any further replicas are a surplus, wherever they
//! are.
//!
//! **Invariants:** as many blocks as possible keep a replica where it is, so a stripe needs the fewest moves. A
//! move first copies a block to a DataNode without a seat of the stripe, and then drops a replica elsewhere, so
//! the block always has a replica. If each block has one replica, moves only go to DataNodes without any block
//! of the stripe.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{Listing, Node, NodeIndex, exposure};

/// The DataNodes of a cluster, with their racks.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// For each DataNode, its rack; `None` if blocks cannot stay there.
    rack_of: Vec<Option<usize>>,
    /// For each rack, the number of DataNodes on which blocks can stay.
    sizes: Vec<usize>,
}

/// The rules for the blocks of one stripe.
#[derive(Clone, Debug)]
pub struct Spread<'a> {
    cluster: &'a Cluster,
    rack_limit: usize,
    is_rack_safe: bool,
}

/// A stripe has more blocks than there are DataNodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stripe needs {needed} DataNodes in service, and there are {nodes}")]
pub struct TooFewNodes {
    /// Blocks in the stripe.
    pub needed: usize,
    /// DataNodes on which blocks can stay.
    pub nodes: usize,
}

/// The number of blocks on each DataNode. New blocks go to the emptiest ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load(Vec<u64>);

/// The seats of a stripe's blocks, in the order of the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// The seats.
    pub seats: Vec<Seat>,
}

/// The DataNode on which a replica of a block stays, whatever happens to other replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// A replica is there already.
    Kept(NodeIndex),
    /// A replica moves there.
    Moved {
        /// The DataNode whose replica is dropped after the copy.
        from: NodeIndex,
        /// The DataNode that gets a replica.
        to: NodeIndex,
    },
    /// The block has no replica yet, and is written there.
    New(NodeIndex),
}

/// A move of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Position of the block in the stripe.
    pub block: usize,
    /// The DataNode whose replica is dropped after the copy.
    pub from: NodeIndex,
    /// The DataNode that gets a replica.
    pub to: NodeIndex,
}

/// How the blocks of a stripe stand too close together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crowding {
    /// Two blocks have no replicas on different DataNodes.
    DataNode,
    /// The loss of a rack could cost more blocks than the code tolerates, and there are racks enough to avoid this.
    Rack,
}

/// Judges where the blocks of stripes are. Unlike the places for new blocks, a DataNode that is taken out of service
/// counts as long as it holds replicas.
#[derive(Clone, Debug)]
pub struct Judge {
    all: Cluster,
    usable: Cluster,
    silent: BTreeSet<NodeIndex>,
}

impl Judge {
    /// Creates a judge for the DataNodes of a listing.
    pub fn of(listing: &Listing) -> Self {
        let nodes = listing.nodes.iter();
        let all: Vec<Node> = nodes.map(|node| Node { is_usable: true, ..node.clone() }).collect();
        let silent = listing.gaps.silent.iter().copied().collect();
        Self { all: Cluster::new(&all), usable: Cluster::new(&listing.nodes), silent }
    }

    /// Whether the loss of one DataNode could cost data of a stripe that tolerates this many losses.
    pub fn is_exposed(&self, replicas: &[Vec<NodeIndex>], tolerated: usize) -> bool {
        exposure::is_exposed(replicas, tolerated, &self.silent)
    }

    /// Returns how the blocks of a stripe that tolerates this many losses stand too close together; `None` if they do
    /// not. Blocks without replicas stand nowhere.
    pub fn crowding(&self, replicas: &[Vec<NodeIndex>], tolerated: usize) -> Option<Crowding> {
        let present: Vec<Vec<NodeIndex>> =
            replicas.iter().filter(|nodes| !nodes.is_empty()).cloned().collect();
        let have_seats = |rack_limit: usize| {
            let rules = Spread { cluster: &self.all, rack_limit, is_rack_safe: false };
            rules.keepers(&present).iter().all(Option::is_some)
        };
        if !have_seats(replicas.len()) {
            return Some(Crowding::DataNode);
        }
        let racks_suffice =
            self.usable.spread(replicas.len(), tolerated).is_ok_and(|rules| rules.is_rack_safe());
        (racks_suffice && !have_seats(tolerated)).then_some(Crowding::Rack)
    }
}

impl Cluster {
    /// Groups DataNodes by rack.
    pub fn new(nodes: &[Node]) -> Self {
        let mut racks: BTreeMap<&str, usize> = BTreeMap::new();
        let mut cluster = Self { rack_of: Vec::new(), sizes: Vec::new() };
        for node in nodes {
            let rack = node.is_usable.then(|| {
                let next = racks.len();
                *racks.entry(&node.rack).or_insert(next)
            });
            cluster.rack_of.push(rack);
            cluster.sizes.resize(racks.len(), 0);
            rack.into_iter().for_each(|rack| cluster.sizes[rack] += 1);
        }
        cluster
    }

    /// Returns the rules for a stripe with this number of blocks, of which it may lose `tolerated`.
    ///
    /// # Errors
    /// [`TooFewNodes`].
    pub fn spread(&self, blocks: usize, tolerated: usize) -> Result<Spread<'_>, TooFewNodes> {
        let nodes = self.sizes.iter().sum();
        if nodes < blocks {
            return Err(TooFewNodes { needed: blocks, nodes });
        }
        let room: usize = self.sizes.iter().map(|&size| size.min(tolerated)).sum();
        let is_rack_safe = room >= blocks;
        // If a lost rack cannot be survived, a limit would only cause moves.
        let rack_limit = if is_rack_safe { tolerated } else { blocks };
        Ok(Spread { cluster: self, rack_limit, is_rack_safe })
    }
}

impl Load {
    /// Creates the load of this many empty DataNodes.
    pub fn new(nodes: usize) -> Self {
        Self(vec![0; nodes])
    }

    /// Counts a block on a DataNode.
    pub fn add(&mut self, node: NodeIndex) {
        self.add_blocks(node, 1);
    }

    /// Counts blocks on a DataNode.
    pub(crate) fn add_blocks(&mut self, node: NodeIndex, blocks: u64) {
        self.0[node.0] += blocks;
    }

    /// Returns the number of blocks on a DataNode.
    pub(crate) fn of(&self, node: NodeIndex) -> u64 {
        self.0[node.0]
    }
}

impl Spread<'_> {
    /// Whether the stripe will survive the loss of a rack.
    pub fn is_rack_safe(&self) -> bool {
        self.is_rack_safe
    }

    /// Returns for each block the DataNode whose replica stays; `None` if all replicas of the block are in the
    /// way of other blocks. As many blocks as possible keep a replica.
    pub fn keepers(&self, replicas: &[Vec<NodeIndex>]) -> Vec<Option<NodeIndex>> {
        let mut seats = Seats::new(self, replicas.len());
        (0..replicas.len()).for_each(|block| seats.seat(replicas, block));
        seats.of_blocks
    }

    /// Finds a seat for every block, given the DataNodes with replicas of each. The number of blocks must be
    /// that of the stripe. `load` decides between equally good DataNodes, and then counts the new replicas.
    pub fn arrange(&self, replicas: &[Vec<NodeIndex>], load: &mut Load) -> Arrangement {
        let mut seats = Seats::new(self, replicas.len());
        (0..replicas.len()).for_each(|block| seats.seat(replicas, block));
        let kept = seats.of_blocks.clone();
        let place = |(block, kept): (usize, Option<NodeIndex>)| match kept {
            Some(node) => Seat::Kept(node),
            None => {
                let to = seats.free_node(replicas, load);
                seats.of_blocks[block] = Some(to);
                seats.count();
                load.add(to);
                let from = crowded(replicas, block);
                from.map_or(Seat::New(to), |from| Seat::Moved { from, to })
            }
        };
        Arrangement { seats: kept.into_iter().enumerate().map(place).collect() }
    }

    fn rack(&self, node: NodeIndex) -> Option<usize> {
        self.cluster.rack_of[node.0]
    }
}

impl Arrangement {
    /// Returns the moves, most urgent first: those away from DataNodes with most blocks of the stripe. Each
    /// move may be carried out as soon as those before it were.
    pub fn moves(&self, replicas: &[Vec<NodeIndex>]) -> Vec<Move> {
        let moved = |(block, seat): (usize, &Seat)| match *seat {
            Seat::Moved { from, to } => Some(Move { block, from, to }),
            Seat::Kept(_) | Seat::New(_) => None,
        };
        let mut moves: Vec<Move> = self.seats.iter().enumerate().filter_map(moved).collect();
        moves.sort_by_key(|step| (Reverse(blocks_on(replicas, step.from)), step.block));
        moves
    }

    /// Returns the DataNodes of blocks that have no replica yet, with the positions of these blocks.
    pub fn new_blocks(&self) -> impl Iterator<Item = (usize, NodeIndex)> {
        self.seats.iter().enumerate().filter_map(|(block, seat)| match *seat {
            Seat::New(node) => Some((block, node)),
            Seat::Kept(_) | Seat::Moved { .. } => None,
        })
    }
}

/// Returns the number of blocks with a replica on a DataNode.
fn blocks_on(replicas: &[Vec<NodeIndex>], node: NodeIndex) -> usize {
    replicas.iter().filter(|nodes| nodes.contains(&node)).count()
}

/// Returns the DataNode with a replica of this block that has most blocks of the stripe.
fn crowded(replicas: &[Vec<NodeIndex>], block: usize) -> Option<NodeIndex> {
    replicas[block].iter().copied().max_by_key(|&node| (blocks_on(replicas, node), Reverse(node)))
}

/// The seats so far: a maximum flow from blocks over DataNodes to racks, found by augmenting paths.
struct Seats<'a> {
    rules: &'a Spread<'a>,
    /// For each block, the DataNode of its seat.
    of_blocks: Vec<Option<NodeIndex>>,
    /// For each DataNode with a seat, the block.
    on_nodes: BTreeMap<NodeIndex, usize>,
    /// For each rack, the number of seats.
    in_racks: Vec<usize>,
}

/// For each block that may give up its seat: the block that gets a seat by this, and where.
type Paths = BTreeMap<usize, Option<(usize, NodeIndex)>>;

impl<'a> Seats<'a> {
    fn new(rules: &'a Spread<'a>, blocks: usize) -> Self {
        let in_racks = vec![0; rules.cluster.sizes.len()];
        Self { rules, of_blocks: vec![None; blocks], on_nodes: BTreeMap::new(), in_racks }
    }

    /// Finds a seat for a block if other blocks can change theirs, without any of them losing it.
    fn seat(&mut self, replicas: &[Vec<NodeIndex>], block: usize) {
        let mut paths: Paths = BTreeMap::from([(block, None)]);
        let mut queue = VecDeque::from([block]);
        while let Some(block) = queue.pop_front() {
            for &node in &replicas[block] {
                let Some(rack) = self.rules.rack(node) else { continue };
                let holder = self.on_nodes.get(&node).copied();
                if holder.is_none() && self.in_racks[rack] < self.rules.rack_limit {
                    return self.follow(&paths, block, node);
                }
                // The seat becomes free if its holder leaves it; in a full rack, if any block leaves the rack.
                let others = match holder {
                    Some(holder) => vec![holder],
                    None => self.blocks_in(rack),
                };
                for other in others {
                    if let Entry::Vacant(path) = paths.entry(other) {
                        path.insert(Some((block, node)));
                        queue.push_back(other);
                    }
                }
            }
        }
    }

    fn blocks_in(&self, rack: usize) -> Vec<usize> {
        let is_there = |node: &NodeIndex| self.rules.rack(*node) == Some(rack);
        self.on_nodes.iter().filter(|(node, _)| is_there(node)).map(|(_, &block)| block).collect()
    }

    /// Gives each block along a path the seat at which the path arrives.
    fn follow(&mut self, paths: &Paths, mut block: usize, mut node: NodeIndex) {
        self.of_blocks[block] = Some(node);
        while let Some((next, seat)) = paths[&block] {
            (block, node) = (next, seat);
            self.of_blocks[block] = Some(node);
        }
        self.count();
    }

    /// Counts the seats on DataNodes and in racks.
    fn count(&mut self) {
        let seats = self.of_blocks.iter().enumerate();
        self.on_nodes = seats.filter_map(|(block, &node)| Some((node?, block))).collect();
        self.in_racks.fill(0);
        for &node in self.on_nodes.keys() {
            let rack = self.rules.rack(node).expect("seats are on usable DataNodes");
            self.in_racks[rack] += 1;
        }
    }

    /// Returns the best DataNode for one more seat. There is one: seats within the limits can always be
    /// completed, because `Spread` checked that there is room for all.
    fn free_node(&self, replicas: &[Vec<NodeIndex>], load: &Load) -> NodeIndex {
        let usable = |&node: &NodeIndex| {
            let is_open = |rack: usize| self.in_racks[rack] < self.rules.rack_limit;
            !self.on_nodes.contains_key(&node) && self.rules.rack(node).is_some_and(is_open)
        };
        // HDFS decides which surplus replicas it removes, so avoid DataNodes that have any.
        let order = |&node: &NodeIndex| {
            let rack = self.rules.rack(node).expect("it is usable");
            (blocks_on(replicas, node), load.0[node.0], self.in_racks[rack], node)
        };
        let nodes = (0..self.rules.cluster.rack_of.len()).map(NodeIndex);
        nodes.filter(usable).min_by_key(order).expect("there is room for every block")
    }
}
