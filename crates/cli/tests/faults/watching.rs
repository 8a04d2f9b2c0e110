//! `mend watch` prints the events that the coordinator pushes.

use std::fs::{self, File};
use std::process::Child;

use serde_json::Value;

use crate::cluster::{Cluster, finish};

/// Starts `mend watch --events --output json` with its output in a file.
fn watch(cluster: &Cluster) -> Child {
    let out = File::create(cluster.path("events")).unwrap();
    cluster.command(&["watch", "--events", "--output", "json"]).stdout(out).spawn().unwrap()
}

/// Returns the events so far that have this `kind`.
fn events(cluster: &Cluster, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(cluster.path("events")).unwrap();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let events = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["kind"] == kind).collect()
}

/// Returns the codes of the conditions that were pushed last.
fn conditions(cluster: &Cluster) -> Vec<String> {
    let pushed = events(cluster, "conditions");
    let Some(last) = pushed.last() else { return Vec::new() };
    let codes = last["conditions"].as_array().unwrap().iter();
    codes.map(|condition| condition["code"].as_str().unwrap().to_owned()).collect()
}

fn has_entry(cluster: &Cluster, event: &str) -> bool {
    events(cluster, "history").iter().any(|pushed| pushed["entry"]["event"] == event)
}

#[test]
fn a_watcher_gets_conditions_history_and_progress_as_they_change() {
    let mut cluster = Cluster::new(7, "rs-6-4", "256KiB");
    cluster.put("film", 4 << 20);
    let mut watching = watch(&cluster);
    cluster.eventually("the stream begins", |cluster| !events(cluster, "conditions").is_empty());
    assert!(events(&cluster, "history").is_empty(), "only new entries");
    let lost = cluster.holder("1.0");
    cluster.kill(&lost);
    cluster.eventually("the loss is pushed", |cluster| {
        let codes = conditions(cluster);
        has_entry(cluster, "node-lost")
            && ["HELPER_GONE", "DEGRADED"].iter().all(|code| codes.contains(&(*code).into()))
    });
    // So slow that its progress is seen.
    cluster.mend(&["caps", "--total", "1MB/s"]).ok();
    cluster.mend(&["node", "recover", &lost, "--no-wait"]).ok();
    let all = cluster.mend(&["watch"]).ok();
    assert!(all.out.contains(&lost) && all.out.contains("done"), "{all:?}");
    cluster.eventually("the repair is pushed to its end", |cluster| {
        let states: Vec<Value> =
            events(cluster, "repair").iter().map(|pushed| pushed["repair"]["state"].clone()).collect();
        states.contains(&"running".into()) && states.last() == Some(&"done".into())
    });
    cluster.eventually("the end of the loss is pushed", |cluster| {
        has_entry(cluster, "repair-ended") && !conditions(cluster).contains(&"DEGRADED".to_owned())
    });
    assert!(watching.try_wait().unwrap().is_none(), "it goes on");
    assert!(cluster.mend(&["watch"]).ok().out.contains("no repair is running"));
    cluster.signal("coordinator", "TERM");
    assert_ne!(finish(watching).code, 0);
    let text = fs::read_to_string(cluster.path("events")).unwrap();
    let said = ["the coordinator is stopping", "it closed the connection"];
    assert!(said.iter().any(|said| text.contains(said)), "{text}");
}
