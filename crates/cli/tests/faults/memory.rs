//! Blocks in the memory of helpers, and the load by clients: what helpers report, and what m-PPR does with it.

use std::fs::{File, rename};

use block_files::forget_all;
use serde_json::Value;

use crate::cluster::Cluster;

/// Returns what `mend node list` says about a helper.
fn fact(cluster: &Cluster, helper: &str, name: &str) -> Value {
    let nodes = cluster.mend(&["node", "list", "--output", "json"]).ok().json();
    nodes.as_array().unwrap().iter().find(|node| node["name"] == helper).unwrap()[name].clone()
}

/// Drops a block from the page cache.
fn evict(cluster: &Cluster, block: &str) {
    let file = File::open(cluster.block_file(block)).unwrap();
    file.sync_all().unwrap();
    forget_all(&file);
}

/// Waits until, out of the blocks in `up`, exactly those in `hot` are reported as being in memory.
fn await_hot(cluster: &Cluster, up: &[&str], hot: &[&str]) {
    let on_disk = "blocks leave the page cache on fadvise; if not, set TMPDIR to a folder on a disk";
    cluster.eventually(&format!("only {hot:?} are in memory ({on_disk})"), |cluster| {
        let counts = |block: &&str| fact(cluster, &cluster.holder(block), "hot_blocks");
        up.iter().all(|block| counts(block) == u64::from(hot.contains(block)))
    });
}

#[test]
fn a_block_that_was_read_is_reported_and_chosen_by_m_ppr() {
    let mut cluster = Cluster::new(7, "rs-6-4", "256KiB");
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let content = cluster.put("film", 1 << 20);
    let [lost, back] = ["1.0", "1.1"].map(|block| cluster.holder(block));
    // With two blocks lost, the read needs the last parity block as well.
    cluster.kill(&lost);
    cluster.kill(&back);
    cluster.await_helpers(5);
    cluster.assert_reads("film", &content, &[]);
    cluster.start(&["helper", &back]);
    cluster.await_ready();
    cluster.await_helpers(6);
    ["1.1", "1.2", "1.3", "1.4"].into_iter().for_each(|block| evict(&cluster, block));
    await_hot(&cluster, &["1.1", "1.2", "1.3", "1.4", "1.5"], &["1.5"]);
    cluster.eventually("the load by clients ends", |cluster| {
        let is_idle = |block: &&str| fact(cluster, &cluster.holder(block), "user_bytes_per_s") == 0;
        ["1.1", "1.2", "1.3", "1.4", "1.5"].iter().all(is_idle)
    });
    // Without its reports, m-PPR would read block 4 instead of block 5, and find that it is missing.
    rename(cluster.block_file("1.4"), cluster.path("moved")).unwrap();
    let recover = ["node", "recover", &lost, "--policy", "m-ppr", "--no-verify", "--output", "json"];
    let view = cluster.mend(&recover).ok().json();
    let item = &view["items"][0];
    assert_eq!((&view["state"], &item["scheme"]), (&"done".into(), &"ppr".into()), "{view:#}");
    assert!(item["replanned"].as_array().unwrap().is_empty(), "{view:#}");
}

#[test]
fn a_block_that_clients_read_often_is_reported_with_their_load() {
    let cluster = Cluster::new(6, "rs-6-4", "256KiB");
    let content = cluster.put("film", 1 << 20);
    let read = cluster.holder("1.2");
    let mut loaded = false;
    cluster.eventually("clients' reads are reported", |cluster| {
        cluster.assert_reads("film", &content, &[]);
        loaded |= fact(cluster, &read, "user_bytes_per_s").as_u64().unwrap() > 0;
        loaded && fact(cluster, &read, "very_hot_blocks") == 1
    });
    cluster.eventually("status tells of the load", |cluster| {
        cluster.assert_reads("film", &content, &[]);
        cluster.mend(&["status"]).ok().out.contains("clients read ")
    });
    cluster.eventually("the load ends with the reads", |cluster| {
        fact(cluster, &read, "user_bytes_per_s") == 0 && fact(cluster, &read, "very_hot_blocks") == 1
    });
    cluster.eventually("status tells that the load has ended", |cluster| {
        !cluster.mend(&["status"]).ok().out.contains("clients read ")
    });
}
