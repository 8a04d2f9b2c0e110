//! Servers that keep the files of a volume in several folders, and SeaweedFS's treatment of shards without
//! small files in their folder.

use std::fs;
use std::path::Path;

use seaweedfs::{ShardName, Standing, VolumeName};

use testbed::eventually;

use crate::healing::{GRACE, wait_until_as_it_was, wait_until_unlocked, wait_until_whole};
use crate::world::World;

/// Moves a volume's files with the wanted extensions; shards have the extension `.ecNN`.
fn move_files(from: &Path, to: &Path, volume: &VolumeName, wanted: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(from).expect("a folder") {
        let name = entry.expect("read").file_name().into_string().expect("text");
        let ending = name.strip_prefix(&format!("{volume}."));
        if ending.is_some_and(&wanted) {
            fs::rename(from.join(&name), to.join(&name)).expect("moved");
        }
    }
}

/// Restarts a server with an index folder: its indexes move there, and all other files of the volumes to its
/// second disk.
fn split(world: &mut World, at: usize) {
    world.servers[at].kill();
    let index = world.weed.root.join(format!("index{at}"));
    world.servers[at].keep_indexes_in(index.clone());
    let folders = world.servers[at].folders.clone();
    for volume in world.both() {
        for folder in &folders {
            move_files(folder, &index, &volume, |ending| ["ecx", "ecj"].contains(&ending));
        }
        move_files(&folders[0], &folders[1], &volume, |_| true);
    }
    world.start_server(at);
    world.await_server(at);
    wait_until_whole(world);
}

/// The server with an index folder from an earlier case, and the volume with most shards on it.
pub fn split_server(world: &World) -> (usize, VolumeName) {
    let at = world.servers.iter().position(|server| server.index_folder.is_some()).expect("an earlier case");
    let most = world.both().into_iter().max_by_key(|volume| shards_at(world, volume, at).len());
    (at, most.expect("two volumes"))
}

/// A server's shards of a volume.
pub fn shards_at(world: &World, volume: &VolumeName, at: usize) -> Vec<ShardName> {
    world.shards(volume).into_iter().filter(|name| world.holder(name).0 == at).collect()
}

pub fn an_index_folder(world: &mut World) {
    let volume = world.pictures.clone();
    let most = (0..world.servers.len()).max_by_key(|&at| shards_at(world, &volume, at).len());
    let at = most.expect("several servers");
    split(world, at);
    // Mend has not been told of the folder.
    let mend = world.attach_plain(GRACE);
    mend.wait_until_safe(2);
    let lost = shards_at(world, &volume, at);
    let before: Vec<_> = lost.iter().map(|name| world.lose(name).1).collect();
    for (name, before) in lost.iter().zip(&before) {
        wait_until_as_it_was(world, name, before);
    }
    wait_until_whole(world);
    assert!(lost.iter().all(|name| world.holder(name).0 == at), "they go back to where they were");
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    world.servers[at].kill();
    world.start_server(at);
    world.await_server(at);
    wait_until_whole(world);
    // Mend also attaches when told of it.
    world.attach(GRACE).wait_until_safe(2);
    world.forget_locations(&world.both());
    world.assert_whole();
}

/// A server has mounted two shards without the volume's `.vif`, and then mounts every further shard as one of
/// that wrong encoding.
pub fn a_failed_publication(world: &mut World) {
    let (at, volume) = split_server(world);
    let mut mend = world.attach(GRACE);
    mend.kill_coordinator();
    let ghosts = shards_at(world, &volume, at)[..2].to_vec();
    let before: Vec<_> = ghosts.iter().map(|name| fs::read(world.holder(name).1).expect("there")).collect();
    ghosts.iter().for_each(|name| mount_without_vif(world, name, at));
    mend.start_coordinator();
    // The first shard rebuilt in this folder is withdrawn and rebuilt elsewhere.
    for (name, before) in ghosts.iter().zip(&before) {
        wait_until_as_it_was(world, name, before);
    }
    wait_until_whole(world);
    mend.wait_until_safe(2);
    assert!(mend.coordinator_log().contains("removing a rebuilt shard"), "a publication failed");
    wait_until_unlocked(world);
    drop(mend);
    // Check the files on the server's next start, then move them into one folder for later cases.
    for tidy in [false, true] {
        world.servers[at].kill();
        let folders = &world.servers[at].folders;
        if tidy {
            move_files(&folders[0], &folders[1], &volume, |_| true);
        }
        world.start_server(at);
        world.await_server(at);
        wait_until_whole(world);
    }
    world.forget_locations(&world.both());
    world.assert_whole();
}

/// Makes a server with an index folder mount a shard from its first disk, which has no `.vif`.
fn mount_without_vif(world: &World, name: &ShardName, at: usize) {
    let [first, second] = &world.servers[at].folders[..] else { panic!("two folders") };
    let server = world.server(at);
    world.runtime.block_on(server.unmount(&name.volume, &[name.shard])).expect("unmounted");
    let vif = first.join(format!("{}.vif", name.volume));
    if vif.exists() {
        fs::remove_file(vif).expect("removed");
    }
    fs::rename(second.join(name.to_string()), first.join(name.to_string())).expect("moved");
    let mounted = world.runtime.block_on(server.mount(&name.volume, &[name.shard]));
    mounted.expect("SeaweedFS mounts it without a word");
}

/// A server mounts a shard without the volume's `.vif`, as one of another encoding, and then dies.
pub fn a_left_over_encoding(world: &mut World) {
    let (at, volume) = split_server(world);
    let mut mend = world.attach(GRACE);
    mend.kill_coordinator();
    mend.kill_helper(at);
    let ghost = shards_at(world, &volume, at)[0].clone();
    mount_without_vif(world, &ghost, at);
    eventually("two encodings", || {
        let listing = world.list();
        let encodings: std::collections::BTreeSet<_> =
            listing.volumes[&volume.id()].iter().map(|holding| holding.encoding).collect();
        (encodings.len() == 2).then_some(())
    });
    mend.start_coordinator();
    let elsewhere = |world: &World| {
        let mut names = world.shards(&volume).into_iter();
        names.find(|name| world.holder(name).0 != at).expect("others have some")
    };
    let lost = elsewhere(world);
    let (_, before) = world.lose(&lost);
    wait_until_as_it_was(world, &lost, &before);
    eventually("a word about it", || {
        mend.ask(&["status"])?["troubles"].to_string().contains("another encoding").then_some(())
    });
    // With the server down, its encoding can no longer be determined.
    world.servers[at].kill();
    eventually("all of its shards elsewhere", || {
        let Some(Standing::Known { missing, .. }) = world.standing(&volume) else { return None };
        missing.is_empty().then_some(())
    });
    // Follow the advice of `mend status`.
    fs::remove_file(world.servers[at].folders[0].join(ghost.to_string())).expect("there");
    world.start_server(at);
    world.await_server(at);
    mend.start_helper(at);
    wait_until_whole(world);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    world.forget_locations(&world.both());
    world.assert_whole();
}
