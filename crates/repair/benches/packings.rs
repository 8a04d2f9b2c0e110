//! Compares the plans of `auto` with the best packings that are known, and with the printed bound, on
//! random networks: `cargo bench -p repair --bench packings` prints the distributions in half a minute.
//! `cargo bench -p repair --bench packings -- SEED` describes one network.
//!
//! The best known packing is that of the linear programme over all in-trees, solved with an exact search
//! (`exact`), for stripes with at most [`MOST_HOLDERS`] holders. For all stripes it is at least as good as
//! the best plan of any scheme. Times are those of the bottleneck, so that filling the pipeline does not count.

#![allow(clippy::disallowed_methods)]

#[path = "../src/planner/exact.rs"]
mod exact;
#[allow(dead_code, reason = "cargo compiles benchmarks with `cfg(test)`, so its unit tests are here, too")]
#[path = "../src/planner/packing.rs"]
mod packing;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use codes::{BlockIndex, CodeSpec};
use exact::{Nodes, cheapest};
use packing::{Oracle, Use, pack};
use repair::{
    BlockId, Chunking, NodeId, NodeProfile, PlanRequest, Policy, Rates, Resource, Scheme, Stripe,
    StripeBlock, StripeId, Topology, Trunk, Wanted, explain,
};

/// The number of random networks.
const NETWORKS: u64 = 400;
/// With more holders, the exact search takes too long.
const MOST_HOLDERS: usize = 10;
const BLOCK_BYTES: u64 = 64 << 20;

/// A pseudo-random number generator (xorshift), the same in every run.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    /// A rate in bytes per second, whose logarithm is evenly distributed.
    fn rate(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.next() as f64 / (1u64 << 53) as f64)
    }
}

/// The limits of a network beyond ports and disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limits {
    Ports,
    Trunks,
    TrunksAndLinks,
    TrunksAndPairs,
    Pairs,
}

struct Case {
    name: String,
    limits: Limits,
    stripe: Stripe,
    request: PlanRequest,
    topology: Topology,
}

impl Case {
    fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let codes = [(4, 2), (6, 4), (6, 3), (9, 6), (12, 8), (14, 10), (16, 12)];
        let (n, k) = codes[random.below(codes.len() as u64) as usize];
        let most = (n - k).min(4) as u64;
        let lost = if random.one_in(2) { 1 } else { 1 + random.below(most) as u32 };
        let all =
            [Limits::Ports, Limits::Trunks, Limits::TrunksAndLinks, Limits::TrunksAndPairs, Limits::Pairs];
        let limits = all[random.below(5) as usize];
        let mut case = Self::new(n, k, lost, limits, &mut random);
        case.add_nodes(&mut random);
        case.add_trunks(&mut random);
        case.add_pairs(&mut random);
        case
    }

    /// A stripe whose last blocks are lost. Sometimes the first requestor holds a block, or all lost blocks
    /// have the same requestor.
    fn new(n: usize, k: usize, lost: u32, limits: Limits, random: &mut Random) -> Self {
        let code = CodeSpec::reed_solomon(n, k).build().expect("a code");
        let held = n as u32 - lost;
        let blocks = (0..n as u32).map(|index| StripeBlock {
            id: BlockId(format!("1.{index}")),
            bytes: BLOCK_BYTES,
            holder: (index < held).then_some(NodeId(index)),
            digest: None,
        });
        let chunking = Chunking::whole(&*code, BLOCK_BYTES);
        let stripe =
            Stripe { id: StripeId("1".into()), chunking, code, blocks: blocks.collect(), label: None };
        let (own, same) = (random.one_in(6), random.one_in(4));
        let requestor = |index: u32| match index {
            0 if own => NodeId(0),
            _ if same && own => NodeId(0),
            _ => NodeId(held + if same { 0 } else { index }),
        };
        let wanted = (0..lost)
            .map(|index| Wanted { block: BlockIndex((held + index) as u16), requestor: requestor(index) });
        let request = PlanRequest {
            wanted: wanted.collect(),
            window: 0..BLOCK_BYTES,
            sub_blocks: None,
            resume: None,
            policy: Policy::default(),
        };
        let name = format!(
            "rs-{n}-{k}, {lost} lost, {limits:?}{}{}",
            if own { ", requestor holds a block" } else { "" },
            if same { ", one requestor" } else { "" }
        );
        Self { name, limits, stripe, request, topology: Topology::new() }
    }

    /// Adds all nodes, with up to three that hold no block. In half of the networks requestors receive fast.
    fn add_nodes(&mut self, random: &mut Random) {
        let spares = if random.one_in(3) { 1 + random.below(3) as u32 } else { 0 };
        let racks = 1 + random.below(5);
        let slowest = [125e6, 30e6, 5e6][random.below(3) as usize];
        let fast = random.one_in(2);
        for node in (0..self.stripe.blocks.len() as u32 + spares).map(NodeId) {
            let mut profile = NodeProfile::helper(format!("h{}", node.0), "h:1");
            let receives = self.request.wanted.iter().any(|wanted| wanted.requestor == node);
            let up = random.rate(slowest, 125e6);
            let down = if fast && receives { 1e9 } else { random.rate(slowest, 125e6) };
            let disk = if random.one_in(8) { random.rate(20e6, 200e6) } else { 500e6 };
            profile.rates = Rates { up, down, read: disk, write: disk };
            profile.rack = Some(format!("r{}", random.below(racks)));
            self.topology.set(node, profile);
        }
    }

    fn add_trunks(&mut self, random: &mut Random) {
        if matches!(self.limits, Limits::Ports | Limits::Pairs) {
            return;
        }
        for rack in (0..5).map(|rack| format!("r{rack}")) {
            if !random.one_in(5) {
                let trunk = Trunk { up: random.rate(10e6, 250e6), down: random.rate(10e6, 250e6) };
                self.topology.set_trunk(&rack, trunk).expect("rates");
            }
            for other in (0..5).map(|rack| format!("r{rack}")).filter(|other| *other != rack) {
                if self.limits == Limits::TrunksAndLinks && random.one_in(2) {
                    self.topology.set_between(&rack, &other, random.rate(5e6, 100e6)).expect("a rate");
                }
            }
        }
        if random.one_in(4) {
            for rack in 0..5 {
                self.topology.set_region(&format!("r{rack}"), &format!("g{}", rack / 2)).expect("one region");
            }
            for region in 0..3 {
                let trunk = Trunk { up: random.rate(10e6, 150e6), down: random.rate(10e6, 150e6) };
                self.topology.set_trunk(&format!("g{region}"), trunk).expect("rates");
            }
        }
    }

    fn add_pairs(&mut self, random: &mut Random) {
        if !matches!(self.limits, Limits::Pairs | Limits::TrunksAndPairs) {
            return;
        }
        let dense = random.one_in(2);
        let nodes: Vec<NodeId> = self.topology.iter().map(|(node, _)| node).collect();
        for (from, to) in nodes.iter().flat_map(|&from| nodes.iter().map(move |&to| (from, to))) {
            if from != to && (dense || random.one_in(3)) {
                self.topology.set_pair(from, to, random.rate(5e6, 125e6)).expect("a rate");
            }
        }
    }

    /// One lost block of a wide code over uneven ports.
    fn wide(n: usize, k: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut case = Self::new(n, k, 1, Limits::Ports, &mut random);
        case.name = format!("rs-{n}-{k}, uneven ports");
        case.request.wanted[0].requestor = NodeId(n as u32 - 1);
        for node in (0..n as u32).map(NodeId) {
            let mut profile = NodeProfile::helper(format!("h{}", node.0), "h:1");
            (profile.rates.up, profile.rates.down) = (random.rate(5e6, 125e6), random.rate(5e6, 125e6));
            if node.0 == n as u32 - 1 {
                (profile.rates.up, profile.rates.down) = (125e6, 125e6);
            }
            case.topology.set(node, profile);
        }
        case
    }

    fn holders(&self) -> Vec<NodeId> {
        self.stripe.held().map(|(_, holder)| holder).collect()
    }

    /// The seconds of the best packing over in-trees; `None` if the stripe is too large.
    fn best_packing(&self) -> Option<f64> {
        let mut nodes = self.holders();
        let holders = nodes.len();
        if holders > MOST_HOLDERS {
            return None;
        }
        let others = self.topology.iter().map(|(node, _)| node).filter(|node| !nodes.contains(node));
        nodes.extend(others.collect::<Vec<_>>());
        let number = |wanted: &Wanted| nodes.iter().position(|node| *node == wanted.requestor);
        let requestors: Vec<usize> = self.request.wanted.iter().filter_map(number).collect();
        let mut network = Network::new(nodes, &self.topology);
        network.holders = holders;
        network.needed = self.stripe.code.data_blocks();
        network.requestors = requestors;
        let rates = network.rates.clone();
        let packing = pack(&rates, &mut network);
        assert!(packing.prices.is_some(), "something limits every network");
        Some(BLOCK_BYTES as f64 / packing.routes.iter().map(|(_, amount)| amount).sum::<f64>())
    }

    /// The least time of any scheme's bottleneck, in seconds.
    fn best_scheme(&self) -> f64 {
        let schemes = Scheme::ALL.into_iter().filter(|scheme| *scheme != Scheme::Migration);
        let busy = |scheme| {
            let mut request = self.request.clone();
            request.policy.scheme = scheme;
            let plan = repair::plan(&self.stripe, &request, &self.topology).ok()?;
            Some(plan.forecast(&self.topology).busy.as_secs_f64())
        };
        schemes.filter_map(busy).fold(f64::INFINITY, f64::min)
    }
}

/// All nodes and resources by number, for the exact search.
struct Network {
    passed: Vec<Vec<Vec<usize>>>,
    disks: Vec<usize>,
    rates: Vec<f64>,
    holders: usize,
    needed: usize,
    requestors: Vec<usize>,
}

impl Network {
    fn new(nodes: Vec<NodeId>, topology: &Topology) -> Self {
        let mut numbers: BTreeMap<Resource, usize> = BTreeMap::new();
        let mut rates = Vec::new();
        let mut number = |resource: Resource| {
            *numbers.entry(resource).or_insert_with_key(|resource| {
                rates.push(topology.rate(resource));
                rates.len() - 1
            })
        };
        let disks = nodes.iter().map(|&node| number(Resource::Disk(node))).collect();
        let mut passed = vec![vec![Vec::new(); nodes.len()]; nodes.len()];
        for (from, sender) in nodes.iter().enumerate() {
            for (to, receiver) in nodes.iter().enumerate().filter(|(to, _)| *to != from) {
                let ports = [Resource::Uplink(*sender), Resource::Downlink(*receiver)];
                let between = topology.between(*sender, *receiver);
                passed[from][to] = ports.into_iter().chain(between).map(&mut number).collect();
            }
        }
        Self { passed, disks, rates, holders: 0, needed: 0, requestors: Vec::new() }
    }
}

impl Oracle for Network {
    type Route = ();

    fn cheapest(&mut self, prices: &[f64]) -> Option<((), Use)> {
        let (holders, needed) = (self.holders, self.needed);
        let nodes = Nodes { all: self.disks.len(), holders, needed, requestors: &self.requestors };
        let price = |from: usize, to: usize| self.passed[from][to].iter().map(|&at| prices[at]).sum();
        let tree = cheapest(&nodes, price, |holder| prices[self.disks[holder]])?;
        let mut uses: BTreeMap<usize, f64> = BTreeMap::new();
        let disks = tree.readers.iter().chain(&self.requestors);
        disks.for_each(|&node| *uses.entry(self.disks[node]).or_default() += 1.0);
        for (&(from, to), &streams) in &tree.streams {
            for &resource in &self.passed[from][to] {
                *uses.entry(resource).or_default() += streams as f64;
            }
        }
        Some(((), uses.into_iter().collect()))
    }
}

/// The results for one network, in seconds.
struct Outcome {
    scheme: Scheme,
    /// The time of the bottleneck in the plan of `auto`.
    auto: f64,
    /// The time in the best packing that is known.
    best: f64,
    /// Whether the best packing comes from the exact search.
    is_exact: bool,
    bound: f64,
    planning: Duration,
}

impl Outcome {
    fn of(case: &Case) -> Self {
        let start = Instant::now();
        repair::plan(&case.stripe, &case.request, &case.topology).expect("a plan");
        let planning = start.elapsed();
        let explained = explain(&case.stripe, &case.request, &case.topology).expect("a plan");
        let auto = explained.forecast.busy.as_secs_f64();
        let packing = case.best_packing();
        Self {
            scheme: explained.plan.scheme(),
            auto,
            best: auto.min(case.best_scheme()).min(packing.unwrap_or(f64::INFINITY)),
            is_exact: packing.is_some(),
            bound: explained.bound.expect("blocks can be chosen").time.as_secs_f64(),
            planning,
        }
    }
}

/// Prints the distribution of ratios as a row of a table.
fn row(name: &str, ratios: impl Iterator<Item = f64>) {
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    if ratios.is_empty() {
        return;
    }
    let share = |share: f64| ratios[((ratios.len() - 1) as f64 * share).round() as usize];
    let above = ratios.iter().filter(|ratio| **ratio > 1.05).count();
    println!(
        "| {name} | {} | {:.3} | {:.3} | {:.3} | {:.3} | {above} |",
        ratios.len(),
        share(0.5),
        share(0.9),
        share(0.99),
        share(1.0)
    );
}

fn describe(case: &Case) {
    let explained = explain(&case.stripe, &case.request, &case.topology).expect("a plan");
    println!("{}\n{}{}", case.name, explained.plan, explained.text(&case.topology));
    let best = case.best_packing().map_or("unknown".to_owned(), |best| format!("{:.1} ms", best * 1e3));
    println!("best packing: {best}");
}

fn main() {
    if let Some(seed) = std::env::args().skip(1).find_map(|argument| argument.parse().ok()) {
        return describe(&Case::random(seed));
    }
    let cases: Vec<Case> = (0..NETWORKS).map(Case::random).collect();
    let outcomes: Vec<Outcome> = cases.iter().map(Outcome::of).collect();
    let all = || cases.iter().zip(&outcomes);
    println!("| {NETWORKS} random networks | cases | median | 90% | 99% | most | above 1.05 |");
    println!("|---|---|---|---|---|---|---|");
    row("plan / best known packing", all().map(|(_, outcome)| outcome.auto / outcome.best));
    let exact = all().filter(|(_, outcome)| outcome.is_exact);
    row("the same, exact search", exact.map(|(_, outcome)| outcome.auto / outcome.best));
    for limits in
        [Limits::Ports, Limits::Trunks, Limits::TrunksAndLinks, Limits::TrunksAndPairs, Limits::Pairs]
    {
        for (name, one) in [("one lost", true), ("several lost", false)] {
            let same =
                all().filter(|(case, _)| case.limits == limits && one == (case.request.wanted.len() == 1));
            row(&format!("{limits:?}, {name}"), same.map(|(_, outcome)| outcome.auto / outcome.best));
        }
    }
    row("plan / bound", all().map(|(_, outcome)| outcome.auto / outcome.bound));
    row("best known packing / bound", all().map(|(_, outcome)| outcome.best / outcome.bound));
    println!(
        "\n| above 1.05 | seed | scheme | plan | best known packing | bound |\n|---|---|---|---|---|---|"
    );
    for (seed, (case, outcome)) in all().enumerate().filter(|(_, (_, of))| of.auto > 1.05 * of.best) {
        let Outcome { scheme, auto, best, bound, .. } = outcome;
        println!("| {} | {seed} | {scheme} | {auto:.3} s | {best:.3} s | {bound:.3} s |", case.name);
    }
    println!("\n| wide codes | scheme | plan | bound | planned in |\n|---|---|---|---|---|");
    for case in [(64, 48), (80, 66), (104, 100)].map(|(n, k)| Case::wide(n, k, 1)) {
        let Outcome { scheme, auto, bound, planning, .. } = Outcome::of(&case);
        let planning = planning.as_secs_f64() * 1e3;
        println!("| {} | {scheme} | {auto:.2} s | {bound:.2} s | {planning:.0} ms |", case.name);
    }
}
