//! Recovery of whole nodes in the papers' settings, next to the published results.

use recovery::{HelperPolicy, RepairSpec};
use repair::{NodeId, Pacing, Rates, Scheme};
use sim::Dice;
use sim::recovery::{Cluster, ReadTimes, Reads, Shape};

use super::{SEEDS, mean};

pub const REQUESTORS: &str = "Full-node recovery by requestors, (14,10), 64 blocks (TOS'21 Figure 8e), MiB/s";
pub const PUSH: &str = "Chains of blocks and of slices, (14,10), 640 blocks (TOS'21 Figure 11b), MiB/s";
pub const HDFS: &str = "Stars and chains by width, 17 nodes, 160 blocks (TOS'21 Figure 10b), MiB/s";
pub const M_PPR: &str = "m-PPR, 83 survivors, (16,12), 1.4 Gb/s (PPR Figure 8)";
pub const CRR: &str = "Three clients, one read of a lost block to 30 others, (8,6), 13 nodes (CRR Figure 5)";

const CONVENTIONAL: Shape = Shape::Scheme(Scheme::Conventional);
const CHAINS: Shape = Shape::Scheme(Scheme::Pipelined);

/// Returns the mean duration in seconds with the given helper policy and shape.
fn seconds(base: &Cluster, helpers: HelperPolicy, shape: Shape) -> f64 {
    let spec = RepairSpec { helpers, ..base.spec.clone() };
    mean(&Cluster { spec, shape, ..base.clone() }, |finish| finish.seconds)
}

/// Returns a cluster in which one of 17 nodes is dead. That node held `blocks` blocks. They are rebuilt on
/// `beside` additional nodes, or on the 16 other nodes if `beside` is 0.
fn seventeen(code: &str, blocks: u32, beside: u32) -> Cluster {
    let requestors = (17..17 + beside).map(NodeId).collect();
    let spec = RepairSpec { requestors, ..RepairSpec::default() };
    Cluster { all_on_node: true, standbys: beside, spec, ..Cluster::new(code, 17 + beside, blocks) }
}

/// Compares conventional repair with chains. Helpers are those with the lowest block indices, the lowest
/// node numbers as in the paper, or the least recently used ones.
pub fn requestors() {
    println!(
        "| requestors | conventional, lowest index | conventional, lowest node | chains, lowest index | chains, lowest node | chains, LRU | dealt |"
    );
    println!("|--|--|--|--|--|--|--|");
    for count in [1, 2, 4, 8, 16] {
        let base = seventeen("rs-14-10", 64, count);
        let times = [
            seconds(&base, HelperPolicy::LowestIndex, CONVENTIONAL),
            lowest_nodes(&base, CONVENTIONAL),
            seconds(&base, HelperPolicy::LowestIndex, CHAINS),
            lowest_nodes(&base, CHAINS),
            seconds(&base, HelperPolicy::LeastRecentlyUsed, CHAINS),
            seconds(&base, HelperPolicy::Even, Shape::Dealt),
        ];
        let rates = times.map(|time| format!("{:.0}", 64.0 * 64.0 / time));
        println!("| {count} | {} |", rates.join(" | "));
    }
}

/// Returns the mean duration in seconds if the helpers are the nodes with the lowest numbers. Each stripe's
/// blocks are on random nodes, in the order of the nodes.
fn lowest_nodes(base: &Cluster, shape: Shape) -> f64 {
    let run = |seed| {
        let mut dice = Dice::new(seed);
        let mut nodes: Vec<u32> = (1..17).collect();
        let mut place = |_| {
            dice.shuffle(&mut nodes);
            let mut homes = nodes[..13].to_vec();
            homes.push(0);
            homes.sort_unstable();
            homes
        };
        let homes = Some((0..base.stripes).map(&mut place).collect());
        let spec = RepairSpec { helpers: HelperPolicy::LowestIndex, ..base.spec.clone() };
        let finish = Cluster { homes, spec, shape, ..base.clone() }.run();
        assert!(finish.violations.is_empty(), "{:?}", finish.violations);
        finish.seconds
    };
    (1..=SEEDS).map(run).sum::<f64>() / SEEDS as f64
}

/// Compares PUSH with chains of slices, and with the chains that the scheduler computes (`Shape::Dealt`).
/// PUSH rebuilds block by block, on one node (Rep) or on all nodes (Sur).
pub fn push() {
    println!(
        "| blocks in flight on a node | one: PUSH | one: slices | one: dealt | all: PUSH | all: slices | all: dealt |"
    );
    println!("|--|--|--|--|--|--|--|");
    for jobs in [1, 4, 8, 16] {
        let at = |beside| Cluster { concurrency: crate::jobs(jobs), ..seventeen("rs-14-10", 640, beside) };
        let run = |beside, helpers, shape| 640.0 * 64.0 / seconds(&at(beside), helpers, shape);
        let blocks = Shape::Scheme(Scheme::PipeB);
        println!(
            "| {jobs} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
            run(1, HelperPolicy::PushRep, blocks),
            run(1, HelperPolicy::LeastRecentlyUsed, CHAINS),
            run(1, HelperPolicy::Even, Shape::Dealt),
            run(0, HelperPolicy::PushSur, blocks),
            run(0, HelperPolicy::LeastRecentlyUsed, CHAINS),
            run(0, HelperPolicy::Even, Shape::Dealt),
        );
    }
}

/// Compares stars, as in HDFS, with chains. HDFS runs two reconstructions at a time on a node; the other
/// columns use the default limits.
pub fn hdfs() {
    println!(
        "| code | one: stars, two at once | one: stars | one: chains | ratio | all: stars, two at once | all: stars | all: dealt | ratio |"
    );
    println!("|--|--|--|--|--|--|--|--|--|");
    for code in ["rs-9-6", "rs-12-8", "rs-14-10", "rs-16-12"] {
        let rate = |base: &Cluster, helpers, shape| 160.0 * 64.0 / seconds(base, helpers, shape);
        let row = |beside, helpers, shape| {
            let base = seventeen(code, 160, beside);
            let two = Cluster { concurrency: crate::jobs(2), ..base.clone() };
            let stars = rate(&two, HelperPolicy::LowestIndex, CONVENTIONAL);
            let more = rate(&base, HelperPolicy::LowestIndex, CONVENTIONAL);
            let ours = rate(&base, helpers, shape);
            format!("{stars:.0} | {more:.0} | {ours:.0} | {:.1}", ours / stars)
        };
        let one = row(1, HelperPolicy::LeastRecentlyUsed, CHAINS);
        println!("| {code} | {one} | {} |", row(0, HelperPolicy::Even, Shape::Dealt));
    }
}

/// Compares m-PPR with other schemes. All repairs start at once, as in the paper.
pub fn m_ppr() {
    println!(
        "| blocks lost | stars | stars by m-PPR's weights | m-PPR in rounds | less than stars | m-PPR in slices | less | dealt | less |"
    );
    println!("|--|--|--|--|--|--|--|--|--|");
    for blocks in [10, 25, 50, 100, 200] {
        let rates = Rates { up: 175e6, down: 175e6, read: 2e9, write: 2e9 };
        let base = Cluster { all_on_node: true, rates, ..Cluster::new("rs-16-12", 84, blocks) }.all_at_once();
        let rounds = Cluster { pacing: Some(Pacing::WholeBlock), ..base.clone() };
        let tree = Shape::Scheme(Scheme::Ppr);
        let stars = seconds(&base, HelperPolicy::LowestIndex, CONVENTIONAL);
        let weighed = seconds(&base, HelperPolicy::MPpr, CONVENTIONAL);
        let others = [
            seconds(&rounds, HelperPolicy::MPpr, tree),
            seconds(&base, HelperPolicy::MPpr, tree),
            seconds(&base, HelperPolicy::Even, Shape::Dealt),
        ];
        let cells = others.map(|time| format!("{time:.1} s | {:.0} %", (1.0 - time / stars) * 100.0));
        println!("| {blocks} | {stars:.1} s | {weighed:.1} s | {} |", cells.join(" | "));
    }
}

pub fn crr() {
    println!(
        "| scheme | all reads | less than SRR | reads of lost blocks | less than SRR |\n|--|--|--|--|--|"
    );
    let rounds = Some(Pacing::WholeBlock);
    let srr = reads(Scheme::Conventional, None);
    for (name, scheme, pacing) in [
        ("SRR (conventional)", Scheme::Conventional, None),
        ("CRR-R in rounds", Scheme::CrrR, rounds),
        ("CRR-R in slices", Scheme::CrrR, None),
        ("CRR-S in slices", Scheme::CrrS, None),
        ("CRR-S without the root, in slices", Scheme::CrrSDirect, None),
        ("chain", Scheme::Pipelined, None),
    ] {
        let times = reads(scheme, pacing);
        println!(
            "| {name} | {:.3} s | {:.1} % | {:.2} s | {:.1} % |",
            times.all,
            (1.0 - times.all / srr.all) * 100.0,
            times.lost,
            (1.0 - times.lost / srr.lost) * 100.0
        );
    }
}

/// Returns the mean read times over seeds.
fn reads(scheme: Scheme, pacing: Option<Pacing>) -> ReadTimes {
    let run = |seed| {
        let rates = Rates { up: 125e6, down: 125e6, read: 600e6, write: 600e6 };
        let code = "rs-8-6".parse().expect("a code's name");
        let (block_bytes, each) = (64 << 20, 3100);
        Reads { seed, code, nodes: 13, clients: 3, each, lost_in: 31, block_bytes, rates, scheme, pacing }
            .run()
    };
    let all: Vec<ReadTimes> = (1..=SEEDS).map(run).collect();
    let mean = |of: fn(&ReadTimes) -> f64| all.iter().map(of).sum::<f64>() / SEEDS as f64;
    ReadTimes { all: mean(|times| times.all), lost: mean(|times| times.lost) }
}
