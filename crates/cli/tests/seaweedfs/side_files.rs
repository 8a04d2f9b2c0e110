//! Metadata files of a volume that are damaged on one server, and a server that can mount no shard.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use seaweedfs::VolumeName;

use testbed::eventually;

use crate::healing::{GRACE, shard, wait_until_as_it_was, wait_until_unlocked, wait_until_whole};
use crate::layout::{gather, shards_at, split_server};
use crate::world::World;

/// Returns the paths of all copies of a volume's file on a server.
pub fn files_of(world: &World, at: usize, volume: &VolumeName, extension: &str) -> Vec<PathBuf> {
    let server = &world.servers[at];
    let folders = server.folders.iter().chain(&server.index_folder);
    let files = folders.map(|folder| folder.join(format!("{volume}.{extension}")));
    files.filter(|path| path.exists()).collect()
}

/// Damages all copies of a file on a server. Returns the old contents.
fn spoil(files: &[PathBuf], how: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let before = fs::read(files.first().expect("it has the file")).expect("there");
    for path in files {
        let mut bytes = before.clone();
        how(&mut bytes);
        fs::write(path, bytes).expect("written");
    }
    before
}

fn wait_until_right(files: &[PathBuf], before: &[u8]) {
    eventually("the file as it was", || {
        let right = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes == before);
        files.iter().all(right).then_some(())
    });
}

fn middle(bytes: &mut [u8]) {
    let at = bytes.len() / 2;
    bytes[at] ^= 0x10;
}

pub fn small_files_that_rot(world: &mut World) {
    let (at, volume) = split_server(world);
    gather(world, &volume, at, 1); // Now this server has only one copy of each metadata file.
    let mut mend = world.attach(GRACE);
    for extension in ["ecsum", "vif"] {
        let name = shards_at(world, &volume, at).remove(0);
        // Before Mend can check the damaged file, a shard on the same server is lost.
        mend.kill_coordinator();
        let files = files_of(world, at, &volume, extension);
        let garbage = |bytes: &mut Vec<u8>| match extension {
            "vif" => *bytes = b"{ garbage".to_vec(),
            _ => middle(bytes),
        };
        let right = spoil(&files, garbage);
        let (_, before) = world.lose(&name);
        mend.start_coordinator();
        wait_until_as_it_was(world, &name, &before);
        wait_until_right(&files, &right);
        wait_until_whole(world);
        mend.wait_until_safe(2);
    }
    // The scrub detects an index that is damaged but has the right length. Mend replaces the index while the
    // server keeps running.
    let files = files_of(world, at, &volume, "ecx");
    let index = spoil(&files, |bytes| bytes[9] ^= 0x10);
    let named = format!("{volume}.ecx");
    let scrub = mend.ask(&["scrub"]).expect("it reports").to_string();
    let status = mend.ask(&["status"]).expect("it reports")["lost_lately"].to_string();
    assert!(scrub.contains(&named) || status.contains(&named), "{scrub} {status}");
    wait_until_right(&files, &index);
    wait_until_whole(world);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    world.assert_whole();
}

/// The number of bytes to add to an index: more than Mend reads into memory at once, and a multiple of the 16
/// bytes of an entry.
const LARGE_INDEX: u64 = 70 << 20;

/// Changes the indexes of a volume on all servers. Unmounts the volume's shards on each server in the
/// meantime.
fn change_indexes(world: &World, volume: &VolumeName, change: impl Fn(&File)) {
    for at in 0..world.servers.len() {
        let server = world.server(at);
        let mounted = world.runtime.block_on(server.mounted(volume.id())).expect("it answers");
        let shards: Vec<u8> = mounted.shards.into_keys().collect();
        world.runtime.block_on(server.unmount(volume, &shards)).expect("unmounted");
        for path in files_of(world, at, volume, "ecx") {
            let file = File::options().write(true).open(path).expect("there");
            change(&file);
        }
        world.runtime.block_on(server.mount(volume, &shards)).expect("mounted again");
    }
    wait_until_whole(world);
}

/// A server has lost all its shards of a volume, and its index of the volume is truncated. Mend rebuilds the
/// shards on this server and replaces the index there, although the index is large.
pub fn an_index_that_is_large(world: &mut World) {
    let volume = world.bucket.clone();
    let holders = (0..world.servers.len()).filter(|&at| !shards_at(world, &volume, at).is_empty());
    let victim = holders.last().expect("somebody has it");
    let index = fs::read(&files_of(world, victim, &volume, "ecx")[0]).expect("there");
    // Insert empty entries before all existing entries, as a hole in the file.
    change_indexes(world, &volume, |file| {
        file.set_len(0).expect("emptied");
        file.write_all_at(&index, LARGE_INDEX).expect("written");
    });
    let mend = world.attach(GRACE);
    let lost = shards_at(world, &volume, victim);
    let numbers: Vec<u8> = lost.iter().map(|name| name.shard).collect();
    world.runtime.block_on(world.server(victim).unmount(&volume, &numbers)).expect("unmounted");
    let indexes = files_of(world, victim, &volume, "ecx");
    for path in &indexes {
        let file = File::options().write(true).open(path).expect("there");
        file.set_len(LARGE_INDEX + index.len() as u64 - 16).expect("cut off");
    }
    let before: Vec<_> = lost.iter().map(|name| fs::read(world.holder(name).1).expect("there")).collect();
    lost.iter().for_each(|name| fs::remove_file(world.holder(name).1).expect("removed"));
    for (name, before) in lost.iter().zip(&before) {
        wait_until_as_it_was(world, name, before);
    }
    wait_until_whole(world);
    assert!(lost.iter().all(|name| world.holder(name).0 == victim), "they go back to where they were");
    let long =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.len() == LARGE_INDEX + index.len() as u64);
    assert!(indexes.iter().any(long), "the index was brought anew");
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    change_indexes(world, &volume, |file| {
        file.set_len(0).expect("emptied");
        file.write_all_at(&index, 0).expect("written");
    });
    world.forget_locations(&world.both());
    world.assert_whole();
}

/// Two disks of a server have `.vif` files of different encodings, so it is unknown which encoding the server
/// would assume for a new shard. The shard is rebuilt on another server.
pub fn a_home_that_takes_nothing(world: &mut World) {
    let (at, volume) = split_server(world);
    gather(world, &volume, at, 1);
    let mend = world.attach(GRACE);
    let name = shards_at(world, &volume, at).remove(0);
    let [first, second] = &world.servers[at].folders[..] else { panic!("two folders") };
    let vif = fs::read_to_string(second.join(format!("{volume}.vif"))).expect("beside its shards");
    let other = first.join(format!("{volume}.vif"));
    let encoding =
        vif.split("encodeTsNs").nth(1).and_then(|rest| rest.split('"').nth(2)).expect("it has one");
    fs::write(&other, vif.replace(encoding, "1234567")).expect("written");
    let (_, before) = world.lose(&name);
    wait_until_as_it_was(world, &name, &before);
    wait_until_whole(world);
    assert_ne!(world.holder(&name).0, at, "another server has it");
    fs::remove_file(other).expect("there");
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    // A server whose `.vif` was in doubt during the repair was not remounted, and its cache of shard
    // locations is outdated.
    world.forget_locations(&world.both());
    world.assert_whole();
}

/// Shards are lost while the coordinator is down. The restarted coordinator rebuilds them on the servers that
/// held them.
pub fn a_loss_that_nobody_saw(world: &mut World) {
    let mut mend = world.attach(GRACE);
    mend.kill_coordinator();
    let lost = [2, 12].map(|at| shard(&world.pictures, at));
    let before = lost.clone().map(|name| world.lose(&name));
    mend.start_coordinator();
    for (name, (holder, before)) in lost.iter().zip(before) {
        wait_until_as_it_was(world, name, &before);
        assert_eq!(world.holder(name).0, holder, "it goes back to where it was");
    }
    wait_until_whole(world);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    world.assert_whole();
}

fn crc32c(bytes: &[u8]) -> u32 {
    let next = |sum: u32| if sum & 1 == 1 { (sum >> 1) ^ 0x82f6_3b78 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), |sum, _| next(sum)))
}

/// The number of bytes of an `.ecsum` before its payload, and after the checksums of the last shard: the ID
/// of the run.
const ECSUM_HEADER: usize = 14;
const ECSUM_RUN: usize = 18;

/// A server has an `.ecsum` that an earlier encoding with equally long shards has left. It is intact, but its
/// checksum of the last shard is another one.
pub fn checksums_of_an_earlier_encoding(world: &mut World) {
    let volume = world.pictures.clone();
    // The server with the first shard is the one that the master lists first.
    let at = world.holder(&shard(&volume, 0)).0;
    let mut mend = world.attach(GRACE);
    mend.kill_coordinator();
    // Of several disks, the server returns the copy of the last one.
    let files: Vec<PathBuf> = files_of(world, at, &volume, "ecsum").pop().into_iter().collect();
    let right = spoil(&files, |bytes| {
        let last = bytes.len() - ECSUM_RUN - 1;
        bytes[last] ^= 0x10;
        let sum = crc32c(&bytes[ECSUM_HEADER..]);
        bytes[ECSUM_HEADER - 4..ECSUM_HEADER].copy_from_slice(&sum.to_be_bytes());
    });
    seaweedfs::Ecsum::decode(&fs::read(&files[0]).expect("there")).expect("it is intact");
    mend.start_coordinator();
    wait_until_right(&files, &right);
    mend.wait_until_safe(2);
    let scrub = mend.ask(&["scrub"]).expect("it reports");
    assert_eq!(scrub["findings"].as_array().map(Vec::len), Some(0), "no shard is taken for bad: {scrub}");
    wait_until_whole(world);
    wait_until_unlocked(world);
    drop(mend);
    world.assert_whole();
}
