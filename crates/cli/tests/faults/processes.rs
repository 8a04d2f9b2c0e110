//! Processes that die or hang in the middle of an operation.

use std::process::Child;
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

/// Repairs block 1.0 with `scheme` while a helper that the repair reads from is stopped. Calls `then` while
/// the repair waits for this helper, and `after` when the repair has ended. Asserts that the repair succeeds
/// and names the helper.
fn repair_with_stopped_helper(
    cluster: &mut Cluster,
    scheme: &str,
    then: impl Fn(&mut Cluster, &str),
    after: impl Fn(&mut Cluster, &str),
) {
    for _ in 0..8 {
        let (repair, stopped) = held_up_repair(cluster, scheme, &["repair", "1.0", "--scheme", scheme]);
        then(cluster, &stopped);
        let said = finish(repair).ok();
        after(cluster, &stopped);
        if said.out.contains(&stopped) {
            return;
        }
        // On a busy machine, the repair may replace the stopped helper because the helper seems slow, and
        // then does not name the helper. Try again.
    }
    panic!("no repair by {scheme} ever said which helper failed");
}

/// Starts a repair of block 1.0 that waits for a stopped helper. Returns the repair and the helper's name.
fn held_up_repair(cluster: &Cluster, scheme: &str, repair: &[&str]) -> (Child, String) {
    // Turn automatic repair off; otherwise it would repair the block first.
    cluster.mend(&["node", "repair-after", "never"]).ok();
    for _ in 0..20 {
        std::fs::remove_file(cluster.block_file("1.0")).unwrap();
        cluster.mend(&["scrub"]);
        let stopped = a_source(cluster, "1.0", scheme);
        cluster.signal(&stopped, "STOP");
        let mut repair = cluster.spawn(repair);
        if is_held_up(cluster, &mut repair) {
            return (repair, stopped);
        }
        // The repair prefers less busy helpers and has chosen another source.
        finish(repair).ok();
        cluster.signal(&stopped, "CONT");
    }
    panic!("no repair by {scheme} ever read from the helper that was stopped");
}

/// Waits until a job has been running for a while or the repair has ended. Returns whether the repair still
/// runs.
fn is_held_up(cluster: &Cluster, repair: &mut Child) -> bool {
    let mut ended = false;
    cluster.eventually("the repair runs", |cluster| {
        ended = repair.try_wait().unwrap().is_some();
        ended || has_a_job(cluster)
    });
    std::thread::sleep(Duration::from_millis(700));
    !ended && repair.try_wait().unwrap().is_none()
}

fn has_a_job(cluster: &Cluster) -> bool {
    let status = cluster.mend(&["status", "--output", "json"]).json();
    status["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty())
}

/// Returns the name of a helper that a repair of `block` with `scheme` reads from.
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
        repair_with_stopped_helper(&mut cluster, scheme, Cluster::kill, |cluster, victim| {
            cluster.start(&["helper", victim]);
            cluster.await_ready();
        });
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
        let leave_it = |_: &mut Cluster, _: &str| {};
        repair_with_stopped_helper(&mut cluster, scheme, leave_it, |cluster, stopped| {
            cluster.signal(stopped, "CONT");
            let is_safe = |cluster: &Cluster| cluster.mend(&["status"]).out.starts_with("safe");
            cluster.eventually("the helper is back", is_safe);
        });
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
fn a_coordinator_killed_during_a_repair_restarts_it() {
    let mut cluster = Cluster::new(8, "rs-6-4", "1MiB");
    let content = cluster.put("film", 4 << 20);
    let (repair, stopped) = held_up_repair(&cluster, "auto", &["repair", "--all"]);
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
    let mut put = cluster.spawn(&["put", cluster.path("film").to_str().unwrap(), "--name", "film"]);
    std::thread::sleep(Duration::from_millis(500));
    put.kill().unwrap();
    put.wait().unwrap();
    cluster.signal("h4", "CONT");
    let listed = cluster.mend(&["ls"]).ok();
    assert!(!listed.out.contains("film"), "{listed:?}");
    cluster.eventually("its blocks are removed", |cluster| cluster.block_files().is_empty());
    // The name is free again.
    cluster.mend(&["put", cluster.path("film").to_str().unwrap(), "--name", "film"]).ok();
}

#[test]
fn more_losses_than_the_code_tolerates() {
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

#[test]
fn a_get_right_after_a_coordinators_start_waits_for_the_helpers() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 500_000);
    for _ in 0..5 {
        cluster.kill("coordinator");
        cluster.start(&["coordinator"]);
        cluster.await_ready();
        cluster.assert_reads("film", &content, &[]);
    }
}
