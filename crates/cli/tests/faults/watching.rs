//! `mend watch` prints the events that the coordinator pushes.

use std::fs::{self, File};
use std::process::Child;
use std::time::Duration;

use client::{Client, PushedEvent, RepairRequest, RepairState, RepairView};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, LIMIT, finish};

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

/// More repairs than the coordinator keeps after their ends.
const MORE_THAN_ARE_KEPT: usize = 120;
const AT_ONCE: usize = 8;

/// A client of a cluster with a drain that takes several seconds.
fn client_of(cluster: &Cluster) -> (Client, Runtime) {
    cluster.put("film", 8 << 20);
    cluster.mend(&["caps", "--total", "100KB/s"]).ok();
    let opened = ::cluster::Cluster::open(&cluster.folder()).unwrap();
    let client = Client::connect(&opened, &::cluster::Role::default_client()).unwrap();
    (client, tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap())
}

async fn drain(client: &Client) -> u64 {
    let drain = RepairRequest { drain: Some("h1".to_owned()), ..RepairRequest::default() };
    client.repair(&drain).await.unwrap().repair
}

/// Runs so many repairs, which find nothing to do, that the coordinator forgets all earlier ones.
async fn displace_ended_repairs(client: &Client) {
    let mut repairs = JoinSet::new();
    for _ in 0..AT_ONCE {
        let client = client.clone();
        repairs.spawn(async move {
            let all = RepairRequest { all: true, ..RepairRequest::default() };
            for _ in 0..MORE_THAN_ARE_KEPT / AT_ONCE {
                client.repair(&all).await.unwrap();
            }
        });
    }
    repairs.join_all().await;
}

async fn next_event(events: &mut client::Events) -> PushedEvent {
    timeout(LIMIT, events.next()).await.expect("an event").unwrap().expect("the stream goes on")
}

/// Waits until the state of a repair is pushed that `is_it` accepts.
async fn pushed(events: &mut client::Events, repair: u64, is_it: impl Fn(&RepairView) -> bool) -> RepairView {
    loop {
        if let PushedEvent::Repair { repair: pushed } = next_event(events).await
            && pushed.repair == repair
            && is_it(&pushed)
        {
            return *pushed;
        }
    }
}

/// The coordinator looks at its repairs once a second. In most rounds, the repair is forgotten between two looks.
#[test]
fn the_end_of_a_repair_is_pushed_even_if_it_was_forgotten_at_once() {
    let cluster = Cluster::new(7, "rs-6-4", "256KiB");
    let (client, runtime) = client_of(&cluster);
    runtime.block_on(async {
        for _ in 0..4 {
            let mut events = client.events(None).await.unwrap();
            while !matches!(next_event(&mut events).await, PushedEvent::Repairs { .. }) {}
            let drain = drain(&client).await;
            pushed(&mut events, drain, |repair| !repair.state.has_ended()).await;
            client.cancel_repair(drain).await.unwrap();
            // Running jobs are stopped first.
            while client.repair_state(drain).await.unwrap().ended_unix_ms.is_none() {
                sleep(Duration::from_millis(5)).await;
            }
            displace_ended_repairs(&client).await;
            let ended = pushed(&mut events, drain, |repair| repair.ended_unix_ms.is_some()).await;
            assert_eq!(ended.state, RepairState::Cancelled);
        }
    });
}

/// The watchers are stopped until the coordinator has forgotten the repair.
#[test]
fn a_watcher_reports_a_repair_that_the_coordinator_has_forgotten() {
    let cluster = Cluster::new(7, "rs-6-4", "256KiB");
    let (client, runtime) = client_of(&cluster);
    let drain = runtime.block_on(drain(&client));
    let watchers = [cluster.spawn(&["watch"]), cluster.spawn(&["watch", &drain.to_string()])];
    std::thread::sleep(Duration::from_secs(2));
    watchers.iter().for_each(|watcher| testbed::signal_process(watcher.id(), "STOP"));
    cluster.mend(&["caps", "--none"]).ok();
    cluster.eventually("the drain is done", |_| {
        runtime.block_on(client.repair_state(drain)).unwrap().state == RepairState::Done
    });
    runtime.block_on(displace_ended_repairs(&client));
    cluster.eventually("the drain is forgotten", |_| {
        runtime.block_on(client.repair_state(drain)).is_err_and(|error| error.is_not_found())
    });
    watchers.iter().for_each(|watcher| testbed::signal_process(watcher.id(), "CONT"));
    for watcher in watchers {
        let said = finish(watcher).ok();
        assert!(said.out.contains("drain h1") && said.out.contains("done"), "{said:?}");
    }
}
