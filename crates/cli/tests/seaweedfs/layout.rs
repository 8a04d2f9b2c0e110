//! Servers that keep the files of a volume in several folders, and what SeaweedFS makes of a shard that has none beside it.

use std::fs;
use std::path::Path;

use seaweedfs::Standing;
use stores::seaweedfs::{ShardName, VolumeName};

use weed::eventually;

use crate::healing::{GRACE, shard, wait_until_as_it_was, wait_until_unlocked, wait_until_whole};
use crate::world::World;

/// Moves the files of a volume with these endings; those of shards end in `.ecNN`.
fn move_files(from: &Path, to: &Path, volume: &VolumeName, wanted: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(from).expect("a folder") {
        let name = entry.expect("read").file_name().into_string().expect("text");
        let ending = name.strip_prefix(&format!("{volume}."));
        if ending.is_some_and(&wanted) {
            fs::rename(from.join(&name), to.join(&name)).expect("moved");
        }
    }
}

/// Restarts a server with an index folder: the indexes go there, and everything else of the volumes to its second disk.
fn split(world: &mut World, at: usize) {
    world.servers[at].kill();
    let index = world.root.join(format!("index{at}"));
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

/// Shards that a server has of a volume.
fn shards_at(world: &World, volume: &VolumeName, at: usize) -> Vec<ShardName> {
    world.shards(volume).into_iter().filter(|name| world.holder(name).0 == at).collect()
}

pub fn an_index_folder(world: &mut World) {
    let volume = world.pictures.clone();
    let at = world.holder(&shard(&volume, 3)).0;
    split(world, at);
    // Nobody has told Mend of the folder.
    let mend = world.attach_plain(GRACE);
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
    // Told of it, Mend attaches as well.
    world.attach(GRACE).wait_until_safe(2);
    world.forget_locations(&world.both());
    world.assert_whole();
}

/// A server has mounted a shard without the volume's `.vif`, as one of another encoding; then it dies.
pub fn a_left_over_encoding(world: &mut World) {
    let volume = world.pictures.clone();
    let mut mend = world.attach(GRACE);
    let at = world.servers.iter().position(|server| server.index_folder.is_some()).expect("an earlier case");
    mend.kill_coordinator();
    mend.kill_helper(at);
    let ghost = shards_at(world, &volume, at)[0].clone();
    let folders = world.servers[at].folders.clone();
    let server = world.server(at);
    world.runtime.block_on(server.unmount(&volume, &[ghost.shard])).expect("unmounted");
    let (from, to) = (folders[1].join(ghost.to_string()), folders[0].join(ghost.to_string()));
    fs::rename(&from, &to).expect("moved");
    world
        .runtime
        .block_on(server.mount(&volume, &[ghost.shard]))
        .expect("SeaweedFS mounts it without a word");
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
    // With the server gone nobody can say more about its encoding.
    world.servers[at].kill();
    eventually("all of its shards elsewhere", || {
        let Some(Standing::Known { missing, .. }) = world.standing(&volume) else { return None };
        missing.is_empty().then_some(())
    });
    // As `mend status` says.
    fs::remove_file(to).expect("there");
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
