//! `mend raid` on replicated files of a real HDFS, and repairs of a file whose parity was written as
//! HDFS-RAID writes it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use hdfs::ReplicaName;
use hdfs_raid::Codec;
use serde_json::Value;
use testbed::hdfs::FsckBlock;
use testbed::{Mend, eventually};

use crate::mend;
use crate::world::World;

/// The block size of the tests' files.
const BLOCK: u64 = 4 << 20;
/// A raided file of two stripes: ten full blocks, and two blocks of which the last one is short.
const RAIDED: &str = "/plain/raided";
const RAIDED_BYTES: usize = 12 * BLOCK as usize - 1_000_003;
/// Its parity file.
const PARITY: &str = "/raidrs/plain/raided";
const STRIPES: usize = 2;
/// The modification time of both.
const TIME: &str = "20240102:030405";
/// How long DataNodes may be down before their blocks are rebuilt elsewhere: longer than a case runs.
const GRACE: &str = "30m";

/// A file of ten blocks is planned: every block keeps one of its replicas, and four parity blocks get DataNodes of
/// their own. Other files have a reason.
pub fn a_plan(world: &mut World) {
    let mend = mend::attach(world, &["--dry-run"], true);
    let console = world.cluster.console();
    console.run(&["dfs", "-mkdir", "-p", "/plain/kept"]);
    console.run(&["dfsadmin", "-allowSnapshot", "/plain/kept"]);
    console.run(&["dfs", "-createSnapshot", "/plain/kept", "s1"]);
    world.put("/plain/large", 10 * BLOCK as usize);
    world.put("/plain/small", 9000);
    world.put("/plain/kept/file", 10 * BLOCK as usize);
    let policy = mend.folder().join("raid.toml");
    let text = "[[policy]]\nname = \"plain\"\npaths = [\"/plain\"]\ncodec = \"rs\"\nmin_age = \"0s\"\n";
    fs::write(&policy, text).expect("written");
    let policy = policy.to_str().expect("text");
    // A DataNode reports a replica a moment after the client has written it.
    let plan = eventually("the file to be planned", || {
        let plan = mend.ask(&["raid", "plan", "/plain", "--policy", policy])?;
        (plan["totals"]["should-encode"]["files"] == 1).then_some(plan)
    });
    assert_planned(&plan);
    let state = |path: &str| {
        let units = plan["units"].as_array().expect("units");
        units.iter().find(|unit| unit["path"] == path).expect("a unit")["state"].clone()
    };
    assert_eq!([state("/plain/small"), state("/plain/kept/file")], ["too-small", "snapshots"]);
    let console = world.cluster.console();
    console.run(&["dfs", "-deleteSnapshot", "/plain/kept", "s1"]);
    console.run(&["dfsadmin", "-disallowSnapshot", "/plain/kept"]);
    ["/plain/large", "/plain/small", "/plain/kept/file"].iter().for_each(|path| world.delete(path));
    world.assert_whole();
}

fn assert_planned(plan: &Value) {
    let unit = plan["units"].as_array().expect("units").iter().find(|unit| unit["state"] == "should-encode");
    let unit = unit.expect("a unit");
    assert_eq!([&unit["path"], &unit["codec"]], ["/plain/large", "rs"]);
    assert_eq!(
        (unit["stored_bytes"].as_u64(), unit["encoded_bytes"].as_u64()),
        (Some(30 * BLOCK), Some(14 * BLOCK))
    );
    let blocks = unit["stripes"][0]["blocks"].as_array().expect("blocks");
    let place = |place: &str| blocks.iter().filter(|block| block["place"] == place).count();
    // With fifteen DataNodes, replicas may by chance stand so that a block has to move.
    assert_eq!((place("stays") + place("moves"), place("new")), (10, 4));
    let mut nodes: Vec<&str> = blocks.iter().filter_map(|block| block["datanode"].as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), 14);
}

/// Lost blocks of a raided file and of its parity, and a corrupt one, are rebuilt on request.
pub fn repairs(world: &mut World) {
    repair(world, &[]);
}

/// The same if rebuilt blocks are pushed to DataNodes without the plug-in, which require tokens.
pub fn repairs_without_the_plug_in(world: &mut World) {
    repair(world, &["--no-plugin"]);
}

/// Encodes a file once Mend has listed the others. Returns the number of block groups, the parity, and the
/// blocks of the file and of its parity.
fn encoded(world: &mut World, mend: &Mend) -> (usize, Vec<u8>, [Vec<FsckBlock>; 2]) {
    let groups = world.groups().len();
    mend.wait_until_safe(groups);
    // The edit log tells that the file is encoded.
    let parity = encode(world);
    await_stripes(mend, groups + STRIPES, 0);
    let files = [RAIDED, PARITY].map(|path| single_replicas(world, path));
    assert_listed(world, mend, &files);
    (groups, parity, files)
}

fn repair(world: &mut World, options: &[&str]) {
    let options = [&["--raid", "--dry-run", "--repair-after", GRACE], options].concat();
    let mend = mend::attach(world, &options, true);
    let (groups, parity, files) = encoded(world, &mend);
    let found = mend.ask(&["scrub", "--parity"]).expect("it reports");
    assert_eq!(found["parity"]["checked"], groups + STRIPES, "{found}");
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(0), "{found}");

    let [data, code] = &files;
    let lost = [&data[0], &data[7], &code[2], &data[11], &code[5]];
    let before = lose(world, &lost);
    await_missed(world, lost.len());
    await_stripes(&mend, groups + STRIPES, lost.len());
    assert!(mend.run(&["repair", "--all"]).status.success(), "repaired");
    for (block, before) in lost.iter().zip(&before) {
        world.await_somewhere(&name(block), before);
    }
    assert_mended(world, &mend, groups, &parity);

    let [data, code] = [RAIDED, PARITY].map(|path| single_replicas(world, path));
    for block in [&data[4], &code[0]] {
        rot(world, block);
        let found = mend.ask(&["scrub"]).expect("it reports").to_string();
        assert!(found.contains(&name(block).to_string()), "{found}");
    }
    assert!(mend.run(&["repair", "--all"]).status.success(), "repaired");
    assert_mended(world, &mend, groups, &parity);

    remove(world, &mend, groups);
}

/// The coordinator, helpers and the NameNode are killed during automatic repairs of a raided file.
pub fn killed(world: &mut World) {
    let mut mend = mend::attach(world, &["--raid", "--repair-after", GRACE], true);
    let (groups, parity, files) = encoded(world, &mend);
    let [data, code] = &files;
    let lost = [&data[1], &data[10], &code[3]];
    let before = lose(world, &lost);
    // In each round the repair is probably in another phase.
    for (round, block) in lost.iter().enumerate() {
        mend.kill_coordinator();
        mend.start_coordinator();
        mend.kill_helper(holder(world, block));
        mend.start_helper(holder(world, block));
        if round == 1 {
            restart_namenode(world);
        }
        std::thread::sleep(Duration::from_millis(500 * (round as u64 + 1)));
    }
    world.await_nodes();
    for (block, before) in lost.iter().zip(&before) {
        world.await_somewhere(&name(block), before);
    }
    assert_mended(world, &mend, groups, &parity);
    remove(world, &mend, groups);
}

/// Restarts the NameNode. It would stay in safe mode, because it misses blocks with one replica.
fn restart_namenode(world: &mut World) {
    world.cluster.restart_namenode();
    world.await_nodes();
    eventually("it to leave safe mode", || {
        let said = world.cluster.console().ask(&["dfsadmin", "-safemode", "leave"]);
        said.text.contains("Safe mode is OFF").then_some(())
    });
}

/// Removes the file and its parity. Mend forgets its stripes when the parity is gone.
fn remove(world: &mut World, mend: &Mend, groups: usize) {
    world.cluster.console().run(&["dfs", "-rm", "-skipTrash", PARITY]);
    mend.wait_until_safe(groups);
    world.delete(RAIDED);
    world.assert_whole();
}

/// Stores a file and its parity as HDFS-RAID leaves them: with one replica of each block, and with the same
/// time. Returns the parity.
fn encode(world: &mut World) -> Vec<u8> {
    world.cluster.console().run(&["dfs", "-mkdir", "-p", "/plain", "/raidrs/plain"]);
    world.put(RAIDED, RAIDED_BYTES);
    let (parity, local) = (parity_of(world.files.content(RAIDED)), world.cluster.folder().join("parity"));
    fs::write(&local, &parity).expect("written");
    let console = world.cluster.console();
    console.run(&["dfs", "-put", local.to_str().expect("text"), PARITY]);
    console.run(&["dfs", "-touch", "-t", TIME, RAIDED, PARITY]);
    console.run(&["dfs", "-setrep", "1", RAIDED, PARITY]);
    parity
}

/// Returns the parity of a file: four blocks for each ten blocks. Blocks that the last stripe lacks are
/// zeros.
pub fn parity_of(content: &[u8]) -> Vec<u8> {
    let codec = &Codec::hdfs_raid()[0];
    let code = codec.code.build().expect("a code");
    let stripe = |bytes: &[u8]| {
        let mut padded = bytes.to_vec();
        padded.resize(codec.data_blocks() * BLOCK as usize, 0);
        let blocks: Vec<&[u8]> = padded.chunks(BLOCK as usize).collect();
        code.encoding().apply(&blocks).concat()
    };
    content.chunks(codec.data_blocks() * BLOCK as usize).flat_map(stripe).collect()
}

pub fn name(block: &FsckBlock) -> ReplicaName {
    ReplicaName::new(block.number, block.stamp).expect("a block")
}

fn holder(world: &World, block: &FsckBlock) -> usize {
    world.cluster.node_at(&block.replicas[0].1)
}

/// Waits until each block of a file has one replica. HDFS removes the others one heartbeat after another.
fn single_replicas(world: &mut World, path: &str) -> Vec<FsckBlock> {
    eventually("one replica of each block", || {
        let blocks = world.cluster.console().fsck(path).remove(0).blocks;
        blocks.iter().all(|block| block.replicas.len() == 1).then_some(blocks)
    })
}

/// Waits until Mend reports this many stripes and lost blocks.
fn await_stripes(mend: &Mend, stripes: usize, lost: usize) {
    eventually(&format!("{stripes} stripes, with {lost} lost blocks"), || {
        let counts = mend.ask(&["status"])?["stripes"].clone();
        (counts["stripes"] == stripes && counts["blocks_lost"] == lost).then_some(())
    });
}

/// Waits until Mend shows both stripes of the file with the holders of all blocks, the second one with a
/// shortened code.
fn assert_listed(world: &World, mend: &Mend, [data, parity]: &[Vec<FsckBlock>; 2]) {
    for (stripe, (data, parity)) in data.chunks(10).zip(parity.chunks(4)).enumerate() {
        let blocks: Vec<&FsckBlock> = data.iter().chain(parity).collect();
        let newest = blocks.iter().map(|block| block.stamp).max().expect("blocks");
        let id = format!("raid_{}_{newest}", data[0].number);
        let block =
            |block: &&FsckBlock| (name(block).to_string(), mend.names()[holder(world, block)].clone());
        let wanted: Vec<(String, String)> = blocks.iter().map(block).collect();
        eventually("the holders of all blocks", || (shown(mend, &id)? == wanted).then_some(()));
        let code = mend.ask(&["stat", &id]).expect("it is known")["code"].clone();
        assert_eq!(code == "rs-14-10-hdfs-raid", stripe == 0, "stripe {stripe}: {code}");
    }
}

/// Returns the names of a stripe's blocks and of their helpers, as Mend shows them.
fn shown(mend: &Mend, stripe: &str) -> Option<Vec<(String, String)>> {
    let stat = mend.ask(&["stat", stripe])?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    stat["blocks"]
        .as_array()?
        .iter()
        .map(|block| Some((text(&block["block"])?, text(&block["node"])?)))
        .collect()
}

/// Deletes the replicas of blocks while their DataNodes are down, so that the NameNode learns of the loss when
/// they return. Returns the contents of their files.
pub fn lose(world: &mut World, lost: &[&FsckBlock]) -> Vec<[Vec<u8>; 2]> {
    let nodes: BTreeSet<usize> = lost.iter().map(|block| holder(world, block)).collect();
    nodes.iter().for_each(|&node| world.cluster.kill(node));
    let remove = |block: &&FsckBlock| {
        let files = world.replica(holder(world, block), &name(block)).expect("there");
        files.map(|path| {
            let before = fs::read(&path).expect("readable");
            fs::remove_file(&path).expect("removed");
            before
        })
    };
    let before = lost.iter().map(remove).collect();
    nodes.iter().for_each(|&node| world.cluster.start(node));
    before
}

fn await_missed(world: &mut World, count: usize) {
    world.await_nodes();
    eventually("the NameNode to miss them", || {
        let files = [RAIDED, PARITY].map(|path| world.cluster.console().fsck(path).remove(0));
        let missing = files.iter().flat_map(|file| &file.blocks).filter(|block| block.replicas.is_empty());
        (missing.count() == count).then_some(())
    });
}

/// Flips a bit of a block's only replica.
fn rot(world: &World, block: &FsckBlock) {
    let [bytes, _] = world.replica(holder(world, block), &name(block)).expect("there");
    let before = fs::read(&bytes).expect("readable");
    let file = fs::File::options().write(true).open(&bytes).expect("there");
    file.write_all_at(&[before[777] ^ 4], 777).expect("written");
}

/// Asserts that HDFS and Mend report both files as whole, and that they have their contents.
fn assert_mended(world: &mut World, mend: &Mend, groups: usize, parity: &[u8]) {
    world.await_whole();
    await_stripes(mend, groups + STRIPES, 0);
    for path in [RAIDED, PARITY] {
        for block in single_replicas(world, path) {
            world.verify_meta(holder(world, &block), &name(&block));
        }
    }
    world.assert_files();
    let local = tempfile::tempdir_in(world.cluster.folder()).expect("a folder");
    let local = local.path().join("parity");
    world.cluster.console().run(&["dfs", "-get", PARITY, local.to_str().expect("text")]);
    assert!(fs::read(&local).expect("got") == parity, "the parity differs");
}

/// The calls for a file are listed: an unfinished encoding of other contents is deleted first. Attributes of
/// files are read.
pub fn a_forecast(world: &mut World) {
    let mend = mend::attach(world, &["--raid", "--dry-run"], true);
    world.cluster.console().run(&["dfs", "-mkdir", "-p", "/foretold"]);
    world.put("/foretold/large", 10 * BLOCK as usize);
    world.cluster.console().run(&["dfs", "-mkdir", "-p", "/tmp/raidrs/foretold/large/.mend-1-1-6"]);
    let policy = mend.folder().join("foretold.toml");
    let text = "[[policy]]\nname = \"all\"\npaths = [\"/foretold\"]\ncodec = \"rs\"\nmin_age = \"0s\"\n";
    fs::write(&policy, text).expect("written");
    let policy = policy.to_str().expect("text");
    let file = |verb: &str| {
        let answer = mend.ask(&["raid", verb, "/foretold", "--policy", policy, "--dry-run"])?;
        answer["files"].as_array()?.iter().find(|file| file["path"] == "/foretold/large").cloned()
    };
    // A DataNode reports a replica a moment after the client has written it.
    let steps = eventually("the calls to be listed", || {
        let file = file("encode")?;
        file["reason"].is_null().then(|| texts(&file["steps"]))
    });
    assert_eq!(steps[0], "delete /tmp/raidrs/foretold/large/.mend-1-1-6");
    assert_eq!(steps.iter().filter(|step| step.starts_with("encode stripe ")).count(), 1);
    let last = steps.last().expect("steps");
    assert_eq!(last, "encoded", "{steps:#?}");
    let undo = file("undo").expect("an answer");
    assert_eq!(undo["reason"], "it has no parity");
    let console = world.cluster.console();
    console.run(&["dfs", "-setfattr", "-n", "user.mend.raid", "-v", "never", "/foretold/large"]);
    let steps = texts(&file("encode").expect("an answer")["steps"]);
    let last = steps.last().expect("steps");
    assert!(last.starts_with("excluded: its attribute user.mend.raid excludes it"), "{steps:#?}");
    // Nothing shows whose parity this is.
    world.cluster.console().run(&["dfs", "-mkdir", "-p", "/raidrs/foretold"]);
    world.cluster.console().run(&["dfs", "-touchz", "/raidrs/foretold/large"]);
    let steps = texts(&file("encode").expect("an answer")["steps"]);
    assert!(
        steps.last().expect("steps").starts_with("/raidrs/foretold/large has no note by Mend"),
        "{steps:#?}"
    );
    world.cluster.console().run(&["dfs", "-rm", "-r", "-skipTrash", "/tmp/raidrs", "/raidrs"]);
    world.delete("/foretold/large");
    world.assert_whole();
}

fn texts(steps: &Value) -> Vec<String> {
    let steps = steps.as_array().expect("steps").iter();
    steps.map(|step| step.as_str().expect("text").to_owned()).collect()
}
