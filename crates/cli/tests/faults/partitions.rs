//! One-way partitions between helpers, or between a helper and a client. All nodes stay connected to the
//! coordinator.

use std::path::Path;

use testbed::{Ground, Seat};

use crate::cluster::Cluster;

/// The block size in bytes.
const BLOCK: usize = 256 << 10;

/// Starts a cluster with a file of `stripes` stripes of rs-6-4. Each stripe has lost block 0 and its other
/// five blocks are on five helpers, one more than a repair needs.
fn cluster(stripes: usize) -> (Cluster, Vec<u8>) {
    let cluster = Cluster::apart(6, "rs-6-4", "256KiB");
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let content = cluster.put("film", stripes * 4 * BLOCK);
    (1..=stripes)
        .for_each(|stripe| std::fs::remove_file(cluster.block_file(&format!("{stripe}.0"))).unwrap());
    (cluster, content)
}

/// Repairs block 0 of a stripe while packets are dropped on some links. Each link is given by the block
/// indices of its ends. Asserts that only helpers at the ends of these links are blamed.
fn repair_around(cluster: &Cluster, stripe: usize, links: &[(usize, usize)]) {
    let holders: Vec<String> = (0..6).map(|index| cluster.holder(&format!("{stripe}.{index}"))).collect();
    let ends: Vec<(Seat, Seat)> =
        links.iter().map(|&(from, to)| (seat(&holders[from]), seat(&holders[to]))).collect();
    ends.iter().for_each(|&(from, to)| cluster.network().drop_one_way(from, to));
    let view = cluster.mend(&["repair", &format!("{stripe}.0"), "--output", "json"]).json();
    assert_eq!(view["state"], "done", "{links:?} of {holders:?}: {view:#}");
    let blamed = view["items"][0]["replanned"].to_string();
    for (index, holder) in holders.iter().enumerate() {
        let is_end = links.iter().any(|&(from, to)| index == from || index == to);
        assert!(is_end || !blamed.contains(holder), "{links:?} of {holders:?}: {blamed}");
    }
    ends.iter().for_each(|&(from, to)| cluster.network().restore(from, to));
}

fn seat(helper: &str) -> Seat {
    Seat::Server(helper.trim_start_matches('h').parse::<usize>().unwrap() - 1)
}

/// Repairs a block after the partitions have ended, and asserts that no helper is blamed any more.
fn assert_all_forgiven(cluster: &Cluster) {
    std::fs::remove_file(cluster.block_file("1.0")).unwrap();
    repair_around(cluster, 1, &[]);
}

#[test]
fn one_way_partitions_between_helpers_are_gone_around() {
    let links = [[(1, 2), (3, 4)], [(2, 1), (4, 3)], [(1, 3), (5, 2)], [(4, 5), (2, 3)]];
    let (cluster, content) = cluster(links.len());
    (1..).zip(links).for_each(|(stripe, links)| repair_around(&cluster, stripe, &links));
    assert_all_forgiven(&cluster);
    cluster.assert_reads("film", &content, &[]);
}

/// In every stripe, the requestor, which held block 0 before, is at one end of a broken link.
#[test]
fn one_way_partitions_of_the_requestor_are_gone_around() {
    let links = [[(1, 0), (2, 0)], [(0, 3), (0, 4)], [(5, 0), (0, 1)], [(0, 2), (3, 4)]];
    let (cluster, content) = cluster(links.len());
    (1..).zip(links).for_each(|(stripe, links)| repair_around(&cluster, stripe, &links));
    assert_all_forgiven(&cluster);
    cluster.assert_reads("film", &content, &[]);
}

/// Two of the five survivors have a broken link to the client. The read needs four blocks, so the data of at
/// least one of these two must reach the client through another helper.
#[test]
fn a_read_goes_around_one_way_partitions_of_the_client() {
    let (cluster, content) = cluster(3);
    let client = Seat::Server(6);
    let holders: Vec<Seat> = (1..4).map(|index| seat(&cluster.holder(&format!("1.{index}")))).collect();
    cluster.network().drop_one_way(client, holders[0]);
    cluster.network().drop_one_way(holders[1], client);
    let (copy, program) = (cluster.path("copy"), Path::new(env!("CARGO_BIN_EXE_mend")));
    let mut get = cluster.network().command(client, program);
    get.args(["get", "film", "-o"]).arg(&copy).env("MEND_CLUSTER", cluster.folder());
    let output = get.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read(copy).unwrap() == content, "other bytes");
}
