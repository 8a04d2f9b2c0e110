//! Mend's automatic reaction to lost shards, dead servers and corrupt shards, and SeaweedFS's view of the
//! results.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use seaweedfs::{Lock, ShardName, SmallFile, Standing, VolumeName};
use testbed::seaweedfs::http;
use testbed::{Mend, eventually};

use crate::layout::{fullest, gather, shards_at};
use crate::side_files::files_of;
use crate::world::{World, counts};

/// How long a server may be down before its shards are rebuilt elsewhere: longer than a restart takes.
pub const GRACE: &str = "5s";

pub fn shard(volume: &VolumeName, shard: u8) -> ShardName {
    ShardName { volume: volume.clone(), shard }
}

pub fn wait_until_whole(world: &World) {
    eventually("both volumes whole", || world.are_whole(&world.both()).then_some(()));
}

/// Waits until exactly one server has a file of the shard, with the original contents.
pub fn wait_until_as_it_was(world: &World, name: &ShardName, before: &[u8]) {
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

pub fn wait_until_unlocked(world: &World) {
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
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    world.assert_whole();
}

/// Flips a bit of a shard. Returns the old contents.
fn rot(world: &World, name: &ShardName, at: u64) -> Vec<u8> {
    let path = world.holder(name).1;
    let before = fs::read(&path).expect("there");
    let file = File::options().write(true).open(&path).expect("there");
    file.write_all_at(&[before[at as usize] ^ 0x40], at).expect("written");
    before
}

/// Repairs a data shard and a parity shard with one wrong byte each, and a shard whose file was deleted while
/// its server keeps serving it.
pub fn what_is_rotten(world: &mut World) {
    let mend = world.attach(GRACE);
    let (rotten, parity, gone) =
        (shard(&world.pictures, 7), shard(&world.bucket, 11), shard(&world.pictures, 12));
    let path = world.holder(&gone).1;
    let before = [rot(world, &rotten, 17_000_000), fs::read(&path).expect("there"), rot(world, &parity, 5)];
    fs::remove_file(&path).expect("removed");
    let scrub = mend.ask(&["scrub"]).expect("it reports");
    let text = scrub.to_string();
    assert!([&rotten, &parity, &gone].iter().all(|name| text.contains(&name.to_string())), "{text}");
    wait_until_as_it_was(world, &rotten, &before[0]);
    wait_until_as_it_was(world, &gone, &before[1]);
    wait_until_as_it_was(world, &parity, &before[2]);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    world.assert_whole();
}

/// The background scrub finds a corrupt shard. The finding remains when a server mounts the corrupt shard
/// again.
pub fn rot_that_nobody_looked_for(world: &mut World) {
    let mut mend = world.attach(GRACE);
    mend.kill_coordinator();
    let rotten = shard(&world.pictures, 13);
    let before = rot(world, &rotten, 1_000_000);
    let config = mend.folder().join("mend.toml");
    let text = fs::read_to_string(&config).expect("its configuration");
    let text = text.replace("# scrub_rate = \"20MB/s\"", "scrub_rate = \"60MB/s\"");
    let text = text.replace("repair = \"auto\"", "repair = \"off\"");
    fs::write(&config, &text).expect("written");
    mend.start_coordinator();
    let is_known = |mend: &Mend| {
        let status = mend.ask(&["status"])?;
        (status["stripes"]["blocks_lost"] == 1 && status["settling"] == false).then_some(())
    };
    eventually("the rot to be found", || is_known(&mend));
    let holder = world.holder(&rotten).0;
    let server = world.server(holder);
    world.runtime.block_on(server.unmount(&rotten.volume, &[13])).expect("unmounted");
    world.runtime.block_on(server.mount(&rotten.volume, &[13])).expect("mounted again");
    eventually("the rot to be remembered", || is_known(&mend));
    mend.kill_coordinator();
    fs::write(&config, text.replace("repair = \"off\"", "repair = \"auto\"")).expect("written");
    mend.start_coordinator();
    wait_until_as_it_was(world, &rotten, &before);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    world.assert_whole();
}

/// The server chosen for new shards has a truncated index (`.ecx`) of the volume and no `.vif`, as after an
/// interrupted copy.
pub fn small_files_that_are_not_whole(world: &mut World) {
    let volume = world.bucket.clone();
    let victim = fullest(world, &volume);
    gather(world, &volume, victim, 0);
    let mend = world.attach(GRACE);
    let index = world.servers[victim].folders[0].join(format!("{volume}.ecx"));
    let whole = fs::read(&index).expect("its index");
    let lost = shards_at(world, &volume, victim);
    let before: Vec<_> = lost.iter().map(|name| fs::read(world.holder(name).1).expect("there")).collect();
    let numbers: Vec<u8> = lost.iter().map(|name| name.shard).collect();
    world.runtime.block_on(world.server(victim).unmount(&volume, &numbers)).expect("unmounted");
    fs::write(&index, &whole[..whole.len() - 16]).expect("cut off");
    let vif = index.with_extension("vif");
    if vif.exists() {
        fs::remove_file(vif).expect("removed");
    }
    for name in &lost {
        let path = world.servers[victim].folders.iter().map(|it| it.join(name.to_string()));
        path.filter(|path| path.exists()).for_each(|path| fs::remove_file(path).expect("removed"));
    }
    for (name, before) in lost.iter().zip(&before) {
        wait_until_as_it_was(world, name, before);
    }
    wait_until_whole(world);
    assert_eq!(world.holder(&lost[0]).0, victim, "it goes back to where it was");
    assert!(fs::read(&index).expect("its index") == whole, "the index was brought anew");
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    // The servers' caches of shard locations need not be cleared, because all shards are back where they
    // were.
    world.assert_whole();
}

/// The shards of a dead server are rebuilt elsewhere, and the server returns with all its shards. One copy of each
/// shard remains. Which one is not tested: a repair may publish a shard while its server is being listed again.
pub fn a_server_that_goes(world: &mut World) {
    let leaving = fullest(world, &world.pictures);
    let mut mend = world.attach(GRACE);
    world.servers[leaving].kill();
    mend.kill_helper(leaving);
    wait_until_whole(world);
    let spread = counts(&world.list(), &world.pictures);
    assert!(spread.values().all(|&shards| shards <= 3), "14 shards on 5 servers: {spread:?}");
    world.start_server(leaving);
    eventually("what it had", || {
        let surplus = |volume| match world.standing(volume) {
            Some(Standing::Known { surplus, .. }) => !surplus.is_empty(),
            _ => false,
        };
        surplus(&world.pictures).then_some(())
    });
    mend.start_helper(leaving);
    wait_until_whole(world);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    for name in world.shards(&world.pictures).iter().chain(&world.shards(&world.bucket)) {
        eventually("one file of each shard", || world.copies(name).eq(&1).then_some(()));
    }
    let spread = counts(&world.list(), &world.pictures);
    assert!(spread.values().all(|&shards| shards <= 3), "14 shards on 6 servers: {spread:?}");
    drop(mend);
    // SeaweedFS's own scrubs compare all shards with their checksums and with each other, at the locations that
    // servers remember.
    world.assert_whole();
}

/// The coordinator dies after a helper has replaced a corrupt shard on disk, and before the server has mounted the
/// new file. The server then still serves the corrupt one.
pub fn a_shard_replaced_on_disk_only(world: &mut World) {
    let mut mend = world.attach(GRACE);
    mend.wait_until_safe(2);
    let name = shard(&world.bucket, 5);
    let path = world.holder(&name).1;
    let before = fs::read(&path).expect("readable");
    // While another client has the lock, Mend finds the damage but cannot repair it.
    let lock = world.runtime.block_on(Lock::take(&world.master, "other", "")).expect("nobody has it");
    let file = File::options().write(true).open(&path).expect("there");
    file.write_all_at(b"other bytes than were stored", 5_000).expect("written");
    let scrub = mend.ask(&["scrub"]).expect("it reports").to_string();
    assert!(scrub.contains(&name.to_string()), "{scrub}");
    mend.kill_coordinator();
    let new = path.with_extension("new");
    fs::write(&new, &before).and_then(|()| fs::rename(&new, &path)).expect("replaced");
    world.runtime.block_on(lock.release());
    mend.start_coordinator();
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    // SeaweedFS's own scrub reads what servers serve.
    world.assert_whole();
}

/// Shards were unmounted before Mend was attached, and their server has lost the volume's index. The files are
/// intact: with `--dry-run`, Mend leaves them alone; otherwise it puts them into service without rebuilding
/// them. The same holds for a damaged `.vif` of the other volume.
pub fn shards_that_are_not_mounted(world: &mut World) {
    let volume = world.bucket.clone();
    let victim = fullest(world, &volume);
    let has_description = |&at: &usize| {
        let has_index_folder = world.servers[at].index_folder.is_some();
        at != victim && !has_index_folder && !shards_at(world, &world.pictures, at).is_empty()
    };
    let described = (0..world.servers.len()).find(has_description).expect("the shares are even");
    gather(world, &world.pictures, described, 0);
    let description = files_of(world, described, &world.pictures, "vif").remove(0);
    let right = fs::read(&description).expect("there");
    let there = shards_at(world, &volume, victim);
    let before: Vec<_> =
        there.iter().map(|name| fs::metadata(world.holder(name).1).expect("there")).collect();
    let numbers: Vec<u8> = there.iter().map(|name| name.shard).collect();
    let paths: Vec<_> = there.iter().map(|name| world.holder(name).1).collect();
    world.runtime.block_on(world.server(victim).unmount(&volume, &numbers)).expect("unmounted");
    for folder in &world.servers[victim].folders {
        drop(fs::remove_file(folder.join(format!("{volume}.ecx"))));
    }
    fs::write(&description, b"{ garbage").expect("written");
    let dry = world.attach_damaged(&["--repair-after", GRACE, "--dry-run"]);
    dry.wait_for_helpers();
    std::thread::sleep(Duration::from_secs(8));
    assert!(paths.iter().all(|path| path.exists()), "nothing is deleted in a dry run");
    assert_eq!(fs::read(&description).expect("there"), b"{ garbage", "nothing is replaced in a dry run");
    drop(dry);
    // On a slow machine, an automatic repair could begin before all files are in service, and rebuild some elsewhere.
    let mend = world.attach_damaged(&["--repair-after", "10m"]);
    eventually("the description as it was", || (fs::read(&description).ok()? == right).then_some(()));
    mend.wait_until_safe(2);
    wait_until_whole(world);
    for ((name, path), before) in there.iter().zip(&paths).zip(&before) {
        let now = fs::metadata(path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((now.ino(), world.copies(name)), (before.ino(), 1), "{name} was not rebuilt");
    }
    wait_until_unlocked(world);
    world.assert_whole();
}

/// Two servers restart without the index of a volume, so they leave their shards unmounted. Too few shards are
/// left for decoding, but all files are intact.
pub fn indexes_that_are_lost(world: &mut World) {
    let mend = world.attach(GRACE);
    let volume = world.bucket.clone();
    let has_indexes_beside_shards =
        |&at: &usize| world.servers[at].index_folder.is_none() && !shards_at(world, &volume, at).is_empty();
    let victims: Vec<usize> = (0..world.servers.len()).filter(has_indexes_beside_shards).take(2).collect();
    for &at in &victims {
        world.servers[at].kill();
        for folder in &world.servers[at].folders {
            drop(fs::remove_file(folder.join(format!("{volume}.ecx"))));
        }
        world.start_server(at);
    }
    mend.wait_until_safe(2);
    wait_until_whole(world);
    wait_until_unlocked(world);
    world.assert_whole();
}

/// While no master answers, nothing is known about the cluster.
pub fn a_master_that_is_gone(world: &mut World) {
    let mend = world.attach(GRACE);
    let wait_until_unknown = || {
        eventually("the state is unknown", || {
            let status = mend.ask(&["status"])?;
            status["summary"].as_str()?.starts_with("UNKNOWN  cannot list the cluster").then_some(())
        });
        assert_eq!(mend.run(&["status", "--check"]).status.code(), Some(3));
    };
    world.kill_master();
    wait_until_unknown();
    world.restart_master();
    mend.wait_until_safe(2);
    // A master that hangs refuses no connection.
    world.signal_master("STOP");
    wait_until_unknown();
    world.signal_master("CONT");
    mend.wait_until_safe(2);
    wait_until_whole(world);
    world.assert_whole();
}

/// A restart of the coordinator while all volume servers are down does not make the volumes disappear.
pub fn a_cluster_out_of_sight(world: &mut World) {
    let mut mend = world.attach(GRACE);
    mend.wait_until_safe(2);
    mend.kill_coordinator();
    for at in 0..world.servers.len() {
        world.servers[at].kill();
    }
    mend.start_coordinator();
    let first_line = |mend: &Mend| Some(mend.ask(&["status"])?["summary"].as_str()?.to_owned());
    eventually("both volumes are missed", || {
        let line = first_line(&mend)?;
        assert!(!line.starts_with("safe"), "{line}");
        line.starts_with("NOT KNOWN  the state of 2 stripes is unknown").then_some(())
    });
    for question in ["safe-to-remove", "ok-to-stop"] {
        for name in mend.names() {
            let answer = mend.run(&["node", question, name]);
            assert!(!answer.status.success(), "{question} {name}: {answer:?}");
        }
    }
    for at in 0..world.servers.len() {
        world.start_server(at);
    }
    mend.wait_until_safe(2);
    wait_until_whole(world);
    world.assert_whole();
}

/// A paused repair leaves the cluster's lock to SeaweedFS, also if its job has begun, and takes the lock again
/// when it is resumed.
pub fn a_repair_that_is_paused(world: &mut World) {
    let mend = world.attach(GRACE);
    mend.wait_until_safe(2);
    assert!(mend.run(&["caps", "--total", "1MB/s"]).status.success());
    let name = shard(&world.pictures, 6);
    let (_, before) = world.lose(&name);
    let repair = eventually("a job that moves slices", || {
        let status = mend.ask(&["status"])?;
        (status["jobs"][0]["phase"] == "moving-slices").then(|| status["repairs"][0]["repair"].to_string())
    });
    let holder = || world.runtime.block_on(world.master.lock_holder()).expect("it answers");
    assert!(holder().is_some());
    assert!(mend.run(&["pause", &repair]).status.success());
    wait_until_unlocked(world);
    let status = mend.ask(&["status"]).expect("it answers");
    assert_eq!(status["jobs"][0]["phase"], "on-hold", "{status}");
    // While another client has the lock, the job stays on hold.
    let lock = world.runtime.block_on(Lock::take(&world.master, "operator", "")).expect("it is free");
    assert!(mend.run(&["caps", "--none"]).status.success());
    assert!(mend.run(&["resume", &repair]).status.success());
    std::thread::sleep(Duration::from_secs(4));
    let status = mend.ask(&["status"]).expect("it answers");
    assert_eq!(status["jobs"][0]["phase"], "on-hold", "{status}");
    world.runtime.block_on(lock.release());
    wait_until_as_it_was(world, &name, &before);
    wait_until_whole(world);
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    world.assert_whole();
}

/// Deletes a picture. Returns the server that alone has journalled the deletion, and the ID of the needle, as
/// SeaweedFS's URLs have it.
fn delete_somewhere(world: &mut World) -> (usize, String) {
    let journals = |world: &World| -> Vec<BTreeSet<u64>> {
        (0..world.servers.len()).map(|at| journalled(world, [at])).collect()
    };
    let before = journals(world);
    let needle = world.needle("pictures/15");
    world.delete("pictures/15");
    // The filer deletes the needle some time after the object.
    let server = eventually("a journal with the deletion", || {
        journals(world).iter().zip(&before).position(|(now, before)| now != before)
    });
    (server, needle)
}

/// Returns the running servers that read deleted needles, each with the needle. In SeaweedFS, a server that needs no
/// bytes from the server with the journal reads the needle.
fn readers(world: &World, needles: &[String]) -> BTreeSet<(usize, String)> {
    let servers = world.servers.iter().enumerate().filter(|(_, server)| server.id().is_some());
    let asked = servers.flat_map(|(at, server)| needles.iter().map(move |needle| (at, server, needle)));
    let readable = asked.filter(|(_, server, needle)| {
        http("GET", &server.address.http(), &format!("/{needle}"), b"")
            .inspect_err(|head| {
                println!("{}: {}", server.address.http(), head.lines().next().unwrap_or_default())
            })
            .is_ok()
    });
    readable.map(|(at, _, needle)| (at, needle.clone())).collect()
}

/// Returns the deleted needles that the servers at these positions have journalled.
fn journalled(world: &World, servers: impl IntoIterator<Item = usize>) -> BTreeSet<u64> {
    let journal = |at: usize| {
        let server = world.server(at);
        let journal = server.small_file(&world.pictures, SmallFile::Ecj, 1 << 20);
        let journal = world.runtime.block_on(journal).expect("it answers").unwrap_or_default();
        let (entries, _) = journal.as_chunks();
        entries.iter().map(|&entry| u64::from_be_bytes(entry)).collect::<Vec<_>>()
    };
    servers.into_iter().flat_map(journal).collect()
}

/// A server in service is drained: its shards are moved to other servers, each only once, and its own copies
/// are removed. Needles whose deletion only this server has journalled stay deleted without it.
pub fn a_server_that_is_drained(world: &mut World) {
    let (leaving, needle) = delete_somewhere(world);
    let needles = [needle];
    let (deleted, readable) = (journalled(world, [leaving]), readers(world, &needles));
    let mend = world.attach(GRACE);
    mend.wait_until_safe(2);
    let name = &mend.names()[leaving];
    let drained = mend.run(&["node", "drain", name]);
    assert!(drained.status.success(), "{drained:?}");
    let shards: Vec<ShardName> = world.both().iter().flat_map(|volume| world.shards(volume)).collect();
    for shard in &shards {
        eventually("one file of each shard", || world.copies(shard).eq(&1).then_some(()));
        assert_ne!(world.holder(shard).0, leaving, "{shard}");
    }
    let safe = mend.run(&["node", "safe-to-remove", name]);
    // The filer keeps its log in volumes of its own. It may have put one on this server, which is then not safe to
    // remove, and nothing else may be named.
    let said = String::from_utf8_lossy(&safe.stdout);
    let is_log = said.lines().next().is_some_and(|line| {
        line.starts_with(&format!("NOT safe to remove {name}: "))
            && line.ends_with(&format!("erasure-coded on {name}"))
            && !line.contains(';')
    });
    assert!(safe.status.success() || is_log, "{safe:?}");
    let history = mend.ask(&["history"]).expect("it answers").to_string();
    assert!(!history.contains("\"state\":\"failed\""), "{history}");
    world.servers[leaving].kill();
    let others = (0..world.servers.len()).filter(|&other| other != leaving);
    assert!(deleted.is_subset(&journalled(world, others)), "{deleted:?}");
    let readable_again: Vec<_> = readers(world, &needles).difference(&readable).cloned().collect();
    assert!(readable_again.is_empty(), "{readable_again:?}");
    world.start_server(leaving);
    assert!(mend.run(&["node", "drain", name, "--stop"]).status.success());
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    world.assert_whole();
}

pub fn killed_in_the_middle(world: &mut World) {
    let mut mend = world.attach(GRACE);
    let lost = [2, 6, 9, 10].map(|at| shard(&world.pictures, at));
    let before = lost.clone().map(|name| world.lose(&name).1);
    // In each round the repair is probably in another phase: waiting, locking, moving data, or mounting.
    for round in 0..4 {
        mend.kill_coordinator();
        mend.start_coordinator();
        mend.kill_helper(round);
        mend.start_helper(round);
        std::thread::sleep(Duration::from_millis(400 * (round as u64 + 1)));
        if round == 1 {
            world.delete("pictures/41");
        }
        if round == 2 {
            world.restart_master();
        }
    }
    eventually("all servers again", || (world.list().servers.len() == world.servers.len()).then_some(()));
    wait_until_whole(world);
    for (name, before) in lost.iter().zip(&before) {
        wait_until_as_it_was(world, name, before);
    }
    mend.wait_until_safe(2);
    // SeaweedFS repairs at the same time. The system that takes the lock first rebuilds the shards, and the
    // other system then finds nothing to do.
    let before = lost.clone().map(|name| world.lose(&name).1);
    let said = world.shell(&["lock", "ec.rebuild -apply", "ec.balance -apply", "unlock"]);
    wait_until_whole(world);
    for (name, before) in lost.iter().zip(&before) {
        wait_until_as_it_was(world, name, before);
    }
    mend.wait_until_safe(2);
    wait_until_unlocked(world);
    drop(mend);
    println!("{said}");
    // If ec.rebuild was faster, it placed the shards elsewhere, and other servers may cache the old locations
    // for up to 37 minutes.
    world.forget_locations(&world.both());
    world.assert_whole();
}
