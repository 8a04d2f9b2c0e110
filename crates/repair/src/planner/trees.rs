//! Searches for the cheapest way to rebuild one slice at given prices.
//!
//! A *hub* is a node where blocks are summed. Holders that read and are not hubs send their raw blocks to the
//! cheapest hub; each hub adds its own block, if that is among the cheapest, and makes a partial sum of every
//! lost block. The partial sums of one lost block travel to its requestor along the cheapest in-tree over the
//! hubs. A sole requestor is always a hub. Every stream may take a detour through one other node.
//!
//! With one hub this is the star, in which the choice of readers is exact. With all inner nodes of a tree as
//! hubs it is the tree. So it remains to choose the hubs: the search adds or drops one hub as long as that
//! helps.

use std::collections::BTreeMap;

use super::arborescence::in_tree;
use super::routes::{Route, Routes};

/// A step of the search must save at least this share of the cost.
const SAVING: f64 = 1e-9;
/// The largest number of hubs. More would make planning slow, and hardly make the repair faster.
const MOST_HUBS: usize = 12;

/// The prices of streams and reads.
pub(super) struct Trees<'a> {
    routes: &'a Routes<'a>,
    /// The price of a direct stream, by sender and receiver. A node has no stream to itself.
    direct: Vec<Vec<f64>>,
    /// The same if the stream may take a detour.
    costs: Vec<Vec<f64>>,
    /// The price of reading each holder's block, by the holder's number.
    disks: Vec<f64>,
    /// The requestors, each once, with the number of blocks that it wants.
    wanted: BTreeMap<usize, f64>,
}

/// The readers at a choice of hubs, and the cost of everything.
struct Choice {
    cost: f64,
    /// Readers, each with the hub to which it sends; a hub sends to itself.
    readers: Vec<(usize, usize)>,
}

impl<'a> Trees<'a> {
    pub fn new(routes: &'a Routes<'a>, prices: &[f64]) -> Self {
        let network = routes.network;
        let nodes = 0..network.nodes.len();
        // The prices of the simplex method may be slightly negative.
        let price =
            |from, to| if from == to { f64::INFINITY } else { network.price(from, to, prices).max(0.0) };
        let direct: Vec<Vec<f64>> =
            nodes.clone().map(|from| nodes.clone().map(|to| price(from, to)).collect()).collect();
        let costs = if network.has_shortcuts() { with_detours(&direct) } else { direct.clone() };
        let disks = (0..routes.holders).map(|holder| prices[network.disk(holder)].max(0.0)).collect();
        let mut wanted = BTreeMap::new();
        routes.requestors.iter().for_each(|&requestor| *wanted.entry(requestor).or_insert(0.0) += 1.0);
        Self { routes, direct, costs, disks, wanted }
    }

    /// The cheapest route that the search finds from these hubs, and its hubs; `None` if there are too few
    /// holders.
    pub fn search(&self, mut hubs: Vec<usize>) -> Option<(Route, Vec<usize>)> {
        let mut cost = self.cost(&hubs);
        // If only ports are limited, a second hub saves nothing: all holders could use the cheaper one.
        let mut improves = self.routes.network.has_links();
        while std::mem::take(&mut improves) {
            for node in 0..self.costs.len() {
                let other = toggled(&hubs, node);
                let less = if other.len() <= MOST_HUBS { self.cost(&other) } else { f64::INFINITY };
                if less < cost * (1.0 - SAVING) {
                    (cost, hubs, improves) = (less, other, true);
                }
            }
        }
        Some((self.route(&hubs)?, hubs))
    }

    /// The best single hub.
    pub fn best_hub(&self) -> Option<usize> {
        let costs = (0..self.costs.len()).map(|hub| (self.cost(&[hub]), hub));
        costs.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, hub)| hub)
    }

    /// The cost with these hubs; infinite if there are too few holders, or no hub.
    pub fn cost(&self, hubs: &[usize]) -> f64 {
        self.choose(hubs).map_or(f64::INFINITY, |choice| choice.cost)
    }

    /// The hubs and, if it is the only one, the requestor.
    fn inner(&self, hubs: &[usize]) -> Vec<usize> {
        let sole = self.wanted.keys().copied().filter(|_| self.wanted.len() == 1);
        let more = sole.filter(|requestor| !hubs.contains(requestor));
        hubs.iter().copied().chain(more).collect()
    }

    /// Chooses the cheapest readers; `None` if there are too few holders, or no hub.
    fn choose(&self, hubs: &[usize]) -> Option<Choice> {
        let inner = self.inner(hubs);
        let reader = |holder: usize| {
            let attached = match inner.contains(&holder) {
                true => (0.0, holder),
                false => inner
                    .iter()
                    .map(|&hub| (self.costs[holder][hub], hub))
                    .min_by(|a, b| a.0.total_cmp(&b.0))?,
            };
            Some((self.disks[holder] + attached.0, (holder, attached.1)))
        };
        let mut readers: Vec<(f64, (usize, usize))> = (0..self.routes.holders).filter_map(reader).collect();
        let needed = self.routes.needed;
        if readers.len() < needed {
            return None;
        }
        if needed > 0 && needed < readers.len() {
            readers.select_nth_unstable_by(needed - 1, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        readers.truncate(needed);
        let of_trees: f64 =
            self.wanted.iter().map(|(&requestor, blocks)| blocks * self.tree(requestor, &inner).0).sum();
        let of_readers: f64 = readers.iter().map(|(cost, _)| cost).sum();
        Some(Choice {
            cost: of_trees + of_readers,
            readers: readers.into_iter().map(|(_, reader)| reader).collect(),
        })
    }

    /// The cost and the links of the cheapest in-tree from the hubs to a requestor.
    fn tree(&self, requestor: usize, inner: &[usize]) -> (f64, Vec<(usize, usize)>) {
        let nodes: Vec<usize> =
            [requestor].into_iter().chain(inner.iter().copied().filter(|&hub| hub != requestor)).collect();
        let costs: Vec<Vec<f64>> =
            nodes.iter().map(|&from| nodes.iter().map(|&to| self.costs[from][to]).collect()).collect();
        let next = in_tree(&costs, 0);
        let cost = (1..nodes.len()).map(|at| costs[at][next[at]]).sum();
        (cost, (1..nodes.len()).map(|at| (nodes[at], nodes[next[at]])).collect())
    }

    fn route(&self, hubs: &[usize]) -> Option<Route> {
        let inner = self.inner(hubs);
        let mut chosen = self.choose(hubs)?.readers;
        chosen.sort_unstable();
        let trees =
            self.wanted.keys().map(|&requestor| (requestor, in_order(self.tree(requestor, &inner).1)));
        let mut route = Route {
            readers: chosen.iter().map(|&(reader, _)| reader).collect(),
            moves: chosen.into_iter().filter(|(reader, hub)| reader != hub).collect(),
            trees: trees.collect(),
            detours: BTreeMap::new(),
        };
        let streams = self.routes.streams(&route);
        route.detours = streams.into_iter().filter_map(|link| Some((link, self.detour(link)?))).collect();
        Some(route)
    }

    /// The node through which a stream is cheaper than directly.
    fn detour(&self, (from, to): (usize, usize)) -> Option<usize> {
        let through = |&node: &usize| self.direct[from][node] + self.direct[node][to];
        let best = (0..self.direct.len()).min_by(|a, b| through(a).total_cmp(&through(b)))?;
        (through(&best) < self.direct[from][to] * (1.0 - SAVING)).then_some(best)
    }
}

/// These nodes with one more, or without it if it is one of them.
fn toggled(hubs: &[usize], node: usize) -> Vec<usize> {
    let mut toggled: Vec<usize> = hubs.iter().copied().filter(|&hub| hub != node).collect();
    if toggled.len() == hubs.len() {
        toggled.push(node);
    }
    toggled
}

/// The links of a tree in the order in which sums move: a node sends when all nodes before it have sent.
fn in_order(mut links: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let mut ordered = Vec::with_capacity(links.len());
    while !links.is_empty() {
        let receivers: Vec<usize> = links.iter().map(|&(_, to)| to).collect();
        ordered.extend(links.extract_if(.., |(from, _)| !receivers.contains(from)));
    }
    ordered
}

/// The price of each stream over the cheaper of the direct way and the ways through one other node.
fn with_detours(direct: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut costs = direct.to_vec();
    for (from, row) in costs.iter_mut().enumerate() {
        for (through, onward) in direct.iter().enumerate() {
            let first = direct[from][through];
            row.iter_mut().zip(onward).for_each(|(cost, second)| *cost = cost.min(first + second));
        }
        row[from] = f64::INFINITY;
    }
    costs
}
