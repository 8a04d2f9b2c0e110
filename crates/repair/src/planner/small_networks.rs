//! Properties of routes and cuts on small random networks, against an exact search.

use codes::BlockIndex;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::candidates::Candidates;
use super::cuts::least_cost;
use super::exact::{Cheapest, Nodes, cheapest};
use super::network::Network;
use super::packing::{Oracle, Packing, Use, pack};
use crate::{NodeId, NodeProfile, Topology, Trunk};

/// Holders of a block, and other nodes.
const HOLDERS: usize = 6;
const NODES: usize = 9;

/// Rates are 1 MB/s times a power of two.
fn rate(power: u8) -> f64 {
    1e6 * f64::from(1u32 << power)
}

/// A network in which all rates may differ, and a repair.
fn repairs() -> impl Strategy<Value = Candidates> {
    let ports = prop::collection::vec((0u8..6, 0u8..6, 3u8..9), NODES);
    let racks = prop::collection::vec(0u8..3, NODES);
    let trunks = prop::option::of(prop::collection::vec((0u8..6, 0u8..6), 3));
    let pairs = prop::option::of(prop::collection::vec(0u8..6, NODES * NODES));
    let requestors = prop::collection::vec(0usize..NODES, 1..4);
    (ports, racks, trunks, pairs, requestors, 2..=HOLDERS).prop_map(
        |(ports, racks, trunks, pairs, requestors, needed)| {
            let topology = topology(&ports, &racks, trunks, pairs);
            let network = Network::new((0..NODES as u32).map(NodeId).collect(), 1 << 20, &topology);
            let blocks = (0..HOLDERS as u16).map(BlockIndex).collect();
            Candidates { network, blocks, requestors, needed, is_mds: true }
        },
    )
}

fn topology(
    ports: &[(u8, u8, u8)],
    racks: &[u8],
    trunks: Option<Vec<(u8, u8)>>,
    pairs: Option<Vec<u8>>,
) -> Topology {
    let mut topology = Topology::new();
    for (node, (&(up, down, disk), rack)) in (0..).map(NodeId).zip(ports.iter().zip(racks)) {
        let mut profile = NodeProfile { rack: Some(format!("r{rack}")), ..NodeProfile::unknown("n") };
        (profile.rates.up, profile.rates.down) = (rate(up), rate(down));
        (profile.rates.read, profile.rates.write) = (rate(disk), rate(disk));
        topology.set(node, profile);
    }
    for (rack, (up, down)) in trunks.into_iter().flatten().enumerate() {
        topology.set_trunk(&format!("r{rack}"), Trunk { up: rate(up), down: rate(down) }).expect("rates");
    }
    for (at, power) in pairs.into_iter().flatten().enumerate() {
        let (from, to) = (at / NODES, at % NODES);
        if from != to {
            topology.set_pair(NodeId(from as u32), NodeId(to as u32), rate(power)).expect("a rate");
        }
    }
    topology
}

/// The cheapest in-tree at any prices.
struct Exact<'a>(&'a Candidates);

impl Exact<'_> {
    fn tree(&self, prices: &[f64]) -> Cheapest {
        let Candidates { network, blocks, requestors, needed, .. } = self.0;
        let nodes = Nodes { all: network.nodes.len(), holders: blocks.len(), needed: *needed, requestors };
        let price = |from, to| network.price(from, to, prices);
        cheapest(&nodes, price, |holder| prices[network.disk(holder)]).expect("enough holders")
    }

    fn uses(&self, tree: &Cheapest) -> Use {
        let network = &self.0.network;
        let mut amounts = vec![0.0; network.rates.len()];
        tree.readers.iter().for_each(|&reader| amounts[network.disk(reader)] += 1.0);
        self.0.requestors.iter().for_each(|&to| amounts[network.disk(to)] += network.write(to));
        for (&(from, to), &streams) in &tree.streams {
            network.passed(from, to).for_each(|resource| amounts[resource] += streams as f64);
        }
        amounts.into_iter().enumerate().filter(|&(_, amount)| amount > 0.0).collect()
    }
}

impl Oracle for Exact<'_> {
    type Route = ();

    fn cheapest(&mut self, prices: &[f64]) -> Option<((), Use)> {
        Some(((), self.uses(&self.tree(prices))))
    }
}

fn value<R>(packing: &Packing<R>) -> f64 {
    packing.routes.iter().map(|(_, amount)| amount).sum()
}

fn config() -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(27);
    ProptestConfig { cases: 100, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Both packings may be 0.6% below the optimum.
    #[test]
    fn routes_are_as_good_as_all_in_trees(repair in repairs()) {
        let rates = &repair.network.rates;
        let found = value(&pack(rates, &mut repair.routes()));
        let best = value(&pack(rates, &mut Exact(&repair)));
        prop_assert!(found >= 0.98 * best, "{} of {}", found, best);
    }

    #[test]
    fn no_tree_costs_less_than_the_packed_cuts(
        repair in repairs(),
        prices in prop::collection::vec(0u8..9, NODES * (NODES + 2) + 6),
    ) {
        let count = repair.network.rates.len();
        let prices: Vec<f64> = prices.into_iter().map(f64::from).take(count).collect();
        let exact = Exact(&repair);
        let uses = exact.uses(&exact.tree(&prices));
        let cost: f64 = uses.iter().map(|&(resource, amount)| amount * prices[resource]).sum();
        let least = least_cost(&repair, &prices);
        prop_assert!(least <= cost * (1.0 + 1e-6), "a tree costs {}, less than {}", cost, least);
    }

    /// If all nodes but the requestor must read, the cuts prove that the cheapest tree is the cheapest.
    #[test]
    fn packed_cuts_are_tight_if_all_nodes_read(
        costs in prop::collection::vec(0u8..20, (HOLDERS + 1) * (HOLDERS + 1)),
    ) {
        let mut topology = Topology::new();
        let nodes: Vec<NodeId> = (0..=HOLDERS as u32).map(NodeId).collect();
        nodes.iter().for_each(|&node| topology.set(node, NodeProfile::unknown("n")));
        for (from, to) in nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to))) {
            if from != to {
                topology.set_pair(from, to, 1e6).expect("a rate");
            }
        }
        let network = Network::new(nodes, 1 << 20, &topology);
        let blocks = (0..HOLDERS as u16).map(BlockIndex).collect();
        let repair = Candidates { network, blocks, requestors: vec![HOLDERS], needed: HOLDERS, is_mds: true };
        let pairs = costs.into_iter().map(f64::from);
        let ports = std::iter::repeat_n(0.0, 3 * (HOLDERS + 1));
        let prices: Vec<f64> = ports.chain(pairs).take(repair.network.rates.len()).collect();
        let exact = Exact(&repair);
        let uses = exact.uses(&exact.tree(&prices));
        let cost: f64 = uses.iter().map(|&(resource, amount)| amount * prices[resource]).sum();
        prop_assert!((least_cost(&repair, &prices) - cost).abs() < 1e-6, "{}", cost);
    }
}
