//! Blocks replaced together with their checksums, label and recorded digest; only parity detects them.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dir::DirCatalog;
use repair::BlockId;
use store_api::UNPROVEN;

use crate::cluster::{Cluster, finish, noise};
use crate::forging::replace_pair;

const HELPERS: u16 = 7;

/// Name, code and size in bytes of each file: one with a Reed-Solomon stripe, one with a stripe of a code
/// with sub-blocks, and a short one whose last blocks are zeros.
const FILES: [(&str, &str, usize); 3] =
    [("film", "rs-6-4", 256 << 10), ("song", "clay-6-4-5", 256 << 10), ("note", "rs-6-4", 70_000)];

fn stored() -> (Cluster, Vec<Vec<u8>>) {
    let cluster = Cluster::new(HELPERS, "rs-6-4", "64KiB");
    let contents = FILES.map(|(name, code, bytes)| {
        let content = noise(bytes);
        fs::write(cluster.path(name), &content).unwrap();
        cluster.mend(&["put", cluster.path(name).to_str().unwrap(), "--name", name, "--code", code]).ok();
        content
    });
    (cluster, contents.to_vec())
}

fn stop(cluster: &mut Cluster) {
    cluster.kill("coordinator");
    (1..=HELPERS).for_each(|helper| cluster.kill(&format!("h{helper}")));
}

/// Returns the block folder that holds a block, and the block's full name.
fn place(cluster: &Cluster, block: &str) -> (PathBuf, BlockId) {
    let blocks = cluster.folder().join("helpers").join(cluster.holder(block)).join("blocks");
    (blocks, BlockId(cluster.block_name(block)))
}

/// Forges blocks and rebuilds the catalog from the helpers' disks. The rebuilt catalog records the forged
/// digests. Removes the catalog's mark `UNPROVEN`, which says that the parity of the stripes must still be
/// checked.
fn forge_with_catalog(cluster: &mut Cluster, blocks: &[&str], more_settings: &str) {
    forge_and_rebuild(cluster, blocks, more_settings);
    let config = fs::read_to_string(cluster.folder().join("mend.toml")).unwrap();
    let id = config.split("cluster_id = \"").nth(1).unwrap().split('"').next().unwrap();
    let catalog = cluster.folder().join("coordinator/catalog.redb");
    assert!(DirCatalog::open(catalog, id).unwrap().queue_remove(UNPROVEN).unwrap(), "it was marked");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("all are up", |cluster| cluster.mend(&["status"]).out.starts_with("safe  all"));
}

fn forge_and_rebuild(cluster: &mut Cluster, blocks: &[&str], more_settings: &str) {
    let places: Vec<_> = blocks.iter().map(|block| place(cluster, block)).collect();
    stop(cluster);
    places.iter().zip(1..).for_each(|((folder, id), seed)| _ = replace_pair(folder, id, seed));
    fs::remove_file(cluster.folder().join("coordinator/catalog.redb")).unwrap();
    let config = cluster.folder().join("mend.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("[coordinator]\n", &format!("[coordinator]\n{more_settings}"))).unwrap();
    (1..=HELPERS).for_each(|helper| cluster.start(&["helper", &format!("h{helper}")]));
    let rebuilt = cluster.mend(&["catalog", "rebuild"]).ok();
    assert!(rebuilt.out.contains("mend scrub --parity"), "{rebuilt:?}");
}

fn assert_reads_all(cluster: &Cluster, contents: &[Vec<u8>]) {
    for ((name, ..), content) in FILES.iter().zip(contents) {
        cluster.assert_reads(name, content, &[]);
    }
}

fn state(cluster: &Cluster, stripe: &str, index: usize) -> String {
    let stat = cluster.mend(&["stat", stripe, "--output", "json"]).ok().json();
    stat["blocks"][index]["state"].as_str().unwrap().to_owned()
}

#[test]
fn parity_finds_and_repairs_a_block_replaced_with_its_checksums() {
    let (mut cluster, contents) = stored();
    let forged = ["1.2", "2.4", "3.1"];
    forge_with_catalog(&mut cluster, &forged, "");
    // The file with the forged data block returns wrong bytes, although neither the scrub nor the status
    // reports an error.
    assert!(cluster.mend(&["scrub"]).ok().out.contains("all checksums match"));
    assert!(cluster.mend(&["status"]).ok().out.starts_with("safe"));

    // With a single spare equation the wrong block cannot be identified, so no block is marked.
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let away = cluster.holder("1.0");
    cluster.kill(&away);
    cluster.eventually("it is gone", |cluster| cluster.mend(&["status"]).out.starts_with("DEGRADED"));
    let scrub = cluster
        .mend(&["scrub", "--parity"])
        .fails_with(&["contradict each other", &cluster.block_name("1.2")]);
    assert_eq!(scrub.code, 3, "{scrub:?}");
    assert_eq!(state(&cluster, "1", 2), "healthy", "{scrub:?}");
    assert!(cluster.mend(&["status"]).out.starts_with("IN DOUBT"), "{scrub:?}");
    cluster.start(&["helper", &away]);
    cluster.await_ready();

    cluster.eventually("it is back", |cluster| cluster.mend(&["status"]).out.contains("all 7 helpers up"));
    let names = forged.map(|block| cluster.block_name(block));
    let [a, b, c] = &names;
    let scrub = cluster.mend(&["scrub", "--parity"]).fails_with(&[a, b, c, "parity of its stripe"]);
    assert_eq!(scrub.code, 3, "{scrub:?}");
    assert!(scrub.out.contains("parity of 3 of 3 stripes checked"), "{scrub:?}");
    assert_eq!(scrub.out.matches("contradicts the parity").count(), 3, "nobody else is named: {scrub:?}");
    // A block that a parity check found wrong stays marked despite its valid checksums, even after a restart
    // of the coordinator.
    cluster.mend(&["scrub"]).fails_with(&[a, b, c]);
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("all are back", |cluster| {
        cluster.mend(&["status"]).out.starts_with("DEGRADED  3 of 3 stripes")
    });
    cluster.mend(&["scrub"]).fails_with(&[a, b, c]);
    assert_eq!(state(&cluster, "1", 2), "corrupt");

    cluster.mend(&["node", "repair-after", "default"]).ok();
    cluster.eventually("it is repaired by itself", |cluster| {
        cluster.mend(&["status"]).out.starts_with("safe  all")
    });
    assert!(cluster.mend(&["history"]).ok().out.contains("queued automatically"));
    assert_reads_all(&cluster, &contents);
    let scrub = cluster.mend(&["scrub", "--parity"]).ok();
    assert!(scrub.out.contains("parity of 3 of 3 stripes checked: no unresolved contradiction"), "{scrub:?}");
}

/// A rebuilt catalog contains the forged digests, and a restored one lacks the results of parity checks.
#[test]
fn a_rebuilt_or_restored_catalog_is_safe_only_after_its_parity_was_compared() {
    let (mut cluster, contents) = stored();
    let away = [cluster.holder("1.0"), cluster.holder("1.1")];
    let (before, copy) = (cluster.block_name("1.2"), cluster.path("copy.redb"));
    let copy = copy.to_str().unwrap();
    cluster.mend(&["catalog", "backup", copy]).ok();
    forge_and_rebuild(&mut cluster, &["1.2", "2.4"], "");
    // Too few blocks of the first stripe are up to check its parity.
    away.iter().for_each(|helper| cluster.kill(helper));
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    let open = "unchecked since the catalog was rebuilt";
    cluster.eventually("it says so", |cluster| cluster.mend(&["status"]).out.contains(open));
    std::thread::sleep(Duration::from_secs(3));
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    let status = cluster.mend(&["status"]);
    assert!(status.out.contains(open) && status.out.contains("mend scrub --parity"), "{status:?}");
    assert_ne!(cluster.mend(&["status", "--check"]).code, 0);
    away.iter().for_each(|helper| cluster.start(&["helper", helper]));
    cluster.await_ready();
    let is_safe = |cluster: &Cluster| cluster.mend(&["status"]).out.starts_with("safe  all");
    cluster.eventually("the forged blocks are found and repaired", is_safe);
    assert_reads_all(&cluster, &contents);
    let status = cluster.mend(&["status", "--output", "json"]).json();
    assert!(status["lost_lately"].to_string().contains(&before), "{status:#}");

    // The restored catalog records neither which blocks were found wrong nor where blocks have been rebuilt
    // since.
    let (folder, id) = place(&cluster, "3.1");
    stop(&mut cluster);
    replace_pair(&folder, &id, 5);
    let restored = cluster.mend(&["catalog", "restore", copy]).ok();
    assert!(restored.out.contains("mend scrub --parity"), "{restored:?}");
    (1..=HELPERS).for_each(|helper| cluster.start(&["helper", &format!("h{helper}")]));
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("the forged block is found and repaired", is_safe);
    assert_reads_all(&cluster, &contents);
}

#[test]
fn the_steady_scrub_finds_wrong_blocks_by_parity() {
    let (mut cluster, contents) = stored();
    let settings = "scrub_rate = \"20MB/s\"\nscrub_parity = true\n";
    forge_with_catalog(&mut cluster, &["1.2", "2.4"], settings);
    cluster.eventually("both are found", |cluster| {
        let status = cluster.mend(&["status", "--output", "json"]).json();
        status["lost_lately"].as_array().unwrap().len() >= 2
    });
    cluster.eventually("both are repaired", |cluster| cluster.mend(&["status"]).out.starts_with("safe  all"));
    assert_reads_all(&cluster, &contents);
    cluster.eventually("it has checked all stripes", |cluster| {
        cluster.mend(&["status"]).out.contains("parity of 3 stripes checked")
    });
}

#[test]
fn a_scrub_is_stopped_and_keeps_what_it_has_found() {
    let cluster = Cluster::new(6, "rs-6-4", "1MiB");
    cluster.put("film", 16 << 20);
    cluster.mend(&["scrub", "--stop"]).fails_with(&["no scrub is running"]);
    fs::remove_file(cluster.block_file("1.0")).unwrap();
    let lost = cluster.block_name("1.0");
    for helper in 1..=6 {
        cluster.mend(&["caps", "--disk", &format!("h{helper}=100KB/s")]).ok();
    }
    let scrub = cluster.spawn(&["scrub", "--parity"]);
    let last = |cluster: &Cluster| cluster.mend(&["status", "--output", "json"]).json()["last_scrub"].clone();
    cluster.eventually("it finds something", |cluster| {
        last(cluster)["findings"].as_array().is_some_and(|findings| !findings.is_empty())
    });
    let stopped = cluster.mend(&["scrub", "--stop"]).fails_with(&["stopped", &lost]);
    assert_eq!(stopped.code, 3, "{stopped:?}");
    let scrub = finish(scrub).fails_with(&["stopped", &lost]);
    assert_eq!(scrub.code, 3, "{scrub:?}");
    assert_eq!(last(&cluster)["state"], "stopped");
    cluster.mend(&["caps", "--none"]).ok();
    cluster.eventually("it is repaired", |cluster| cluster.mend(&["status"]).out.starts_with("safe  all"));
    cluster.mend(&["scrub"]).ok();
}

/// A stripe that has lost both of its spare blocks is repaired sooner than a stripe that has lost one block.
#[test]
fn a_stripe_at_its_last_redundancy_is_repaired_before_its_helpers_are_given_up() {
    let mut cluster = Cluster::new(10, "rs-6-4", "64KiB");
    let content = cluster.put("film", 4 << 20);
    cluster.mend(&["node", "repair-after", "1h"]).ok();
    cluster.kill("h3");
    cluster.kill("h7");
    cluster.eventually("some cannot lose a block", |cluster| {
        cluster.mend(&["status"]).out.contains("that cannot lose another block starts in")
    });
    let at = |cluster: &Cluster, survives: u64| {
        let status = cluster.mend(&["status", "--output", "json"]).json();
        let classes = status["stripes"]["redundancy"].as_array().unwrap().clone();
        let class = classes.into_iter().find(|class| class["survives"] == survives);
        class.map_or(0, |class| class["degraded"].as_u64().unwrap())
    };
    assert!(at(&cluster, 0) > 0 && at(&cluster, 1) > 0, "some of each kind");
    let begun = Instant::now();
    while at(&cluster, 0) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(240), "{:?}", cluster.mend(&["status"]));
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(at(&cluster, 1) > 0, "those that can lose another block wait for their helpers");
    let status = cluster.mend(&["status"]).ok();
    assert!(status.out.contains("repair of h3 starts in"), "{status:?}");
    cluster.assert_reads("film", &content, &[]);
}
