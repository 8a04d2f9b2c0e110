//! Measures the processing time of Control with 1,000 helpers and 100,000 stripes of RS(14,10), each with one
//! lost block.
//!
//! `TMPDIR=/dev/shm cargo test --release -p control measure -- --ignored --nocapture` prints the results
//! after some minutes, most of which it spends on filling the catalog. `MEND_STRIPES` and `MEND_HELPERS`
//! change the size.

#![allow(clippy::disallowed_methods, reason = "it measures how long the coordinator takes")]

use crate::commands::{ClusterCommand, RepairCommand};
use std::time::Instant;

use store_api::{
    Answer, BlockRecord, BlockSize, FileWrite, Origin, Records, StripeWrite, Transaction, Write,
};

use super::*;
/// The maximum number of writes in one transaction.
const TOGETHER: usize = 256;

/// The number of measured events after all repairs are queued.
const EVENTS: usize = 40_000;
/// The number of heartbeats per event of a job.
const HEARTBEATS: usize = 1;

fn size(name: &str, usual: u32) -> u32 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// Creates a catalog whose stripes have all lost their first block.
fn damaged(helpers: u32, stripes: u32) -> TestCluster {
    let folder = tempfile::tempdir().unwrap();
    DirCatalog::create(folder.path().join(CATALOG), CLUSTER).unwrap();
    let mut catalog = DirCatalog::open(folder.path().join(CATALOG), CLUSTER).unwrap();
    let nodes: Vec<NodeId> = (0..helpers).map(|node| catalog.node_id(&format!("h{node}")).unwrap()).collect();
    let put = catalog
        .begin_put(
            "f",
            u64::from(stripes) * 40_960,
            "rs-14-10".parse().unwrap(),
            BlockSize::whole(4096),
            false,
        )
        .unwrap();
    let mut disks: Vec<BTreeMap<BlockId, u64>> = vec![BTreeMap::new(); helpers as usize];
    let mut state = 7u64;
    let term = catalog.begin_term().unwrap();
    let (mut places, mut on_disks): (Vec<Write>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
    for position in 0..stripes {
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < 14 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let node = (state >> 33) as usize % helpers as usize;
            if !chosen.contains(&node) {
                chosen.push(node);
            }
        }
        let on: Vec<NodeId> = chosen.iter().map(|&at| nodes[at]).collect();
        places.push(Write::Files(FileWrite::Allocate {
            put,
            position,
            size: BlockSize::whole(4096),
            nodes: on,
        }));
        on_disks.push(chosen);
    }
    // Several stripes share a transaction, as on the storage thread.
    for (places, on_disks) in places.chunks(TOGETHER).zip(on_disks.chunks(TOGETHER)) {
        let mut publish = Vec::new();
        for (done, chosen) in catalog.carry_out(term, places).into_iter().zip(on_disks) {
            let Answer::Stripe(record) = done.unwrap().value else { panic!("a stripe was asked for") };
            let block = |(block, index): (&BlockRecord, u16)| {
                (BlockIndex(index), block.node.unwrap(), digest(&block.id))
            };
            let blocks = record.blocks.iter().zip(0..).map(block).collect();
            for (block, &at) in record.blocks.iter().zip(chosen).skip(1) {
                disks[at].insert(block.id.clone(), 4096);
            }
            publish.push(Write::Stripes(StripeWrite::Publish {
                stripe: record.id,
                blocks,
                origin: Origin::Written,
            }));
        }
        assert!(catalog.carry_out(term, &publish).iter().all(Result::is_ok));
    }
    catalog.commit_put(put).unwrap();
    drop(catalog);
    let mut cluster = TestCluster::over(folder);
    for (at, disk) in disks.into_iter().enumerate() {
        let name = format!("h{at}");
        let hello = hello(&name, &disk);
        cluster.join(&name, helper_role(&name), hello);
        cluster.node(&name).disk = disk;
    }
    cluster
}

#[test]
#[ignore = "a measurement"]
fn measure_a_thousand_helpers() {
    let (helpers, stripes) = (size("MEND_HELPERS", 1_000), size("MEND_STRIPES", 100_000));
    let mut cluster = damaged(helpers, stripes);
    cluster.play();
    let timed =
        |name: &str, begun: Instant| println!("{name}: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    let begun = Instant::now();
    assert_eq!(cluster.status().stripes.intact, 0);
    timed("status after a change", begun);
    let begun = Instant::now();
    cluster.status();
    timed("status again", begun);
    let begun = Instant::now();
    cluster.ask(ClusterCommand::Metrics).unwrap();
    timed("metrics", begun);
    let begun = Instant::now();
    let repair = cluster.ask(|reply| {
        RepairCommand::Queue(RepairRequest { all: true, ..RepairRequest::default() }.into(), reply)
    });
    let repair = repair.unwrap();
    println!("{} stripes, {} jobs", repair.counts.stripes, cluster.core().jobs.running.len());
    timed("queued, and the first jobs started", begun);
    let (mut events, mut spent, mut longest) = (0, Duration::ZERO, Duration::ZERO);
    while events < EVENTS {
        let answers = cluster.answers();
        assert!(!answers.is_empty(), "jobs go on");
        for (at, (name, answer)) in answers.into_iter().enumerate() {
            let pong = (
                format!("h{}", at % helpers as usize),
                FromNode::Pong { free_bytes: 1 << 30, tasks: 1, write_problem: None },
            );
            let heartbeats = std::iter::repeat_n(pong, HEARTBEATS);
            for (name, message) in heartbeats.chain([(name, answer)]) {
                cluster.stuck = true; // The storage, which has its own thread, is not measured.
                let begun = Instant::now();
                cluster.say(&name, message);
                let took = begun.elapsed();
                cluster.stuck = false;
                cluster.pump();
                (spent, longest, events) = (spent + took, longest.max(took), events + 1);
            }
        }
    }
    let done = cluster.repair_state(repair.repair).counts.stripes_done;
    println!(
        "{events} events, {done} stripes repaired: {:.1} us in the mean, the longest {:.1} ms",
        spent.as_secs_f64() * 1e6 / f64::from(events as u32),
        longest.as_secs_f64() * 1e3
    );
    let begun = Instant::now();
    cluster.status();
    timed("status while it repairs", begun);
    let begun = Instant::now();
    cluster.ask(ClusterCommand::Metrics).unwrap();
    timed("metrics while it repairs", begun);
}
