//! `mend raid encode` and `mend raid undo` on replicated files of a real HDFS.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use testbed::{Mend, eventually};

use crate::mend;
use crate::reading::{MEND, read};
use crate::world::{ALWAYS, NO_REPAIR, World};

/// The block size of the tests' files.
pub const BLOCK: usize = 4 << 20;

/// A file is encoded, read while a DataNode is dead, and replicated again.
pub fn there_and_back(world: &mut World) {
    const FILE: &str = "/encoded/file";
    let mend = mend::attach(world, &["--raid", "--repair-after", "30m"], true);
    mend.wait_for_helpers();
    testbed::hdfs::issue_plugin(&mend, world.certificates.path());
    put(world, FILE, 10 * BLOCK - 777);
    let policy = policy(&mend, "/encoded");
    finish(&mend, "encode", "/encoded", &policy);
    let (data, parity) = (holders(world, FILE), holders(world, "/raidrs/encoded/file"));
    let mut nodes: Vec<&String> = data.iter().chain(&parity).flatten().collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), 14, "each block has one replica, on a DataNode of its own: {data:?} {parity:?}");
    assert!(!world.cluster.console().exists("/tmp/raidrs"), "nothing is left of the encoding");
    world.assert_files();
    rename_and_back(world, &mend, FILE, &policy);
    read_degraded(world, FILE, &data[3][0]);
    // HDFS itself makes the replicas.
    world.restart_namenode_with(&ALWAYS);
    finish(&mend, "undo", "/encoded", &policy);
    assert!(holders(world, FILE).iter().all(|nodes| nodes.len() == 3));
    assert!(!world.cluster.console().exists("/raidrs/encoded/file"));
    world.assert_files();
    let again = mend.ask(&["raid", "encode", "/encoded", "--policy", &policy]).expect("an answer");
    assert!(
        again["files"][0]["reason"].as_str().is_some_and(|why| why.contains("user.mend.raid")),
        "{again}"
    );
    world.restart_namenode_with(&NO_REPAIR);
    clean_up(world, &["/encoded"]);
}

/// A client without Mend's file system class renames the encoded file, and back. Its parity follows, and is not made again.
fn rename_and_back(world: &mut World, mend: &Mend, path: &str, policy: &str) {
    let other = format!("{path}2");
    for (from, to) in [(path, other.as_str()), (other.as_str(), path)] {
        world.cluster.console().run(&["dfs", "-mv", from, to]);
        let said = finish(mend, "encode", "/encoded", policy);
        assert!(said.contains(&format!("let /raidrs{from} become /raidrs{to}")), "{said}");
        assert!(!said.contains("encode stripe"), "{said}");
        let console = world.cluster.console();
        assert!(console.exists(&format!("/raidrs{to}")) && !console.exists(&format!("/raidrs{from}")));
    }
}

/// A command that was killed in the middle leaves the file as it was; the next one continues.
pub fn interrupted(world: &mut World) {
    const FILE: &str = "/interrupted/file";
    let mend = mend::attach(world, &["--raid", "--dry-run"], true);
    put(world, FILE, 30 * BLOCK);
    other_codecs_are_refused(&mend);
    other_paths_are_refused(&mend);
    let policy = policy(&mend, "/interrupted");
    let words = ["raid", "encode", "/interrupted", "--policy", &policy];
    let mut first =
        mend.verb(&words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("mend runs");
    let mut said = BufReader::new(first.stderr.take().expect("piped")).lines();
    let is_second = |line: std::io::Result<String>| line.is_ok_and(|line| line.contains("encode stripe 1:"));
    // The third one is due then, so nothing is published before the command is killed.
    assert!(said.any(is_second), "the second stripe is encoded");
    first.kill().expect("it runs");
    first.wait().expect("it has ended");
    assert!(holders(world, FILE).iter().all(|nodes| nodes.len() == 3), "the file is as before");
    assert!(!world.cluster.console().exists("/raidrs/interrupted"));
    let said = finish(&mend, "encode", "/interrupted", &policy);
    assert!(said.contains("continue the work in /tmp/raidrs/interrupted/file/.mend-"), "{said}");
    assert!(!said.contains("encode stripe 0:"), "its parity is kept: {said}");
    assert!(holders(world, FILE).iter().all(|nodes| nodes.len() == 1));
    assert_eq!(holders(world, "/raidrs/interrupted/file").len(), 12);
    world.assert_files();
    clean_up(world, &["/interrupted"]);
}

/// The coordinator would not repair files of a codec that `[store.raid]` lacks.
fn other_codecs_are_refused(mend: &Mend) {
    let path = mend.folder().join("other.toml");
    let text = "[[codec]]\nname = \"other\"\ncode = \"rs-5-3\"\nparity_root = \"/other\"\n\
                [[policy]]\nname = \"all\"\npaths = [\"/interrupted\"]\ncodec = \"other\"\nmin_age = \"0s\"\n";
    fs::write(&path, text).expect("written");
    let words = ["raid", "encode", "/interrupted", "--policy", path.to_str().expect("text")];
    let refused = mend.run(&words);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("[[store.raid.codec]]"), "{said}");
}

/// The coordinator would not repair files outside of `paths`. A plan names them.
fn other_paths_are_refused(mend: &Mend) {
    let (path, policy) = (mend.folder().join("mend.toml"), policy(mend, "/interrupted"));
    let text = fs::read_to_string(&path).expect("readable");
    let other = text.replace("paths = [\"/\"]", "paths = [\"/other\"]");
    assert_ne!(other, text);
    fs::write(&path, other).expect("written");
    let refused = mend.run(&["raid", "encode", "/interrupted", "--policy", &policy]);
    let plan = mend.ask(&["raid", "plan", "/interrupted", "--policy", &policy]).expect("a plan");
    fs::write(&path, text).expect("written");
    let held = plan["units"][0]["held"].as_str();
    assert!(held.is_some_and(|why| why.contains("outside of `paths`")), "{plan}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("outside of `paths`"), "{said}");
}

/// Stores a file with three replicas of each block.
pub fn put(world: &mut World, path: &str, bytes: usize) {
    let folder = path.rsplit_once('/').expect("a path").0;
    world.cluster.console().run(&["dfs", "-mkdir", "-p", folder]);
    world.put(path, bytes);
    // A DataNode reports a replica a moment after the client has written it.
    eventually("all replicas", || holders(world, path).iter().all(|nodes| nodes.len() == 3).then_some(()));
}

pub fn policy(mend: &Mend, folder: &str) -> String {
    let path = mend.folder().join("raid.toml");
    let text =
        format!("[[policy]]\nname = \"all\"\npaths = [\"{folder}\"]\ncodec = \"rs\"\nmin_age = \"0s\"\n");
    fs::write(&path, text).expect("written");
    path.to_str().expect("text").to_owned()
}

/// Runs a command that must finish its file; returns its progress lines.
pub fn finish(mend: &Mend, verb: &str, folder: &str, policy: &str) -> String {
    let output = mend.run(&["raid", verb, folder, "--policy", policy]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}\n{said}");
    assert!(printed.contains("1 file"), "{printed}");
    said
}

/// Returns the DataNodes of each block.
pub fn holders(world: &mut World, path: &str) -> Vec<Vec<String>> {
    let blocks = world.cluster.console().fsck(path).into_iter().flat_map(|file| file.blocks);
    blocks.map(|block| block.replicas.into_iter().map(|(_, address)| address).collect()).collect()
}

/// Kills a DataNode, reads the whole file with Mend's file system class, and starts the DataNode again.
pub fn read_degraded(world: &mut World, path: &str, address: &str) {
    let (node, nodes) = (world.cluster.node_at(address), world.cluster.nodes().len());
    let bytes = world.files.content(path).len();
    world.cluster.kill(node);
    world.cluster.await_nodes(nodes - 1);
    read(world, MEND, path, 0, bytes);
    world.cluster.start(node);
    world.cluster.await_nodes(nodes);
    world.await_whole();
}

pub fn clean_up(world: &mut World, folders: &[&str]) {
    let words = [&["dfs", "-rm", "-r", "-f", "-skipTrash", "/raidrs", "/tmp/raidrs"], folders].concat();
    world.cluster.console().run(&words);
    folders.iter().for_each(|folder| world.files.forget(&format!("{folder}/file")));
    world.assert_whole();
}
