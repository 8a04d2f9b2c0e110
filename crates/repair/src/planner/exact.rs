//! A slow reference for the search of routes: the cheapest in-tree, by dynamic programming over all sets of
//! readers. `benches/packings.rs` uses this file as well.
//!
//! A tree collects the blocks of its readers at some node, which sends one stream to each requestor. Behind
//! `r` readers a link carries `r` streams, but at most one for each lost block. Streams may take any detour.

use std::collections::BTreeMap;

/// Nodes are numbers; those below `holders` hold a block.
pub struct Nodes<'a> {
    pub all: usize,
    pub holders: usize,
    /// The number of blocks needed.
    pub needed: usize,
    /// The requestor of each lost block.
    pub requestors: &'a [usize],
}

/// A cheapest tree.
pub struct Cheapest {
    pub readers: Vec<usize>,
    /// (from, to) of the links, each with its number of streams.
    pub streams: BTreeMap<(usize, usize), usize>,
}

/// The cheapest tree at these prices of streams and reads.
pub fn cheapest(
    nodes: &Nodes,
    price: impl Fn(usize, usize) -> f64,
    disk: impl Fn(usize) -> f64,
) -> Option<Cheapest> {
    let ways = Ways::new(nodes.all, price);
    let table = Table::new(nodes, &ways, disk);
    let deliveries = |at: usize| nodes.requestors.iter().map(|&to| ways.costs[at][to]).sum::<f64>();
    let ends = (1..1usize << nodes.holders)
        .filter(|set| set.count_ones() as usize == nodes.needed)
        .flat_map(|set| (0..nodes.all).map(move |at| (set, at)));
    let ends = ends.map(|(set, at)| (table.collected[set][at] + deliveries(at), set, at));
    let (_, set, root) = ends.filter(|(cost, ..)| cost.is_finite()).min_by(|a, b| a.0.total_cmp(&b.0))?;
    let readers = (0..nodes.holders).filter(|holder| set >> holder & 1 == 1).collect();
    let mut streams = BTreeMap::new();
    nodes.requestors.iter().for_each(|&requestor| ways.walk(root, requestor, 1, &mut streams));
    table.walk(set, root, &mut |from, to, count| ways.walk(from, to, count, &mut streams));
    Some(Cheapest { readers, streams })
}

/// The cheapest ways between all pairs of nodes.
struct Ways {
    costs: Vec<Vec<f64>>,
    /// A node on the way, if the direct link is not the cheapest way.
    through: Vec<Vec<Option<usize>>>,
}

impl Ways {
    fn new(nodes: usize, price: impl Fn(usize, usize) -> f64) -> Self {
        let cost = |from, to| if from == to { 0.0 } else { price(from, to).max(0.0) };
        let mut costs: Vec<Vec<f64>> =
            (0..nodes).map(|from| (0..nodes).map(|to| cost(from, to)).collect()).collect();
        let mut through = vec![vec![None; nodes]; nodes];
        for node in 0..nodes {
            for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
                let cost = costs[from][node] + costs[node][to];
                if cost < costs[from][to] * (1.0 - 1e-9) {
                    (costs[from][to], through[from][to]) = (cost, Some(node));
                }
            }
        }
        Self { costs, through }
    }

    fn walk(&self, from: usize, to: usize, count: usize, streams: &mut BTreeMap<(usize, usize), usize>) {
        match self.through[from][to] {
            _ if from == to => {}
            Some(node) => {
                self.walk(from, node, count, streams);
                self.walk(node, to, count, streams);
            }
            None => *streams.entry((from, to)).or_default() += count,
        }
    }
}

/// Costs by set of readers and node.
struct Table {
    /// The number of lost blocks.
    lost: usize,
    /// The cost of collecting a set at a node from two disjoint sets that have arrived there.
    collected: Vec<Vec<f64>>,
    /// One of the two sets.
    part: Vec<Vec<usize>>,
    /// The node where a set that arrives at a node was collected.
    source: Vec<Vec<usize>>,
}

impl Table {
    fn new(nodes: &Nodes, ways: &Ways, disk: impl Fn(usize) -> f64) -> Self {
        let sets = 1usize << nodes.holders;
        let lost = nodes.requestors.len();
        let mut collected = vec![vec![f64::INFINITY; nodes.all]; sets];
        let (mut part, mut source) = (vec![vec![0; nodes.all]; sets], vec![vec![0; nodes.all]; sets]);
        let mut arrived = collected.clone();
        for set in (1..sets).filter(|set| set.count_ones() as usize <= nodes.needed) {
            if set.is_power_of_two() {
                let reader = set.trailing_zeros() as usize;
                collected[set][reader] = disk(reader).max(0.0);
            }
            for one in parts(set) {
                for at in 0..nodes.all {
                    let cost = arrived[one][at] + arrived[set ^ one][at];
                    if cost < collected[set][at] {
                        (collected[set][at], part[set][at]) = (cost, one);
                    }
                }
            }
            let streams = lost.min(set.count_ones() as usize) as f64;
            for to in 0..nodes.all {
                for (from, cost) in collected[set].iter().enumerate() {
                    let cost = cost + streams * ways.costs[from][to];
                    if cost < arrived[set][to] {
                        (arrived[set][to], source[set][to]) = (cost, from);
                    }
                }
            }
        }
        Self { lost, collected, part, source }
    }

    /// Calls `link` for the links that collect a set at a node.
    fn walk(&self, set: usize, at: usize, link: &mut dyn FnMut(usize, usize, usize)) {
        if set.is_power_of_two() {
            return;
        }
        let one = self.part[set][at];
        for part in [one, set ^ one] {
            let from = self.source[part][at];
            link(from, at, self.lost.min(part.count_ones() as usize));
            self.walk(part, from, link);
        }
    }
}

/// The proper parts of a set that contain its lowest member.
fn parts(set: usize) -> impl Iterator<Item = usize> {
    let lowest = set & set.wrapping_neg();
    let rest = set ^ lowest;
    let mut next = Some(rest);
    std::iter::from_fn(move || {
        let others = next?.wrapping_sub(1) & rest;
        next = (others != 0).then_some(others);
        (rest != 0).then_some(others | lowest)
    })
}
