//! Mend's reports about a cluster: files that are being written or were deleted, the time before the first
//! listing, dead DataNodes and missing helpers.

use std::sync::Mutex;
use std::time::Duration;

use hdfs::{NameNode, NameNodeSettings, Progress};
use serde_json::Value;
use testbed::{Mend, eventually, eventually_within, replace_file};

use crate::mend;
use crate::world::{NO_REPAIR, World};

/// How long DataNodes may be down before their blocks are rebuilt elsewhere: longer than any case runs.
const GRACE: &str = "30m";
/// The longest wait for several rounds in which HDFS checks each block of all groups.
const ROUNDS_LIMIT: Duration = Duration::from_secs(600);
/// The number of folders that are created at once, and how often. A listing of so many takes longer than a second, the
/// interval of its reports.
const FOLDERS: usize = 8000;
const FOLDER_BATCHES: usize = 6;

fn attach(world: &mut World) -> Mend {
    mend::attach(world, &["--repair-after", GRACE], true)
}

/// Returns the status, or `None` if the coordinator does not answer.
fn status(mend: &Mend) -> Option<Value> {
    mend.ask(&["status"]).filter(|status| status["summary"].is_string())
}

/// Files that are deleted but still in a snapshot are counted, scrubbed and repaired.
pub fn snapshots(world: &mut World) {
    let mend = attach(world);
    world.put("/RS-6-3-1024k/kept+100%", 9_000_001);
    world.await_whole();
    let known = world.groups().len();
    mend.wait_until_safe(known);
    let kept = world.groups().into_iter().find(|group| group.path.ends_with("kept+100%")).expect("a group");
    let console = world.cluster.console();
    console.run(&["dfsadmin", "-allowSnapshot", "/RS-6-3-1024k"]);
    console.run(&["dfs", "-createSnapshot", "/RS-6-3-1024k", "s1"]);
    world.delete("/RS-6-3-1024k/kept+100%");
    assert_eq!(world.groups().len() + 1, known);
    eventually("a remark", || {
        let status = mend.ask(&["status"])?;
        status["remarks"].to_string().contains("exist only in snapshots are counted too: 1,").then_some(())
    });
    mend.wait_until_safe(known);
    let before = world.lose(&[(&kept, 1)]).remove(0);
    world.await_replica(kept.holders[1].expect("held"), &kept.shape.blocks[1].name, &before);
    let _ = world.rot(&kept, 7, 11);
    assert!(
        mend.ask(&["scrub"])
            .expect("it reports")
            .to_string()
            .contains(&kept.shape.blocks[7].name.to_string())
    );
    mend.wait_until_safe(known);
    let console = world.cluster.console();
    console.run(&["dfs", "-deleteSnapshot", "/RS-6-3-1024k", "s1"]);
    console.run(&["dfsadmin", "-disallowSnapshot", "/RS-6-3-1024k"]);
    mend.wait_until_safe(known - 1);
    world.assert_whole();
}

fn names(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// A DataNode returns with corrupt copies of blocks that were rebuilt elsewhere. In the end only good copies
/// must remain.
pub fn rotten_copies_that_come_back(world: &mut World) {
    rotten_copies_displaced_nothing(world, &[]);
}

/// The same if the rebuilt blocks were pushed to DataNodes without the plug-in.
pub fn rotten_copies_that_come_back_after_a_push(world: &mut World) {
    rotten_copies_displaced_nothing(world, &["--no-plugin"]);
}

fn rotten_copies_displaced_nothing(world: &mut World, options: &[&str]) {
    let mut mend = mend::attach(world, &[&["--repair-after", "1s"], options].concat(), true);
    mend.wait_until_safe(world.groups().len());
    let dead = world.largest("RS-10-4-1024k").holders[1].expect("held");
    let nodes = world.cluster.nodes().len();
    let had: Vec<_> =
        world.groups().into_iter().filter(|group| group.holders.contains(&Some(dead))).collect();
    world.cluster.kill(dead);
    mend.kill_helper(dead);
    world.cluster.await_nodes(nodes - 1);
    eventually("all is elsewhere", || {
        let elsewhere = world.groups().iter().all(|group| !group.holders.contains(&Some(dead)));
        (elsewhere && world.cluster.console().is_healthy("/")).then_some(())
    });
    for group in &had {
        let at = group.holders.iter().position(|holder| *holder == Some(dead)).expect("it had one");
        world.rot(group, at, 9);
    }
    mend.start_helper(dead);
    world.cluster.start(dead);
    world.await_nodes();
    let repaired = |world: &mut World| {
        world.await_whole();
        let groups = world.groups();
        let mut all = groups.iter().flat_map(|group| group.holders.iter().zip(&group.shape.blocks));
        world.wrong_copies().is_empty()
            && all.all(|(holder, block)| holder.is_some_and(|node| world.passes(node, &block.name)))
    };
    let mut rounds = 0;
    eventually_within(ROUNDS_LIMIT, "one good copy of each block, for a while", || {
        rounds = if repaired(world) { rounds + 1 } else { 0 };
        (rounds == 5).then_some(())
    });
    world.assert_whole();
}

/// The status names a dead DataNode whose helper is up. It does not report a DataNode without a helper as
/// down.
pub fn servers(world: &mut World) {
    let mut mend = attach(world);
    let groups = world.groups().len();
    mend.wait_until_safe(groups);
    let all = world.cluster.nodes().len();
    world.cluster.kill(2);
    let name = mend.names()[2].clone();
    eventually("the dead DataNode is named", || {
        let status = mend.ask(&["status"])?;
        let is_told = names(&status["servers_down"]) == [name.clone()]
            && status["summary"].as_str()?.contains(&format!("servers out of service: {name}"));
        // Its helper is up.
        (is_told && names(&status["nodes_up"]).len() == all).then_some(())
    });
    let said = String::from_utf8(mend.run(&["status"]).stdout).expect("text");
    assert!(!said.contains("0 files"), "HDFS has files, which are not Mend's: {said}");
    let listed = String::from_utf8(mend.run(&["node", "list"]).stdout).expect("text");
    let row = listed.lines().find(|line| line.starts_with(&name)).expect("its row");
    assert_eq!(row.split_whitespace().take(3).collect::<Vec<_>>(), [&name, "up", "DOWN"], "{listed}");
    world.cluster.start(2);
    world.await_nodes();
    // Remove the helper of another DataNode permanently.
    mend.kill_coordinator();
    mend.kill_helper(4);
    let config = mend.folder().join("mend.toml");
    let text = std::fs::read_to_string(&config).expect("its configuration");
    let from = text.find(&format!("[[helper]]\nname = \"{}\"", mend.names()[4])).expect("its table");
    let to = text[from + 1..].find("[[helper]]").map_or(text.len(), |next| from + 1 + next);
    replace_file(&config, text[..from].to_owned() + &text[to..]);
    mend.start_coordinator();
    let alone = world.cluster.nodes()[4].address();
    eventually("the DataNode without a helper is told of", || {
        let status = mend.ask(&["status"])?;
        (names(&status["servers_without_helper"]).contains(&alone) && status["severity"] != "unknown")
            .then_some(())
    });
    let status = mend.ask(&["status"]).expect("it answers");
    assert!(!names(&status["nodes_down"]).contains(&alone), "{status:#}");
    assert!(!names(&status["servers_down"]).contains(&alone), "{status:#}");
    a_folder_that_a_helper_does_not_know(&mut mend);
    drop(mend);
    world.assert_whole();
}

/// A DataNode has a folder that is missing in `mend.toml`, as after a disk was added to it.
fn a_folder_that_a_helper_does_not_know(mend: &mut Mend) {
    mend.kill_coordinator();
    let config = mend.folder().join("mend.toml");
    let text = std::fs::read_to_string(&config).expect("its configuration");
    let line =
        text.lines().find(|line| line.starts_with("folders = [")).expect("a helper's folders").to_owned();
    let (first, rest) = line.split_once(", ").expect("two folders");
    replace_file(&config, text.replacen(&line, &format!("{first}]"), 1));
    let hidden = rest.trim_matches(['"', ']', ' ']);
    mend.start_coordinator();
    eventually("a warning about the folder", || {
        let troubles = mend.ask(&["status"])?["conditions"].to_string();
        (troubles.contains("its helper does not know") && troubles.contains(hidden)).then_some(())
    });
    replace_file(&config, text);
}

/// The NameNode dies, and is down when the coordinator starts again. The coordinator answers, but does not
/// report a healthy state.
pub fn without_a_namenode(world: &mut World) {
    let mut mend = attach(world);
    let groups = world.groups().len();
    mend.wait_until_safe(groups);
    world.cluster.kill_namenode();
    eventually("the state is unknown", || {
        status(&mend)?["summary"].as_str()?.starts_with("UNKNOWN  cannot ask the NameNode").then_some(())
    });
    assert_eq!(mend.run(&["status", "--check"]).status.code(), Some(3));
    assert_eq!(mend.run(&["status"]).status.code(), Some(1));
    mend.kill_coordinator();
    mend.start_coordinator();
    let status = eventually("an answer", || status(&mend));
    assert_eq!((&status["healthy"], &status["severity"]), (&false.into(), &"unknown".into()), "{status:#}");
    assert!(status["summary"].as_str().is_some_and(|line| line.starts_with("UNKNOWN")), "{status:#}");
    let scrub = mend.run(&["scrub"]);
    assert!(!scrub.status.success(), "there is nothing that could agree: {scrub:?}");
    world.cluster.restart_namenode();
    world.await_nodes();
    mend.wait_until_safe(groups);
    // A NameNode that has just started may have ordered second copies of blocks, which it removes now.
    world.await_single_copies();
    world.assert_whole();
}

/// A listing reports its progress even while it finds only empty folders.
pub fn a_long_walk(world: &mut World) {
    let namenode = NameNode::new(NameNodeSettings {
        java: "java".into(),
        classpath: world.cluster.classpath(),
        uri: Some(world.cluster.uri()),
        settings: Vec::new(),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let is_reported = (0..FOLDER_BATCHES).any(|batch| {
        let folders: Vec<String> = (0..FOLDERS).map(|at| format!("/walk/{batch}-{at}")).collect();
        let words = ["dfs", "-mkdir", "-p"].into_iter().chain(folders.iter().map(String::as_str));
        world.cluster.console().run(&words.collect::<Vec<_>>());
        let told: Mutex<Vec<Progress>> = Mutex::default();
        let listing = runtime.block_on(
            namenode.list(&["/walk".to_owned()], &|progress| told.lock().expect("whole").push(progress)),
        );
        assert_eq!(listing.expect("listed").groups.len(), 0);
        let (told, all) = (told.into_inner().expect("whole"), (batch + 1) * FOLDERS);
        told.iter().any(|progress| (1..all as u64).contains(&progress.folders))
    });
    assert!(is_reported, "each listing took less than a second, or reported nothing");
    world.cluster.console().run(&["dfs", "-rm", "-r", "-skipTrash", "/walk"]);
}

/// DataNodes report new blocks with a delay, as is common in large clusters. No new block may be reported
/// lost in the meantime.
pub fn files_that_are_written(world: &mut World) {
    let late = "dfs.blockreport.incremental.intervalMsec=4000";
    let settings = NO_REPAIR.into_iter().chain([late]).map(str::to_owned).collect();
    world.cluster.restart_with(settings);
    world.await_whole();
    let mend = attach(world);
    let groups = world.groups().len();
    mend.wait_until_safe(groups);
    let paths: Vec<String> = (0..15).map(|at| format!("/RS-6-3-1024k/written-{at}")).collect();
    let (mut looks, writer) = (0, &mut *world);
    std::thread::scope(|scope| {
        let written = &paths;
        let writing = scope.spawn(move || written.iter().for_each(|path| writer.put(path, 3_000_000)));
        while !writing.is_finished() {
            let Some(status) = status(&mend) else { continue };
            assert_eq!(status["stripes"]["intact"], status["stripes"]["stripes"], "{status:#}");
            assert_eq!(status["repairs"], Value::Array(Vec::new()), "{status:#}");
            looks += 1;
        }
    });
    assert!(looks > 0, "it was looked at while it was written");
    mend.wait_until_safe(groups + paths.len());
    let history = mend.ask(&["history"]).expect("it answers").to_string();
    assert!(!history.contains("repair-begun"), "{history}");
    paths.iter().for_each(|path| world.delete(path));
}
