//! Cheapest routes for [`packing`](super::packing): the ways to rebuild one slice of every lost block.
//!
//! A route reads `needed` blocks, collects them at hubs, and brings the hubs' partial sums to the requestors
//! ([`trees`](super::trees)). A cheapest route is hard to find, so the search is a local one, and the prices
//! of a packing prove little by themselves. `benches/packings.rs` compares packings with an exact search.

use std::collections::BTreeMap;

use super::network::Network;
use super::packing::{Oracle, Use};
use super::trees::Trees;

/// A way to rebuild one slice of every lost block. Nodes are numbers in a [`Network`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    /// The holders that read, ascending.
    pub readers: Vec<usize>,
    /// (from, to), in the order in which they happen: each move forwards all that `from` has read and
    /// received, for all lost blocks. The last nodes are the hubs.
    pub moves: Vec<(usize, usize)>,
    /// For each requestor the further moves, in order: each forwards one hub's partial sums of the blocks
    /// that this requestor wants, together with those that the hub has received.
    pub trees: BTreeMap<usize, Vec<(usize, usize)>>,
    /// (from, to) of streams, with the node through which they go.
    pub detours: BTreeMap<(usize, usize), usize>,
}

/// The nodes from which routes are formed, and a search that begins with the hubs of the last route.
pub(super) struct Routes<'a> {
    pub network: &'a Network,
    /// The number of nodes that hold a block; these are the first nodes.
    pub holders: usize,
    /// The requestor of each lost block.
    pub requestors: Vec<usize>,
    /// The number of blocks needed.
    pub needed: usize,
    /// The hubs of the last route.
    pub hubs: Vec<usize>,
}

impl Routes<'_> {
    /// The amount of each resource that one unit of a route uses.
    fn uses(&self, route: &Route) -> Use {
        let network = self.network;
        let mut uses: BTreeMap<usize, f64> = BTreeMap::new();
        let mut add = |resource: usize, amount: f64| *uses.entry(resource).or_insert(0.0) += amount;
        route.readers.iter().for_each(|&reader| add(network.disk(reader), 1.0));
        self.requestors.iter().for_each(|&requestor| add(network.disk(requestor), network.write(requestor)));
        for (from, to) in self.streams(route) {
            match route.detours.get(&(from, to)) {
                Some(&through) => {
                    let way = network.passed(from, through).chain(network.passed(through, to));
                    way.for_each(|resource| add(resource, 1.0));
                }
                None => network.passed(from, to).for_each(|resource| add(resource, 1.0)),
            }
        }
        uses.into_iter().filter(|&(_, amount)| amount > 0.0).collect()
    }

    /// The (from, to) of each stream of a route whose moves all end at hubs, without detours. A node that
    /// adds nothing to a stream does not receive it.
    pub fn streams(&self, route: &Route) -> Vec<(usize, usize)> {
        let mut collected: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &reader in &route.readers {
            let hub = route.moves.iter().find(|&&(from, _)| from == reader).map_or(reader, |&(_, to)| to);
            collected.entry(hub).or_default().push(reader);
        }
        let mut streams = Vec::new();
        for (&hub, makers) in &mut collected {
            if self.requestors.len() > 1 || makers.len() > 1 {
                streams.extend(makers.drain(..).filter(|&maker| maker != hub).map(|maker| (maker, hub)));
                makers.push(hub);
            }
        }
        for &requestor in &self.requestors {
            streams.extend(merged(collected.clone(), &route.trees[&requestor], requestor));
        }
        streams
    }
}

/// The streams of one lost block's partial sums, which the nodes in `held` have made, along a tree.
fn merged(
    mut held: BTreeMap<usize, Vec<usize>>,
    tree: &[(usize, usize)],
    requestor: usize,
) -> Vec<(usize, usize)> {
    let mut streams = Vec::new();
    for &(from, to) in tree {
        let mut makers = held.remove(&from).unwrap_or_default();
        if makers.len() > 1 {
            streams.extend(makers.drain(..).filter(|&maker| maker != from).map(|maker| (maker, from)));
            makers.push(from);
        }
        held.entry(to).or_default().append(&mut makers);
    }
    let last = held.remove(&requestor).unwrap_or_default();
    streams.extend(last.into_iter().filter(|&maker| maker != requestor).map(|maker| (maker, requestor)));
    streams
}

impl Oracle for Routes<'_> {
    type Route = Route;

    fn cheapest(&mut self, prices: &[f64]) -> Option<(Route, Use)> {
        let trees = Trees::new(self, prices);
        let mut starts = vec![vec![trees.best_hub()?]];
        starts.extend((!self.hubs.is_empty()).then_some(self.hubs.clone()));
        let cost = |hubs: &Vec<usize>| trees.cost(hubs);
        let start = starts.into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
        let (route, hubs) = trees.search(start)?;
        self.hubs = hubs;
        let uses = self.uses(&route);
        Some((route, uses))
    }
}
