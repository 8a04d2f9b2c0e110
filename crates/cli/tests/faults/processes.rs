//! Processes that die or stop in the middle of something.

use std::time::Duration;

use crate::cluster::{Cluster, finish};

const SCHEMES: [&str; 10] = [
    "conventional",
    "ppr",
    "crr-r",
    "crr-s",
    "crr-s-direct",
    "scatter",
    "pipelined",
    "cyclic",
    "pipe-b",
    "pipe-s",
];

/// Stops a helper, so that a repair by `scheme` cannot end, does `then`, and returns what the repair said.
fn repair_with_stopped_helper(
    cluster: &mut Cluster,
    scheme: &str,
    then: impl FnOnce(&mut Cluster, &str),
) -> crate::cluster::Said {
    std::fs::remove_file(cluster.block_file("1.0")).unwrap();
    cluster.mend(&["scrub"]);
    let stopped = a_source(cluster, "1.0", scheme);
    cluster.signal(&stopped, "STOP");
    let repair = cluster.spawn(&["repair", "1.0", "--scheme", scheme]);
    std::thread::sleep(Duration::from_millis(700));
    then(cluster, &stopped);
    finish(repair)
}

/// The name of a helper that a repair of `block` by `scheme` reads from.
fn a_source(cluster: &Cluster, block: &str, scheme: &str) -> String {
    let plan = cluster.mend(&["plan", block, "--scheme", scheme, "--output", "json"]).ok().json();
    let helper = plan["summary"]["helpers"][1].as_u64().unwrap().to_string();
    plan["nodes"][helper].as_str().unwrap().to_owned()
}

#[test]
fn a_helper_killed_in_the_middle_of_each_scheme() {
    let mut cluster = Cluster::new(9, "rs-7-4", "1MiB");
    let content = cluster.put("film", 4 << 20);
    for scheme in SCHEMES {
        let mut victim = String::new();
        let said = repair_with_stopped_helper(&mut cluster, scheme, |cluster, stopped| {
            victim = stopped.to_owned();
            cluster.kill(stopped);
        });
        let said = said.ok();
        assert!(said.out.contains(&victim), "{scheme}: it says who failed: {said:?}");
        cluster.start(&["helper", &victim]);
        cluster.await_ready();
        cluster.assert_reads("film", &content, &["--scheme", scheme]);
    }
    let status = cluster.mend(&["status"]).ok();
    assert!(status.out.starts_with("safe"), "{status:?}");
}

#[test]
fn a_helper_stopped_in_the_middle_is_replaced() {
    let mut cluster = Cluster::new(9, "rs-7-4", "1MiB");
    let content = cluster.put("film", 4 << 20);
    for scheme in ["conventional", "crr-s", "pipelined", "cyclic"] {
        let mut victim = String::new();
        let said = repair_with_stopped_helper(&mut cluster, scheme, |_, stopped| victim = stopped.to_owned());
        let said = said.ok();
        assert!(said.out.contains(&victim), "{scheme}: it says who stalled: {said:?}");
        cluster.signal(&victim, "CONT");
        cluster.eventually("the helper is back", |cluster| cluster.mend(&["status"]).out.starts_with("safe"));
        cluster.assert_reads("film", &content, &[]);
    }
}

#[test]
fn a_read_through_n_minus_k_dead_helpers_and_one_that_stops() {
    let mut cluster = Cluster::new(8, "rs-7-4", "256KiB");
    let content = cluster.put("film", 5_000_003);
    cluster.kill("h1");
    cluster.kill("h2");
    cluster.signal("h3", "STOP");
    cluster.assert_reads("film", &content, &[]);
    cluster.assert_reads("film", &content[1_000_000..1_000_100], &["--range", "1000000+100"]);
    cluster.signal("h3", "CONT");
}

#[test]
fn a_coordinator_killed_in_mid_repair_starts_it_anew() {
    let mut cluster = Cluster::new(8, "rs-6-4", "1MiB");
    let content = cluster.put("film", 4 << 20);
    std::fs::remove_file(cluster.block_file("1.0")).unwrap();
    cluster.mend(&["scrub"]);
    let stopped = a_source(&cluster, "1.0", "auto");
    cluster.signal(&stopped, "STOP");
    let repair = cluster.spawn(&["repair", "--all"]);
    std::thread::sleep(Duration::from_millis(500));
    cluster.kill("coordinator");
    finish(repair).fails_with(&["coordinator"]);
    cluster.signal(&stopped, "CONT");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("the repair is resumed and done", |cluster| {
        cluster.mend(&["status"]).out.starts_with("safe")
    });
    assert!(cluster.block_file("1.0").exists());
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}

#[test]
fn a_put_killed_half_way_leaves_nothing_visible() {
    let cluster = Cluster::new(6, "rs-6-4", "1MiB");
    std::fs::write(cluster.path("film"), crate::cluster::noise(24 << 20)).unwrap();
    cluster.signal("h4", "STOP");
    let mut put = cluster.spawn(&["put", cluster.path("film").to_str().unwrap(), "--as", "film"]);
    std::thread::sleep(Duration::from_millis(500));
    put.kill().unwrap();
    put.wait().unwrap();
    cluster.signal("h4", "CONT");
    let listed = cluster.mend(&["ls"]).ok();
    assert!(!listed.out.contains("film"), "{listed:?}");
    cluster.eventually("its blocks are removed", |cluster| cluster.block_files().is_empty());
    // And the name is free.
    cluster.mend(&["put", cluster.path("film").to_str().unwrap(), "--as", "film"]).ok();
}

#[test]
fn more_losses_than_the_code_bears() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    let content = cluster.put("film", 3_000_000);
    for helper in ["h1", "h2", "h3"] {
        cluster.kill(helper);
    }
    let status = cluster.mend(&["status"]);
    assert!(status.out.lines().next().unwrap().contains("stripes"), "{status:?}");
    cluster.mend(&["get", "film", "-o", cluster.path("copy").to_str().unwrap()]).fails_with(&["stripe"]);
    assert!(!cluster.path("copy").exists(), "half a file is not left behind");
    cluster.mend(&["repair", "--all"]).fails_with(&["h1", "repair --all"]);
    cluster.start(&["helper", "h2"]);
    cluster.await_ready();
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn a_dead_node_is_rebuilt_on_others_and_may_come_back() {
    let mut cluster = Cluster::new(8, "rs-6-4", "128KiB");
    let content = cluster.put("film", 4_000_000);
    cluster.kill("h5");
    cluster.mend(&["repair", "--all"]).ok();
    let status = cluster.mend(&["status"]).ok();
    assert!(status.out.starts_with("safe"), "{status:?}");
    cluster.start(&["helper", "h5"]);
    cluster.await_ready();
    cluster.eventually("its old copies are removed", |cluster| {
        cluster.block_files().len() == 6 * 4_000_000_usize.div_ceil(4 * (128 << 10))
    });
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}
