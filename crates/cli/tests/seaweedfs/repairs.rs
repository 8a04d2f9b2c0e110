//! Repairs that the test carries out step by step with the components of coordinator and helper: read the
//! sources with their servers' readers, decode with SeaweedFS's code, write with the target's writer, mount
//! the shard.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use block_files::StoredBlock;
use codes::{BlockIndex, Code, CodeSpec};
use repair::{Sink, SinkEnd};
use seaweedfs::{ShardBlocks, ShardName, SmallFile, Standing, VolumeName};
use store_api::{BlockError, Blocks, OpenGate};

use testbed::eventually;

use crate::layout::shards_at;
use crate::side_files::files_of;
use crate::world::World;

/// The number of bytes to decode at a time.
const PIECE: usize = 1 << 20;
const SMALL_FILES: [SmallFile; 4] = [SmallFile::Ecx, SmallFile::Ecj, SmallFile::Vif, SmallFile::Ecsum];

fn code() -> Arc<dyn Code> {
    let spec: CodeSpec = "rs-14-10-vandermonde".parse().expect("SeaweedFS's code");
    spec.build().expect("it is possible")
}

/// Rebuilds each lost shard on its server from all other shards, and mounts it.
fn repair(world: &World, volume: &VolumeName, lost: &[(u8, usize)]) -> Result<(), BlockError> {
    let blocks: Vec<ShardBlocks> = world.servers.iter().map(|server| server.blocks()).collect();
    for &(shard, target) in lost {
        let name = ShardName { volume: volume.clone(), shard };
        make(world, &blocks, &name, target, &lost.iter().map(|&(shard, _)| shard).collect::<Vec<_>>())?;
    }
    for &(shard, target) in lost {
        world.runtime.block_on(world.server(target).mount(volume, &[shard])).expect("mounted");
    }
    eventually("the master lists them", || is_whole(world, volume).then_some(()));
    Ok(())
}

fn make(
    world: &World,
    blocks: &[ShardBlocks],
    name: &ShardName,
    target: usize,
    lost: &[u8],
) -> Result<(), BlockError> {
    let sources: Vec<_> = world
        .shards(&name.volume)
        .into_iter()
        .filter(|shard| !lost.contains(&shard.shard))
        .take(10)
        .collect();
    let readers: Vec<Arc<dyn StoredBlock>> = sources
        .iter()
        .map(|shard| {
            blocks
                .iter()
                .map(|blocks| blocks.open_block(&shard.block_id()))
                .find_map(|opened| match opened {
                    Err(BlockError::Missing { .. }) => None,
                    opened => Some(opened),
                })
                .expect("somebody has it")
        })
        .collect::<Result<_, _>>()?;
    let bytes = readers[0].bytes();
    let sink = Sink {
        index: BlockIndex(name.shard.into()),
        id: name.block_id(),
        bytes,
        digest: None,
        end: SinkEnd::Kept { label: None, permit: None },
    };
    let mut writer = blocks[target].create(&sink)?;
    let coefficients = coefficients(name.shard, &sources);
    let kernel = gf::Kernel::best();
    let (mut sum, mut piece) = (vec![0; PIECE], vec![0; PIECE]);
    for offset in (0..bytes).step_by(PIECE) {
        let length = (bytes - offset).min(PIECE as u64) as usize;
        sum[..length].fill(0);
        for (reader, &coefficient) in readers.iter().zip(&coefficients) {
            reader.read_at(offset, &mut piece[..length])?;
            kernel.mul_add(coefficient, &piece[..length], &mut sum[..length]);
        }
        writer.write_at(offset, &sum[..length])?;
    }
    let sealed = writer.seal()?;
    writer.commit()?;
    assert_eq!(blocks[target].open_block(&name.block_id())?.verify(&OpenGate)?, sealed);
    Ok(())
}

fn is_whole(world: &World, volume: &VolumeName) -> bool {
    matches!(world.standing(volume), Some(Standing::Known { missing, surplus, .. }) if missing.is_empty() && surplus.is_empty())
}

/// Unmounts a shard and deletes its file. Returns the server that held it.
fn lose(world: &World, name: &ShardName) -> usize {
    let (holder, path) = world.holder(name);
    world.runtime.block_on(world.server(holder).unmount(&name.volume, &[name.shard])).expect("unmounted");
    if path.exists() {
        fs::remove_file(path).expect("removed");
    }
    eventually("the master misses it", || (!is_whole(world, &name.volume)).then_some(()));
    holder
}

fn is_corrupt(result: Result<(), BlockError>, name: &ShardName, detail: &str) {
    match result {
        Err(BlockError::Corrupt { block, detail: found, .. }) => {
            assert_eq!(block, name.block_id());
            assert!(found.contains(detail), "{found}");
        }
        other => panic!("{name} is corrupt and {other:?} was said"),
    }
}

fn shard(volume: &VolumeName, shard: u8) -> ShardName {
    ShardName { volume: volume.clone(), shard }
}

pub fn a_lost_shard_is_made_again(world: &mut World) {
    for (volume, lost) in [(world.pictures.clone(), 3), (world.bucket.clone(), 12)] {
        let before = fs::read(world.holder(&shard(&volume, lost)).1).expect("there");
        let holder = lose(world, &shard(&volume, lost));
        match world.standing(&volume) {
            Some(Standing::Known { missing, spare, .. }) => assert_eq!((missing, spare), (vec![lost], 3)),
            other => panic!("{other:?}"),
        }
        repair(world, &volume, &[(lost, holder)]).expect("repaired");
        let (again, path) = world.holder(&shard(&volume, lost));
        assert_eq!(again, holder);
        assert!(fs::read(path).expect("there") == before, "byte for byte what SeaweedFS's encoder made");
    }
    world.assert_whole();
}

/// Four shards are lost, as many as the code tolerates. One of them is rebuilt on a server that has no files
/// of the volume.
pub fn four_lost_shards(world: &mut World) {
    let volume = world.pictures.clone();
    let lost: Vec<u8> = vec![0, 5, 11, 13];
    let first = world.holder(&shard(&volume, 0)).0;
    // Later cases rely on even shares, so count the lost shards too: they return.
    let mut shares: Vec<usize> =
        (0..world.servers.len()).map(|at| shards_at(world, &volume, at).len()).collect();
    let mut targets: Vec<usize> = lost.iter().map(|&lost| lose(world, &shard(&volume, lost))).collect();
    // Move the remaining shards of the volume away from the first server, and delete the volume's metadata
    // files there.
    let rest: Vec<u8> = (0..14).filter(|at| !lost.contains(at)).collect();
    let rest: Vec<u8> = rest.into_iter().filter(|&at| world.holder(&shard(&volume, at)).0 == first).collect();
    for &at in &rest {
        let others = (0..shares.len()).filter(|&other| other != first);
        let other = others.min_by_key(|&other| shares[other]).expect("six servers");
        shares[other] += 1;
        let (_, from) = world.holder(&shard(&volume, at));
        world.runtime.block_on(world.server(first).unmount(&volume, &[at])).expect("unmounted");
        if !world.servers[other].blocks().has_index(&volume).expect("readable") {
            let from = &world.servers[first].address;
            world
                .runtime
                .block_on(world.server(other).bring(&volume, &SMALL_FILES, from, 0))
                .expect("brought");
        }
        // SeaweedFS may mount a shard as one of another encoding if its folder has no `.vif`.
        let vif = files_of(world, other, &volume, "vif").remove(0);
        fs::rename(&from, vif.with_file_name(from.file_name().expect("a name"))).expect("moved");
        world.runtime.block_on(world.server(other).mount(&volume, &[at])).expect("mounted");
    }
    for folder in &world.servers[first].folders {
        for extension in ["ecx", "ecj", "vif", "ecsum"] {
            let _ = fs::remove_file(folder.join(format!("{volume}.{extension}")));
        }
    }
    assert!(!world.servers[first].blocks().has_index(&volume).expect("readable"));
    // A server mounts no shard without an index, so copy the metadata files to it first.
    let unmounted = world.runtime.block_on(world.server(first).mount(&volume, &[0]));
    assert!(unmounted.expect_err("no index").to_string().contains("ecx"));
    let from = &world.servers[world.holder(&shard(&volume, 1)).0].address;
    world.runtime.block_on(world.server(first).bring(&volume, &SMALL_FILES, from, 0)).expect("brought");
    targets[0] = first;
    let lost: Vec<_> = lost.into_iter().zip(targets).collect();
    repair(world, &volume, &lost).expect("repaired");
    world.assert_whole();
}

pub fn a_rotten_shard(world: &mut World) {
    let volume = world.pictures.clone();
    let (rotten, lost) = (shard(&volume, 2), shard(&volume, 9));
    let (rotten_holder, path) = world.holder(&rotten);
    let file = File::options().read(true).write(true).open(&path).expect("there");
    let (mut byte, at) = ([0], (17 << 20) + 12_345);
    file.read_exact_at(&mut byte, at).expect("in it");
    file.write_all_at(&[byte[0] ^ 1], at).expect("written");
    let scrubbed = world.scrub("checksum");
    assert!(
        scrubbed.contains("Got scrub failures on 1 EC volumes"),
        "SeaweedFS's scrub sees it too: {scrubbed}"
    );
    // Another shard is lost, and the corrupt shard is among the sources of its repair. The repair must fail.
    let holder = lose(world, &lost);
    is_corrupt(repair(world, &volume, &[(9, holder)]), &rotten, "16777216 to");
    assert!(!world.servers[holder].folders.iter().any(|folder| folder.join(lost.to_string()).exists()));
    // Treat the corrupt shard as lost, too. Both lost shards are then rebuilt from good shards.
    lose(world, &rotten);
    repair(world, &volume, &[(9, holder), (2, rotten_holder)]).expect("repaired");
    world.assert_whole();
}

pub fn a_short_shard(world: &mut World) {
    let volume = world.pictures.clone();
    let name = shard(&volume, 7);
    let (holder, path) = world.holder(&name);
    let server = world.server(holder);
    world.runtime.block_on(server.unmount(&volume, &[7])).expect("unmounted");
    let bytes = fs::metadata(&path).expect("there").len();
    File::options().write(true).open(&path).and_then(|file| file.set_len(bytes - 100)).expect("cut");
    world.runtime.block_on(server.mount(&volume, &[7])).expect("SeaweedFS mounts it without a word");
    is_corrupt(
        world.servers[holder].blocks().open_block(&name.block_id()).map(drop),
        &name,
        "according to its volume's .ecsum",
    );
    lose(world, &name);
    repair(world, &volume, &[(7, holder)]).expect("repaired");
    world.assert_whole();
}

/// A shard has the right name and length but other bytes, for example those of another encoding.
pub fn a_foreign_shard(world: &mut World) {
    let volume = world.pictures.clone();
    let (name, other) = (shard(&volume, 4), shard(&volume, 6));
    let (holder, path) = world.holder(&name);
    let server = world.server(holder);
    world.runtime.block_on(server.unmount(&volume, &[4])).expect("unmounted");
    fs::copy(world.holder(&other).1, &path).expect("copied");
    world.runtime.block_on(server.mount(&volume, &[4])).expect("SeaweedFS mounts it without a word");
    let reader = world.servers[holder].blocks().open_block(&name.block_id()).expect("its length is right");
    is_corrupt(reader.verify(&OpenGate).map(drop), &name, "do not match their checksum");
    lose(world, &name);
    repair(world, &volume, &[(4, holder)]).expect("repaired");
    world.assert_whole();
}

pub fn a_duplicate(world: &mut World) {
    let volume = world.bucket.clone();
    let name = shard(&volume, 1);
    let (holder, path) = world.holder(&name);
    let other = (0..6).find(|&at| {
        let blocks = world.servers[at].blocks();
        at != holder && blocks.has_index(&volume).expect("readable")
    });
    let other = other.expect("several servers have shards");
    let bytes = fs::read(&path).expect("there");
    let mut writer = world.servers[other]
        .blocks()
        .create(&Sink {
            index: BlockIndex(1),
            id: name.block_id(),
            bytes: bytes.len() as u64,
            digest: None,
            end: SinkEnd::Kept { label: None, permit: None },
        })
        .expect("room");
    writer.write_at(0, &bytes).expect("room");
    writer.seal().expect("agrees");
    writer.commit().expect("renamed");
    world.runtime.block_on(world.server(other).mount(&volume, &[1])).expect("mounted");
    eventually("both listed", || {
        matches!(world.standing(&volume), Some(Standing::Known { surplus, .. }) if surplus == [1])
            .then_some(())
    });
    let holders = world.runtime.block_on(world.master.lookup(volume.id())).expect("it answers");
    assert_eq!(holders.iter().find(|(shard, _)| *shard == 1).map(|(_, holders)| holders.len()), Some(2));
    // Both copies are intact, so remove the second one.
    for at in [holder, other] {
        world.servers[at]
            .blocks()
            .open_block(&name.block_id())
            .and_then(|reader| reader.verify(&OpenGate))
            .expect("whole");
    }
    world.runtime.block_on(world.server(other).unmount(&volume, &[1])).expect("unmounted");
    assert!(world.servers[other].blocks().remove(&name.block_id()).expect("removed"));
    eventually("one listed", || is_whole(world, &volume).then_some(()));
    world.assert_whole();
}

pub fn needles_deleted_meanwhile(world: &mut World) {
    let volume = world.pictures.clone();
    let holder = lose(world, &shard(&volume, 8));
    world.delete("pictures/11");
    world.delete("pictures/42");
    repair(world, &volume, &[(8, holder)]).expect("repaired");
    // The filer deletes the needles some time after the objects.
    eventually("journals that tell of both", || {
        let deleted =
            world.servers.iter().flat_map(|server| server.blocks().deleted(&volume).expect("readable"));
        (deleted.collect::<std::collections::BTreeSet<_>>().len() == 2).then_some(())
    });
    world.assert_whole();
}

/// Returns the coefficients by which the sources must be multiplied to rebuild the lost shard.
fn coefficients(lost: u8, sources: &[ShardName]) -> Vec<u8> {
    let index = |shard: u8| BlockIndex(shard.into());
    let available: Vec<_> = sources.iter().map(|source| index(source.shard)).collect();
    let recipe = code().repair(&[index(lost)], &available).expect("ten shards are enough");
    let mut coefficients = vec![0; sources.len()];
    for &(source, coefficient) in recipe.row(0) {
        let source = recipe.sources()[source as usize].block;
        let at = available.iter().position(|&index| index == source).expect("a source");
        coefficients[at] = coefficient;
    }
    coefficients
}
