//! Measures how long the planner takes: `cargo bench -p repair --bench planning` prints one table in half a
//! minute.

#![allow(clippy::disallowed_methods)]

use std::ops::Range;
use std::time::{Duration, Instant};

use codes::{BlockIndex, CodeSpec};
use repair::{
    BlockId, Chunking, NodeId, NodeProfile, PlanRequest, Policy, Scheme, Stripe, StripeBlock, StripeId,
    Topology, Wanted, plan,
};

/// Rates in Mb/s from a row's region to a column's region (repair pipelining paper, Table 1, North America).
const AMERICA: [[f64; 4]; 4] = [
    [501.3, 57.2, 44.1, 299.9],
    [55.3, 732.0, 63.3, 48.0],
    [46.3, 65.7, 332.5, 95.6],
    [297.8, 50.2, 93.6, 250.1],
];

/// The number of nodes without a block, in cases where such nodes may help.
const SPARES: u32 = 100;

#[derive(Clone, Copy)]
enum Links {
    Equal,
    /// Port rates differ by up to a factor of four.
    Ports,
    /// Each pair of nodes has its own rate.
    Pairs,
    /// Links into requestors are slow, except from nodes without a block.
    Thin,
    /// Four regions with the rates of `AMERICA`; each pair of nodes has its own link.
    RegionPairs,
    /// Four regions with the rates of `AMERICA`; nodes share the links between regions.
    RegionTrunks,
}

struct Case {
    stripe: Stripe,
    request: PlanRequest,
    topology: Topology,
}

/// A stripe whose first `lost` blocks are rebuilt: on new nodes or, with regions, on their old nodes.
fn case(n: usize, k: usize, lost: u32, links: Links, scheme: Scheme) -> Case {
    let code = CodeSpec::reed_solomon(n, k).build().expect("a code");
    let regions = matches!(links, Links::RegionPairs | Links::RegionTrunks);
    let mut topology = Topology::new();
    let mut wanted = Vec::new();
    let blocks = (0..n as u32).map(|index| StripeBlock {
        id: BlockId(format!("1.{index}")),
        bytes: 64 << 20,
        holder: (index >= lost).then_some(NodeId(index)),
        digest: None,
    });
    let stripe = Stripe {
        id: StripeId("1".into()),
        chunking: Chunking::whole(&*code, 64 << 20),
        code,
        blocks: blocks.collect(),
        label: None,
    };
    let spares = if matches!(links, Links::Thin) { SPARES } else { 0 };
    for index in 0..n as u32 + spares + if regions { 0 } else { lost } {
        topology.set(NodeId(index), profile(index, n as u32, links));
    }
    for index in 0..lost {
        let requestor = NodeId(if regions { index } else { n as u32 + index });
        wanted.push(Wanted { block: BlockIndex(index as u16), requestor });
    }
    link(&mut topology, links, n as u32..n as u32 + lost);
    let policy = Policy { scheme, ..Policy::default() };
    let request = PlanRequest { wanted, window: 0..64 << 20, sub_blocks: None, resume: None, policy };
    Case { stripe, request, topology }
}

/// The same case for the first bytes of the block.
fn part(bytes: u64, mut case: Case) -> Case {
    case.request.window = 0..bytes;
    case
}

/// A pseudo-random number, the same in every run.
fn mixed(a: u32, b: u32) -> f64 {
    let mut x = (u64::from(a) << 32 | u64::from(b)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (x >> 40) as f64 / (1u64 << 24) as f64
}

fn profile(index: u32, n: u32, links: Links) -> NodeProfile {
    let mut profile = NodeProfile::helper(format!("h{index}"), "h:1");
    let rate = match links {
        Links::Equal | Links::Pairs | Links::Thin => 125e6,
        Links::Ports => 125e6 * (0.25 + 0.75 * mixed(index, 0)),
        Links::RegionPairs | Links::RegionTrunks => {
            let region = (index * 4 / n) as usize;
            profile.rack = Some(format!("r{region}"));
            AMERICA[region][region] * 125e3
        }
    };
    (profile.rates.up, profile.rates.down) = (rate, rate);
    profile
}

fn link(topology: &mut Topology, links: Links, requestors: Range<u32>) {
    let nodes: Vec<(NodeId, Option<String>)> =
        topology.iter().map(|(node, profile)| (node, profile.rack.clone())).collect();
    let region =
        |rack: &Option<String>| rack.as_ref().map_or(0, |rack| rack[1..].parse::<usize>().expect("a number"));
    for ((from, here), (to, there)) in nodes.iter().flat_map(|from| nodes.iter().map(move |to| (from, to))) {
        let rate = match links {
            Links::Pairs => 125e6 * (0.05 + 0.95 * mixed(from.0, to.0 + 1)),
            Links::RegionPairs => AMERICA[region(here)][region(there)] * 125e3,
            Links::Thin if requestors.contains(&to.0) && from.0 < requestors.start => 5e6,
            Links::Equal | Links::Ports | Links::RegionTrunks | Links::Thin => continue,
        };
        if from != to {
            topology.set_pair(*from, *to, rate).expect("a rate");
        }
    }
    if matches!(links, Links::RegionTrunks) {
        for (from, to) in
            (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to)
        {
            let rate = AMERICA[from][to] * 125e3;
            topology.set_between(&format!("r{from}"), &format!("r{to}"), rate).expect("a rate");
        }
    }
}

/// The median time to make the plan.
fn time(case: &Case) -> Duration {
    let once = || {
        let start = Instant::now();
        let plan = plan(&case.stripe, &case.request, &case.topology).expect("it can be planned");
        std::hint::black_box(&plan);
        start.elapsed()
    };
    once();
    let (mut times, start) = (Vec::new(), Instant::now());
    while times.len() < 5 || (times.len() < 20_000 && start.elapsed() < Duration::from_secs(1)) {
        times.push(once());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

fn row(name: &str, case: &Case) {
    let time = time(case);
    let plan = plan(&case.stripe, &case.request, &case.topology).expect("it can be planned");
    let forecast = plan.forecast(&case.topology);
    println!(
        "| {name} | {} | {} | {:.1} us | {:.0} | {:.0} ms |",
        plan.scheme(),
        plan.lanes().len(),
        time.as_secs_f64() * 1e6,
        1.0 / time.as_secs_f64(),
        forecast.time.as_secs_f64() * 1e3
    );
}

fn main() {
    use Links::{Equal, Pairs, Ports, RegionPairs, RegionTrunks};
    println!("| what | scheme | lanes | a plan | plans a second | predicted |\n|---|---|---|---|---|---|");
    row("(14,10), equal links", &case(14, 10, 1, Equal, Scheme::Pipelined));
    row("(14,10), equal links", &case(14, 10, 1, Equal, Scheme::Auto));
    row("(14,10), equal links, 4 KiB", &part(4 << 10, case(14, 10, 1, Equal, Scheme::Auto)));
    row("(14,10), equal links, 64 KiB", &part(64 << 10, case(14, 10, 1, Equal, Scheme::Auto)));
    row("(14,10), equal links, 1 MiB", &part(1 << 20, case(14, 10, 1, Equal, Scheme::Auto)));
    row("(14,10), four lost", &case(14, 10, 4, Equal, Scheme::Packed));
    row("(14,10), four lost", &case(14, 10, 4, Equal, Scheme::Auto));
    row("(14,10), uneven ports", &case(14, 10, 1, Ports, Scheme::Auto));
    row("(14,10), uneven pairs", &case(14, 10, 1, Pairs, Scheme::Weighted));
    row("(30,16), uneven pairs", &case(30, 16, 1, Pairs, Scheme::Weighted));
    row("(16,12), EC2, own links", &case(16, 12, 1, RegionPairs, Scheme::Packed));
    row("(16,12), EC2, own links", &case(16, 12, 1, RegionPairs, Scheme::Auto));
    row("(16,12), EC2, shared links", &case(16, 12, 1, RegionTrunks, Scheme::Packed));
    row("(16,12), EC2, shared links", &case(16, 12, 1, RegionTrunks, Scheme::Auto));
    row("(16,12), thin links, 100 spare nodes", &case(16, 12, 1, Links::Thin, Scheme::Auto));
    row("(64,48), thin links, 100 spare nodes", &case(64, 48, 1, Links::Thin, Scheme::Packed));
    row("(64,48), EC2, own links", &case(64, 48, 1, RegionPairs, Scheme::Packed));
    row("(64,48), uneven pairs", &case(64, 48, 1, Pairs, Scheme::Packed));
    row("(64,48), four lost, uneven pairs", &case(64, 48, 4, Pairs, Scheme::Packed));
    row("(104,100), equal links", &case(104, 100, 1, Equal, Scheme::Auto));
    row("(255,223), equal links", &case(255, 223, 1, Equal, Scheme::Auto));
    row("(104,100), uneven ports", &case(104, 100, 1, Ports, Scheme::Auto));
    row("(255,223), uneven ports", &case(255, 223, 1, Ports, Scheme::Auto));
}
