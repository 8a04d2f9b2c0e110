//! Folders whose files are encoded together, on a real HDFS: encoded, repaired, read, changed and replicated again.

use std::fs;

use testbed::hdfs::FsckBlock;
use testbed::{Mend, eventually};

use crate::mend;
use crate::raid::{lose, name};
use crate::raid_encoding::{BLOCK, finish, holders, put, read_degraded};
use crate::raid_policies::await_problem;
use crate::world::{ALWAYS, NO_REPAIR, World};

const FOLDER: &str = "/together";
const PARITY: &str = "/dir-raidrs/together";
/// The number of small files, of one block each.
const SMALL: usize = 13;
/// The file with several blocks, the last one of HDFS's listing.
const LARGE: &str = "/together/large";
const LARGE_BLOCKS: usize = 5;
/// The stripes over all 18 blocks.
const STRIPES: usize = 2;
/// How long DataNodes may be down before their blocks are rebuilt elsewhere: longer than the case runs.
const GRACE: &str = "30m";

/// Thirteen small files and one of five blocks share two stripes. Lost blocks of files and of parity are rebuilt, also after
/// another file of the stripe was deleted. Then the folder is encoded again, and finally undone.
pub fn there_and_back(world: &mut World) {
    let mend = mend::attach(world, &["--raid", "--dry-run", "--repair-after", GRACE], true);
    mend.wait_for_helpers();
    testbed::hdfs::issue_plugin(&mend, world.certificates.path());
    let groups = world.groups().len();
    mend.wait_until_safe(groups);
    let mut files: Vec<String> = (0..SMALL).map(small).collect();
    files.iter().enumerate().for_each(|(at, path)| put(world, path, 40_000 + 777 * at));
    put(world, LARGE, LARGE_BLOCKS * BLOCK - 777);
    files.push(LARGE.to_owned());
    let policy = policy(&mend);
    let said = finish(&mend, "encode", FOLDER, &policy);
    assert!(said.contains("record the blocks of the folder"), "{said}");
    assert_encoded(world, &files);
    await_stripes(&mend, groups + STRIPES, 0);
    // Its blocks are in stripes with those of other files.
    let refused = mend.run(&["raid", "undo", &small(3), "--policy", &policy]);
    let said = String::from_utf8_lossy(&refused.stdout);
    assert_eq!((refused.status.code(), said.contains("mend raid undo /together")), (Some(1), true), "{said}");

    let lost = [block(world, &small(3), 0), block(world, LARGE, 1), block(world, PARITY, 6)];
    repair(world, &mend, groups, &lost);
    let holder = holders(world, &small(7))[0][0].clone();
    read_degraded(world, &small(7), &holder);

    // What was in the deleted file is not known any more, so the stripe can lose one block less.
    world.delete(&files.remove(5));
    await_problem(&mend, "the folder was changed after its parity was made");
    let lost = [block(world, &small(6), 0)];
    repair(world, &mend, groups, &lost);

    // HDFS makes the replicas of a folder whose parity is stale, so for this it must be allowed to.
    world.restart_namenode_with(&ALWAYS);
    let said = finish(&mend, "encode", FOLDER, &policy);
    assert!(said.contains(&format!("replace {PARITY}")), "{said}");
    assert_encoded(world, &files);
    world.assert_files();
    finish(&mend, "undo", FOLDER, &policy);
    for file in &files {
        assert!(holders(world, file).iter().all(|nodes| nodes.len() == 3), "{file}");
    }
    assert!(!world.cluster.console().exists(PARITY));
    mend.wait_until_safe(groups);
    world.assert_files();
    world.restart_namenode_with(&NO_REPAIR);
    clean_up(world, &files);
}

/// A folder with small files only: HDFS creates no files with blocks as small as theirs, and the parity has such blocks.
pub fn small_files_only(world: &mut World) {
    let mend = mend::attach(world, &["--raid", "--dry-run", "--repair-after", GRACE], true);
    mend.wait_for_helpers();
    let groups = world.groups().len();
    mend.wait_until_safe(groups);
    let files: Vec<String> = (0..SMALL).map(small).collect();
    files.iter().enumerate().for_each(|(at, path)| put(world, path, 11_000 + 777 * at));
    let policy = policy(&mend);
    finish(&mend, "encode", FOLDER, &policy);
    assert_encoded(world, &files);
    // The largest file has 20,324 bytes, which is less than 40 pieces with checksums.
    assert_eq!(block(world, PARITY, 0).bytes, 40 * 512);
    await_stripes(&mend, groups + STRIPES, 0);
    let lost = [block(world, &small(12), 0), block(world, PARITY, 7)];
    repair(world, &mend, groups, &lost);
    clean_up(world, &files);
}

/// Returns the path of a small file.
fn small(at: usize) -> String {
    format!("{FOLDER}/{at:02}")
}

fn policy(mend: &Mend) -> String {
    let path = mend.folder().join("folders.toml");
    let text = format!(
        "[[policy]]\nname = \"small\"\npaths = [\"{FOLDER}\"]\ncodec = \"dir-rs\"\nmin_age = \"0s\"\n"
    );
    fs::write(&path, text).expect("written");
    path.to_str().expect("text").to_owned()
}

fn block(world: &mut World, path: &str, at: usize) -> FsckBlock {
    world.cluster.console().fsck(path).remove(0).blocks.remove(at)
}

/// Asserts that each block has one replica, and the blocks of each stripe have DataNodes of their own.
fn assert_encoded(world: &mut World, files: &[String]) {
    let data: Vec<Vec<String>> = files.iter().flat_map(|path| holders(world, path)).collect();
    let parity = holders(world, PARITY);
    assert_eq!(parity.len(), 4 * STRIPES);
    for (data, parity) in data.chunks(10).zip(parity.chunks(4)) {
        let mut nodes: Vec<&String> = data.iter().chain(parity).flatten().collect();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), data.len() + parity.len(), "{data:?} {parity:?}");
    }
    assert!(!world.cluster.console().exists("/tmp/dir-raidrs"), "nothing is left of the encoding");
}

fn await_stripes(mend: &Mend, stripes: usize, lost: usize) {
    eventually(&format!("{stripes} stripes, with {lost} lost blocks"), || {
        let counts = mend.ask(&["status"])?["stripes"].clone();
        (counts["stripes"] == stripes && counts["blocks_lost"] == lost).then_some(())
    });
}

/// Loses blocks, and has them rebuilt with their former bytes and checksums.
fn repair(world: &mut World, mend: &Mend, groups: usize, lost: &[FsckBlock]) {
    let lost: Vec<&FsckBlock> = lost.iter().collect();
    let before = lose(world, &lost);
    world.await_nodes();
    await_stripes(mend, groups + STRIPES, lost.len());
    assert!(mend.run(&["repair", "--all"]).status.success(), "repaired");
    for (block, before) in lost.iter().zip(&before) {
        world.await_somewhere(&name(block), before);
    }
    world.await_whole();
    await_stripes(mend, groups + STRIPES, 0);
    world.assert_files();
}

fn clean_up(world: &mut World, files: &[String]) {
    let words = ["dfs", "-rm", "-r", "-f", "-skipTrash", FOLDER, "/dir-raidrs", "/tmp/dir-raidrs"];
    world.cluster.console().run(&words);
    files.iter().for_each(|path| world.files.forget(path));
    world.assert_whole();
}
