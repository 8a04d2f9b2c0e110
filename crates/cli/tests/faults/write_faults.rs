//! A catalog whose disk refuses writes for a while, simulated by the kernel's file size limit.

use rustix::process::Pid;

use crate::cluster::Cluster;
use crate::limits::{self, REFUSALS_ARE_ERRORS};

/// Limits the size of the coordinator's files to `bytes` bytes, or removes the limit.
fn limit_files(cluster: &Cluster, bytes: Option<u64>) {
    limits::limit_files(Pid::from_raw(cluster.pid("coordinator") as i32), bytes).unwrap();
}

/// Starts a cluster whose coordinator gets an error instead of a signal when it exceeds the file size limit.
fn cluster() -> Cluster {
    let mut cluster = Cluster::init(7, "rs-6-4", "64KiB");
    cluster.start_with(REFUSALS_ARE_ERRORS, &["coordinator"]);
    for helper in 1..=7 {
        cluster.start(&["helper", &format!("h{helper}")]);
    }
    cluster.await_ready();
    cluster
}

fn first_line(cluster: &Cluster) -> String {
    cluster.mend(&["status"]).out.lines().next().unwrap_or_default().to_owned()
}

fn blocks_lost(cluster: &Cluster) -> u64 {
    cluster.mend(&["status", "--output", "json"]).json()["stripes"]["blocks_lost"].as_u64().unwrap()
}

/// With a file size limit of 0 no write to the catalog succeeds; with 4096 only the file's header can be
/// written.
#[test]
fn the_status_reports_an_unwritable_catalog_and_writes_resume() {
    for limit in [0, 4096] {
        let mut cluster = cluster();
        // Turn automatic repair off; otherwise it would fix the loss that the status must report.
        cluster.mend(&["node", "repair-after", "never"]).ok();
        let content = cluster.put("film", 1 << 20);
        let file = cluster.path("film").to_str().unwrap().to_owned();
        limit_files(&cluster, Some(limit));
        cluster.mend(&["put", &file, "--name", "more"]).fails_with(&["catalog"]);
        let check = cluster.mend(&["status", "--check"]);
        assert!(check.code == 2 && check.out.contains("READ-ONLY"), "{check:?}");
        assert!(first_line(&cluster).starts_with("READ-ONLY"), "{}", first_line(&cluster));
        // The next put is refused before any data moves.
        cluster.mend(&["put", &file, "--name", "more"]).fails_with(&["nothing can be stored", "mend status"]);
        // Blocks lost meanwhile are reported, and reads continue.
        let lost = cluster.block_name("1.0");
        std::fs::remove_file(cluster.block_file("1.0")).unwrap();
        cluster.mend(&["scrub"]).fails_with(&[&lost]);
        assert_eq!(blocks_lost(&cluster), 1);
        assert!(first_line(&cluster).contains("DEGRADED"), "{}", first_line(&cluster));
        cluster.assert_reads("film", &content, &[]);

        limit_files(&cluster, None);
        cluster.eventually("the catalog is written again", |cluster| {
            !first_line(cluster).starts_with("READ-ONLY")
        });
        // The loss has been recorded: a restarted coordinator still knows it.
        assert_eq!(blocks_lost(&cluster), 1);
        cluster.kill("coordinator");
        cluster.start(&["coordinator"]);
        cluster.await_ready();
        cluster.eventually("the helpers are back", |cluster| first_line(cluster).starts_with("DEGRADED"));
        assert_eq!(blocks_lost(&cluster), 1);
        cluster.mend(&["repair", "--all"]).ok();
        cluster.mend(&["put", &file, "--name", "more"]).ok();
        assert!(first_line(&cluster).starts_with("safe"), "{}", first_line(&cluster));
        cluster.assert_reads("film", &content, &[]);
        cluster.assert_reads("more", &content, &[]);
        cluster.mend(&["scrub"]).ok();
    }
}

/// Two blocks of a stripe are lost while the catalog cannot record losses. The checks must nevertheless
/// report that the stripe cannot lose another block.
#[test]
fn checks_before_a_stop_count_losses_that_cannot_be_recorded() {
    let cluster = cluster();
    cluster.mend(&["node", "repair-after", "never"]).ok();
    let content = cluster.put("film", 256 << 10);
    let holders: Vec<String> = (0..3).map(|index| cluster.holder(&format!("1.{index}"))).collect();
    cluster.mend(&["node", "ok-to-stop", &holders[2]]).ok();
    limit_files(&cluster, Some(0));
    let file = cluster.path("film").to_str().unwrap().to_owned();
    cluster.mend(&["put", &file, "--name", "more"]).fails_with(&["catalog"]);
    let lost: Vec<String> = (0..2).map(|index| cluster.block_name(&format!("1.{index}"))).collect();
    for index in 0..2 {
        std::fs::remove_file(cluster.block_file(&format!("1.{index}"))).unwrap();
    }
    cluster.mend(&["scrub"]).fails_with(&[&lost[0], &lost[1]]);
    let line = first_line(&cluster);
    assert!(line.starts_with("READ-ONLY") && line.contains("AT RISK"), "{line}");
    let stop = ["node", "ok-to-stop", &holders[2], "--leave", "0"];
    cluster.mend(&stop).fails_with(&["NOT OK", "would become unreadable"]);
    let stat = cluster.mend(&["stat", "1", "--output", "json"]).ok().json();
    assert_eq!((stat["survives"].as_u64(), stat["blocks"][0]["state"].as_str()), (Some(0), Some("missing")));
    let safe = cluster.mend(&["node", "safe-to-remove", &holders[0], "--output", "json"]).json();
    assert_eq!(safe["survives"], 0, "{safe}");
    cluster.assert_reads("film", &content, &[]);
}

/// The end of a maintenance takes effect although the catalog cannot record it. The answer says so.
#[test]
fn a_change_that_cannot_be_recorded_is_reported() {
    let cluster = cluster();
    let end = ["node", "maintenance", "h1", "--end"];
    let note = "not recorded";
    // A disk that is slow for a moment delays a record for more than a second, which the answer says as well.
    let is_recorded = |cluster: &Cluster| {
        !cluster.mend(&["node", "maintenance", "h1", "--for", "1h"]).ok().err.contains(note)
    };
    cluster.eventually("a change is recorded", is_recorded);
    cluster.put("film", 256 << 10);
    let file = cluster.path("film").to_str().unwrap().to_owned();
    limit_files(&cluster, Some(0));
    cluster.mend(&["put", &file, "--name", "more"]).fails_with(&["catalog"]);
    let ended = cluster.mend(&end).ok();
    assert!(ended.err.contains(note) && ended.err.contains("a restart of the coordinator"), "{ended:?}");
    assert!(ended.out.contains("no longer in maintenance"), "{ended:?}");
    limit_files(&cluster, None);
    cluster
        .eventually("the catalog is written again", |cluster| !first_line(cluster).starts_with("READ-ONLY"));
    cluster.eventually("a change is recorded again", is_recorded);
}

/// The coordinator must not write to an outdated file that has replaced its catalog.
#[test]
fn the_coordinator_exits_if_its_catalog_was_replaced_during_a_fault() {
    let mut cluster = cluster();
    let catalog = cluster.folder().join("coordinator/catalog.redb");
    cluster.put("film", 1 << 20);
    cluster.kill("coordinator");
    let older = cluster.path("older");
    std::fs::copy(&catalog, &older).unwrap();
    cluster.start_with(REFUSALS_ARE_ERRORS, &["coordinator"]);
    cluster.await_ready();
    cluster.put("other", 1 << 20);
    limit_files(&cluster, Some(4096));
    let file = cluster.path("film").to_str().unwrap().to_owned();
    cluster.mend(&["put", &file, "--name", "more"]).fails_with(&["catalog"]);
    std::fs::rename(&older, &catalog).unwrap();
    // The coordinator may still have its own file open. It opens the older file when it retries.
    std::thread::sleep(std::time::Duration::from_secs(3));
    limit_files(&cluster, None);
    let mut ended = false;
    for _ in 0..600 {
        ended = !cluster.runs("coordinator");
        if ended {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(ended, "it goes on with another catalog");
    let log = cluster.log("coordinator");
    assert!(log.contains("no longer holds this coordinator's last commit"), "{log}");
}

/// While the catalog is moved away, the coordinator must refuse writes. They would go to the moved file, and
/// a restarted coordinator would not find them.
#[test]
fn nothing_is_confirmed_while_the_catalog_is_moved_away() {
    let cluster = cluster();
    let catalog = cluster.folder().join("coordinator/catalog.redb");
    let content = cluster.put("film", 1 << 20);
    let file = cluster.path("film").to_str().unwrap().to_owned();
    let away = cluster.path("away");
    std::fs::rename(&catalog, &away).unwrap();
    cluster.mend(&["put", &file, "--name", "more"]).fails_with(&["was moved, replaced or removed"]);
    let check = cluster.mend(&["status", "--check"]);
    assert!(
        check.code == 2 && check.out.contains("READ-ONLY") && check.out.contains("move the"),
        "{check:?}"
    );
    cluster.assert_reads("film", &content, &[]);
    std::fs::rename(&away, &catalog).unwrap();
    cluster.eventually("the catalog is back", |cluster| first_line(cluster).starts_with("safe"));
    cluster.mend(&["put", &file, "--name", "more"]).ok();
    // The status reports a replaced catalog even if nothing is written.
    std::fs::copy(&catalog, &away).unwrap();
    std::fs::rename(&away, &catalog).unwrap();
    cluster.eventually("the status reports it", |cluster| first_line(cluster).starts_with("READ-ONLY"));
}
