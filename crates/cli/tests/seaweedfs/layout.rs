//! Servers that keep the files of a volume in several folders, and SeaweedFS's treatment of shards in a
//! folder without the volume's metadata files.

use std::fs;
use std::path::Path;

use seaweedfs::{ShardName, Standing, VolumeName};

use testbed::eventually;

use crate::healing::{GRACE, wait_until_as_it_was, wait_until_unlocked, wait_until_whole};
use crate::world::World;

/// Moves a volume's files with the wanted extensions; shards have the extension `.ecNN`.
pub fn move_files(from: &Path, to: &Path, volume: &VolumeName, wanted: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(from).expect("a folder") {
        let name = entry.expect("read").file_name().into_string().expect("text");
        let ending = name.strip_prefix(&format!("{volume}."));
        if ending.is_some_and(&wanted) {
            fs::rename(from.join(&name), to.join(&name)).expect("moved");
        }
    }
}

/// Unmounts a server's shards of a volume while `work` runs.
pub fn while_unmounted(world: &World, volume: &VolumeName, at: usize, work: impl FnOnce(&[ShardName])) {
    let shards = shards_at(world, volume, at);
    let numbers: Vec<u8> = shards.iter().map(|name| name.shard).collect();
    let server = world.server(at);
    world.runtime.block_on(server.unmount(volume, &numbers)).expect("unmounted");
    work(&shards);
    world.runtime.block_on(server.mount(volume, &numbers)).expect("mounted again");
    wait_until_whole(world);
}

/// Moves all of a volume's files on a server to one of its two disks, with the deletions in both journals. Does nothing
/// if no file is on the other disk. A separate index folder keeps its files.
pub fn gather(world: &World, volume: &VolumeName, at: usize, disk: usize) {
    let folders = &world.servers[at].folders;
    let (to, from) = (&folders[disk], &folders[1 - disk]);
    let is_of_volume = |name: &str| name.starts_with(&format!("{volume}."));
    let mut names = fs::read_dir(from).expect("a folder").map(|entry| entry.expect("read").file_name());
    if !names.any(|name| is_of_volume(&name.to_string_lossy())) {
        return;
    }
    while_unmounted(world, volume, at, |_| {
        let journal = format!("{volume}.ecj");
        let deletions = [to, from].map(|folder| fs::read(folder.join(&journal)).unwrap_or_default()).concat();
        move_files(from, to, volume, |ending| !to.join(format!("{volume}.{ending}")).exists());
        for extension in ["ecx", "ecj", "vif", "ecsum"] {
            drop(fs::remove_file(from.join(format!("{volume}.{extension}"))));
        }
        if !deletions.is_empty() {
            fs::write(to.join(&journal), deletions).expect("written");
        }
    });
}

/// Restarts a server with a separate index folder. Moves the indexes of its volumes there, and all other
/// files of the volumes to the server's second disk.
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

/// Returns the server to which an earlier case gave an index folder, and the volume that has the most shards
/// on this server.
pub fn split_server(world: &World) -> (usize, VolumeName) {
    let at = world.servers.iter().position(|server| server.index_folder.is_some()).expect("an earlier case");
    let most = world.both().into_iter().max_by_key(|volume| shards_at(world, volume, at).len());
    (at, most.expect("two volumes"))
}

/// Returns the shards of a volume that a server holds.
pub fn shards_at(world: &World, volume: &VolumeName, at: usize) -> Vec<ShardName> {
    world.shards(volume).into_iter().filter(|name| world.holder(name).0 == at).collect()
}

/// Returns the server with the most shards of a volume, among those without an index folder. It has at least two,
/// since no server has more than an even share.
pub fn fullest(world: &World, volume: &VolumeName) -> usize {
    let plain = (0..world.servers.len()).filter(|&at| world.servers[at].index_folder.is_none());
    plain.max_by_key(|&at| shards_at(world, volume, at).len()).expect("several servers")
}

pub fn an_index_folder(world: &mut World) {
    let volume = world.pictures.clone();
    let at = fullest(world, &volume);
    split(world, at);
    // Attach without giving Mend the server's index folder.
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
    // Mend also attaches when the index folder is given.
    world.attach(GRACE).wait_until_safe(2);
    world.forget_locations(&world.both());
    world.assert_whole();
}

/// A server has mounted up to two shards without the volume's `.vif`, and therefore with a wrong encoding. It then
/// mounts every further shard of the volume with this encoding as well.
pub fn a_failed_publication(world: &mut World) {
    let (at, volume) = split_server(world);
    let mut mend = world.attach(GRACE);
    mend.kill_coordinator();
    gather(world, &volume, at, 1);
    let ghosts: Vec<ShardName> = shards_at(world, &volume, at).into_iter().take(2).collect();
    let before: Vec<_> = ghosts.iter().map(|name| fs::read(world.holder(name).1).expect("there")).collect();
    ghosts.iter().for_each(|name| mount_without_vif(world, name, at));
    mend.start_coordinator();
    // The files are intact, but the server serves them wrongly. Mend unmounts them and rebuilds the shards.
    for (name, before) in ghosts.iter().zip(&before) {
        wait_until_as_it_was(world, name, before);
    }
    wait_until_whole(world);
    mend.wait_until_safe(2);
    assert!(mend.coordinator_log().contains("cannot put a shard into service"), "a publication failed");
    wait_until_unlocked(world);
    drop(mend);
    // Check that the server serves the files after a restart. Then move them into one folder for later cases,
    // and check again.
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

/// Makes a server with an index folder mount a shard from its first disk, from which the `.vif` is missing.
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

/// A server mounts a shard without the volume's `.vif`, so that the shard appears to have another encoding,
/// and then dies.
pub fn a_left_over_encoding(world: &mut World) {
    let (at, volume) = split_server(world);
    let mut mend = world.attach(GRACE);
    mend.kill_coordinator();
    mend.kill_helper(at);
    gather(world, &volume, at, 1);
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
        mend.ask(&["status"])?["conditions"].to_string().contains("another encoding").then_some(())
    });
    // While the server is down, the encoding of its shard is unknown.
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
    // The server has returned with shards that were rebuilt elsewhere.
    let names = world.shards(&volume);
    eventually("one file of each shard", || names.iter().all(|name| world.copies(name) == 1).then_some(()));
    wait_until_unlocked(world);
    drop(mend);
    world.forget_locations(&world.both());
    world.assert_whole();
}
