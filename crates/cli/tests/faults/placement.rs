//! Misplaced blocks: several blocks of a stripe on one helper, and extra copies unknown to the catalog.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

use crate::cluster::Cluster;
use crate::limits::{self, REFUSALS_ARE_ERRORS};

const BLOCK: usize = 64 << 10;

/// Copies a block with its checksums to a stopped helper. A coordinator that is killed during a move leaves
/// such copies behind.
fn copy_block(cluster: &Cluster, block: &str, to: &str) {
    let file = cluster.block_file(block);
    let helpers = cluster.folder().join("helpers");
    let from = helpers.join(cluster.holder(block)).join("blocks");
    let copy = helpers.join(to).join("blocks").join(file.strip_prefix(from).unwrap());
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    for suffix in ["", ".crc"] {
        let with = |path: &Path| format!("{}{suffix}", path.display());
        fs::copy(with(&file), with(&copy)).unwrap();
    }
}

fn first_line(cluster: &Cluster) -> String {
    cluster.mend(&["status"]).out.lines().next().unwrap_or_default().to_owned()
}

/// Returns, for each block of stripe 1, the helper that holds the block according to the catalog.
fn homes(cluster: &Cluster) -> Vec<String> {
    (0..6).map(|index| cluster.holder(&format!("1.{index}"))).collect()
}

fn are_apart(homes: &[String]) -> bool {
    let mut sorted = homes.to_vec();
    sorted.sort();
    sorted.dedup();
    sorted.len() == homes.len()
}

/// Guards against this failure: while some holders of a stripe are down, another holder adopts copies of
/// their blocks. When the holders return, their good copies are removed, and the status reports "safe"
/// although one helper holds several blocks of the stripe.
#[test]
fn orphans_beside_a_block_of_their_stripe_never_cost_the_good_copies() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 4 * BLOCK);
    let homes_before = homes(&cluster);
    let hoarder = homes_before[0].clone();
    let away: Vec<String> = homes_before[1..4].to_vec();
    cluster.kill(&hoarder);
    for index in 1..4 {
        copy_block(&cluster, &format!("1.{index}"), &hoarder);
    }
    away.iter().for_each(|helper| cluster.kill(helper));
    cluster.start(&["helper", &hoarder]);
    cluster.await_ready();
    // The stripe is unreadable without one of these copies, so the catalog adopts one while no other helper
    // has the block.
    cluster.eventually("a copy is found", |cluster| {
        homes(cluster).iter().filter(|home| **home == hoarder).count() >= 2
    });
    cluster.assert_reads("film", &content, &[]);
    let line = first_line(&cluster);
    assert!(!line.starts_with("safe"), "two blocks depend on one helper: {line}");
    // The status reports how many helpers a stripe can lose, not only how many blocks.
    let status = cluster.mend(&["status", "--output", "json"]).json();
    assert_eq!(status["stripes"]["redundancy"][0]["helpers"], 0, "{status:#}");
    let asked = cluster.mend(&["node", "ok-to-stop", &hoarder]);
    assert_ne!(asked.code, 0, "{asked:?}");
    away.iter().for_each(|helper| cluster.start(&["helper", helper]));
    cluster.await_ready();
    cluster.eventually("blocks are apart again", |cluster| are_apart(&homes(cluster)));
    cluster.mend(&["scrub", "--remove-orphans"]).ok();
    cluster.eventually("the copies are gone", |cluster| cluster.block_files().len() == 6);
    let line = first_line(&cluster);
    assert!(line.starts_with("safe") && line.contains("can lose 2 blocks;"), "{line}");
    // As the status promises, any two helpers may fail.
    cluster.kill(&hoarder);
    cluster.assert_reads("film", &content, &[]);
    cluster.kill(&away[0]);
    cluster.assert_reads("film", &content, &[]);
}

/// The holder has lost its block, so the copy on another helper is adopted. That helper then has two blocks
/// of the stripe, and one of them moves to a helper that has none.
#[test]
fn several_blocks_on_one_helper_are_told_and_moved_apart() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 4 * BLOCK);
    cluster.put("more", 3 * 4 * BLOCK); // A helper that has lost most of its blocks receives no others.
    let before = homes(&cluster);
    let hoarder = before[0].clone();
    cluster.kill(&hoarder);
    let lost = before[1].clone();
    copy_block(&cluster, "1.1", &hoarder);
    // Restart the block's holder without the block, so that the only copy is on `hoarder`.
    let block = cluster.block_name("1.1");
    cluster.kill(&lost);
    for path in cluster.block_files() {
        let is_its = path.components().any(|part| part.as_os_str() == lost.as_str());
        if is_its && path.file_name().unwrap().to_str() == Some(&block) {
            fs::remove_file(&path).unwrap();
            fs::remove_file(format!("{}.crc", path.display())).unwrap();
        }
    }
    cluster.start(&["helper", &lost]);
    cluster.start(&["helper", &hoarder]);
    cluster.await_ready();
    cluster.eventually("blocks are apart", |cluster| {
        first_line(cluster).starts_with("safe") && are_apart(&homes(cluster))
    });
    cluster.eventually("no copy is left over", |cluster| cluster.block_files().len() == 4 * 6);
    cluster.kill(&hoarder);
    cluster.kill(&before[2]);
    cluster.assert_reads("film", &content, &[]);
}

/// With no helper left to move the block to, the status reports that the stripe cannot lose the helper that
/// holds two blocks, and suggests a remedy.
#[test]
fn a_stripe_with_several_blocks_on_one_helper_is_not_safe() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 4 * BLOCK);
    let before = homes(&cluster);
    let (hoarder, leaves) = (before[0].clone(), before[1].clone());
    cluster.kill(&hoarder);
    copy_block(&cluster, "1.1", &hoarder);
    // The cluster permanently loses one helper.
    cluster.kill(&leaves);
    let config = cluster.folder().join("mend.toml");
    let text = fs::read_to_string(&config).unwrap();
    let start = text.find(&format!("[[helper]]\nname = \"{leaves}\"")).unwrap();
    let end = text[start + 1..].find("[[helper]]").map_or(text.len(), |at| start + 1 + at);
    testbed::replace_file(&config, format!("{}{}", &text[..start], &text[end..]));
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.start(&["helper", &hoarder]);
    cluster.await_ready();
    cluster.eventually("it is told", |cluster| first_line(cluster).starts_with("MISPLACED  1 of 1 stripe"));
    let check = cluster.mend(&["status", "--check"]);
    assert_eq!(check.code, 1, "a warning: {check:?}");
    let status = cluster.mend(&["status"]);
    assert!(status.out.contains("add a helper"), "{status:?}");
    let json = cluster.mend(&["status", "--output", "json"]).json();
    let class = &json["stripes"]["redundancy"][0];
    assert_eq!((class["survives"].as_u64(), class["helpers"].as_u64()), (Some(2), Some(1)), "{json:#}");
    let stat = cluster.mend(&["stat", "film"]).ok();
    assert!(stat.out.contains("can lose 2 more blocks, but only 1 helper"), "{stat:?}");
    cluster.assert_reads("film", &content, &[]);
}

/// Two kinds of orphans are removed automatically: copies left by killed coordinators, and blocks of removed
/// files. Blocks that an older catalog may lack are kept.
#[test]
fn orphans_go_by_themselves_once_nothing_refers_to_them() {
    let mut cluster = Cluster::new(8, "rs-6-4", "64KiB");
    let content = cluster.put("film", 4 * BLOCK);
    cluster.put("gone", 4 * BLOCK);
    let spare = |cluster: &Cluster, stripe: usize| {
        let held: Vec<String> = (0..6).map(|index| cluster.holder(&format!("{stripe}.{index}"))).collect();
        (1..=8).map(|number| format!("h{number}")).find(|name| !held.contains(name)).unwrap()
    };
    let (first, second) = (spare(&cluster, 1), spare(&cluster, 2));
    for (block, helper) in [("1.3", &first), ("2.3", &second)] {
        cluster.kill(helper);
        copy_block(&cluster, block, helper);
        if block.starts_with('2') {
            cluster.mend(&["rm", "gone"]).ok();
        }
        cluster.start(&["helper", helper]);
        cluster.await_ready();
    }
    cluster.eventually("the copies are gone", |cluster| cluster.block_files().len() == 6);
    cluster.assert_reads("film", &content, &[]);
    assert!(first_line(&cluster).starts_with("safe"));
}

/// Changes bytes of a block's file without adapting its checksums.
fn spoil(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    bytes[5000..5005].copy_from_slice(b"zzzzz");
    fs::write(file, bytes).unwrap();
}

/// A rebuilt block and two further blocks of its stripe are corrupt, and nobody has noticed. Then the helper
/// with the old, good copy of the rebuilt block returns. The stripe is readable only with that copy.
#[test]
fn a_good_copy_is_kept_if_the_rebuilt_block_is_rotten() {
    let mut cluster = Cluster::new(8, "rs-6-4", "64KiB");
    let content = cluster.put("film", 4 * BLOCK);
    let (returns, name) = (cluster.holder("1.0"), cluster.block_name("1.0"));
    cluster.kill(&returns);
    cluster.eventually("it is gone", |cluster| !first_line(cluster).starts_with("safe"));
    cluster.mend(&["node", "recover", &returns]).ok();
    let moved = cluster.holder("1.0");
    assert_ne!(moved, returns);
    for block in ["1.0", "1.1", "1.2"] {
        spoil(&cluster.block_file(block));
    }
    // For five seconds after the repair, its read-back still counts as a verification of the rebuilt block.
    std::thread::sleep(Duration::from_secs(6));
    cluster.start(&["helper", &returns]);
    cluster.await_ready();
    cluster.eventually("the good copy counts again", |cluster| cluster.holder("1.0") == returns);
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]);
    cluster.eventually("all is repaired", |cluster| {
        first_line(cluster).starts_with("safe") && cluster.block_files().len() == 6
    });
    assert_eq!(cluster.block_name("1.0"), name);
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}

/// Counts the blocks of stripe 1 on each host. A host has three helpers.
fn on_hosts(cluster: &Cluster) -> [usize; 3] {
    let mut blocks = [0; 3];
    for home in homes(cluster) {
        let helper: usize = home.trim_start_matches('h').parse().unwrap();
        blocks[(helper - 1) / 3] += 1;
    }
    blocks
}

/// There are three hosts with three helpers each. A put and a repair leave at most two blocks of a stripe on
/// a host, so the loss of a host costs no data.
#[test]
fn blocks_of_a_stripe_are_spread_over_hosts() {
    let mut cluster = Cluster::on_hosts(3, 3, "rs-6-4", "64KiB");
    let content = cluster.put("film", 4 * BLOCK);
    assert_eq!(on_hosts(&cluster), [2, 2, 2]);
    let line = first_line(&cluster);
    assert!(line.contains("2 blocks, but only 1 host"), "{line}");
    let lost = cluster.holder("1.0");
    cluster.kill(&lost);
    cluster.mend(&["node", "recover", &lost]).ok();
    assert_eq!(on_hosts(&cluster), [2, 2, 2], "the rebuilt block is on the host that lost one");
    for helper in (4..=6).map(|helper| format!("h{helper}")).filter(|helper| *helper != lost) {
        cluster.kill(&helper);
    }
    cluster.assert_reads("film", &content, &[]);
}

/// The loss of either of two hosts would make the file unreadable. A rebalance moves blocks to a third host that came
/// later, one block of a stripe at a time.
#[test]
fn a_rebalance_spreads_stripes_over_hosts_that_came_later() {
    let mut cluster = Cluster::on_hosts(3, 3, "rs-6-4", "64KiB");
    let later = ["h7", "h8", "h9"];
    later.iter().for_each(|helper| cluster.kill(helper));
    cluster.eventually("the third host is down", |cluster| {
        let status = cluster.mend(&["status", "--output", "json"]).json();
        status["nodes_down"].as_array().is_some_and(|down| down.len() == 3)
    });
    let content = cluster.put("film", 4 * BLOCK);
    assert_eq!(on_hosts(&cluster), [3, 3, 0]);
    let line = first_line(&cluster);
    assert!(line.contains("no host"), "{line}");
    later.iter().for_each(|helper| cluster.start(&["helper", helper]));
    cluster.await_ready();
    cluster.eventually("two rebalances spread the stripe", |cluster| {
        cluster.mend(&["rebalance"]).ok();
        on_hosts(cluster) == [2, 2, 2]
    });
    let line = first_line(&cluster);
    assert!(line.contains("but only 1 host"), "{line}");
    for helper in ["h1", "h2", "h3"] {
        cluster.kill(helper);
    }
    cluster.assert_reads("film", &content, &[]);
}

/// A put replaces a helper whose disk refuses blocks. The replacement must not be a drained helper, which the
/// operator may already have been allowed to erase.
#[test]
fn a_drained_helper_does_not_replace_one_that_fails_during_a_put() {
    let mut cluster = Cluster::init(8, "rs-6-4", "64KiB");
    cluster.start(&["coordinator"]);
    for helper in 1..=8 {
        cluster.start_with(REFUSALS_ARE_ERRORS, &["helper", &format!("h{helper}")]);
    }
    cluster.await_ready();
    cluster.mend(&["node", "drain", "h7"]).ok();
    let refuse = |cluster: &Cluster, helper: &str| {
        limits::limit_files(Pid::from_raw(cluster.pid(helper) as i32), Some(4096)).unwrap();
    };
    refuse(&cluster, "h1");
    let content = cluster.put("film", 16 * 4 * BLOCK);
    cluster.mend(&["node", "safe-to-remove", "h7"]).ok();
    cluster.kill("h7");
    fs::remove_dir_all(cluster.folder().join("helpers/h7/blocks")).unwrap();
    cluster.assert_reads("film", &content, &[]);
    // With a second such helper, no suitable helper is left: the put fails and stores nothing.
    refuse(&cluster, "h2");
    let more = cluster.mend(&["put", cluster.path("film").to_str().unwrap(), "--name", "more"]);
    more.fails_with(&["no other node can store"]);
    assert!(!cluster.mend(&["ls"]).ok().out.contains("more"));
}
