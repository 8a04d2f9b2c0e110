//! Encodings that HDFS refuses for a while: an exceeded quota, and safe mode.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::mend;
use crate::raid_encoding::{BLOCK, clean_up, finish, holders, policy, put};
use crate::world::World;

/// A folder below the parity root has too small a quota. The error names it, the file keeps its replicas, and the next run
/// finishes it once the quota is gone, without making the parity again.
pub fn a_quota(world: &mut World) {
    const FILE: &str = "/quota/file";
    let mend = mend::attach(world, &["--raid", "--dry-run"], true);
    mend.wait_for_helpers();
    put(world, FILE, 10 * BLOCK);
    let policy = policy(&mend, "/quota");
    let console = world.cluster.console();
    console.run(&["dfs", "-mkdir", "-p", "/raidrs/quota"]);
    console.run(&["dfsadmin", "-setSpaceQuota", &BLOCK.to_string(), "/raidrs/quota"]);
    let output = mend.run(&["raid", "encode", "/quota", "--policy", &policy]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("quota of /raidrs/quota is exceeded"), "{said}");
    assert!(said.contains("raise the quota of the folder that the message names"), "{said}");
    assert!(holders(world, FILE).iter().all(|nodes| nodes.len() == 3), "the file is as before");
    assert!(!world.cluster.console().exists("/raidrs/quota/file"));
    world.cluster.console().run(&["dfsadmin", "-clrSpaceQuota", "/raidrs/quota"]);
    let said = finish(&mend, "encode", "/quota", &policy);
    assert!(!said.contains("encode stripe"), "its parity is kept: {said}");
    assert_encoded(world, FILE);
    let entries = mend.ask(&["history", "--last", "1000"]).expect("an answer");
    let entries = entries.as_array().expect("a list").iter().filter(|entry| entry["file"] == FILE);
    let told: Vec<(bool, bool)> = entries
        .map(|entry| {
            let by = entry["by"].as_str().is_some_and(|by| by.starts_with("a command of "));
            let is_quota = entry["failure"].as_str().is_some_and(|why| why.contains("quota"));
            assert!(entry["work"] == "encode" && by, "{entry}");
            (is_quota, entry["failure"].is_null())
        })
        .collect();
    assert_eq!(told, [(true, false), (false, true)], "the failure, then the encoding");
    clean_up(world, &["/quota"]);
}

/// The NameNode enters safe mode while a file is encoded. The file keeps its replicas, and the command waits and says why.
/// A command that begins meanwhile fails at once.
pub fn safe_mode(world: &mut World) {
    const FILE: &str = "/safe-mode/file";
    let mend = mend::attach(world, &["--raid", "--dry-run"], true);
    mend.wait_for_helpers();
    put(world, FILE, 30 * BLOCK);
    let policy = policy(&mend, "/safe-mode");
    let words = ["raid", "encode", "/safe-mode", "--policy", &policy];
    let mut command =
        mend.verb(&words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("mend runs");
    let mut said = BufReader::new(command.stderr.take().expect("piped")).lines().map_while(Result::ok);
    // Two others are due then, so nothing is published before safe mode begins.
    assert!(said.any(|line| line.contains("encode stripe 0:")), "the first stripe is encoded");
    world.cluster.console().run(&["dfsadmin", "-safemode", "enter"]);
    assert!(said.any(|line| line.contains("the NameNode is in safe mode; trying again")));
    assert!(holders(world, FILE).iter().all(|nodes| nodes.len() == 3), "the file is as before");
    let refused = mend.run(&words);
    let text = String::from_utf8_lossy(&refused.stderr).to_lowercase();
    assert!(!refused.status.success() && text.contains("safe mode"), "{text}");
    assert!(holders(world, FILE).iter().all(|nodes| nodes.len() == 3), "the file is as before");
    world.cluster.console().run(&["dfsadmin", "-safemode", "leave"]);
    let rest: Vec<String> = said.collect();
    assert!(command.wait().expect("it has ended").success(), "{}", rest.join("\n"));
    assert_encoded(world, FILE);
    clean_up(world, &["/safe-mode"]);
}

/// Asserts that each block of the file and of its parity has one replica, and that the bytes are right.
fn assert_encoded(world: &mut World, path: &str) {
    let (data, parity) = (holders(world, path), holders(world, &format!("/raidrs{path}")));
    assert_eq!(parity.len(), data.len().div_ceil(10) * 4);
    assert!(data.iter().chain(&parity).all(|nodes| nodes.len() == 1), "{data:?} {parity:?}");
    assert!(!world.cluster.console().exists("/tmp/raidrs"), "nothing is left of the encoding");
    world.assert_files();
}
