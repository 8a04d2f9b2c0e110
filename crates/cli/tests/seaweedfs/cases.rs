//! Checks Mend's queries to the master and the servers, and its readers of SeaweedFS's files, against the
//! state of the cluster.

use std::time::Duration;

use seaweedfs::{
    AskError, Change, Ecsum, Event, Lock, Protection, Ratio, ServerId, SmallFile, Volumes, Watch,
};
use store_api::OpenGate;

use testbed::eventually;

use crate::layout::fullest;
use crate::world::World;

pub fn the_files_are_what_the_master_lists(world: &mut World) {
    let listing = world.list();
    assert_eq!(listing.servers.len(), 6);
    assert_eq!(listing.shard_count(), 28);
    for (at, process) in world.servers.iter().enumerate() {
        let (blocks, server) = (process.blocks(), world.server(at));
        assert_eq!(listing.servers[&ServerId(process.address.http())].disks.len(), 2);
        for volume in [&world.pictures, &world.bucket] {
            let listed = listing.volumes[&volume.id()]
                .iter()
                .filter(|holding| holding.server.0 == process.address.http());
            let mut shards = std::collections::BTreeMap::new();
            for holding in listed {
                let info = blocks.volume(volume).expect("readable").expect("it has shards, so it has .vif");
                assert_eq!((holding.encoding, info.ratio), (info.encoding, Ratio::default()));
                assert!(holding.encoding.is_known());
                shards.extend(holding.shards.clone());
            }
            let mounted = world.runtime.block_on(server.mounted(volume.id())).expect("it answers");
            assert_eq!(mounted.shards, shards, "{volume} on {}", process.address);
            for (&shard, &bytes) in &shards {
                let name = seaweedfs::ShardName { volume: volume.clone(), shard };
                let facts = blocks.facts(&name).expect("good");
                let digest = blocks
                    .open_block(&name.block_id())
                    .expect("good")
                    .verify(&OpenGate)
                    .expect("whole")
                    .expect("by .ecsum");
                assert_eq!((facts.bytes, facts.protection), (bytes, Protection::Ecsum { digest }));
                assert_eq!(mounted.ratio, Some(facts.ratio));
                let read = server.read_shard(volume.id(), shard, facts.encoding, 5, 1000);
                let read = world.runtime.block_on(read).expect("it reads");
                let mut own = vec![0; 1000];
                blocks.open_block(&name.block_id()).expect("good").read_at(5, &mut own).expect("good");
                assert_eq!(read, own);
                let other = seaweedfs::Encoding(facts.encoding.0 + 1);
                let refused = world.runtime.block_on(server.read_shard(volume.id(), shard, other, 5, 10));
                assert!(matches!(refused, Err(AskError::Refused { .. })), "{refused:?}");
            }
            if !shards.is_empty() {
                let sums = world.runtime.block_on(server.small_file(volume, SmallFile::Ecsum, 1 << 20));
                let sums =
                    Ecsum::decode(&sums.expect("it answers").expect("it has one")).expect("a real one");
                assert_eq!((sums.ratio(), sums.generation()), (Ratio::default(), 0));
                assert_eq!(sums.shard(0).map(|sums| sums.block_bytes()), Some(16 << 20));
            }
        }
        let status = world.runtime.block_on(server.status()).expect("it answers");
        assert_eq!((status.version.contains("4.48"), status.folders.len()), (true, 2), "{status:?}");
        assert_eq!(status.rack, listing.servers[&ServerId(process.address.http())].rack);
        let none = seaweedfs::VolumeName::new("none", 999).expect("a name");
        let none = world.runtime.block_on(server.small_file(&none, SmallFile::Ecx, 100)).expect("it answers");
        assert_eq!(none, None);
    }
    let large =
        world.list().volumes[&world.pictures.id()][0].shards.values().next().copied().expect("a shard");
    assert!(large > 16 << 20, "shards of several blocks are wanted, not of {large} bytes");
    for volume in [&world.pictures, &world.bucket] {
        let found = world.runtime.block_on(world.master.lookup(volume.id())).expect("it answers");
        assert_eq!(found.len(), 14);
        assert!(found.iter().all(|(_, holders)| holders.len() == 1));
        let some = world.runtime.block_on(world.master.list_volumes(&[volume.id()])).expect("it answers");
        assert_eq!((some.volumes.len(), some.shard_count(), some.servers.len()), (1, 14, 6));
    }
    assert!(world.runtime.block_on(world.master.lookup(999)).expect("it answers").is_empty());
    world.assert_whole();
}

/// Reads events until one brings a change that is `wanted`.
fn wait_for(
    world: &World,
    watch: &mut Watch,
    volumes: &mut Volumes,
    wanted: impl Fn(&Change) -> bool,
) -> Vec<Change> {
    let mut seen = Vec::new();
    let waiting = async {
        loop {
            if let Event::Listed(listing, ..) = watch.next().await {
                seen.extend(volumes.apply(listing));
                if seen.iter().any(&wanted) {
                    return;
                }
            }
        }
    };
    let limit = Duration::from_secs(180);
    let waited = world.runtime.block_on(async { tokio::time::timeout(limit, waiting).await });
    assert!(waited.is_ok(), "{seen:?}");
    seen
}

pub fn a_killed_server_is_seen_and_its_return(world: &mut World) {
    let at = fullest(world, &world.pictures);
    let mut volumes = Volumes::default();
    // The listing interval is so long that only the stream of events can report the change in time.
    let started =
        world.runtime.block_on(async { Watch::start(world.master.clone(), Duration::from_secs(3600)) });
    let mut watch = started;
    wait_for(world, &mut watch, &mut volumes, |change| matches!(change, Change::ShardCame { .. }));
    let id = ServerId(world.servers[at].address.http());
    let held = volumes
        .iter()
        .flat_map(|(_, volume)| volume.generations.values())
        .flat_map(|it| it.homes.values().flatten());
    let held = held.filter(|home| home.server == id).count();
    assert!(held > 0, "the server has shards");
    world.servers[at].kill();
    let seen = wait_for(world, &mut watch, &mut volumes, |change| *change == Change::ServerWent(id.clone()));
    let went = |change: &&Change| matches!(change, Change::ShardWent { server_is_up: false, home, .. } if home.server == id);
    assert_eq!(seen.iter().filter(went).count(), held);
    world.start_server(at);
    let back = |change: &Change| matches!(change, Change::ShardCame { home, .. } if home.server == id);
    wait_for(world, &mut watch, &mut volumes, back);
    eventually("all shards", || (world.list().shard_count() == 28).then_some(()));
    drop(watch);
    world.assert_whole();
}

pub fn the_lock_keeps_the_shell_out(world: &mut World) {
    let (runtime, master) = (&world.runtime, &world.master);
    let lock = runtime.block_on(Lock::take(master, "mend", "repairs volume 1")).expect("nobody has it");
    lock.check().expect("it is held");
    let holder = runtime.block_on(master.lock_holder()).expect("it answers").expect("somebody has it");
    assert_eq!(holder.client, "mend");
    let second = runtime.block_on(Lock::take(master, "other", "")).expect_err("it is held");
    assert!(matches!(&second, AskError::Locked { holder } if holder.contains("mend")), "{second}");
    // The master grants the lock for 10 s. Wait longer, which forces a renewal of the lock.
    std::thread::sleep(Duration::from_secs(12));
    lock.check().expect("it is renewed");
    let said = world.shell(&["ec.rebuild -apply"]);
    assert!(said.contains("lock"), "the shell does nothing without the lock: {said}");
    runtime.block_on(lock.release());
    assert_eq!(runtime.block_on(master.lock_holder()).expect("it answers"), None, "let go at once");
    drop(runtime.block_on(Lock::take(master, "mend", "")).expect("nobody has it"));
    // Dropping the lock also releases it, but only a moment later.
    eventually("the lock", || {
        runtime.block_on(master.lock_holder()).expect("it answers").is_none().then_some(())
    });
    world.assert_whole();
}
