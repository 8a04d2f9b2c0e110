//! The test cases. Each case leaves the cluster intact.

use std::fs;
use std::os::unix::fs::FileExt;

use store_api::{BlockError, Blocks, OpenGate};
use testbed::eventually;

use crate::world::{Group, World};

/// Checks that every block that HDFS wrote has the expected bytes, and that no other block exists.
pub fn every_internal_block_is_read(world: &mut World) {
    let groups = world.groups();
    let mut listed: usize =
        (0..world.cluster.nodes().len()).map(|node| world.blocks(node).list().expect("readable").len()).sum();
    for group in &groups {
        let blocks: Vec<_> = (0..group.stripe.blocks.len()).map(|at| group.padded(world, at)).collect();
        let data = group.stripe.code.data_blocks();
        for (at, block) in dealt(group).iter().enumerate().filter(|(_, block)| !block.is_empty()) {
            assert_eq!(group.stripe.blocks[at].bytes, block.len() as u64);
            assert!(blocks[at].starts_with(block), "data block {at}");
        }
        let code = group.stripe.code.build().expect("a code");
        let parity = code.encoding().apply(&blocks[..data].iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert!(parity == blocks[data..], "{}: HDFS's parity is not Mend's", group.policy);
        listed -= blocks.len();
    }
    assert_eq!(listed, 0, "blocks of which the NameNode tells nothing");
    let shortened = groups.iter().filter(|group| group.stripe.code != group.policy.code()).count();
    println!("{} groups, {shortened} of them with absent blocks", groups.len());
    assert!(shortened > 0);
}

/// Returns the bytes of each data block, distributed cell by cell.
fn dealt(group: &Group) -> Vec<Vec<u8>> {
    let mut blocks = vec![Vec::new(); group.policy.data_blocks().into()];
    for (cell, bytes) in group.content.chunks(group.policy.cell_bytes() as usize).enumerate() {
        blocks[cell % usize::from(group.policy.data_blocks())].extend_from_slice(bytes);
    }
    blocks
}

pub fn a_rotten_block(world: &mut World) {
    for policy in ["RS-6-3-1024k", "RS-4-2-64k"] {
        let group = largest(world, policy);
        let (node, name) = (group.holders[1].expect("held"), group.stripe.blocks[1].name);
        let [bytes, _] = world.replica(node, &name);
        let file = fs::File::options().read(true).write(true).open(&bytes).expect("there");
        let mut byte = [0];
        file.read_exact_at(&mut byte, 1_000_001).expect("in the block");
        file.write_all_at(&[byte[0] ^ 0x10], 1_000_001).expect("written");
        let blocks = world.blocks(node);
        let found = blocks.open_block(&name.block_id()).and_then(|reader| reader.verify(&OpenGate));
        assert!(matches!(found, Err(BlockError::Corrupt { .. })), "{found:?}");
        let read = blocks.open_block(&name.block_id()).expect("there").read_at(1_000_000, &mut [0; 4]);
        assert!(matches!(read, Err(BlockError::Corrupt { .. })), "{read:?}");
        group.rebuild(world, 1, &[1], node).expect("made");
        world.verify_meta(node, &name);
    }
    world.await_whole();
    world.assert_files();
}

/// Removes data and parity blocks from a stopped DataNode and rebuilds them. The DataNode finds the rebuilt
/// blocks when it starts, although it stored a list of its replicas when it stopped.
pub fn a_stopped_datanode(world: &mut World) {
    let group = largest(world, "RS-6-3-1024k");
    for at in [0, 8] {
        let (node, name) = (group.holders[at].expect("held"), group.stripe.blocks[at].name);
        let before = world.replica(node, &name).map(|path| fs::read(path).expect("readable"));
        world.cluster.kill(node);
        assert!(world.blocks(node).remove(&name.block_id()).expect("removed"));
        world.cluster.start(node);
        eventually("the NameNode misses it", || {
            (!world.cluster.console().is_healthy("/RS-6-3-1024k")).then_some(())
        });
        world.cluster.stop(node);
        let told = group.rebuild(world, at, &[at], node).expect_err("nobody is there to be told").to_string();
        assert!(told.contains("dfs.datanode.plugins=mend.hdfs.MendPlugin"), "{told}");
        assert!(matches!(world.blocks(node).open_block(&name.block_id()), Err(BlockError::Missing { .. })));
        world.reopen(node, false);
        group.rebuild(world, at, &[at], node).expect("made");
        let after = world.replica(node, &name).map(|path| fs::read(path).expect("readable"));
        assert!(before == after, "byte for byte what HDFS had, its checksums too");
        world.cluster.start(node);
        world.await_whole();
        world.reopen(node, true);
        world.verify_meta(node, &name);
    }
    world.assert_files();
}

/// Rebuilds the blocks of a dead DataNode on running ones. Once a DataNode has accepted a block, the NameNode
/// lists it.
pub fn a_dead_datanode(world: &mut World) {
    world.cluster.await_plugins();
    let groups = world.groups();
    // The DataNode with most blocks: about eleven of the groups can be rebuilt, and others may have only a few.
    let movable = |dead: usize| groups.iter().filter(|group| move_of(world, group, dead).is_some()).count();
    let dead = (0..world.cluster.nodes().len()).max_by_key(|&node| movable(node)).expect("DataNodes");
    world.cluster.kill(dead);
    world.cluster.await_nodes(world.cluster.nodes().len() - 1);
    let mut moved = Vec::new();
    for group in &groups {
        let Some((at, target)) = move_of(world, group, dead) else { continue };
        group.rebuild(world, at, &[at], target).expect("made and told");
        moved.push((target, group.stripe.blocks[at].name));
    }
    println!("{} blocks made again", moved.len());
    assert!(moved.len() > 3);
    eventually("the NameNode has been told of all", || {
        let listed = world.cluster.console().fsck("/");
        let numbers: Vec<_> =
            listed.iter().flat_map(|file| &file.blocks).flat_map(|block| &block.replicas).collect();
        let nodes = world.cluster.nodes();
        let known = |(node, name): &(usize, hdfs::ReplicaName)| {
            numbers
                .iter()
                .any(|(number, address)| *number == name.block() && *address == nodes[*node].address())
        };
        moved.iter().all(known).then_some(())
    });
    moved.iter().for_each(|(node, name)| world.verify_meta(*node, name));
    world.assert_files();
    world.cluster.start(dead);
    world.cluster.await_nodes(world.cluster.nodes().len());
    world.await_whole();
    // Later cases remove the copy that the NameNode lists, and expect it to miss the block.
    eventually("HDFS to remove the surplus copies", || {
        let listed = world.groups();
        let nodes = world.cluster.nodes();
        let is_single = |name: hdfs::ReplicaName| {
            let has = |&node: &usize| nodes[node].replica(name.block(), &name.to_string()).is_some();
            let on_disk: Vec<usize> = (0..nodes.len()).filter(has).collect();
            let holder = |group: &Group| {
                let at = group.stripe.blocks.iter().position(|block| block.name == name)?;
                group.holders[at]
            };
            matches!(on_disk[..], [node] if listed.iter().find_map(holder) == Some(node))
        };
        moved.iter().all(|(_, name)| is_single(*name)).then_some(())
    });
}

/// Returns the block of a group on a DataNode, and a DataNode without blocks of the group; `None` if there is no such
/// block or DataNode. The NameNode ignores a second block of a group on the same DataNode, and a full group of RS-10-4
/// has a block on every DataNode.
fn move_of(world: &World, group: &Group, dead: usize) -> Option<(usize, usize)> {
    let at = group.holders.iter().position(|&holder| holder == Some(dead))?;
    let free = |node: &usize| *node != dead && !group.holders.contains(&Some(*node));
    Some((at, (0..world.cluster.nodes().len()).find(free)?))
}

pub fn a_restarted_namenode(world: &mut World) {
    world.cluster.restart_namenode();
    world.cluster.await_nodes(world.cluster.nodes().len());
    world.await_whole();
    world.assert_files();
}

/// Returns the first group of a policy's largest file.
pub fn largest(world: &mut World, policy: &str) -> Group {
    let groups = world.groups().into_iter().filter(|group| group.policy.to_string() == policy);
    groups.max_by_key(|group| group.content.len()).expect("a group")
}
