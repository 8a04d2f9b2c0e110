//! Prints the tables of `docs/results/recovery.md`: `cargo run --release -p mend-sim --example recovery_tables`.

use repair::recovery::fastpr::{Chunk, Model, RoundOrder, schedule, sets};
use repair::recovery::{HelperPolicy, Kind, RepairSpec};
use repair::{NodeId, Rates, Scheme};
use sim::Dice;
use sim::recovery::{Cluster, Finish, Loss, Shape};

const SEEDS: u64 = 3;

fn main() {
    println!(
        "## Of the bound\n\n| case | under way | time | bound | of the bound | jobs at once |\n|--|--|--|--|--|--|"
    );
    for (name, cluster) in cases() {
        row(name, "4 jobs, 4 s", &cluster);
        row(name, "16 jobs, 16 s", &Cluster { jobs_at_once: 16, seconds_ahead: 16.0, ..cluster.clone() });
        row(name, "everything", &cluster.all_at_once());
    }
    println!(
        "\n## Policies, chains of whole blocks, (9,6), 30 nodes, 120 blocks\n\n| policy | time | of the bound |\n|--|--|--|"
    );
    for helpers in HelperPolicy::ALL {
        policy(helpers);
    }
    requestors();
    drains();
    fastpr();
}

fn cases() -> [(&'static str, Cluster); 4] {
    let slow = Rates { up: 12.5e6, down: 12.5e6, read: 2e9, write: 2e9 };
    [
        (
            "(9,6), 16 blocks of 16 MiB, 13 survivors, 100 Mb/s",
            Cluster {
                all_on_node: true,
                block_bytes: 16 << 20,
                rates: slow,
                ..Cluster::new("rs-9-6", 14, 16)
            },
        ),
        (
            "(14,10), 64 blocks, 16 survivors",
            Cluster { all_on_node: true, ..Cluster::new("rs-14-10", 17, 64) },
        ),
        ("(9,6), 120 blocks, 29 survivors", Cluster { all_on_node: true, ..Cluster::new("rs-9-6", 30, 120) }),
        ("(14,10), 1,000 nodes, 100,000 stripes", Cluster::new("rs-14-10", 1_000, 100_000)),
    ]
}

/// The mean over seeds of what `of` says, and the last run.
fn mean(cluster: &Cluster, of: impl Fn(&Finish) -> f64) -> f64 {
    let run = |seed| {
        let finish = Cluster { seed, ..cluster.clone() }.run();
        assert!(finish.violations.is_empty(), "{:?}", finish.violations);
        of(&finish)
    };
    (1..=SEEDS).map(run).sum::<f64>() / SEEDS as f64
}

fn row(name: &str, under_way: &str, cluster: &Cluster) {
    let seconds = mean(cluster, |finish| finish.seconds);
    let bound = mean(cluster, |finish| finish.bound.seconds);
    let at_once = mean(cluster, |finish| finish.at_once as f64);
    println!(
        "| {name} | {under_way} | {seconds:.2} s | {bound:.2} s | {:.3} | {at_once:.0} |",
        bound / seconds
    );
}

fn policy(helpers: HelperPolicy) {
    let spec = RepairSpec { helpers, ..RepairSpec::default() };
    let shape = Shape::Scheme(Scheme::Pipelined);
    let base = Cluster { all_on_node: true, spec, shape, ..Cluster::new("rs-9-6", 30, 120) };
    let cluster = Cluster { jobs_at_once: 16, seconds_ahead: 16.0, ..base };
    let (seconds, part) = (mean(&cluster, |finish| finish.seconds), mean(&cluster, Finish::of_bound));
    println!("| {helpers} | {seconds:.2} s | {part:.3} |");
}

/// TOS'21, Figure 8e: 64 stripes of (14,10) on 16 nodes, and 1 to 16 requestors beside them.
fn requestors() {
    println!("\n## Full-node recovery by requestors, (14,10), 64 blocks (TOS'21 Figure 8e), MiB/s\n");
    println!("| requestors | conventional | chains, lowest index | chains, LRU | dealt |\n|--|--|--|--|--|");
    for count in [1, 2, 4, 8, 16] {
        let run = |helpers, shape| {
            let requestors = (17..17 + count).map(NodeId).collect();
            let spec = RepairSpec { helpers, requestors, ..RepairSpec::default() };
            let base =
                Cluster { all_on_node: true, standbys: count, ..Cluster::new("rs-14-10", 17 + count, 64) };
            let cluster = Cluster { jobs_at_once: 16, seconds_ahead: 16.0, spec, shape, ..base };
            64.0 * 64.0 / mean(&cluster, |finish| finish.seconds)
        };
        println!(
            "| {count} | {:.0} | {:.0} | {:.0} | {:.0} |",
            run(HelperPolicy::LowestIndex, Shape::Scheme(Scheme::Conventional)),
            run(HelperPolicy::LowestIndex, Shape::Scheme(Scheme::Pipelined)),
            run(HelperPolicy::LeastRecentlyUsed, Shape::Scheme(Scheme::Pipelined)),
            run(HelperPolicy::Even, Shape::Dealt),
        );
    }
}

fn drains() {
    println!("\n## Drains without rounds, 100 nodes, 200 blocks of 64 MiB\n");
    println!("| code | copies only | rebuilds only | both | copied |\n|--|--|--|--|--|");
    for code in ["rs-9-6", "rs-14-10", "rs-16-12"] {
        let base = Cluster { all_on_node: true, ..Cluster::new(code, 100, 200) };
        let base = Cluster { jobs_at_once: 16, seconds_ahead: 16.0, ..base };
        let way = |kind: fn(NodeId) -> Kind| Cluster { loss: Loss::Drained(kind(NodeId(0))), ..base.clone() };
        let seconds = |cluster: &Cluster| mean(cluster, |finish| finish.seconds);
        let both = way(|from| Kind::Drain { from });
        println!(
            "| {code} | {:.1} s | {:.2} s | {:.2} s | {:.0} |",
            seconds(&way(|from| Kind::Migrate { from })),
            seconds(&way(|from| Kind::Rebuild { from })),
            seconds(&both),
            mean(&both, |finish| finish.copied as f64)
        );
    }
}

fn fastpr() {
    println!("\n## FastPR by the paper's model: 100 nodes, 64 MB, 100 MB/s disks, 1 Gb/s\n");
    println!(
        "| case | chunks | sets | s/chunk | optimum | less than copies only | less than rebuilds only |\n|--|--|--|--|--|--|--|"
    );
    for (standbys, n, k) in [(None, 9, 6), (None, 14, 10), (None, 16, 12), (Some(3), 9, 6), (Some(3), 16, 12)]
    {
        for count in [100, 400, 1000] {
            fastpr_row(standbys, n, k, count);
        }
    }
}

fn fastpr_row(standbys: Option<usize>, n: usize, k: usize, count: usize) {
    let model = Model { nodes: 100, chunk_bytes: 64e6, disk: 100e6, link: 128e6, standbys };
    let seconds = |set: usize| model.reconstruction(set as f64, k);
    let (mut both, mut rebuilds, mut number) = (0.0, 0.0, 0);
    for seed in 1..=SEEDS {
        let sets = sets(&chunks(seed, count, n - 1, k), 99, model.largest_set(k));
        number += sets.len();
        rebuilds += sets.iter().map(|set| seconds(set.len())).sum::<f64>();
        let rounds = schedule(sets, RoundOrder::Size, model.migration(), |set| seconds(set.len()));
        both += rounds.iter().map(|round| round.seconds).sum::<f64>();
    }
    let all = (SEEDS * count as u64) as f64;
    println!(
        "| {} ({n},{k}) | {count} | {:.1} | {:.3} | {:.3} | {:.1} % | {:.1} % |",
        standbys.map_or("scattered".into(), |standbys| format!("{standbys} standbys")),
        number as f64 / SEEDS as f64,
        both / all,
        model.optimum(k),
        (1.0 - both / all / model.migration()) * 100.0,
        (1.0 - both / rebuilds) * 100.0
    );
}

fn chunks(seed: u64, count: usize, others: usize, needs: usize) -> Vec<Chunk> {
    let mut dice = Dice::new(seed);
    let mut nodes: Vec<usize> = (0..99).collect();
    let mut chunk = || {
        dice.shuffle(&mut nodes);
        Chunk { needs, nodes: nodes[..others].to_vec() }
    };
    (0..count).map(|_| chunk()).collect()
}
