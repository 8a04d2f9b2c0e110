//! The coordinator's automatic reaction to lost helpers, and the verbs of an operator.

use std::time::Duration;

use crate::cluster::Cluster;

fn is_whole(cluster: &Cluster) -> bool {
    cluster.mend(&["status"]).out.starts_with("safe  all")
}

#[test]
fn a_helper_that_stays_away_is_rebuilt_remembered_and_removed() {
    let mut cluster = Cluster::new(8, "rs-6-4", "64KiB");
    let content = cluster.put("film", 2_000_000);
    let set = cluster.mend(&["node", "repair-after", "30s"]).ok();
    assert!(set.out.contains("down for 30s") && set.out.contains("10m"), "{set:?}");
    cluster.kill("h3");
    cluster.eventually("it is gone", |cluster| cluster.mend(&["status"]).out.starts_with("DEGRADED"));
    let status = cluster.mend(&["status"]).ok();
    assert!(status.out.contains("repair of h3 starts in"), "{status:?}");
    assert!(!status.out.contains("run mend repair"), "{status:?}");
    cluster.mend(&["node", "remove", "h3"]).fails_with(&["h3", "mend repair --all"]);
    assert!(cluster.log("coordinator").contains("WARN"), "{}", cluster.log("coordinator"));
    assert!(cluster.log("coordinator").contains("helper disconnected"), "{}", cluster.log("coordinator"));

    cluster.mend(&["node", "repair-after", "1s"]).ok();
    cluster.eventually("it is rebuilt by itself", is_whole);
    cluster.mend(&["wait", "--for", "safe", "--timeout", "20s"]).ok();
    cluster.mend(&["wait", "--for", "done", "--timeout", "20s"]).ok();
    cluster.assert_reads("film", &content, &[]);
    let told = |cluster: &Cluster| {
        let history = cluster.mend(&["history"]).ok();
        for what in
            ["h3 was lost with", "(node h3) queued automatically", "(node h3) done after", "lost from h3 ("]
        {
            assert_eq!(history.out.matches(what).count(), 1, "{what}: {history:?}");
        }
    };
    told(&cluster);
    cluster.kill("coordinator");
    cluster.start(&["coordinator"]);
    cluster.await_ready();
    cluster.eventually("it has settled", is_whole);
    told(&cluster);

    cluster.mend(&["node", "safe-to-remove", "h3"]).ok();
    cluster.mend(&["node", "remove", "h3"]).ok();
    let list = cluster.mend(&["node", "list"]).ok();
    assert!(!list.out.contains("h3") && list.out.contains("h4"), "{list:?}");
    cluster.mend(&["helper", "h3"]).fails_with(&["h3", "mend node add"]);
}

#[test]
fn a_helper_in_maintenance_is_left_alone() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    cluster.put("film", 1_000_000);
    cluster.mend(&["node", "repair-after", "1s"]).ok();
    cluster.mend(&["node", "maintenance", "h3", "--for", "1h"]).ok();
    cluster.kill("h3");
    cluster.eventually("it is gone", |cluster| cluster.mend(&["status"]).out.starts_with("DEGRADED"));
    std::thread::sleep(Duration::from_secs(3));
    let status = cluster.mend(&["status"]).ok();
    assert!(status.out.contains("h3 is in maintenance for"), "{status:?}");
    assert!(!status.out.contains("mend repair"), "{status:?}");
    let facts = cluster.mend(&["status", "--output", "json"]).ok().json();
    assert_eq!(facts["repairs"].as_array().unwrap().len(), 0, "{facts}");
    cluster.start(&["helper", "h3"]);
    cluster.await_ready();
    cluster.eventually("it is back", is_whole);
    let history = cluster.mend(&["history"]).ok();
    assert!(!history.out.contains("repair"), "{history:?}");
    cluster.mend(&["node", "maintenance", "h3", "--end"]).ok();
    cluster.mend(&["node", "maintenance", "h3", "--end"]).fails_with(&["not in maintenance"]);
}

#[test]
fn safety_checks_and_monitoring_checks_have_exit_codes() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 600_000);
    assert_eq!(cluster.mend(&["status", "--check"]).code, 0);
    cluster.mend(&["node", "ok-to-stop", "h1"]).ok();
    cluster.mend(&["node", "ok-to-stop", "h1", "h2", "--leave", "0"]).ok();
    let no = cluster.mend(&["node", "ok-to-stop", "h1", "h2"]);
    assert!(no.code == 1 && no.out.contains("NOT OK to stop h1, h2"), "{no:?}");
    assert!(no.out.contains("stay readable, but some stripes could not lose another helper"), "{no:?}");
    let no = cluster.mend(&["node", "ok-to-stop", "h1", "h2", "h3"]);
    assert!(no.code == 1 && no.out.contains("NOT OK to stop h1, h2, h3"), "{no:?}");
    let no = cluster.mend(&["node", "safe-to-remove", "h1"]);
    assert!(no.code == 1 && no.out.contains("NOT safe"), "{no:?}");
    cluster.kill("h1");
    cluster.eventually("one is gone", |cluster| cluster.mend(&["status", "--check"]).code == 1);
    assert_eq!(cluster.mend(&["node", "ok-to-stop", "h2"]).code, 1, "one is down already");
    assert_eq!(cluster.mend(&["node", "ok-to-stop", "h2", "h3", "--leave", "0"]).code, 1);
    cluster.kill("h2");
    cluster.eventually("two are gone", |cluster| cluster.mend(&["status", "--check"]).code == 2);
    cluster.kill("h3");
    cluster.eventually("it cannot be read", |cluster| {
        let status = cluster.mend(&["status"]);
        status.code == 3 && status.out.contains("unreadable: film bytes ")
    });
    let status = cluster.mend(&["status"]);
    assert!(
        status.out.starts_with("UNREADABLE") && status.out.contains("start any of h1, h2, h3"),
        "{status:?}"
    );
    cluster.start(&["helper", "h2"]);
    cluster.await_ready();
    cluster.eventually("any one of them is enough", |cluster| cluster.mend(&["status"]).code == 0);
    cluster.assert_reads("film", &content, &[]);
    cluster.kill("coordinator");
    let unknown = cluster.mend(&["status", "--check"]);
    assert!(unknown.code == 3 && unknown.out.contains("cannot reach the coordinator"), "{unknown:?}");
}

#[test]
fn errors_are_json_for_those_who_ask_for_json() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    cluster.put("film", 100_000);
    let json = |cluster: &Cluster, arguments: &[&str], code: i32| {
        let said = cluster.mend(&[arguments, &["--output", "json"]].concat());
        assert_eq!(said.code, code, "{arguments:?}: {said:?}");
        let facts = said.json();
        let error = facts["error"].as_str().unwrap_or_else(|| panic!("{arguments:?}: {said:?}"));
        assert!(!error.is_empty() && facts["exit_code"] == code, "{said:?}");
    };
    for arguments in [
        &["get", "nothing"][..],
        &["stat", "nothing"],
        &["rm", "nothing"],
        &["put", "/nowhere/file"],
        &["plan", "nothing"],
        &["compare", "nothing"],
        &["repair", "nothing"],
        &["node", "remove", "h1"],
        &["node", "ok-to-stop", "h99"],
        &["node", "replace", "h1", "h1"],
        &["wait", "--for", "done", "--timeout", "0s", "--cluster", "/nowhere"],
        &["issue", "helper", "h99"],
    ] {
        json(&cluster, arguments, 1);
    }
    for arguments in
        [&["repair"][..], &["repair", "1", "--all"], &["frobnicate"], &["node", "maintenance", "h1"]]
    {
        json(&cluster, arguments, 2);
    }
    let missing = cluster.mend(&["repair"]);
    assert!(missing.code == 2 && missing.err.contains("--all"), "{missing:?}");
    for arguments in [
        &["status"][..],
        &["node", "list"],
        &["history"],
        &["ls"],
        &["repair", "--all"],
        &["rebalance", "--dry-run"],
    ] {
        cluster.mend(&[arguments, &["--output", "json"]].concat()).ok().json();
    }
    cluster.kill("coordinator");
    json(&cluster, &["status"], 4);
}

#[test]
fn a_new_helper_gets_its_share() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 4_000_000);
    cluster.mend(&["node", "add", "h7", "--listen", "127.0.0.1:0"]).ok();
    cluster.start(&["helper", "h7"]);
    cluster.await_ready();
    let plan = cluster.mend(&["rebalance", "--dry-run", "--output", "json"]).ok().json();
    assert!(!plan["moves"].as_array().unwrap().is_empty() && plan["repair"].is_null(), "{plan}");
    cluster.mend(&["rebalance"]).ok();
    let facts = cluster.mend(&["node", "list", "--output", "json"]).ok().json();
    let blocks: Vec<u64> =
        facts.as_array().unwrap().iter().map(|node| node["blocks"].as_u64().unwrap()).collect();
    assert!(blocks.iter().max().unwrap() - blocks.iter().min().unwrap() <= 3, "{blocks:?}");
    let stripes = 4_000_000_usize.div_ceil(4 * (64 << 10));
    cluster.eventually("the old copies are gone", |cluster| cluster.block_files().len() == 6 * stripes);
    cluster.assert_reads("film", &content, &[]);
    cluster.mend(&["scrub"]).ok();
}

#[test]
fn a_helper_that_was_never_started_is_named() {
    let cluster = Cluster::new(6, "rs-6-4", "64KiB");
    cluster.mend(&["node", "add", "h7", "--listen", "127.0.0.1:0"]).ok();
    cluster.put("film", 1_000_000); // The coordinator reads mend.toml again when a member connects.
    let said = cluster.mend(&["status"]).ok().out;
    assert!(said.contains("6 helpers up, never registered: h7"), "{said}");
    cluster.eventually("a warning", |cluster| {
        let check = cluster.mend(&["status", "--check"]);
        check.out.starts_with("MEND WARNING") && check.out.contains("never registered: h7")
    });
    let removed = cluster.mend(&["node", "remove", "h7"]).ok();
    assert!(removed.out.contains("it had never registered"), "{removed:?}");
    assert!(cluster.mend(&["status"]).ok().out.contains("all 6 helpers up"));
    cluster.mend(&["node", "remove", "h7"]).fails_with(&["there is no helper `h7`"]);
}

#[test]
fn a_timeline_shows_every_step_of_a_recovery() {
    let mut cluster = Cluster::new(7, "rs-6-4", "64KiB");
    cluster.put("film", 4_000_000);
    cluster.kill("h2");
    cluster.eventually("h2 is gone", |cluster| cluster.mend(&["status"]).out.starts_with("DEGRADED"));
    let recovered = cluster.mend(&["node", "recover", "h2", "--timeline"]).ok();
    let steps = ["planned", "started", "first slice", "all slices", "sealed", "parity", "committed", "ended"];
    assert!(steps.iter().all(|step| recovered.out.contains(step)), "{recovered:?}");
    let shown = cluster.mend(&["timeline"]).ok();
    assert!(shown.out.contains("(node h2): done") && shown.out.contains("slices moved for"), "{shown:?}");
    let views = cluster.mend(&["timeline", "--output", "json"]).ok().json();
    for item in views[0]["items"].as_array().unwrap() {
        let at = |step: &str| item["timeline_us"][step].as_u64().unwrap_or_else(|| panic!("{step}: {item}"));
        let order =
            ["planned", "started", "first-slice", "delivered", "sealed", "checked", "committed", "ended"];
        assert!(order.map(at).is_sorted() && at("recorded") <= at("ended"), "{item}");
    }
}

#[test]
fn a_dead_helper_is_replaced_by_a_new_one() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    let content = cluster.put("film", 1_000_000);
    cluster.kill("h2");
    cluster.mend(&["node", "add", "h7", "--listen", "127.0.0.1:0"]).ok();
    cluster.start(&["helper", "h7"]);
    cluster.await_ready();
    cluster.eventually("h2 is gone", |cluster| cluster.mend(&["status"]).out.starts_with("DEGRADED"));
    let replaced = cluster.mend(&["node", "replace", "h2", "h7"]).ok();
    assert!(replaced.out.contains("(node h2) done after"), "{replaced:?}");
    assert!(is_whole(&cluster));
    cluster.mend(&["node", "remove", "h2"]).ok();
    cluster.assert_reads("film", &content, &[]);
}

#[test]
fn every_change_is_recorded_with_its_author_and_result() {
    let mut cluster = Cluster::new(6, "rs-6-4", "64KiB");
    cluster.put("film", 300_000);
    assert_eq!(cluster.mend(&["audit"]).ok().out.trim(), "no changes yet", "puts and reads are no changes");
    cluster.mend(&["issue", "operator", "ann"]).ok();
    cluster.mend(&["--as", "ann", "caps", "--total", "8gbit"]).ok();
    cluster.mend(&["node", "maintenance", "h2", "--for", "1h"]).ok();
    cluster.mend(&["cancel", "777"]).fails_with(&["there is no repair 777"]);
    cluster.mend(&["rm", "film"]).ok();
    cluster.kill("coordinator");
    cluster.start(&["--log", "json", "coordinator"]);
    cluster.await_ready();
    let told = cluster.mend(&["audit", "--since", "1h"]).ok().out;
    let lines: Vec<&str> = told.lines().collect();
    let expected = [
        ("operator ann from -: new certificate {", "done"),
        ("operator ann from 127.0.0.1: POST /v1/caps {\"cluster\":1000000000}", "done"),
        ("client admin from 127.0.0.1: PUT /v1/nodes/h2/maintenance {\"for_ms\":3600000}", "done"),
        ("client admin from 127.0.0.1: DELETE /v1/repairs/777", "refused (404): there is no repair 777"),
        ("client admin from 127.0.0.1: DELETE /v1/files/film", "done"),
    ];
    assert_eq!(lines.len(), expected.len(), "{told}");
    for (line, (request, result)) in lines.iter().zip(expected) {
        assert!(line.contains(request) && line.ends_with(result), "{line}");
    }
    let entries = cluster.mend(&["audit", "-n", "1", "--output", "json"]).ok().json();
    assert_eq!(entries[0]["request"], "DELETE /v1/files/film");
    assert_eq!(cluster.mend(&["audit", "--since", "2126-01-01T00:00:00Z"]).ok().out.trim(), "no changes yet");
    cluster.mend(&["history", "--since", "never"]).fails_with(&["write a time ago such as 2h"]);
    for line in cluster.log("coordinator").lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}
