//! Cheapest routes for [`packing`](super::packing): the ways to rebuild one slice of every lost block.
//!
//! *Two hops:* `k` blocks go raw to one node, the decoder, which sums every lost block and sends each to its
//! requestor. A decoder that holds one of the blocks receives one less. At given prices, the `k` cheapest
//! holders are selected for every decoder, so the result is optimal.
//!
//! *In-trees*, for a single lost block: `k` holders send partial sums towards the requestor, each to one
//! other node. This suits trunks, since all streams that meet before a trunk pass it as one sum. Pure relays
//! may forward sums if the links through them cost less than the direct one. A cheapest in-tree over `k` of
//! the holders is hard to find. Here a tree grows from the requestor by the cheapest link into the tree,
//! which is good but not always optimal, so with trees the bound of a packing is an estimate.

use super::network::Network;
use super::packing::{Oracle, Use};

/// A way to rebuild one slice of every lost block. Nodes are numbers in a [`Network`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Route {
    /// The holders that read.
    pub readers: Vec<usize>,
    /// (from, to), in the order in which they happen: each move forwards all that `from` has read and
    /// received.
    pub moves: Vec<(usize, usize)>,
    /// The node where the sums are complete, which sends them to the requestors.
    pub root: usize,
}

/// The nodes from which routes are formed.
pub(super) struct Routes<'a> {
    pub network: &'a Network,
    /// Nodes that hold a block each.
    pub holders: Vec<usize>,
    /// Nodes that may decode.
    pub decoders: Vec<usize>,
    /// The requestor of each lost block.
    pub requestors: Vec<usize>,
    /// Pure relays, which may forward sums.
    pub relays: Vec<usize>,
    /// The number of blocks needed.
    pub needed: usize,
    /// Whether partial sums may be formed on the way.
    pub trees: bool,
}

impl Routes<'_> {
    /// The amount of each resource that one unit of a route uses.
    pub fn uses(&self, route: &Route) -> Use {
        let mut passed: Vec<usize> = route.readers.iter().map(|&reader| self.network.disk(reader)).collect();
        passed.extend(route.moves.iter().flat_map(|&(from, to)| self.network.passed(from, to)));
        let on = self.requestors.iter().filter(|&&requestor| requestor != route.root);
        passed.extend(on.flat_map(|&requestor| self.network.passed(route.root, requestor)));
        passed.sort_unstable();
        passed.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as f64)).collect()
    }

    /// The best route over one decoder, and its cost.
    fn over(&self, decoder: usize, prices: &[f64], costs: &mut Vec<(f64, usize)>) -> Option<(f64, Route)> {
        costs.clear();
        let others = self.holders.iter().filter(|&&holder| holder != decoder);
        costs.extend(others.map(|&holder| {
            (prices[self.network.disk(holder)] + self.network.price(holder, decoder, prices), holder)
        }));
        let own = self.holders.contains(&decoder);
        let needed = self.needed - usize::from(own);
        if costs.len() < needed {
            return None;
        }
        if needed > 0 && needed < costs.len() {
            costs.select_nth_unstable_by(needed - 1, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        let chosen = &costs[..needed];
        let out = self.requestors.iter().filter(|&&requestor| requestor != decoder);
        let out: f64 = out.map(|&requestor| self.network.price(decoder, requestor, prices)).sum();
        let disk = if own { prices[self.network.disk(decoder)] } else { 0.0 };
        let cost = out + disk + chosen.iter().map(|(cost, _)| cost).sum::<f64>();
        let mut readers: Vec<usize> = chosen.iter().map(|&(_, holder)| holder).collect();
        readers.sort_unstable();
        let moves = readers.iter().map(|&reader| (reader, decoder)).collect();
        readers.extend(own.then_some(decoder));
        Some((cost, Route { readers, moves, root: decoder }))
    }

    /// An in-tree that ends at the requestor, and its cost.
    fn tree(&self, prices: &[f64]) -> Option<(f64, Route)> {
        let root = *self.requestors.first()?;
        let own = self.holders.contains(&root);
        let mut growth = Growth::new(self, root, prices);
        let own_cost = if own { prices[self.network.disk(root)] } else { 0.0 };
        for _ in usize::from(own)..self.needed {
            growth.grow()?;
        }
        let Growth { mut moves, cost, .. } = growth;
        // The node that joined last sends first.
        moves.reverse();
        let senders = moves.iter().map(|&(from, _)| from);
        let mut readers: Vec<usize> = senders.filter(|from| !self.relays.contains(from)).collect();
        readers.extend(own.then_some(root));
        readers.sort_unstable();
        Some((cost + own_cost, Route { readers, moves, root }))
    }
}

/// A tree that grows from its root by the cheapest link into it.
struct Growth<'a> {
    routes: &'a Routes<'a>,
    prices: &'a [f64],
    moves: Vec<(usize, usize)>,
    cost: f64,
    /// Holders that have not joined.
    holders: Vec<Link>,
    /// Relays that have not joined.
    relays: Vec<Link>,
}

/// The cheapest link from a node into the tree.
#[derive(Clone, Copy)]
struct Link {
    cost: f64,
    from: usize,
    to: usize,
}

impl<'a> Growth<'a> {
    fn new(routes: &'a Routes<'a>, root: usize, prices: &'a [f64]) -> Self {
        let links = |nodes: &[usize]| {
            let others = nodes.iter().filter(|&&node| node != root);
            others
                .map(|&from| Link { cost: routes.network.price(from, root, prices), from, to: root })
                .collect()
        };
        let (holders, relays) = (links(&routes.holders), links(&routes.relays));
        Self { routes, prices, moves: Vec::with_capacity(routes.needed), cost: 0.0, holders, relays }
    }

    /// Adds the cheapest holder, through a relay outside the tree if that costs less; `None` if no holder is
    /// left.
    fn grow(&mut self) -> Option<()> {
        let direct = cheapest(self.holders.iter().map(|link| link.cost + self.disk(link.from)))?;
        let over = |relay: &Link| {
            let costs =
                self.holders.iter().map(|link| self.price(link.from, relay.from) + self.disk(link.from));
            let (cost, at) = cheapest(costs).expect("at least one holder is left");
            (relay.cost + cost, at)
        };
        let ways: Vec<(f64, usize)> = self.relays.iter().map(over).collect();
        match cheapest(ways.iter().map(|&(cost, _)| cost)) {
            Some((cost, at)) if cost < direct.0 => {
                let relay = self.relays.swap_remove(at);
                self.join(relay);
                let holder = self.holders.swap_remove(ways[at].1).from;
                self.take(Link { cost: self.price(holder, relay.from), from: holder, to: relay.from });
            }
            _ => {
                let link = self.holders.swap_remove(direct.1);
                self.take(link);
            }
        }
        Some(())
    }

    /// Adds a holder, which reads its block.
    fn take(&mut self, link: Link) {
        self.cost += self.disk(link.from);
        self.join(link);
    }

    /// Adds a node, to which others may link from now on.
    fn join(&mut self, joined: Link) {
        self.cost += joined.cost;
        self.moves.push((joined.from, joined.to));
        let (network, prices) = (self.routes.network, self.prices);
        for link in self.holders.iter_mut().chain(&mut self.relays) {
            let cost = network.price(link.from, joined.from, prices);
            if cost < link.cost {
                (link.cost, link.to) = (cost, joined.from);
            }
        }
    }

    fn price(&self, from: usize, to: usize) -> f64 {
        self.routes.network.price(from, to, self.prices)
    }

    fn disk(&self, holder: usize) -> f64 {
        self.prices[self.routes.network.disk(holder)]
    }
}

/// The least cost and its position; ties go to the first.
fn cheapest(costs: impl Iterator<Item = f64>) -> Option<(f64, usize)> {
    costs.zip(0..).min_by(|a, b| a.0.total_cmp(&b.0))
}

impl Oracle for Routes<'_> {
    type Route = Route;

    fn cheapest(&mut self, prices: &[f64]) -> Option<(Route, Use)> {
        let mut costs = Vec::with_capacity(self.holders.len());
        let over = self.decoders.iter().filter_map(|&decoder| self.over(decoder, prices, &mut costs));
        let mut best = over.min_by(|a, b| a.0.total_cmp(&b.0));
        if self.trees
            && let Some(tree) = self.tree(prices)
            && best.as_ref().is_none_or(|best| tree.0 < best.0)
        {
            best = Some(tree);
        }
        let (_, route) = best?;
        let uses = self.uses(&route);
        Some((route, uses))
    }
}
