//! Volumes without `.ecsum` files, as older servers create them. Only the other shards show whether a shard
//! is correct.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use seaweedfs::ShardName;
use testbed::eventually;

use crate::healing::{wait_until_unlocked, wait_until_whole};
use crate::world::World;

/// How long a server may be down before its shards are rebuilt elsewhere: longer than this case runs.
const GRACE: &str = "10m";

/// Returns the paths of a volume's checksum files on all servers.
fn checksums(world: &World, volume: &str) -> Vec<PathBuf> {
    let folders = world.servers.iter().flat_map(|server| &server.folders);
    folders.map(|folder| folder.join(format!("{volume}.ecsum"))).filter(|path| path.exists()).collect()
}

pub fn a_shard_that_no_checksum_tells(world: &mut World) {
    let volume = world.bucket.clone();
    let kept: Vec<(PathBuf, Vec<u8>)> = checksums(world, &volume.to_string())
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).expect("readable")))
        .collect();
    assert!(!kept.is_empty(), "this version makes them");
    kept.iter().for_each(|(path, _)| fs::remove_file(path).expect("removed"));
    let mend = world.attach(GRACE);
    mend.wait_until_safe(2);
    let whole = mend.ask(&["scrub", "--parity"]).expect("it reports");
    assert_eq!(
        (&whole["parity"]["checked"], whole["findings"].as_array().map(Vec::len)),
        (&2.into(), Some(0))
    );

    let forged = ShardName { volume, shard: 4 };
    let path = world.holder(&forged).1;
    let before = fs::read(&path).expect("there");
    let file = File::options().write(true).open(&path).expect("there");
    file.write_all_at(b"other bytes than were stored", 5_000).expect("written");
    let blind = mend.ask(&["scrub"]).expect("it reports");
    assert_eq!(blind["findings"].as_array().map(Vec::len), Some(0), "there is no checksum: {blind}");
    let found = mend.ask(&["scrub", "--parity"]).expect("it reports");
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(1), "{found}");
    assert!(found["findings"].to_string().contains(&forged.to_string()), "{found}");
    eventually("the shard as it was", || {
        let now = fs::read(&path).ok()?;
        (now == before).then_some(())
    });
    mend.wait_until_safe(2);
    drop(mend);
    kept.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("written"));
    world.assert_whole();
}

/// A server returns after its shards were rebuilt elsewhere. Without `.ecsum`, both copies of a shard can be
/// read, but one of the server's copies has rotted meanwhile. Only a copy that parity has proven may stay alone.
pub fn rot_that_returns(world: &mut World) {
    let volume = world.bucket.clone();
    let kept: Vec<(PathBuf, Vec<u8>)> = checksums(world, &volume.to_string())
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).expect("readable")))
        .collect();
    kept.iter().for_each(|(path, _)| fs::remove_file(path).expect("removed"));
    let names = world.shards(&volume);
    let read = |world: &World, name: &ShardName| fs::read(world.holder(name).1).expect("readable");
    let before: Vec<Vec<u8>> = names.iter().map(|name| read(world, name)).collect();
    let mut mend = world.attach("3s");
    let (server, rotten) = world.holder(&names[2]);
    world.servers[server].kill();
    mend.kill_helper(server);
    wait_until_whole(world);
    let file = File::options().write(true).open(&rotten).expect("there");
    file.write_all_at(b"other bytes than were stored", 5_000).expect("written");
    world.start_server(server);
    mend.start_helper(server);
    // The server also had shards of the other volume.
    let all = [names.clone(), world.shards(&world.pictures)].concat();
    eventually("one copy of each shard", || all.iter().all(|name| world.copies(name) == 1).then_some(()));
    mend.wait_until_safe(2);
    for (name, before) in names.iter().zip(&before) {
        assert!(read(world, name) == *before, "{name} has other bytes");
    }
    wait_until_unlocked(world);
    drop(mend);
    for server in &world.servers {
        for folder in &server.folders {
            if folder.join(format!("{volume}.ecx")).exists() {
                fs::write(folder.join(format!("{volume}.ecsum")), &kept[0].1).expect("written");
            }
        }
    }
    world.assert_whole();
}
