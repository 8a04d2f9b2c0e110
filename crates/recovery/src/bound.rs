//! How fast a whole-node recovery can be at best: what reports divide by.
//!
//! Three things have to be carried, and each of them alone bounds the time from below:
//!
//! 1. **Sent.** Rebuilding a block of an MDS code takes k blocks' worth of data out of the stripe's survivors, none of
//!    which can usefully send more than one block's worth. This holds for partial sums as well: a helper that sends
//!    less than a block's worth of sums leaves others to send more.
//! 2. **Received.** Every byte that is sent is received, by another survivor or where the block goes.
//! 3. **Delivered.** Every lost block arrives at a node that may take it.
//!
//! *Sent* is a transport problem: stripes supply, survivors with `rate * T` take. The least `T` for which it can be
//! solved is that of the tightest set of nodes S: all that the stripes cannot get from nodes outside S has to come out of
//! S, so that `T >= sum over stripes of (k - survivors outside S) / rate of S`. It is found by Newton's method on
//! cuts: solve for `T`, take the minimum cut as the next S, until the flow carries everything. `T` only grows and there
//! are finitely many cuts, so that the result is exact; a handful of flows is enough in practice.
//!
//! The three bounds are not added up; with nodes of equal rates and free choice of requestors the linear programme of
//! all of them together has the same value (docs/explanation/whole-nodes.md). Deliberately absent: latency,
//! and codes that read less than whole blocks.

use std::collections::BTreeMap;

use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use repair::{NodeId, Rates};

/// One stripe that is to be repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks' worth that survivors have to send: k for an MDS code.
    pub sends: u32,
    /// Its lost blocks.
    pub lost: u32,
    /// The nodes with a block that can be read.
    pub survivors: Vec<NodeId>,
    /// The nodes that may take lost blocks, if they are few; `None` if any node may.
    pub takers: Option<Vec<NodeId>>,
}

/// What a bound comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Uplinks of survivors.
    Uplinks,
    /// Downlinks, wherever data goes.
    Downlinks,
    /// Downlinks of the nodes that take repaired blocks.
    Takers,
    /// Disks.
    Disks,
}

/// The least time that a recovery can take.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Seconds.
    pub seconds: f64,
    /// What it comes from.
    pub bottleneck: Bottleneck,
    /// The nodes that cannot be spared, ascending.
    pub nodes: Vec<NodeId>,
}

/// The least time in which all that is demanded can be carried; stripes with too few survivors are left out.
///
/// `nodes` are those that are up.
pub fn bound(demands: &[Demand], nodes: &BTreeMap<NodeId, Rates>) -> Bound {
    let demands: Vec<&Demand> =
        demands.iter().filter(|demand| demand.survivors.len() >= demand.sends as usize).collect();
    let sent: u64 = demands.iter().map(|demand| u64::from(demand.sends) * demand.block_bytes).sum();
    let stored: u64 = demands.iter().map(|demand| u64::from(demand.lost) * demand.block_bytes).sum();
    let everywhere = |bottleneck, bytes: u64, rate: fn(&Rates) -> f64| {
        let rate: f64 = nodes.values().map(rate).sum();
        let seconds = if bytes == 0 { 0.0 } else { bytes as f64 / rate };
        Bound { seconds, bottleneck, nodes: nodes.keys().copied().collect() }
    };
    let ups = supplies(&demands, |demand| (demand.sends, &demand.survivors));
    let takers: Vec<&Demand> = demands.iter().copied().filter(|demand| demand.takers.is_some()).collect();
    let takes = supplies(&takers, |demand| (demand.lost, demand.takers.as_ref().expect("just filtered")));
    let bounds = [
        transport(Bottleneck::Uplinks, &ups, nodes, |rates| rates.up),
        everywhere(Bottleneck::Downlinks, sent, |rates| rates.down),
        transport(Bottleneck::Takers, &takes, nodes, |rates| rates.down),
        transport(Bottleneck::Disks, &ups, nodes, |rates| rates.read),
        everywhere(Bottleneck::Disks, sent + stored, |rates| rates.read.max(rates.write)),
    ];
    bounds.into_iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds)).expect("there are five")
}

/// What has to be carried, and by whom: none of them more than one block's worth.
struct Supply<'a> {
    block_bytes: u64,
    blocks: u32,
    nodes: &'a [NodeId],
}

fn supplies<'a>(demands: &[&'a Demand], of: fn(&'a Demand) -> (u32, &'a Vec<NodeId>)) -> Vec<Supply<'a>> {
    let supply = |&demand: &&'a Demand| {
        let (blocks, nodes) = of(demand);
        Supply { block_bytes: demand.block_bytes, blocks: blocks.min(nodes.len() as u32), nodes }
    };
    demands.iter().map(supply).collect()
}

/// Newton's method on the cuts of a transport problem.
fn transport(
    bottleneck: Bottleneck,
    supplies: &[Supply],
    nodes: &BTreeMap<NodeId, Rates>,
    rate: fn(&Rates) -> f64,
) -> Bound {
    let mut tight: Vec<NodeId> = nodes.keys().copied().collect();
    let mut seconds = 0.0;
    while let Some(least) = least_time(supplies, &tight, nodes, rate).filter(|&least| least > seconds) {
        seconds = least;
        match cut(supplies, nodes, |rates| rate(rates) * seconds) {
            Some(cut) => tight = cut,
            None => break,
        }
    }
    Bound { seconds, bottleneck, nodes: tight }
}

/// What `tight` has to carry as others cannot, over its rate.
fn least_time(
    supplies: &[Supply],
    tight: &[NodeId],
    nodes: &BTreeMap<NodeId, Rates>,
    rate: fn(&Rates) -> f64,
) -> Option<f64> {
    let is_loose = |node: &&NodeId| tight.binary_search(node).is_err();
    let bytes = |supply: &Supply| {
        let loose = supply.nodes.iter().filter(is_loose).count() as u64;
        u64::from(supply.blocks).saturating_sub(loose) * supply.block_bytes
    };
    let bytes: u64 = supplies.iter().map(bytes).sum();
    let rate: f64 = tight.iter().map(|node| rate(&nodes[node])).sum();
    (bytes > 0).then(|| bytes as f64 / rate)
}

/// The nodes that are in the way when each may carry so many bytes, ascending; `None` if everything can be carried.
fn cut(
    supplies: &[Supply],
    nodes: &BTreeMap<NodeId, Rates>,
    bytes: impl Fn(&Rates) -> f64,
) -> Option<Vec<NodeId>> {
    let mut graph = DiGraph::<(), u64>::new();
    let (source, sink) = (graph.add_node(()), graph.add_node(()));
    let mut numbers: BTreeMap<NodeId, NodeIndex> = BTreeMap::new();
    for (&id, rates) in nodes {
        let node = graph.add_node(());
        numbers.insert(id, node);
        // A byte more than it takes, so that rounding finds no cut where there is none.
        graph.add_edge(node, sink, bytes(rates).ceil() as u64 + 1);
    }
    let mut wanted = 0;
    for supply in supplies {
        let (stripe, bytes) = (graph.add_node(()), u64::from(supply.blocks) * supply.block_bytes);
        wanted += bytes;
        graph.add_edge(source, stripe, bytes);
        for node in supply.nodes.iter().filter_map(|node| numbers.get(node)) {
            graph.add_edge(stripe, *node, supply.block_bytes);
        }
    }
    let (carried, flows) = dinics(&graph, source, sink);
    if carried >= wanted {
        return None;
    }
    let reached = reachable(&graph, source, &flows);
    Some(numbers.into_iter().filter(|(_, node)| reached[node.index()]).map(|(id, _)| id).collect())
}

/// What can be reached from `source` over edges with room, or backwards over edges with flow.
fn reachable(graph: &DiGraph<(), u64>, source: NodeIndex, flows: &[u64]) -> Vec<bool> {
    let mut reached = vec![false; graph.node_count()];
    let mut open = vec![source];
    reached[source.index()] = true;
    while let Some(node) = open.pop() {
        let out = graph.edges_directed(node, petgraph::Outgoing);
        let ahead = out.filter(|edge| flows[edge.id().index()] < *edge.weight()).map(|edge| edge.target());
        let back = graph.edges_directed(node, petgraph::Incoming);
        let back = back.filter(|edge| flows[edge.id().index()] > 0).map(|edge| edge.source());
        for next in ahead.chain(back) {
            if !std::mem::replace(&mut reached[next.index()], true) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn even(nodes: u32, rate: f64) -> BTreeMap<NodeId, Rates> {
        (1..=nodes)
            .map(|node| {
                (NodeId(node), Rates { up: rate, down: rate, read: rate * 100.0, write: rate * 100.0 })
            })
            .collect()
    }

    fn demand(survivors: &[u32], sends: u32) -> Demand {
        Demand {
            block_bytes: 1000,
            sends,
            lost: 1,
            survivors: survivors.iter().copied().map(NodeId).collect(),
            takers: None,
        }
    }

    #[test]
    fn the_nodes_that_cannot_be_spared_decide() {
        // Both stripes need n1 or n2 for one of their two blocks, as n3 sends only one block of each.
        let demands = [demand(&[1, 2, 3], 2), demand(&[1, 2, 3], 2)];
        let bound = bound(&demands, &even(9, 1000.0));
        assert_eq!((bound.seconds, bound.bottleneck), (4.0 / 3.0, Bottleneck::Uplinks));
        assert_eq!(bound.nodes, [1, 2, 3].map(NodeId));
    }

    #[test]
    fn one_taker_receives_everything() {
        let mut demands: Vec<Demand> = (0..6).map(|_| demand(&[1, 2, 3, 4], 2)).collect();
        demands.iter_mut().for_each(|demand| demand.takers = Some(vec![NodeId(9)]));
        let bound = bound(&demands, &even(9, 1000.0));
        assert_eq!((bound.seconds, bound.bottleneck), (6.0, Bottleneck::Takers));
        assert_eq!(bound.nodes, [NodeId(9)]);
    }

    #[test]
    fn slow_disks_are_seen() {
        let mut nodes = even(4, 1000.0);
        nodes.values_mut().for_each(|rates| (rates.read, rates.write) = (500.0, 500.0));
        let bound = bound(&[demand(&[1, 2, 3], 2)], &nodes);
        assert_eq!(
            (bound.seconds, bound.bottleneck),
            (1.5, Bottleneck::Disks),
            "two blocks read and one written by four disks"
        );
    }

    #[test]
    fn nothing_to_do_takes_no_time() {
        assert_eq!(bound(&[], &even(4, 1000.0)).seconds, 0.0);
        assert_eq!(bound(&[demand(&[1], 2)], &even(4, 1000.0)).seconds, 0.0, "which cannot be read");
    }

    proptest! {
        /// All sets of nodes, one after another.
        #[test]
        fn it_is_that_of_the_tightest_set(
            stripes in prop::collection::vec((prop::sample::subsequence((1..=6u32).collect::<Vec<_>>(), 1..=6), 1..4u32), 1..8),
            rates in prop::collection::vec(1..9u32, 6),
        ) {
            let nodes: BTreeMap<NodeId, Rates> = (1..).map(NodeId).zip(&rates)
                .map(|(node, &rate)| (node, Rates { up: f64::from(rate), down: 1e9, read: 1e9, write: 1e9 })).collect();
            let demands: Vec<Demand> = stripes.iter().map(|(nodes, sends)| demand(nodes, *sends)).collect();
            let mut slow: f64 = 0.0;
            for set in 1..64u32 {
                let is_in = |node: u32| set >> (node - 1) & 1 == 1;
                let must = |demand: &Demand| {
                    let outside = demand.survivors.iter().filter(|node| !is_in(node.0)).count() as u32;
                    if demand.survivors.len() < demand.sends as usize { 0 } else { demand.sends.saturating_sub(outside) * 1000 }
                };
                let bytes: u32 = demands.iter().map(must).sum();
                let rate: u32 = (1..=6).filter(|&node| is_in(node)).map(|node| rates[node as usize - 1]).sum();
                slow = slow.max(f64::from(bytes) / f64::from(rate));
            }
            let fast = bound(&demands, &nodes).seconds;
            prop_assert!((fast - slow).abs() <= slow * 0.01, "{fast} instead of {slow}");
        }
    }
}
