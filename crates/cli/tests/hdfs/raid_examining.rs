//! `mend raid status` and `mend raid fsck` on an encoded file of a real HDFS.

use serde_json::{Value, json};
use testbed::{Mend, eventually};

use crate::mend;
use crate::raid_reading::{BYTES, DATA, FILE, PARITIES, PARITY, Raided, encode};
use crate::world::World;

/// Returns for each stripe the number of blocks on DataNodes that are to be killed.
fn missing(raided: &Raided) -> Vec<usize> {
    let on_dead = |nodes: &[usize]| nodes.iter().filter(|node| raided.dead.contains(node)).count();
    let stripes = raided.holders.chunks(DATA).zip(raided.parity.chunks(PARITIES));
    stripes.map(|(data, parity)| on_dead(data) + on_dead(parity)).collect()
}

/// Sets the note that Mend itself reads; `encode` only sets the copy for readers.
fn set_note(world: &mut World, note: &str) {
    world.cluster.console().run(&["dfs", "-setfattr", "-n", "trusted.mend.source", "-v", note, PARITY]);
}

fn exit_code(mend: &Mend, words: &[&str]) -> Option<i32> {
    mend.run(words).status.code()
}

/// Kills the DataNodes that hold some blocks of the raided file, and waits until the NameNode takes them for dead.
fn kill(world: &mut World, raided: &Raided) {
    raided.dead.iter().for_each(|&node| world.cluster.kill(node));
    let nodes = world.cluster.nodes().len();
    world.cluster.await_nodes(nodes - raided.dead.len());
}

/// Removes the raided file, at its present path, and its parity.
fn remove(world: &mut World) {
    world.cluster.console().run(&["dfs", "-rm", "-r", "-skipTrash", "/raided", "/raidrs"]);
    [FILE, PARITY].iter().for_each(|path| world.files.forget(path));
    world.assert_whole();
}

fn revive(world: &mut World, raided: &Raided) {
    raided.dead.iter().for_each(|&node| world.cluster.start(node));
    world.await_nodes();
    world.await_whole();
}

/// The status has the saving, the parity's state, and the number of stripes for each number of missing blocks.
pub fn a_status(world: &mut World) {
    let mend = mend::attach(world, &["--dry-run"], true);
    let raided = encode(world);
    set_note(world, &raided.note);
    let status = eventually("all blocks to be listed", || {
        let status = mend.ask(&["raid", "status", "/raided"])?;
        (status["stripes"]["by_missing_blocks"] == json!({ "0": 2 })).then_some(status)
    });
    let bytes = BYTES as u64;
    let encoded = &status["encoded"];
    assert_eq!([&encoded["files"], &encoded["bytes"]], [&json!(1), &json!(bytes)]);
    assert_eq!(encoded["stored_bytes_before"], json!(3 * bytes));
    assert_eq!(status["parity"]["proven"]["files"], 1);
    assert_eq!((&status["files"][0]["held"], &status["limits"]["left_out"]), (&Value::Null, &json!([])));
    kill(world, &raided);
    let mut counts = serde_json::Map::new();
    for missing in missing(&raided) {
        let count = counts.get(&missing.to_string()).and_then(Value::as_u64).unwrap_or(0);
        counts.insert(missing.to_string(), json!(count + 1));
    }
    eventually("the missing blocks to be counted", || {
        let status = mend.ask(&["raid", "status", "/raided"])?;
        (status["stripes"]["by_missing_blocks"] == Value::Object(counts.clone())).then_some(())
    });
    assert_eq!(exit_code(&mend, &["raid", "status", "/raided"]), Some(0), "all of it can be rebuilt");
    assert_eq!(exit_code(&mend, &["raid", "status", "/raided", "--check"]), Some(1));
    revive(world, &raided);
    remove(world);
}

/// `mend raid fsck` names the missing blocks and their stripes. Parity with a note about other blocks does not count,
/// and parity of a renamed file is recognized by the inode in its note.
pub fn an_fsck(world: &mut World) {
    let mend = mend::attach(world, &["--dry-run"], true);
    let raided = encode(world);
    set_note(world, &raided.note);
    kill(world, &raided);
    let is_lost = |node: &usize| raided.dead.contains(node);
    let expected: Vec<bool> =
        raided.holders[..DATA].iter().chain(&raided.parity[..PARITIES]).map(is_lost).collect();
    eventually("the missing blocks to be named", || {
        let fsck = mend.ask(&["raid", "fsck", FILE])?;
        let stripe = &fsck["paths"][0]["files"][0]["stripes"][0];
        let blocks = stripe["blocks"].as_array()?;
        let is_missing = |block: &Value| block["datanodes"].as_array().is_some_and(Vec::is_empty);
        let found: Vec<bool> = blocks.iter().map(is_missing).collect();
        (found == expected && stripe["decodable"] == true && fsck["verdict"] == "degraded").then_some(())
    });
    assert_eq!(exit_code(&mend, &["raid", "fsck", FILE]), Some(3));
    set_note(world, "1 7 3 0 0");
    let fsck = mend.ask(&["raid", "fsck", FILE]).expect("a result");
    let file = &fsck["paths"][0]["files"][0];
    assert_eq!([&fsck["verdict"], &file["parity"]["state"]], ["unreadable", "stale"]);
    set_note(world, &raided.note);
    revive(world, &raided);
    world.cluster.console().run(&["dfs", "-mv", FILE, "/raided/moved"]);
    let status = mend.ask(&["raid", "status", "/raided"]).expect("a result");
    assert_eq!(status["parity"]["renamed-source"]["files"], 1);
    assert_eq!(exit_code(&mend, &["raid", "fsck", "/raided"]), Some(1));
    remove(world);
}
