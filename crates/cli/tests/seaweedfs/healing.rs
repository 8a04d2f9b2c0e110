//! What Mend does by itself about a cluster that loses shards, servers and bits, and what of it SeaweedFS finds.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use seaweedfs::Standing;
use stores::seaweedfs::{ShardName, VolumeName};

use weed::eventually;

use crate::world::{World, counts};

/// Longer than a server of the test takes to come back.
const GRACE: &str = "5s";

fn shard(volume: &VolumeName, shard: u8) -> ShardName {
    ShardName { volume: volume.clone(), shard }
}

fn wait_until_whole(world: &World) {
    eventually("both volumes whole", || world.are_whole(&world.both()).then_some(()));
}

/// Waits until a shard's file is somewhere, as it was.
fn wait_until_as_it_was(world: &World, name: &ShardName, before: &[u8]) {
    eventually("the shard as it was", || {
        let files = world
            .servers
            .iter()
            .flat_map(|server| &server.folders)
            .map(|folder| folder.join(name.to_string()));
        let found: Vec<_> = files.filter_map(|path| fs::read(path).ok()).collect();
        (found.len() == 1 && found[0] == before).then_some(())
    });
}

fn wait_until_unlocked(world: &World) {
    eventually("the lock let go", || {
        world.runtime.block_on(world.master.lock_holder()).expect("it answers").is_none().then_some(())
    });
}

pub fn what_is_lost(world: &mut World) {
    let mend = world.attach(GRACE);
    let mut lost = vec![shard(&world.pictures, 3)];
    lost.extend([1, 5, 11, 13].map(|at| shard(&world.bucket, at)));
    let before: Vec<_> = lost.iter().map(|name| world.lose(name)).collect();
    for (name, (holder, before)) in lost.iter().zip(before) {
        wait_until_as_it_was(world, name, &before);
        assert_eq!(world.holder(name).0, holder, "it goes back to where it was");
    }
    wait_until_whole(world);
    mend.wait_until_safe(world, 2);
    wait_until_unlocked(world);
    world.assert_whole();
}

/// One shard with a wrong byte, and one whose file is gone while its server goes on serving it.
pub fn what_is_rotten(world: &mut World) {
    let mend = world.attach(GRACE);
    let (rotten, gone) = (shard(&world.pictures, 7), shard(&world.pictures, 12));
    let paths = [&rotten, &gone].map(|name| world.holder(name).1);
    let before = paths.clone().map(|path| fs::read(path).expect("there"));
    let wrong = [before[0][17_000_000] ^ 0x40];
    let file = File::options().write(true).open(&paths[0]).expect("there");
    file.write_all_at(&wrong, 17_000_000).expect("written");
    fs::remove_file(&paths[1]).expect("removed");
    let scrub = mend.ask(world, &["scrub"]).expect("it reports");
    let text = scrub.to_string();
    assert!(text.contains(&rotten.to_string()) && text.contains(&gone.to_string()), "{text}");
    wait_until_as_it_was(world, &rotten, &before[0]);
    wait_until_as_it_was(world, &gone, &before[1]);
    mend.wait_until_safe(world, 2);
    wait_until_unlocked(world);
    world.assert_whole();
}

pub fn a_server_that_goes(world: &mut World) {
    let mut mend = world.attach(GRACE);
    world.servers[4].kill();
    mend.kill_helper(4);
    wait_until_whole(world);
    let spread = counts(&world.list(), &world.pictures);
    assert!(spread.values().all(|&shards| shards <= 3), "14 shards on 5 servers: {spread:?}");
    // It comes back with all that it had.
    world.start_server(4);
    eventually("what it had", || {
        let surplus = |volume| match world.standing(volume) {
            Some(Standing::Known { surplus, .. }) => !surplus.is_empty(),
            _ => false,
        };
        surplus(&world.pictures).then_some(())
    });
    mend.start_helper(world, 4);
    wait_until_whole(world);
    mend.wait_until_safe(world, 2);
    wait_until_unlocked(world);
    for name in world.shards(&world.pictures).iter().chain(&world.shards(&world.bucket)) {
        eventually("one file of each shard", || world.copies(name).eq(&1).then_some(()));
    }
    drop(mend);
    // Some are on another server now, which SeaweedFS's own scrub does not ask the master about for up to 37 minutes.
    world.forget_locations(&world.both());
    world.assert_whole();
}

pub fn killed_in_the_middle(world: &mut World) {
    let mut mend = world.attach(GRACE);
    let lost = [2, 6, 9, 10].map(|at| shard(&world.pictures, at));
    let before = lost.clone().map(|name| world.lose(&name).1);
    // Each time it is at another point: waiting, locking, moving, mounting.
    for round in 0..4 {
        mend.kill_coordinator();
        mend.start_coordinator(world);
        mend.kill_helper(round);
        mend.start_helper(world, round);
        std::thread::sleep(Duration::from_millis(400 * (round as u64 + 1)));
    }
    wait_until_whole(world);
    for (name, before) in lost.iter().zip(&before) {
        wait_until_as_it_was(world, name, before);
    }
    mend.wait_until_safe(world, 2);
    // At the same time as SeaweedFS's own: whoever has the lock first makes them, and the other finds nothing to do.
    let before = lost.clone().map(|name| world.lose(&name).1);
    let said = world.shell(&["lock", "ec.rebuild -apply", "unlock"]);
    wait_until_whole(world);
    for (name, before) in lost.iter().zip(&before) {
        wait_until_as_it_was(world, name, before);
    }
    mend.wait_until_safe(world, 2);
    wait_until_unlocked(world);
    drop(mend);
    println!("{said}");
    // Where ec.rebuild was faster it made the shards elsewhere, which other servers do not know for up to 37 minutes.
    world.forget_locations(&world.both());
    world.assert_whole();
}
