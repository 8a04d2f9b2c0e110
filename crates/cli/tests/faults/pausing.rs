//! A paused repair stops between two slices, keeps the delivered data, and continues when it is resumed.

use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;

/// The block size in bytes: large enough for many slices, so that a repair takes long under a cap.
const BLOCK: usize = 4 << 20;

fn repair_of(cluster: &Cluster, repair: &str) -> Value {
    let status = cluster.mend(&["status", "--output", "json"]).json();
    let repairs = status["repairs"].as_array().unwrap().clone();
    let number = repair.parse().ok();
    repairs.into_iter().find(|view| view["repair"].as_u64() == number).unwrap_or_else(|| panic!("{status:#}"))
}

fn rebuilt(cluster: &Cluster, repair: &str) -> u64 {
    repair_of(cluster, repair)["bytes_rebuilt"].as_u64().unwrap()
}

/// Stores a file in a new cluster, starts a recovery of h4 under a cap, and waits until some slices are
/// delivered. Returns the cluster, the file's content and the number of the recovery.
fn slow_repair() -> (Cluster, Vec<u8>, String) {
    let mut cluster = Cluster::new(8, "rs-6-4", "4MiB");
    let content = cluster.put("film", 3 * 4 * BLOCK);
    cluster.mend(&["caps", "--total", "4MB/s"]).ok();
    cluster.kill("h4");
    let view = cluster.mend(&["node", "recover", "h4", "--no-wait", "--output", "json"]).ok().json();
    let repair = view["repair"].to_string();
    cluster.eventually("slices come", |cluster| rebuilt(cluster, &repair) > 256 << 10);
    (cluster, content, repair)
}

#[test]
fn a_pause_stops_what_runs_and_keeps_what_was_delivered() {
    let (cluster, content, repair) = slow_repair();
    let paused = cluster.mend(&["pause", &repair]).ok();
    assert!(paused.out.contains("rebuilt and received data is kept"), "{paused:?}");
    let at_rest = |cluster: &Cluster| {
        let status = cluster.mend(&["status", "--output", "json"]).json();
        status["jobs"].as_array().unwrap().iter().all(|job| job["phase"] == "on-hold")
    };
    cluster.eventually("its jobs rest", at_rest);
    let before = rebuilt(&cluster, &repair);
    assert!(before > 0, "what was delivered is kept");
    // Remove the caps, and wait longer than the timeouts of edges and requestors and the time limit for
    // stopping a plan. If the repair could still move data, it would do so now.
    cluster.mend(&["caps", "--none"]).ok();
    std::thread::sleep(Duration::from_secs(12));
    let view = repair_of(&cluster, &repair);
    assert_eq!(
        (&view["state"], view["bytes_rebuilt"].as_u64()),
        (&"paused".into(), Some(before)),
        "{view:#}"
    );
    assert_eq!(view["blocks_rebuilt"], 0, "{view:#}");
    let progress = &view["progress"];
    for figure in ["rate_bytes_per_s", "soonest_ms", "latest_ms", "limited_by"] {
        assert!(progress[figure].is_null(), "{figure} while it is paused: {view:#}");
    }
    let status = cluster.mend(&["status"]).ok();
    let line = status.out.lines().find(|line| line.starts_with(&format!("repair {repair} ("))).unwrap();
    assert!(line.contains("paused") && line.contains(&format!("mend resume {repair}")), "{line}");
    assert!(!line.contains("/s") && !line.contains("left"), "{line}");
    cluster.assert_reads("film", &content, &[]);

    cluster.mend(&["caps", "--total", "4MB/s"]).ok();
    cluster.mend(&["resume", &repair]).ok();
    cluster.eventually("it goes on", |cluster| rebuilt(cluster, &repair) > before);
    assert!(rebuilt(&cluster, &repair) >= before, "nothing begins anew");
    cluster.mend(&["caps", "--none"]).ok();
    let view = cluster.mend(&["watch", &repair, "--output", "json"]).ok().json();
    assert_eq!(view["state"], "done", "{view:#}");
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}

#[test]
fn a_pause_outlives_the_coordinator_a_requestor_and_a_source() {
    let (mut cluster, content, repair) = slow_repair();
    cluster.mend(&["pause", &repair]).ok();
    cluster.mend(&["caps", "--none"]).ok();
    // While the repair is paused, kill a helper that is probably a source for some stripes and a requestor
    // with delivered slices for others.
    cluster.kill("h5");
    cluster.eventually("it is gone", |cluster| cluster.mend(&["status"]).out.contains("down: h4, h5"));
    assert_eq!(repair_of(&cluster, &repair)["state"], "paused");
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("its stripes are known", |cluster| repair_of(cluster, &repair)["bytes"] != 0);
    std::thread::sleep(Duration::from_secs(2));
    let view = repair_of(&cluster, &repair);
    assert_eq!((&view["state"], view["bytes_rebuilt"].as_u64()), (&"paused".into(), Some(0)), "{view:#}");
    cluster.mend(&["resume", &repair]).ok();
    let view = cluster.mend(&["watch", &repair, "--output", "json"]).ok().json();
    assert_eq!(view["state"], "done", "{view:#}");
    cluster.start(&["helper", "h5"]);
    cluster.await_ready();
    cluster.eventually("all is whole", |cluster| cluster.mend(&["status"]).out.starts_with("safe  all"));
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn a_paused_repair_does_not_block_other_repairs_of_its_stripes() {
    let (cluster, content, repair) = slow_repair();
    cluster.mend(&["pause", &repair]).ok();
    cluster.mend(&["caps", "--none"]).ok();
    cluster.mend(&["repair", "--all"]).ok();
    assert!(cluster.mend(&["status"]).ok().out.starts_with("safe  all"));
    // The paused repair has no blocks left to rebuild either, so it ends.
    cluster.mend(&["wait", "--for", "done", "--timeout", "30s"]).ok();
    cluster.mend(&["resume", &repair]).fails_with(&["has ended already", "done"]);
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}
