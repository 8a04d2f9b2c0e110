//! Recovery and drain of whole nodes, also under caps, and while nodes or the coordinator are killed or
//! return.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{Cluster, Said, finish};
use crate::links::Gate;

const BLOCK: usize = 256 << 10;
/// The number of data blocks in a stripe.
const K: usize = 4;

/// Starts a cluster with a file of `stripes` stripes of rs-6-4.
fn cluster(helpers: u16, stripes: usize) -> (Cluster, Vec<u8>) {
    let cluster = Cluster::new(helpers, "rs-6-4", "256KiB");
    let content = cluster.put("film", stripes * K * BLOCK);
    (cluster, content)
}

fn json(cluster: &Cluster, verb: &[&str]) -> Value {
    cluster.mend(&[verb, &["--output", "json"]].concat()).ok().json()
}

/// Returns the status as JSON, even if it reports a problem.
fn status(cluster: &Cluster) -> Value {
    cluster.mend(&["status", "--output", "json"]).json()
}

/// Returns the number of blocks on a helper, according to the catalog.
fn blocks_on(cluster: &Cluster, name: &str) -> u64 {
    node(cluster, name)["blocks"].as_u64().unwrap()
}

fn node(cluster: &Cluster, name: &str) -> Value {
    let nodes = json(cluster, &["node", "list"]);
    nodes.as_array().unwrap().iter().find(|node| node["name"] == name).unwrap().clone()
}

/// Starts a repair without waiting for it, and returns its number.
fn ask(cluster: &Cluster, verb: &[&str]) -> String {
    json(cluster, &[verb, &["--no-wait"]].concat())["repair"].to_string()
}

/// Returns the entry of a queued or running repair in the status, or `None` if the repair has ended.
fn open(cluster: &Cluster, repair: &str) -> Option<Value> {
    let repairs = status(cluster)["repairs"].as_array().unwrap().clone();
    repairs.into_iter().find(|view| view["repair"].as_u64() == repair.parse().ok())
}

fn await_blocks(cluster: &Cluster, repair: &str, least: u64) {
    cluster.eventually("some blocks are rebuilt", |cluster| {
        open(cluster, repair).is_none_or(|view| view["blocks_rebuilt"].as_u64().unwrap() >= least)
    });
    assert!(open(cluster, repair).is_some(), "it ended before anything could happen in its middle");
}

/// Waits for the end of a repair and returns its final state.
fn watch(cluster: &Cluster, repair: &str) -> Said {
    cluster.mend(&["watch", repair, "--output", "json"])
}

fn assert_whole(cluster: &Cluster, content: &[u8]) {
    let status = status(cluster);
    assert_eq!(status["stripes"]["stripes"], status["stripes"]["intact"], "{status:#}");
    cluster.assert_reads("film", content, &[]);
    cluster.mend(&["scrub"]).ok();
}

/// Waits until exactly `blocks` block files exist, which means that no extra copies are left. After a read that
/// failed for an unknown reason, the coordinator keeps all copies of the stripe for a minute.
fn await_exactly(cluster: &Cluster, blocks: usize) {
    let limit = Duration::from_secs(180);
    cluster.eventually_within(limit, "copies are removed", |cluster| cluster.block_files().len() == blocks);
}

#[test]
fn a_killed_node_is_recovered_by_every_policy() {
    let (mut cluster, content) = cluster(9, 12);
    cluster.mend(&["node", "recover", "h3"]).fails_with(&["h3 is up", "mend node drain"]);
    cluster.mend(&["node", "recover", "h77"]).fails_with(&["no helper `h77`", "h1"]);
    let policies = [
        "even",
        "free-budget",
        "lowest-index",
        "least-recently-used",
        "load-greedy",
        "m-ppr",
        "push-rep",
        "push-sur",
    ];
    for policy in policies {
        let lost = blocks_on(&cluster, "h3");
        cluster.kill("h3");
        let view = json(&cluster, &["node", "recover", "h3", "--policy", policy]);
        assert_eq!((&view["state"], &view["policy"]), (&"done".into(), &policy.into()), "{view:#}");
        assert_eq!(view["blocks_rebuilt"].as_u64().unwrap(), lost, "{view:#}");
        assert_eq!(view["target"], "node h3");
        // On a busy machine, the drain at the end of a round may be stopped before it has moved any blocks to
        // h3. Then there is nothing to rebuild in the next round.
        let items = view["items"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(items.is_empty(), lost == 0, "{view:#}");
        assert!(items.iter().all(|item| item["parity"] == "holds"), "{view:#}");
        if policy == "even" && lost > 0 {
            assert!(items.iter().all(|item| item["scheme"] == "packed"), "chains are dealt: {view:#}");
            assert!(view["progress"]["bound_ms"].as_u64().unwrap() > 0, "{view:#}");
        }
        assert_whole(&cluster, &content);
        cluster.start(&["helper", "h3"]);
        cluster.await_ready();
        await_exactly(&cluster, 12 * 6);
        // Give h3 blocks again for the next round.
        cluster.mend(&["node", "drain", "h4", "--requestors", "h3"]);
        cluster.mend(&["node", "drain", "h4", "--stop"]).ok();
    }
}

#[test]
fn blocks_go_only_where_they_may() {
    let (mut cluster, content) = cluster(10, 8);
    cluster.kill("h2");
    // A stripe that has lost a block on h2 has only five other blocks, so at least one of these six helpers
    // can take the rebuilt block.
    let takers = ["h5", "h6", "h7", "h8", "h9", "h10"];
    let held = |cluster: &Cluster| takers.iter().map(|name| blocks_on(cluster, name)).sum::<u64>();
    let before = held(&cluster);
    let takers = takers.join(",");
    let view =
        json(&cluster, &["node", "recover", "h2", "--requestors", &takers, "--scheme", "conventional"]);
    let (rebuilt, after) = (view["blocks_rebuilt"].as_u64().unwrap(), held(&cluster));
    assert_eq!(after, before + rebuilt, "{view:#}");
    let items = view["items"].as_array().unwrap();
    assert!(
        items.iter().all(|item| item["scheme"] == "conventional"),
        "a scheme that is named is that: {view:#}"
    );
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn a_drained_node_is_empty_and_safe_to_remove() {
    let (mut cluster, content) = cluster(9, 12);
    for (name, how) in [("h1", &[][..]), ("h2", &["--migrate-only"]), ("h3", &["--rebuild-only"])] {
        let held = blocks_on(&cluster, name);
        let said = cluster.mend(&[&["node", "drain", name], how].concat()).ok();
        assert!(said.out.contains(&format!("{name} is empty and safe to remove")), "{said:?}");
        assert!(said.out.contains(&format!("{held} block")), "{said:?}");
        assert_eq!(blocks_on(&cluster, name), 0);
        let status = cluster.mend(&["status"]).ok();
        assert!(status.out.contains(&format!("{name} is empty and safe to remove")), "{status:?}");
    }
    assert_whole(&cluster, &content);
    await_exactly(&cluster, 12 * 6);
    // A drained helper receives no blocks, even after a restart of the coordinator.
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("helpers are back", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
    cluster.put("more", 6 * K * BLOCK);
    assert_eq!(["h1", "h2", "h3"].map(|name| blocks_on(&cluster, name)), [0, 0, 0]);
    // Losing h1, which was drained, loses no blocks. h2, whose drain is stopped, may receive blocks again.
    cluster.kill("h1");
    assert_whole(&cluster, &content);
    cluster.mend(&["node", "drain", "h2", "--stop"]).ok();
    assert_eq!(node(&cluster, "h2")["leaving"], false);
    assert_eq!(node(&cluster, "h3")["leaving"], true);
}

#[test]
fn a_node_killed_while_it_is_drained_is_recovered_and_nothing_is_repaired_twice() {
    let (mut cluster, content) = cluster(9, 24);
    let held = blocks_on(&cluster, "h2");
    cluster.mend(&["caps", "--total", "3MB/s"]).ok();
    let repair = ask(&cluster, &["node", "drain", "h2"]);
    await_blocks(&cluster, &repair, 2);
    cluster.kill("h2");
    cluster.mend(&["caps", "--none"]).ok();
    let view = watch(&cluster, &repair).ok().json();
    assert_eq!(
        (view["state"].as_str(), view["blocks_rebuilt"].as_u64()),
        (Some("done"), Some(held)),
        "{view:#}"
    );
    assert_whole(&cluster, &content);
    await_exactly(&cluster, 24 * 6 + count_on_disk(&cluster, "h2"));
    cluster.start(&["helper", "h2"]);
    cluster.await_ready();
    await_exactly(&cluster, 24 * 6);
    assert!(cluster.mend(&["status"]).out.contains("h2 is empty and safe to remove"));
}

/// Returns the number of block files in a helper's folder.
fn count_on_disk(cluster: &Cluster, name: &str) -> usize {
    let folder = cluster.folder().join("helpers").join(name);
    cluster.block_files().iter().filter(|path| path.starts_with(&folder)).count()
}

#[test]
fn a_coordinator_killed_in_the_middle_resumes_and_redoes_nothing() {
    let (mut cluster, content) = cluster(9, 24);
    cluster.mend(&["caps", "--total", "3MB/s", "--node", "h5=2MB/s"]).ok();
    cluster.kill("h1");
    for verb in [&["node", "recover", "h1"], &["node", "drain", "h2"]] {
        let held = blocks_on(&cluster, verb[2]);
        let repair = ask(&cluster, verb);
        await_blocks(&cluster, &repair, 3);
        cluster.kill("coordinator");
        cluster.start(&["coordinator"]);
        cluster.await_ready();
        let caps = cluster.mend(&["caps"]).ok();
        assert!(
            caps.out.contains("total: 24 Mbit/s (3 MB/s)")
                && caps.out.contains("node h5: 16 Mbit/s (2 MB/s)"),
            "{caps:?}"
        );
        cluster.eventually("it goes on", |cluster| {
            open(cluster, &repair).is_none_or(|view| view["bytes"].as_u64().unwrap() > 0)
        });
        let left = json(&cluster, &["watch", &repair])["blocks_rebuilt"].as_u64().unwrap();
        assert!(left + 3 <= held, "{left} of {held} blocks were rebuilt after the restart");
        assert_eq!(blocks_on(&cluster, verb[2]), 0);
    }
    assert_whole(&cluster, &content);
    assert!(cluster.mend(&["status"]).out.contains("h2 is empty and safe to remove"));
}

#[test]
fn a_node_that_comes_back_in_the_middle_is_checked_and_counted_again() {
    let (mut cluster, content) = cluster(9, 24);
    let held = blocks_on(&cluster, "h5");
    cluster.mend(&["caps", "--total", "2MB/s"]).ok();
    cluster.kill("h5");
    let repair = ask(&cluster, &["node", "recover", "h5"]);
    await_blocks(&cluster, &repair, 2);
    // A busy machine may take long to start the helper.
    cluster.mend(&["caps", "--total", "50KB/s"]).ok();
    cluster.start(&["helper", "h5"]);
    cluster.await_ready();
    let view = watch(&cluster, &repair).ok().json();
    let rebuilt = view["blocks_rebuilt"].as_u64().unwrap();
    assert!((2..held).contains(&rebuilt), "{rebuilt} of {held}: {view:#}");
    // The killed node has returned with its blocks, so the rebuilt blocks are extra copies and are removed.
    await_exactly(&cluster, 24 * 6);
    assert_whole(&cluster, &content);
}

#[test]
fn a_node_that_comes_back_with_other_bytes_is_not_counted() {
    let (mut cluster, content) = cluster(9, 8);
    cluster.kill("h5");
    // Swap two blocks together with their checksums. The checksums match, yet both blocks are wrong.
    let folder = cluster.folder().join("helpers").join("h5");
    let on_it: Vec<_> = cluster.block_files().into_iter().filter(|path| path.starts_with(&folder)).collect();
    let [a, b, ..] = &on_it[..] else { panic!("h5 has {on_it:?}") };
    let sums = |path: &std::path::Path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        path.with_file_name(format!("{name}.crc"))
    };
    let aside = cluster.path("aside");
    for (a, b) in [(a.clone(), b.clone()), (sums(a), sums(b))] {
        std::fs::rename(&a, &aside).unwrap();
        std::fs::rename(&b, &a).unwrap();
        std::fs::rename(&aside, &b).unwrap();
    }
    cluster.start(&["helper", "h5"]);
    cluster.await_ready();
    cluster.eventually("both are found", |cluster| {
        status(cluster)["stripes"]["blocks_lost"].as_u64().unwrap() == 2
    });
    cluster.mend(&["repair", "--all"]).ok();
    assert_whole(&cluster, &content);
}

#[test]
fn a_repair_is_paused_over_a_restart_resumed_and_cancelled() {
    let (mut cluster, content) = cluster(9, 40);
    cluster.mend(&["caps", "--total", "2MB/s"]).ok();
    cluster.kill("h4");
    let repair = ask(&cluster, &["node", "recover", "h4"]);
    cluster.mend(&["pause", &repair]).ok();
    assert_eq!(open(&cluster, &repair).unwrap()["state"], "paused");
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.mend(&["caps", "--none"]).ok();
    cluster.eventually("its stripes are known", |cluster| open(cluster, &repair).unwrap()["bytes"] != 0);
    let view = open(&cluster, &repair).unwrap();
    assert_eq!(
        (view["state"].as_str(), view["blocks_rebuilt"].as_u64()),
        (Some("paused"), Some(0)),
        "{view:#}"
    );
    cluster.mend(&["resume", &repair]).ok();
    watch(&cluster, &repair).ok();
    assert_whole(&cluster, &content);
    for verb in ["cancel", "pause", "resume"] {
        cluster.mend(&[verb, &repair]).fails_with(&["has ended already", "done"]);
    }
    cluster.mend(&["caps", "--total", "1MB/s"]).ok();
    let drain = ask(&cluster, &["node", "drain", "h6"]);
    cluster.mend(&["cancel", &drain]).ok();
    assert_eq!(node(&cluster, "h6")["leaving"], false, "it gets blocks again");
    assert!(blocks_on(&cluster, "h6") > 0);
    assert_whole(&cluster, &content);
}

#[test]
fn a_watched_repair_lists_its_stripes_once() {
    const STRIPES: usize = 600; // h4 has blocks of half of these stripes, more than one page.
    let mut cluster = Cluster::new(4, "rs-2-1", "4KiB");
    let gate = Arc::new(Gate::default());
    gate.bytes_per_s.store(1 << 40, Ordering::Relaxed);
    // Create a cluster folder whose clients reach the coordinator through the gate.
    let (folder, api) = (cluster.path("gated"), format!("api = \"127.0.0.1:{}\"", cluster.base_port()));
    std::fs::create_dir(&folder).unwrap();
    let needed = ["mend.toml", "ca", "client"].map(|name| cluster.folder().join(name));
    assert!(Command::new("cp").arg("-r").args(needed).arg(&folder).status().unwrap().success());
    let text = std::fs::read_to_string(folder.join("mend.toml")).unwrap();
    assert!(text.contains(&api), "{text}");
    let gated = format!("api = \"127.0.0.1:{}\"", gate.clone().open(cluster.base_port()));
    std::fs::write(folder.join("mend.toml"), text.replace(&api, &gated)).unwrap();

    cluster.put("film", STRIPES * 4096);
    cluster.kill("h4");
    let repair = ask(&cluster, &["node", "recover", "h4"]);
    cluster.mend(&["pause", &repair]).ok();
    let mut watch = cluster.command(&["watch", &repair, "--output", "json"]);
    let watch = watch.env("MEND_CLUSTER", &folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let watch = watch.unwrap();
    cluster.eventually("it watches", |_| gate.passed.load(Ordering::Relaxed) > 0);
    std::thread::sleep(Duration::from_secs(2));
    let meanwhile = gate.passed.load(Ordering::Relaxed);
    cluster.mend(&["resume", &repair]).ok();
    let said = finish(watch).ok();
    let view = said.json();
    assert_eq!(view["stripes"], view["items"].as_array().unwrap().len(), "{said:?}");
    assert!(view["stripes"].as_u64().unwrap() > 0 && view["state"] == "done", "{said:?}");
    assert!(meanwhile < said.out.len() as u64 / 10, "{meanwhile} bytes while nothing moved");
}

/// Asserts that survivors have never sent more bytes than the caps have allowed since the start of the
/// repair. The bound accumulates from the start, because a slow machine may deliver bytes late that were
/// allowed under an earlier cap.
#[test]
fn caps_hold_and_change_while_it_runs() {
    let (mut cluster, content) = cluster(9, 40);
    cluster.kill("h7");
    // Start with 1 MB, because survivors may send some bytes more than the cap allows: the token bucket holds
    // tokens for a tenth of a second, and each edge may have one more slice in its buffers.
    let mut allowed = 1e6;
    let mut cap_since = (2_000_000.0, Instant::now());
    cluster.mend(&["caps", "--total", "2MB/s"]).ok();
    let repair = ask(&cluster, &["node", "recover", "h7"]);
    cluster.eventually("something moves", |cluster| {
        open(cluster, &repair).unwrap()["bytes_rebuilt"].as_u64().unwrap() > 0
    });
    for cap in [2_000_000.0, 4_000_000.0, 1_000_000.0] {
        let rate = format!("{}kB/s", cap / 1000.0);
        cluster.mend(&["caps", "--total", &rate]).ok();
        let (earlier, since) = std::mem::replace(&mut cap_since, (cap, Instant::now()));
        allowed += earlier * (since.elapsed().as_secs_f64() * 1.05 + 0.1);
        std::thread::sleep(std::time::Duration::from_secs(2));
        let sent = open(&cluster, &repair).unwrap()["bytes_rebuilt"].as_f64().unwrap() * K as f64;
        let most = allowed + cap * (cap_since.1.elapsed().as_secs_f64() * 1.05 + 0.1);
        println!("cap {cap}: {sent:.0} bytes sent, {most:.0} allowed");
        assert!(sent <= most, "{sent} bytes are sent and {most} allowed at {cap} bytes/s");
    }
    cluster.mend(&["caps", "--none"]).ok();
    watch(&cluster, &repair).ok();
    assert_whole(&cluster, &content);
}
