//! Measures the memory that the view takes for each block group. Run it alone:
//!
//! ```text
//! MEND_GROUPS=1000000 cargo test -p hdfs --lib -- --ignored --nocapture memory_per_group
//! ```

use std::time::Instant;

use super::super::names::Place;
use super::*;
use crate::blocks::BlockGroup;
use crate::listing::{FileRef, Phase, Service, name_hash};

const NODES: u32 = 1000;
/// Files per folder, and groups per file.
const FILES: u64 = 100;
const GROUPS: u64 = 2;
/// Groups per part of a listing.
const PART: u64 = 4096;

/// Returns the resident memory of this process.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split(' ').nth(1).expect("a number").parse::<u64>().expect("a number") * 4096
}

/// Returns a group of RS-6-3. Groups of one folder are spread over the listing as if the folder had been filled
/// together with 16 others.
fn group(view: &mut View, at: u64) -> Listed {
    let (file, part) = (at / GROUPS, at % GROUPS);
    let folder = view.groups_mut().folder(&format!(
        "/warehouse/table-{:05}/day-{}",
        file / FILES / 100,
        file / FILES % 100
    ));
    let order = (file % FILES) * 16 + file / FILES % 16 + file / FILES / 16 * 16 * FILES;
    let number = i64::MIN + 16 * (order * GROUPS + part + 1) as i64;
    let bytes = if part + 1 < GROUPS { 6 << 27 } else { 1 + at * 7_919_993 % (6 << 27) };
    let policy = "RS-6-3-1024k".parse().expect("a policy");
    let group = BlockGroup { number, stamp: 1001 + order * GROUPS + part, bytes, policy };
    let blocks = group.stripe().expect("not empty").blocks;
    let node = |index: u64| {
        NodeId(1 + ((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 + index as u32 * 101) % NODES)
    };
    Listed {
        file: FileRef { inode: 16_386 + order, held_at: None },
        place: Some(Place { folder, name: name_hash(&format!("part-{:05}-{file:x}.parquet", file % FILES)) }),
        phase: Phase::Old,
        start: part * (6 << 27),
        group: group.into(),
        homes: blocks.iter().map(|block| (block.index.0 as u8, node(block.index.0.into()))).collect(),
    }
}

#[test]
#[ignore = "takes as much memory as it measures"]
fn memory_per_group() {
    let count: u64 = std::env::var("MEND_GROUPS").map_or(1_000_000, |text| text.parse().expect("a number"));
    let mut view = View::default();
    let standing = |node| {
        let rack = "/r".to_owned();
        (
            NodeId(node),
            Standing {
                uuid: node.to_string(),
                rack,
                live: true,
                is_silent: false,
                service: Service::Normal,
                reported: 1,
            },
        )
    };
    view.take_nodes(Duration::from_secs(1), (1..=NODES).map(standing).collect());
    let (before, began, now) = (resident_bytes(), Instant::now(), Duration::from_secs(9));
    let mut told = 0;
    for first in (0..count).step_by(PART as usize) {
        let listed: Vec<Listed> = (first..count.min(first + PART)).map(|at| group(&mut view, at)).collect();
        let changed = view.take_groups(now, now, listed, false);
        told += view.tell(now, changed).len();
    }
    let seconds = began.elapsed().as_secs_f64();
    let bytes = (resident_bytes() - before) as f64 / count as f64;
    println!(
        "{count} groups: {bytes:.0} bytes each, {:.1} µs each to record and report",
        seconds * 1e6 / count as f64
    );
    assert!(count < 1_000_000 || bytes <= 100.0);
    assert_eq!(told as u64, count);
    let held = view.groups().numbers().into_iter().filter(|number| view.groups().is_held(*number));
    assert_eq!(held.count(), 0, "all groups are plain");
    let began = Instant::now();
    let some: Vec<i64> = (0..count)
        .step_by((count / 1000).max(1) as usize)
        .map(|at| group(&mut view, at).group.number())
        .collect();
    assert!(some.iter().all(|number| view.groups().get(*number).is_some()));
    println!("{:.1} µs to find a group", began.elapsed().as_secs_f64() * 1e6 / some.len() as f64);
}
