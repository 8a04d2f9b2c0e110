//! Simulates recoveries and drains of large clusters without bytes. Most tests check the duration, for
//! example against its lower bound.

use codes::CodeSpec;
use recovery::{HelperPolicy, Kind, RepairSpec};
use repair::{NodeId, Pacing, Rates, Scheme};
use sim::recovery::{Bottlenecks, Cluster, Concurrency, Finish, Homes, Loss, ReadTimes, Reads, Shape};

const ONE_JOB: Concurrency = Concurrency { jobs: 1, seconds: recovery::SECONDS_AHEAD };

fn run(cluster: &Cluster) -> Finish {
    let finish = cluster.run();
    assert_eq!(finish.violations, [""; 0]);
    println!(
        "{:.2} s, bound {:.2} s ({:.3} of it); {} jobs, {} at once; {} rebuilt, {} copied",
        finish.seconds,
        finish.bound.seconds,
        finish.of_bound(),
        finish.jobs,
        finish.at_once,
        finish.rebuilt,
        finish.copied
    );
    finish
}

/// Returns a cluster with RS(9,6), 16 lost blocks of 16 MiB, 13 survivors, and links of 100 Mb/s.
fn sixteen_blocks() -> Cluster {
    Cluster {
        homes: Homes::OnNode,
        block_bytes: 16 << 20,
        rates: Rates { up: 12.5e6, down: 12.5e6, read: 2e9, write: 2e9 },
        ..Cluster::new("rs-9-6", 14, 16)
    }
}

#[test]
fn sixteen_blocks_are_rebuilt_in_little_more_than_the_bound() {
    let mut parts = 0.0;
    for seed in 1..=5 {
        parts += run(&Cluster { seed, ..sixteen_blocks().all_at_once() }).of_bound();
    }
    assert!(parts / 5.0 >= 0.95, "{} of the bound in the mean", parts / 5.0);
}

#[test]
fn dealt_work_is_near_the_bound_and_ahead_of_chains() {
    let base = Cluster { homes: Homes::OnNode, ..Cluster::new("rs-9-6", 30, 120) }.all_at_once();
    let ours = run(&base);
    assert!(ours.of_bound() >= 0.95, "{}", ours.of_bound());
    for helpers in HelperPolicy::ALL {
        let spec = RepairSpec { helpers, ..RepairSpec::default() };
        let chains = Shape::Scheme(repair::Scheme::Pipelined);
        let finish = run(&Cluster { spec, shape: chains, ..base.clone() });
        assert!(finish.seconds >= ours.seconds, "{helpers} takes {} s", finish.seconds);
    }
}

/// The bound considers the rates of the single nodes, and so does the scheduler when it deals work.
#[test]
fn slow_nodes_get_less_work() {
    let even = Cluster { homes: Homes::OnNode, ..Cluster::new("rs-9-6", 30, 240) };
    let slow = Rates { up: 31.25e6, down: 31.25e6, ..even.rates };
    let nodes = (1..=9).map(|node| (node, slow)).collect();
    let bottlenecks = Bottlenecks { nodes, ..Bottlenecks::default() };
    let uneven = Cluster { bottlenecks, ..even.clone() };
    let (fast, slowed) = (run(&even), run(&uneven));
    let bound = slowed.bound.seconds / fast.bound.seconds;
    assert!(bound > 1.2 && bound < 1.6, "9 of 29 nodes have a quarter of the bandwidth: {bound}");
    assert!(slowed.seconds < 3.0 * fast.seconds, "{} s, evenly {} s", slowed.seconds, fast.seconds);
    assert!(slowed.up.most <= 1.0 + 1e-6, "no uplink carries more than it can: {}", slowed.up.most);
}

/// Chains of whole blocks through the nodes of the lowest indices load the nodes unevenly. With equal shares
/// of the cap, the node with the most chains would delay all others.
#[test]
fn a_cluster_cap_is_fully_used_despite_uneven_chains() {
    let spec = RepairSpec { helpers: HelperPolicy::LowestIndex, ..RepairSpec::default() };
    let shape = Shape::Scheme(Scheme::Pipelined);
    let base = Cluster { spec, shape, ..Cluster::new("rs-6-3", 16, 400) }.all_at_once();
    for seed in 1..=3 {
        for cap in [20e6, 200e6] {
            let bottlenecks = Bottlenecks { cap: Some(cap), ..Bottlenecks::default() };
            let finish = run(&Cluster { bottlenecks, seed, ..base.clone() });
            let sent = 3.0 * finish.rebuilt as f64 * base.block_bytes as f64;
            let part = sent / finish.seconds / cap;
            assert!((0.95..1.0001).contains(&part), "{part} of {cap} B/s with seed {seed}");
        }
    }
}

#[test]
fn the_same_seed_does_the_same() {
    let cluster = Cluster { seed: 9, ..Cluster::new("rs-6-4", 20, 100) };
    assert_eq!(cluster.run(), cluster.run());
}

#[test]
fn slow_trunks_and_pairs_delay_a_recovery() {
    let base = Cluster { homes: Homes::OnNode, ..Cluster::new("rs-6-4", 16, 40) };
    let free = run(&base).seconds;
    let racks = Bottlenecks { racks: Some((4, 125e6)), ..Bottlenecks::default() };
    let trunks = run(&Cluster { bottlenecks: racks, ..base.clone() }).seconds;
    assert!(trunks > free * 1.3, "four nodes share what one could send: {trunks} s, {free} s");
    let pairs = (0..16).flat_map(|from| (0..16).map(move |to| ((from, to), 12.5e6))).collect();
    let pairs = Bottlenecks { pairs, ..Bottlenecks::default() };
    let pairs = run(&Cluster { bottlenecks: pairs, ..base }).seconds;
    assert!(pairs > free * 1.3, "{pairs} s, {free} s");
}

const DRAIN: Kind = Kind::Drain { from: NodeId(0) };

#[test]
fn a_drain_is_faster_than_either_of_its_halves() {
    let base = Cluster { homes: Homes::OnNode, ..Cluster::new("rs-9-6", 30, 60) };
    let way = |kind| run(&Cluster { loss: Loss::Drained(kind), ..base.clone() });
    let both = way(DRAIN);
    let (copies, rebuilds) = (way(Kind::Migrate { from: NodeId(0) }), way(Kind::Rebuild { from: NodeId(0) }));
    assert!(both.copied > 0 && both.rebuilt > 0);
    assert_eq!((copies.rebuilt, rebuilds.copied), (0, 0));
    assert!(both.seconds < copies.seconds && both.seconds < rebuilds.seconds);
}

#[test]
fn a_node_that_dies_while_it_is_emptied_is_recovered() {
    for seed in 1..=10 {
        let loss = Loss::DiesDrained(DRAIN, 0.3 * seed as f64);
        let base = Cluster { homes: Homes::OnNode, seed, ..Cluster::new("rs-6-4", 20, 40) };
        let finish = run(&Cluster { loss, ..base });
        assert_eq!(finish.rebuilt + finish.copied, 40, "each once");
    }
}

#[test]
fn codes_that_read_less_and_schemes_without_chains_work_too() {
    let code: CodeSpec = "lrc-6-2-2".parse().unwrap();
    let lrc = run(&Cluster { code, homes: Homes::OnNode, ..Cluster::new("rs-9-6", 20, 30) });
    let scheme = Shape::Scheme(repair::Scheme::Conventional);
    let star = run(&Cluster { shape: scheme, homes: Homes::OnNode, ..Cluster::new("rs-9-6", 20, 30) });
    assert!(lrc.seconds < star.seconds);
}

#[test]
fn a_budget_of_one_job_is_respected() {
    let cluster = Cluster { concurrency: ONE_JOB, ..Cluster::new("rs-6-4", 20, 60) };
    assert!(run(&cluster).at_once <= 3, "five or six nodes each, of nineteen");
}

/// For a larger run:
/// `MEND_LARGE_STRIPES=100000 cargo test --release -p sim --test large thousand -- --nocapture`
#[test]
fn a_thousand_nodes() {
    let stripes = std::env::var("MEND_LARGE_STRIPES").map_or(20_000, |text| text.parse().unwrap());
    let finish = run(&Cluster::new("rs-14-10", 1_000, stripes).all_at_once());
    assert!(finish.of_bound() > 0.8, "few stripes are harder to even out than many");
}

/// Simulates three clients that read with RS(8,6). One read in 31 is of a lost block.
fn reads(scheme: Scheme, pacing: Option<Pacing>) -> ReadTimes {
    let rates = Rates { up: 125e6, down: 125e6, read: 2e9, write: 2e9 };
    let (code, block_bytes) = ("rs-8-6".parse().unwrap(), 64 << 20);
    Reads { seed: 1, code, nodes: 13, clients: 3, each: 93, lost_in: 31, block_bytes, rates, scheme, pacing }
        .run()
}

#[test]
fn reads_of_lost_blocks_take_as_long_as_their_scheme() {
    let slot = f64::from(64 << 20) / 125e6;
    let star = reads(Scheme::Conventional, None);
    assert!(star.lost >= 6.0 * slot && star.lost < 8.0 * slot, "six blocks over one downlink: {star:?}");
    let rounds = reads(Scheme::CrrR, Some(Pacing::WholeBlock));
    assert!(
        rounds.lost >= 4.0 * slot && rounds.lost < star.lost,
        "three rounds, and to the client: {rounds:?}"
    );
    let chain = reads(Scheme::Pipelined, None);
    assert!(chain.lost < 2.0 * slot && chain.all < rounds.all && rounds.all < star.all, "{chain:?}");
}

#[test]
fn rounds_are_slower_than_slices_and_utilization_is_reported() {
    let ppr = Cluster {
        shape: Shape::Scheme(Scheme::Ppr),
        homes: Homes::OnNode,
        concurrency: ONE_JOB,
        ..Cluster::new("rs-9-6", 20, 10)
    };
    let slices = run(&ppr);
    let rounds = run(&Cluster { pacing: Some(Pacing::WholeBlock), ..ppr });
    assert!(rounds.seconds > slices.seconds * 1.2);
    // Each of the 10 repairs sends six blocks; 19 nodes share this work.
    let sent = 60.0 * f64::from(64 << 20) / (19.0 * 125e6 * rounds.seconds);
    assert!(
        (rounds.up.mean / sent - 1.0).abs() < 1e-6 && rounds.up.most >= rounds.up.mean,
        "{:?}",
        rounds.up
    );
}

#[test]
fn an_impossible_shape_is_refused_before_the_run() {
    let losing = |code: &str| Cluster::losing(code.parse().unwrap(), 20, 30);
    for code in ["rs-9-6", "lrc-6-2-2"] {
        let cluster = losing(code);
        assert_eq!(cluster.check_shape(), Ok(()));
        assert_eq!(run(&cluster).rebuilt, 30);
        let copies = Cluster { shape: Shape::Scheme(Scheme::Migration), ..cluster };
        assert!(copies.check_shape().is_err());
    }
    let mean = run(&losing("rs-9-6"));
    assert!(mean.mean_seconds > 0.0 && mean.mean_seconds <= mean.seconds);
}

/// PUSH forwards whole blocks. Two chains that start together reach the requestor together, so they share the
/// last hop: five hops at the full rate, and one at half of it.
#[test]
fn pushed_blocks_meet_at_the_requestor() {
    let spec =
        RepairSpec { helpers: HelperPolicy::PushRep, requestors: vec![NodeId(19)], ..RepairSpec::default() };
    let homes = vec![vec![0, 1, 2, 3, 4, 5, 6, 7, 8], vec![0, 9, 10, 11, 12, 13, 14, 15, 16]];
    let shape = Shape::Scheme(Scheme::PipeB);
    let push =
        Cluster { spec, shape, homes: Homes::Given(homes), standbys: 1, ..Cluster::new("rs-9-6", 20, 2) };
    let slot = f64::from(64 << 20) / 125e6;
    let seconds = run(&push.all_at_once()).seconds;
    assert!((seconds / (7.0 * slot) - 1.0).abs() < 1e-3, "{} slots", seconds / slot);
}
