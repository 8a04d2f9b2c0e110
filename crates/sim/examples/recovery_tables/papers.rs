//! Recovery of whole nodes in the papers' settings, next to the published results.

use repair::{Pacing, Rates, Scheme};
use sim::recovery::published::{Recovered, by_m_ppr, by_push, by_requestors, by_width};
use sim::recovery::{ReadTimes, Reads};

use super::SEEDS;

pub const REQUESTORS: &str = "Full-node recovery by requestors, (14,10), 64 blocks (TOS'21 Figure 8e), MiB/s";
pub const PUSH: &str = "Chains of blocks and of slices, (14,10), 640 blocks (TOS'21 Figure 11b), MiB/s";
pub const HDFS: &str = "Stars and chains by width, 17 nodes, 160 blocks (TOS'21 Figure 10b), MiB/s";
pub const M_PPR: &str = "m-PPR, 83 survivors, (16,12), 1.4 Gb/s (PPR Figure 8), seconds";
pub const CRR: &str = "Three clients, one read of a lost block to 30 others, (8,6), 13 nodes (CRR Figure 5)";

pub fn requestors() {
    print("requestors", [1, 2, 4, 8, 16].map(|count| (count.to_string(), by_requestors(count))), mebibytes);
}

pub fn push() {
    print(
        "blocks in flight on a node",
        [1, 4, 8, 16].map(|jobs| (jobs.to_string(), by_push(jobs))),
        mebibytes,
    );
}

pub fn hdfs() {
    let codes = ["rs-9-6", "rs-12-8", "rs-14-10", "rs-16-12"];
    print("code", codes.map(|code| (code.to_owned(), by_width(code))), mebibytes);
}

pub fn m_ppr() {
    let seconds = |recovered: &Recovered| format!("{:.1}", recovered.seconds);
    print(
        "blocks lost",
        [10, 25, 50, 100, 200].map(|blocks| (blocks.to_string(), by_m_ppr(blocks))),
        seconds,
    );
}

fn mebibytes(recovered: &Recovered) -> String {
    format!("{:.0}", recovered.rate())
}

/// Prints a table with a row for each setting and a column for each method.
fn print<const ROWS: usize>(
    setting: &str,
    rows: [(String, Vec<Recovered>); ROWS],
    cell: impl Fn(&Recovered) -> String,
) {
    let methods: Vec<&str> = rows[0].1.iter().map(|recovered| recovered.method).collect();
    println!("| {setting} | {} |\n|{}", methods.join(" | "), "--|".repeat(methods.len() + 1));
    for (name, all) in rows {
        println!("| {name} | {} |", all.iter().map(&cell).collect::<Vec<_>>().join(" | "));
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
