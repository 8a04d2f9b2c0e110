//! Prints the tables of `docs/results/recovery.md`: `cargo run --release -p sim --example recovery_tables`. A
//! word after `--` selects the tables whose titles contain it. The first line states the commit.

mod papers;

use std::process::Command;

use recovery::{HelperPolicy, Kind, RepairSpec};
use repair::{NodeId, Rates, Scheme};
use sim::recovery::{Cluster, Concurrency, Finish, Homes, Loss, Shape};

const SEEDS: u64 = 3;

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let tables: [(&str, fn()); 8] = [
        ("Rate, as a fraction of the bound", bounds),
        ("Policies, one chain for each block, (9,6), 30 nodes, 120 blocks", policies),
        ("Drains without rounds, 100 nodes, 200 blocks of 64 MiB", drains),
        (papers::REQUESTORS, papers::requestors),
        (papers::PUSH, papers::push),
        (papers::HDFS, papers::hdfs),
        (papers::M_PPR, papers::m_ppr),
        (papers::CRR, papers::crr),
    ];
    println!("Printed on commit {}.\n", commit().unwrap_or_else(|| "unknown".to_owned()));
    for (title, print) in tables.into_iter().filter(|(title, _)| title.contains(&wanted)) {
        println!("## {title}\n");
        print();
        println!();
    }
}

/// Returns the commit of the checkout, with `+` for local changes outside of `docs/results`.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/results"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}+") })
}

/// Returns limits on the work in flight: `jobs` jobs per node, and the default limit on bytes.
fn jobs(jobs: u64) -> Concurrency {
    Concurrency { jobs, ..Concurrency::default() }
}

fn bounds() {
    println!("| case | in flight | time | bound | of the bound | jobs at once |\n|--|--|--|--|--|--|");
    for (name, cluster) in cases() {
        row(name, "16 jobs", &Cluster { concurrency: jobs(16), ..cluster.clone() });
        row(name, "as usual", &cluster);
        row(name, "everything", &cluster.all_at_once());
    }
}

fn policies() {
    println!("| policy | time | of the bound |\n|--|--|--|");
    for helpers in HelperPolicy::ALL {
        policy(helpers);
    }
}

fn cases() -> [(&'static str, Cluster); 6] {
    let slow = Rates { up: 12.5e6, down: 12.5e6, read: 2e9, write: 2e9 };
    [
        (
            "(9,6), 16 blocks of 16 MiB, 13 survivors, 100 Mb/s",
            Cluster {
                homes: Homes::OnNode,
                block_bytes: 16 << 20,
                rates: slow,
                ..Cluster::new("rs-9-6", 14, 16)
            },
        ),
        (
            "(14,10), 64 blocks, 16 survivors",
            Cluster { homes: Homes::OnNode, ..Cluster::new("rs-14-10", 17, 64) },
        ),
        (
            "(9,6), 120 blocks, 29 survivors",
            Cluster { homes: Homes::OnNode, ..Cluster::new("rs-9-6", 30, 120) },
        ),
        (
            "(9,6), 1,200 blocks, 29 survivors",
            Cluster { homes: Homes::OnNode, ..Cluster::new("rs-9-6", 30, 1_200) },
        ),
        (
            "(9,6), 1,200 blocks of 1 GiB, 29 survivors",
            Cluster { homes: Homes::OnNode, block_bytes: 1 << 30, ..Cluster::new("rs-9-6", 30, 1_200) },
        ),
        ("(14,10), 1,000 nodes, 100,000 stripes", Cluster::new("rs-14-10", 1_000, 100_000)),
    ]
}

/// Returns the mean of `of` over the runs with different seeds.
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
    let is_push = matches!(helpers, HelperPolicy::PushRep | HelperPolicy::PushSur);
    let shape = Shape::Scheme(if is_push { Scheme::PipeB } else { Scheme::Pipelined });
    let base = Cluster { homes: Homes::OnNode, spec, shape, ..Cluster::new("rs-9-6", 30, 120) };
    let (seconds, part) = (mean(&base, |finish| finish.seconds), mean(&base, Finish::of_bound));
    println!("| {helpers} | {seconds:.2} s | {part:.3} |");
}

fn drains() {
    println!("| code | copies only | rebuilds only | both | copied |\n|--|--|--|--|--|");
    for code in ["rs-9-6", "rs-14-10", "rs-16-12"] {
        let base = Cluster { homes: Homes::OnNode, ..Cluster::new(code, 100, 200) };
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
