//! Reports of `mend status` about volumes with losses, or in an unknown state.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use testbed::{eventually, eventually_within};

use crate::healing::{wait_until_as_it_was, wait_until_unlocked, wait_until_whole};
use crate::layout::{fullest, shards_at};
use crate::side_files::files_of;
use crate::world::World;

/// Returns pairs: the number of further losses that stripes survive, and the number of such stripes.
fn survivable(status: &Value) -> Vec<(u64, u64)> {
    let classes = status["stripes"]["redundancy"].as_array().expect("classes");
    let mut found: Vec<_> =
        classes.iter().map(|class| (number(&class["survives"]), number(&class["stripes"]))).collect();
    found.sort_unstable();
    found
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn says_safe(summary: &Value) -> bool {
    summary.as_str().expect("text").starts_with("safe")
}

/// One of several shards on a server is lost. The master still lists the server for the volume.
pub fn one_shard_of_several(world: &mut World) {
    let mend = world.attach("never");
    assert_eq!(survivable(&mend.ask(&["status"]).expect("it reports")), [(4, 2)]);
    let volume = world.pictures.clone();
    let shards = shards_at(world, &volume, fullest(world, &volume));
    assert!(shards.len() > 1, "it has several: {shards:?}");
    let (_, before) = world.lose(&shards[0]);
    // Without asking the server, Mend would count its shards as missing after 60 s. This one must be known before.
    let status = eventually_within(Duration::from_secs(50), "a status that knows", || {
        let status = mend.ask(&["status"])?;
        (survivable(&status) != [(4, 2)]).then_some(status)
    });
    assert_eq!(survivable(&status), [(3, 1), (4, 1)]);
    assert_eq!((&status["healthy"], number(&status["stripes"]["blocks_lost"])), (&Value::Bool(false), 1));
    assert!(!says_safe(&status["summary"]), "{}", status["summary"]);
    let repaired = mend.run(&["repair", "--all"]);
    assert!(repaired.status.success(), "{}", String::from_utf8_lossy(&repaired.stderr));
    wait_until_as_it_was(world, &shards[0], &before);
    wait_until_whole(world);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    world.assert_whole();
}

/// When the coordinator starts, no server can report the length or the number of a volume's shards.
pub fn a_volume_that_nobody_can_judge(world: &mut World) {
    let mut mend = world.attach("never");
    mend.kill_coordinator();
    let volume = world.bucket.clone();
    let files: Vec<_> = (0..world.servers.len()).flat_map(|at| files_of(world, at, &volume, "vif")).collect();
    let before: Vec<_> = files.iter().map(|path| fs::read(path).expect("there")).collect();
    files.iter().for_each(|path| fs::write(path, b"{ garbage").expect("written"));
    mend.start_coordinator();
    let status = eventually("a status that says so", || {
        let status = mend.ask(&["status"])?;
        assert!(status["healthy"] == false || status["settling"] == true, "{status}");
        let is_judged = status["unjudged"].as_array()?.is_empty() || status["stripes"]["stripes"] != 1;
        (!is_judged && status["settling"] == false).then_some(status)
    });
    assert_eq!(status["unjudged"][0]["stripe"], volume.to_string());
    let summary = status["summary"].as_str().expect("text");
    assert!(summary.starts_with("NOT KNOWN"), "{summary}");
    // On a busy machine, the command may not get the status in time.
    eventually("a wait that says why it waits", || {
        let waited = mend.run(&["wait", "--for", "safe", "--timeout", "5s"]);
        assert!(!waited.status.success(), "{waited:?}");
        String::from_utf8_lossy(&waited.stderr).contains("NOT KNOWN").then_some(())
    });
    let checked = mend.run(&["status", "--check"]);
    assert!(!checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    assert_eq!(mend.run(&["status"]).status.code(), Some(1));
    let repaired = mend.run(&["repair", "--all"]);
    let said = String::from_utf8_lossy(&repaired.stdout);
    assert_eq!(repaired.status.code(), Some(1), "{said}");
    assert!(said.starts_with("no block is known to be lost; the state of 1 stripe is unknown"), "{said}");
    for (path, before) in files.iter().zip(before) {
        fs::write(path, before).expect("written");
    }
    mend.wait_until_safe(2);
    let waited = mend.run(&["wait", "--for", "safe"]);
    assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
    wait_until_unlocked(world);
    drop(mend);
    world.assert_whole();
}
