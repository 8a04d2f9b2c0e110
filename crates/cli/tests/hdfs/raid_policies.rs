//! Policies that the coordinator evaluates by itself, on replicated files of a real HDFS.

use std::fs;
use std::path::Path;
use std::time::Duration;

use testbed::{Mend, content, eventually_within, replace_file};

use crate::mend;
use crate::raid_encoding::{BLOCK, clean_up, holders, policy, put};
use crate::world::{ALWAYS, NO_REPAIR, World};

/// The longest wait for an encoding: HDFS removes replicas with heartbeats, and Mend waits until they have settled.
pub const LIMIT: Duration = Duration::from_secs(300);
const FILE: &str = "/steady/file";
const PARITY: &str = "/raidrs/steady/file";

/// A policy encodes a file without a command, and again after it was appended to. The status shows the backlog, and then
/// that there is nothing to do. A mistake in the policies is a problem, and stops nothing.
pub fn by_the_coordinator(world: &mut World) {
    let mut mend = mend::attach(world, &["--raid", "--dry-run"], true);
    mend.wait_for_helpers();
    put(world, FILE, 10 * BLOCK - 777);
    let policy = policy(&mend, "/steady");
    mend.kill_coordinator();
    evaluate(&mend, &policy);
    mend.start_coordinator();
    await_remark(&mend, "1 file (40.0 MiB) to do");
    await_encoded(world, FILE, 10);
    await_remark(&mend, "encoding by policies: nothing to do");
    world.assert_files();

    let spared = put_name_with_line_break(world, &mend);
    append(world, &mend, BLOCK);
    await_missing_replicas(&mend);
    // HDFS makes the replicas of a file whose parity is stale, so for this it must be allowed to.
    world.restart_namenode_with(&ALWAYS);
    await_encoded(world, FILE, 11);
    await_remark(&mend, "encoding by policies: nothing to do");
    assert!(holders(world, PARITY).len() == 8, "two stripes have eight parity blocks");
    assert!(world.cluster.console().exists(spared), "no part of a name was carried out as a change");
    world.restart_namenode_with(&NO_REPAIR);

    replace_file(Path::new(&policy), "[[policy]]\nname = 1\n");
    await_problem(&mend, "the former policies still apply");
    await_remark(&mend, "encoding by policies: nothing to do");
    fs::remove_file(&policy).expect("removed");
    await_problem(&mend, "files of HDFS are not encoded: cannot read");
    clean_up(world, &["/steady"]);
}

/// Has the coordinator evaluate the policies from its next start on.
pub fn evaluate(mend: &Mend, policy: &str) {
    let path = mend.folder().join("mend.toml");
    let text = fs::read_to_string(&path).expect("readable");
    let name = Path::new(policy).file_name().expect("a name").to_str().expect("text");
    let with = format!("[store.raid]\npolicies = \"{name}\"\ninterval = \"10s\"\n");
    assert!(text.contains("[store.raid]\n"), "{text}");
    replace_file(&path, text.replace("[store.raid]\n", &with));
}

/// Stores a file below the parity root whose name contains a call, and returns the path of the file that the call would delete.
/// The coordinator queries the file in the folder of the policy to which such parity would belong.
fn put_name_with_line_break(world: &mut World, mend: &Mend) -> &'static str {
    let local = mend.folder().join("odd");
    fs::create_dir(&local).expect("created");
    fs::write(local.join("x\n999999 delete %2Fsteady%2Fspared"), "").expect("written");
    let console = world.cluster.console();
    console.run(&["dfs", "-touchz", "/steady/spared"]);
    console.run(&["dfs", "-put", local.to_str().expect("text"), "/raidrs/steady/odd"]);
    "/steady/spared"
}

/// Appends bytes to the file, and reads all of it back.
fn append(world: &mut World, mend: &Mend, bytes: usize) {
    let more = content("more", bytes);
    let (added, got) = (mend.folder().join("added"), mend.folder().join("got"));
    fs::write(&added, &more).expect("written");
    let expected = [world.files.content(FILE), &more].concat();
    world.files.forget(FILE);
    let console = world.cluster.console();
    console.run(&["dfs", "-appendToFile", added.to_str().expect("text"), FILE]);
    console.run(&["dfs", "-get", FILE, got.to_str().expect("text")]);
    assert!(fs::read(&got).expect("got") == expected, "{FILE} differs");
}

/// Waits until the file has this many blocks with one replica each, and all have DataNodes of their own within a stripe.
pub fn await_encoded(world: &mut World, path: &str, blocks: usize) {
    eventually_within(LIMIT, "the file to be encoded", || {
        let (data, parity) = (holders(world, path), holders(world, &format!("/raidrs{path}")));
        let is_single = |nodes: &Vec<String>| nodes.len() == 1;
        let is_encoded = data.len() == blocks && parity.len() == blocks.div_ceil(10) * 4;
        (is_encoded && data.iter().chain(&parity).all(is_single)).then_some(())
    });
    assert!(
        !world.cluster.console().exists(&format!("/tmp/raidrs{path}")),
        "nothing is left of the encoding"
    );
}

/// Waits until the status names the file: Mend has raised its replication, and this HDFS creates no replicas.
fn await_missing_replicas(mend: &Mend) {
    eventually_within(LIMIT, "the file without its replicas to be named", || {
        let status = mend.ask(&["raid", "status", "/steady"])?;
        let file = status["files"].as_array()?.iter().find(|file| file["path"] == FILE)?;
        let why = file["missing_replicas"].as_str()?;
        (why.contains("dfs.namenode.replication.max-streams") && status["severity"] != "ok").then_some(())
    });
}

pub fn await_remark(mend: &Mend, remark: &str) {
    eventually_within(LIMIT, remark, || {
        let status = mend.ask(&["status"])?;
        status["remarks"].to_string().contains(remark).then_some(())
    });
}

pub fn await_problem(mend: &Mend, problem: &str) {
    eventually_within(LIMIT, problem, || {
        let status = mend.ask(&["status"])?;
        status["conditions"].to_string().contains(problem).then_some(())
    });
}
