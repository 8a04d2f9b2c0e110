//! Deletions of needles that SeaweedFS has recorded in a single file of a single server.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use seaweedfs::{ShardName, VolumeName};
use testbed::{Mend, eventually};

use crate::healing::{GRACE, wait_until_as_it_was, wait_until_unlocked, wait_until_whole};
use crate::layout::{fullest, gather, shards_at, while_unmounted};
use crate::side_files::files_of;
use crate::world::World;

/// Returns the ID of the needle that contains a picture. SeaweedFS's URLs have it before a cookie of 8
/// digits.
fn id_of(world: &World, path: &str) -> u64 {
    let needle = world.needle(path);
    let (_, digits) = needle.split_once(',').expect("volume and needle");
    u64::from_str_radix(&digits[..digits.len() - 8], 16).expect("hexadecimal")
}

fn wait_until_deleted(world: &World, at: usize, name: &ShardName, needle: u64) {
    let server = world.server(at);
    eventually("a server that heeds the deletion", || {
        let asked = server.is_deleted(name.volume.id(), name.shard, needle);
        world.runtime.block_on(asked).ok()?.then_some(())
    });
}

/// Makes sure that a server has shards of a volume on both disks. Each disk has the metadata files, and its
/// own journal.
fn spread(world: &World, volume: &VolumeName, at: usize) {
    let [first, second] = &world.servers[at].folders[..] else { panic!("two folders") };
    let has_shard = |folder: &Path, shards: &[ShardName]| {
        shards.iter().any(|name| folder.join(name.to_string()).exists())
    };
    while_unmounted(world, volume, at, |shards| {
        let (from, to) = match (has_shard(first, shards), has_shard(second, shards)) {
            (true, true) => return,
            (true, false) => (first, second),
            _ => (second, first),
        };
        for extension in ["ecx", "vif", "ecsum"] {
            let file = format!("{volume}.{extension}");
            fs::copy(from.join(&file), to.join(&file)).expect("copied");
        }
        let moved = shards.last().expect("it has several").to_string();
        fs::rename(from.join(&moved), to.join(&moved)).expect("moved");
    });
}

/// Without the first shard of a needle, SeaweedFS records the needle's deletion on a server with any other
/// shard. That server has shards on two disks, and returns only the journal of the second one.
pub fn deletions_on_the_first_disk(world: &mut World) {
    let volume = world.pictures.clone();
    let at = fullest(world, &volume);
    spread(world, &volume, at);
    reach_a_rebuilt_shard(world, &volume, at, "pictures/33");
}

/// All shards of a server have moved to its first disk. Their journal on the second disk stays, and is the one that the
/// server returns.
pub fn deletions_and_an_older_journal(world: &mut World) {
    let volume = world.pictures.clone();
    let at = fullest(world, &volume);
    spread(world, &volume, at);
    let folders = world.servers[at].folders.clone();
    let [first, second] = &folders[..] else { panic!("two folders") };
    while_unmounted(world, &volume, at, |shards| {
        for name in shards.iter().map(ToString::to_string).filter(|name| second.join(name).exists()) {
            fs::rename(second.join(&name), first.join(&name)).expect("moved");
        }
    });
    assert!(second.join(format!("{volume}.ecj")).exists(), "the server has created it");
    reach_a_rebuilt_shard(world, &volume, at, "pictures/36");
    gather(world, &volume, at, 0);
}

/// Deletes a needle on one server, has a shard rebuilt on another one, and waits until that server heeds the deletion.
fn reach_a_rebuilt_shard(world: &mut World, volume: &VolumeName, at: usize, path: &str) {
    let needle = id_of(world, path);
    let mend = world.attach(GRACE);
    mend.wait_until_safe(2);
    let server = world.server(at);
    let deleted = world.runtime.block_on(server.delete_needle(volume, needle));
    assert!(deleted.expect("it answers"), "it is in the index");
    let lost =
        world.shards(volume).into_iter().find(|name| world.holder(name).0 != at).expect("others have some");
    let (_, before) = world.lose(&lost);
    wait_until_as_it_was(world, &lost, &before);
    wait_until_whole(world);
    wait_until_deleted(world, world.holder(&lost).0, &lost, needle);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    world.delete(path);
    world.assert_whole();
}

/// Another encoding has left a `.vif` on a server's second disk, which has no shards of the volume. The server returns
/// this file, and the journal of its first disk. Mend replaces the file, and the status does not name the journal.
fn leave_description(world: &World, mend: &Mend, volume: &VolumeName, at: usize) {
    let [first, second] = &world.servers[at].folders[..] else { panic!("two folders") };
    let [right, left_over] = [first, second].map(|folder| folder.join(format!("{volume}.vif")));
    let right = fs::read(right).expect("there");
    let mut other: serde_json::Value = serde_json::from_slice(&right).expect("JSON");
    other["ecShardConfig"]["encodeTsNs"] = "1".into();
    fs::write(&left_over, other.to_string()).expect("written");
    eventually("the current description on both disks", || {
        let conditions = mend.ask(&["status"])?["conditions"].to_string();
        assert!(!conditions.contains(&format!("{volume}.ecj")), "{conditions}");
        (fs::read(&left_over).ok()? == right).then_some(())
    });
    fs::remove_file(&left_over).expect("removed");
}

/// Flips a bit of an offset in an index, and marks a needle as deleted.
fn mark_and_spoil(index: &Path, needle: u64) {
    let bytes = fs::read(index).expect("there");
    // The program for large volumes has entries of 17 bytes.
    let entry = if bytes.len().is_multiple_of(17) { 17 } else { 16 };
    let at =
        bytes.chunks_exact(entry).position(|it| it[..8] == needle.to_be_bytes()).expect("it is in the index");
    let other = if at == 0 { entry } else { 0 };
    let file = File::options().write(true).open(index).expect("there");
    file.write_all_at(&[0xff; 4], ((at + 1) * entry - 4) as u64).expect("written");
    file.write_all_at(&[bytes[other + 9] ^ 0x10], (other + 9) as u64).expect("written");
}

/// Only the index of one server marks a needle as deleted, as after `ec.rebuild`, which has also deleted the
/// journal there. The index is damaged elsewhere, so Mend replaces it.
pub fn deletions_that_only_a_damaged_index_marks(world: &mut World) {
    let volume = world.pictures.clone();
    let at = fullest(world, &volume);
    gather(world, &volume, at, 0);
    let path = "pictures/34";
    let needle = id_of(world, path);
    let index = files_of(world, at, &volume, "ecx").remove(0);
    let right = fs::read(&index).expect("there");
    let mut mend = world.attach(GRACE);
    mend.wait_until_safe(2);
    mend.kill_coordinator();
    while_unmounted(world, &volume, at, |_| mark_and_spoil(&index, needle));
    let name = shards_at(world, &volume, at).remove(0);
    wait_until_deleted(world, at, &name, needle);
    mend.start_coordinator();
    eventually("a whole index", || (fs::read(&index).ok()? == right).then_some(()));
    wait_until_deleted(world, at, &name, needle);
    wait_until_whole(world);
    leave_description(world, &mend, &volume, at);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    world.delete(path);
    world.assert_whole();
}

/// A server has a journal that an earlier encoding of the volume has left. It names a needle that exists.
pub fn a_journal_of_an_earlier_encoding(world: &mut World) {
    let volume = world.pictures.clone();
    let at = fullest(world, &volume);
    gather(world, &volume, at, 0);
    let needle = id_of(world, "pictures/35");
    let journal = files_of(world, at, &volume, "ecx").remove(0).with_extension("ecj");
    let before = fs::read(&journal).unwrap_or_default();
    let mut mend = world.attach(GRACE);
    mend.wait_until_safe(2);
    mend.kill_coordinator();
    while_unmounted(world, &volume, at, |_| {
        fs::write(&journal, needle.to_be_bytes()).expect("written");
        let a_week_ago = SystemTime::now() - Duration::from_secs(7 * 24 * 60 * 60);
        let file = File::options().write(true).open(&journal).expect("there");
        file.set_modified(a_week_ago).expect("set");
    });
    let name = shards_at(world, &volume, at).remove(0);
    wait_until_deleted(world, at, &name, needle); // SeaweedFS heeds any journal.
    mend.start_coordinator();
    let says_so = |conditions: &str| conditions.contains(&format!("{volume}.ecj"));
    eventually("a status that names the journal", || {
        says_so(&mend.ask(&["status"])?["conditions"].to_string()).then_some(())
    });
    // A server that gets a shard does not get this deletion.
    let lost =
        world.shards(&volume).into_iter().find(|name| world.holder(name).0 != at).expect("others have some");
    let (_, shard) = world.lose(&lost);
    wait_until_as_it_was(world, &lost, &shard);
    wait_until_whole(world);
    wait_until_unlocked(world);
    let server = world.server(world.holder(&lost).0);
    let asked = server.is_deleted(volume.id(), lost.shard, needle);
    assert!(!world.runtime.block_on(asked).expect("it answers"), "the needle exists");
    // The helper builds no shard on the server with the journal, so another server gets the shard.
    let (_, shard) = world.lose(&name);
    wait_until_as_it_was(world, &name, &shard);
    assert_ne!(world.holder(&name).0, at);
    wait_until_whole(world);
    wait_until_unlocked(world);
    // Follow the advice of `mend status`, and put back what the current journal contained.
    mend.kill_coordinator();
    while_unmounted(world, &volume, at, |_| fs::write(&journal, &before).expect("written"));
    mend.start_coordinator();
    mend.wait_until_safe(2);
    eventually("a status without the journal", || {
        (!says_so(&mend.ask(&["status"])?["conditions"].to_string())).then_some(())
    });
    wait_until_unlocked(world);
    drop(mend);
    world.forget_locations(&world.both());
    world.assert_whole();
}
