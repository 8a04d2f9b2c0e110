//! Corrupt blocks are repaired immediately, even while a drain runs or a repair is paused. Paused repairs
//! stay paused.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;

const STRIPES: usize = 12;
const BLOCK: usize = 1 << 20;

fn status(cluster: &Cluster) -> String {
    cluster.mend(&["status"]).out
}

/// Returns a stripe that has a block on `helper`, and the indices of its blocks on other helpers.
fn stripe_on(cluster: &Cluster, helper: &str) -> (String, Vec<usize>) {
    let layout = cluster.mend(&["stat", "film", "--output", "json"]).ok().json()["layout"].clone();
    let mut stripes = layout.as_array().unwrap().iter();
    let is_there =
        |stripe: &&Value| stripe["blocks"].as_array().unwrap().iter().any(|block| block["node"] == helper);
    let stripe = stripes.rfind(is_there).expect("the helper has blocks");
    let blocks = stripe["blocks"].as_array().unwrap().iter().enumerate();
    let others = blocks.filter(|(_, block)| block["node"] != helper).map(|(index, _)| index).collect();
    (stripe["stripe"].as_str().unwrap().to_owned(), others)
}

fn rot(cluster: &Cluster, block: &str) {
    let file = cluster.block_file(block);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5000..5005].copy_from_slice(b"wrong");
    std::fs::write(file, bytes).unwrap();
}

/// Corrupts two blocks of a stripe that also has a block on h1, and has a scrub find the two blocks. The
/// stripe then cannot lose another block. Returns the names of the two blocks.
fn two_rotten_blocks_beside_h1(cluster: &Cluster) -> BTreeSet<String> {
    let (stripe, others) = stripe_on(cluster, "h1");
    let blocks: BTreeSet<String> = others[..2].iter().map(|index| format!("{stripe}.{index}")).collect();
    blocks.iter().for_each(|block| rot(cluster, block));
    let scrub = cluster.mend(&["scrub"]);
    assert!(blocks.iter().all(|block| scrub.out.contains(&cluster.block_name(block))), "{scrub:?}");
    blocks
}

/// Stores a file in a new cluster and starts a drain of h1 that only copies blocks. A cap on h1 alone makes
/// the drain take minutes. Returns the cluster, the file's content and the drain's number.
fn slow_drain() -> (Cluster, Vec<u8>, String) {
    let cluster = Cluster::new(9, "rs-6-4", "1MiB");
    let content = cluster.put("film", STRIPES * 4 * BLOCK);
    cluster.mend(&["caps", "--node", "h1=50KB/s"]).ok();
    let drain = ["node", "drain", "h1", "--migrate-only", "--no-wait", "--output", "json"];
    let view = cluster.mend(&drain).ok().json();
    (cluster, content, view["repair"].to_string())
}

fn state_of(cluster: &Cluster, repair: &str) -> String {
    let status = cluster.mend(&["status", "--output", "json"]).ok().json();
    let repairs = status["repairs"].as_array().unwrap().clone();
    let view = repairs.into_iter().find(|view| view["repair"].as_u64() == repair.parse().ok());
    view.map_or("ended".to_owned(), |view| view["state"].as_str().unwrap().to_owned())
}

#[test]
fn rot_is_repaired_at_once_while_a_drain_of_its_stripe_runs() {
    let (cluster, content, drain) = slow_drain();
    two_rotten_blocks_beside_h1(&cluster);
    // Rebuilding must also read from h1, which is slow under the cap. So wait only until the repair has
    // begun, and then raise the cap.
    cluster.eventually("it begins", |cluster| cluster.mend(&["history"]).ok().out.contains("(stripe "));
    assert_eq!(state_of(&cluster, &drain), "running");
    cluster.mend(&["caps", "--node", "h1=2MB/s"]).ok();
    cluster.eventually("it is repaired", |cluster| !status(cluster).starts_with("AT RISK"));
    cluster.mend(&["caps", "--none"]).ok();
    cluster.mend(&["watch", &drain]).ok();
    cluster.eventually("all is whole", |cluster| status(cluster).starts_with("safe  all"));
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}

#[test]
fn rot_is_repaired_at_once_while_a_drain_of_its_stripe_is_paused() {
    let (cluster, content, drain) = slow_drain();
    cluster.mend(&["pause", &drain]).ok();
    cluster.mend(&["caps", "--none"]).ok();
    two_rotten_blocks_beside_h1(&cluster);
    cluster.eventually("it is repaired", |cluster| status(cluster).starts_with("safe  all"));
    assert_eq!(state_of(&cluster, &drain), "paused");
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["resume", &drain]).ok();
    cluster.mend(&["watch", &drain]).ok();
    cluster.mend(&["scrub"]).ok();
}

#[test]
fn a_paused_recovery_is_not_bypassed_by_an_automatic_one() {
    let mut cluster = Cluster::new(8, "rs-6-4", "1MiB");
    let content = cluster.put("film", STRIPES * 4 * BLOCK);
    cluster.mend(&["caps", "--total", "1MB/s"]).ok();
    cluster.kill("h4");
    cluster.eventually("it is gone", |cluster| status(cluster).starts_with("DEGRADED"));
    let view = cluster.mend(&["node", "recover", "h4", "--no-wait", "--output", "json"]).ok().json();
    let repair = view["repair"].to_string();
    cluster.mend(&["pause", &repair]).ok();
    cluster.mend(&["caps", "--none"]).ok();
    cluster.mend(&["node", "repair-after", "2s"]).ok();
    let resume =
        format!("repair {repair} of the blocks of h4 is paused; to continue, run mend resume {repair}");
    for _ in 0..2 {
        std::thread::sleep(Duration::from_secs(12));
        let status = status(&cluster);
        assert!(status.contains(&resume) && !status.contains("starts in"), "{status}");
        assert!(status.contains("DEGRADED  "), "{status}");
        cluster.kill("coordinator");
        cluster.start(&["coordinator"]);
        cluster.await_ready();
        cluster.eventually("it has settled", |cluster| self::status(cluster).contains(&resume));
    }
    assert!(!cluster.mend(&["history"]).ok().out.contains("automatically"));
    cluster.mend(&["resume", &repair]).ok();
    let ended = cluster.mend(&["watch", &repair]).ok();
    assert!(ended.out.contains("done after"), "{ended:?}");
    cluster.eventually("all is whole", |cluster| self::status(cluster).starts_with("safe  all"));
    cluster.assert_reads("film", &content, &[]);
}
