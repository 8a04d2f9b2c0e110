//! Tests of lost blocks, and of DataNodes that die and return.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use store_api::BlockState;
use testbed::eventually;

use crate::world::{POLICY, World};

/// The time in which a wrong answer about a loss would show: several queries for lists of losses.
const SEVERAL_QUERIES: Duration = Duration::from_secs(10);

/// Two blocks of a group are lost one after the other. Both DataNodes are alive and notice it when they are asked
/// for the block.
pub fn lost_blocks(world: &mut World) {
    let path = format!("/{POLICY}/lossy");
    world.put("lossy", 3_000_000);
    world.assert_known();
    for at in [0, 1] {
        let lost = world.remove(&path, at);
        let began = Instant::now();
        world.run(&["dfs", "-cat", &path]);
        eventually("the loss to be known", || {
            (world.store.state(&lost) == Some(BlockState::Missing)).then_some(())
        });
        println!(
            "block {at} was known to be lost {:.1} s after its DataNode was asked for it",
            began.elapsed().as_secs_f64()
        );
    }
    assert_eq!(world.store.bad_blocks().len(), 2);
    world.files.delete(&mut world.cluster, &path);
    world.assert_known();
}

/// A DataNode dies, loses a block, and returns.
pub fn a_datanode_that_returns(world: &mut World) {
    let path = format!("/{POLICY}/back");
    world.put("back", 3_000_000);
    world.assert_known();
    let (node, files, lost) = world.replica(&path, 2);
    let name = world.cluster.nodes()[node].address();
    world.cluster.kill(node);
    eventually("it to be out of service", || (world.store.serves(&name) == Some(false)).then_some(()));
    files.iter().for_each(|file| fs::remove_file(file).expect("removed"));
    assert!(world.store.bad_blocks().is_empty(), "the node is down, its blocks are not lost");
    world.cluster.start(node);
    eventually("it to be back", || (world.store.serves(&name) == Some(true)).then_some(()));
    eventually("the loss to be known", || {
        (world.store.bad_blocks() == [(lost.clone(), BlockState::Missing)]).then_some(())
    });
    world.files.delete(&mut world.cluster, &path);
    world.assert_known();
}

/// A group has a corrupt replica. Then so many others are lost that the NameNode lists the corrupt one again.
pub fn a_corrupt_replica(world: &mut World) {
    let path = format!("/{POLICY}/corrupt");
    world.put("corrupt", 3_000_000);
    world.assert_known();
    let (_, [bytes, _], corrupt) = world.replica(&path, 0);
    let file = fs::File::options().write(true).open(bytes).expect("there");
    file.write_all_at(&[0xa5; 4096], 0).expect("written");
    world.run(&["dfs", "-cat", &path]);
    let lost = world.remove(&path, 1);
    world.run(&["dfs", "-cat", &path]);
    let missing = [corrupt, lost].map(|block| (block, BlockState::Missing));
    eventually("both losses to be known", || (world.store.bad_blocks() == missing).then_some(()));
    let (node, ..) = world.replica(&path, 3);
    let name = world.cluster.nodes()[node].address();
    world.cluster.kill(node);
    eventually("it to be out of service", || (world.store.serves(&name) == Some(false)).then_some(()));
    let end = Instant::now() + SEVERAL_QUERIES;
    while Instant::now() < end {
        assert_eq!(world.store.bad_blocks(), missing, "neither is readable");
        std::thread::sleep(Duration::from_millis(100));
    }
    world.cluster.start(node);
    eventually("it to be back", || (world.store.serves(&name) == Some(true)).then_some(()));
    // The restarted NameNode lists the corrupt replica as if it were healthy.
    world.cluster.restart_namenode();
    let [(corrupt, _), (lost, _)] = missing;
    eventually("the replica to be listed", || {
        (world.store.state(&corrupt) == Some(BlockState::Corrupt)).then_some(())
    });
    // If the restarted NameNode has answered before its DataNodes registered, their blocks are given time to be listed.
    eventually("the other one to be lost", || {
        (world.store.state(&lost) == Some(BlockState::Missing)).then_some(())
    });
    world.run(&["dfsadmin", "-safemode", "wait"]);
    world.files.delete(&mut world.cluster, &path);
    world.assert_known();
}

/// All this was learned from one listing before the NameNode's restart, and none after it.
pub fn one_listing(world: &mut World) {
    assert_eq!((world.listings_before_restart, world.listings()), (1, 0));
}
