//! Lower bound for the time of a whole-node recovery. Reports compare the actual time with it.
//!
//! Three kinds of traffic each bound the time from below:
//!
//! 1. **Sent.** Rebuilding a block of an MDS code takes k blocks' worth of data from the survivors of its
//!    stripe, at most one block's worth from each. This holds for partial sums as well: if one helper sends
//!    less than a block's worth of sums, the others have to send more.
//! 2. **Received.** Every byte that is sent is received, by another survivor or by the requestor.
//! 3. **Delivered.** Every lost block arrives at a node that may store it.
//!
//! *Sent* is a transport problem: stripes supply data, and each survivor carries at most `rate * T`. The
//! tightest set S of nodes determines the least `T`. Nodes in S have to send all that the stripes cannot get
//! from nodes outside S: `T >= sum over stripes of (k - survivors outside S) / rate of S`. Newton's method on
//! cuts finds this set: compute `T` for the current S, take the minimum cut at that `T` as the next S, and
//! stop when the flow carries everything. `T` only grows and there are finitely many cuts, so the result is
//! exact. In practice a handful of flow computations suffices.
//!
//! The result is the largest of the three bounds, not their sum. With nodes of equal rates and free choice of
//! requestors, one linear programme with all three constraints gives the same bound
//! (docs/explanation/whole-nodes.md). Deliberately absent: latency, and codes that read less than whole
//! blocks.

use std::collections::BTreeMap;

use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use repair::{NodeId, Rates};

/// A stripe to repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Blocks' worth of data that the survivors have to send: k for an MDS code.
    pub sends: u32,
    /// Number of lost blocks.
    pub lost: u32,
    /// The nodes with a readable block of the stripe.
    pub survivors: Vec<NodeId>,
    /// The only nodes that may store the rebuilt blocks. `None` if any node may.
    pub takers: Option<Vec<NodeId>>,
}

/// The resource that determines a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Uplinks of survivors.
    Uplinks,
    /// Downlinks of all nodes that receive data.
    Downlinks,
    /// Downlinks of the nodes that take repaired blocks.
    Takers,
    /// Disks.
    Disks,
}

/// The least time that a recovery can take.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Time in seconds.
    pub seconds: f64,
    /// The resource that limits the recovery.
    pub bottleneck: Bottleneck,
    /// The nodes whose combined rate at the bottleneck limits the recovery, in ascending order.
    pub nodes: Vec<NodeId>,
}

/// Computes the least time in which all demands can be met. Stripes with too few survivors are left out.
///
/// `nodes` are the nodes that are up, with their rates in bytes per second.
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

/// The data that a stripe has to get through `nodes`: `blocks` blocks, at most one through each node.
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

/// Returns the least time in which the nodes can carry all supplies, by Newton's method on cuts (see the
/// module documentation).
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

/// Returns the time that the nodes of `tight` need for the data that only they can carry. `None` if there is
/// no such data.
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

/// Returns the nodes of the minimum cut when each node can carry `bytes`, in ascending order. `None` if the
/// nodes can carry everything.
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
        // Add one byte of capacity, because rounding could otherwise produce a false cut.
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

/// Marks the nodes that can be reached from `source` over edges with free capacity, or backwards over edges
/// with flow.
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
    fn the_tightest_set_of_nodes_determines_the_bound() {
        // All three nodes together send four blocks, which takes them 4/3 s. n1 and n2 together have to send
        // only the two blocks that n3 cannot send, which takes them 1 s.
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
    fn slow_disks_can_be_the_bottleneck() {
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
        /// Compares with a brute-force search over all sets of nodes.
        #[test]
        fn the_bound_equals_that_of_the_tightest_set(
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
