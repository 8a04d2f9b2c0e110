//! A drain that combines copies and rebuilds is no slower than one by copies alone or by rebuilds alone,
//! except for some drains by stars (`MOST_BY_STARS`).
//!
//! Times are in virtual time and therefore the same in every run. `MEND_DRAIN_SEEDS=20 cargo test -p sim
//! --test drains -- --nocapture` runs more seeds and prints every case.

use recovery::{Kind, RepairSpec};
use repair::{NodeId, Rates, Scheme};
use sim::recovery::{Bottlenecks, Cluster, Concurrency, Finish, Homes, Loss, Shape};

/// Limit on the duration of a combined drain, relative to the faster of copies alone and rebuilds alone.
/// Rounding to whole blocks delays a small drain slightly.
const MOST: f64 = 1.02;
/// The limit for drains by stars. It is higher, because the first stars start before the scheduler knows how
/// much each requestor will receive.
const MOST_BY_STARS: f64 = 1.11;
const FROM: NodeId = NodeId(0);

/// Number of nodes with blocks, and number of stripes with a block on the drained node.
const SIZES: [(u32, u32); 6] = [(20, 60), (30, 60), (30, 200), (60, 120), (100, 200), (100, 40)];
/// Pairs of limits for one node: the number of its jobs in flight, and the seconds that it needs to move the
/// bytes of these jobs.
const BUDGETS: [(u64, f64); 3] = [(4, 4.0), (16, 16.0), (1 << 20, 1e6)];

fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=std::env::var("MEND_DRAIN_SEEDS").map_or(3, |text| text.parse().expect("a number of seeds"))
}

/// Returns a cluster of `nodes` nodes and `standbys` empty ones. If there are standbys, only they receive
/// blocks.
fn cluster(code: &str, (nodes, stripes): (u32, u32), standbys: u32) -> Cluster {
    let requestors = (nodes..nodes + standbys).map(NodeId).collect();
    let spec = RepairSpec { requestors, ..RepairSpec::default() };
    Cluster { homes: Homes::OnNode, standbys, spec, ..Cluster::new(code, nodes + standbys, stripes) }
}

fn drain(cluster: &Cluster, kind: Kind) -> Finish {
    let finish = Cluster { loss: Loss::Drained(kind), ..cluster.clone() }.run();
    assert_eq!(finish.violations, [""; 0]);
    finish
}

/// Checks for each seed that a combined drain takes hardly longer than the faster of copies alone and
/// rebuilds alone.
fn check(name: &str, cluster: &Cluster) {
    for seed in seeds() {
        let cluster = Cluster { seed, ..cluster.clone() };
        let copies = drain(&cluster, Kind::Migrate { from: FROM }).seconds;
        let rebuilds = drain(&cluster, Kind::Rebuild { from: FROM }).seconds;
        let both = drain(&cluster, Kind::Drain { from: FROM });
        let part = both.seconds / copies.min(rebuilds);
        println!(
            "{part:.3} {name}, seed {seed}: copies {copies:.2} s, rebuilds {rebuilds:.2} s, both {:.2} s, {} copied",
            both.seconds, both.copied
        );
        let most = if cluster.shape == Shape::Dealt { MOST } else { MOST_BY_STARS };
        assert!(part <= most, "{name}, seed {seed}: {part:.3} of the faster way");
    }
}

#[test]
fn both_ways_are_no_slower_than_either_for_any_standbys() {
    for code in ["rs-9-6", "rs-14-10", "rs-16-12"] {
        for size in SIZES {
            for standbys in [0, 1, 3, 6] {
                let name = format!("{code}, {size:?}, {standbys} standbys");
                check(&name, &cluster(code, size, standbys));
            }
        }
    }
}

#[test]
fn both_ways_are_no_slower_than_either_at_any_concurrency() {
    for code in ["rs-9-6", "rs-14-10"] {
        for size in SIZES {
            for (jobs, seconds) in BUDGETS {
                let name = format!("{code}, {size:?}, {jobs} jobs, {seconds} s");
                let concurrency = Concurrency { jobs, seconds };
                check(&name, &Cluster { concurrency, ..cluster(code, size, 0) });
            }
        }
    }
}

/// A rebuild by a star brings k blocks to its requestor, a copy only one. Stars must not keep the standbys
/// from receiving copies.
#[test]
fn drains_by_stars_are_hardly_slower_than_either_way() {
    for code in ["rs-9-6", "rs-14-10"] {
        for size in SIZES {
            for standbys in [0, 1, 3, 6] {
                let name = format!("stars, {code}, {size:?}, {standbys} standbys");
                let shape = Shape::Scheme(Scheme::Conventional);
                check(&name, &Cluster { shape, ..cluster(code, size, standbys) });
            }
        }
    }
}

#[test]
fn both_ways_are_no_slower_than_either_for_codes_that_read_less() {
    for code in ["lrc-6-2-2", "clay-14-10-13", "hitchhiker-xor-9-6"] {
        for (size, standbys) in [((30, 60), 0), ((30, 60), 3), ((100, 120), 0)] {
            let name = format!("{code}, {size:?}, {standbys} standbys");
            check(&name, &cluster(code, size, standbys));
        }
    }
}

#[test]
fn both_ways_are_no_slower_than_either_with_slow_disks_large_blocks_and_racks() {
    for code in ["rs-9-6", "rs-14-10"] {
        for size in [(30, 60), (100, 200)] {
            let base = cluster(code, size, 0);
            let disks = Rates { read: 100e6, write: 100e6, ..base.rates };
            check(&format!("{code}, {size:?}, disks"), &Cluster { rates: disks, ..base.clone() });
            check(&format!("{code}, {size:?}, 1 GiB"), &Cluster { block_bytes: 1 << 30, ..base.clone() });
            let bottlenecks = Bottlenecks { racks: Some((5, 250e6)), ..Bottlenecks::default() };
            check(&format!("{code}, {size:?}, racks"), &Cluster { bottlenecks, ..base });
        }
    }
}
