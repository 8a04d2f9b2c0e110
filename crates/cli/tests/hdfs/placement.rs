//! Several blocks of a group on one DataNode, as HDFS itself may leave them. The NameNode lists only one block of a
//! group for each DataNode.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use testbed::{Mend, eventually};

use crate::mend;
use crate::world::{Group, World};

/// How long DataNodes may be down before their blocks are rebuilt elsewhere: longer than the case runs.
const GRACE: &str = "30m";

/// The blocks are on two disks, and then on one. Each time Mend rebuilds the unlisted one on another DataNode. When
/// the DataNode dies, the group loses one block.
pub fn two_blocks_on_one_datanode(world: &mut World) {
    let mend = mend::attach(world, &["--repair-after", GRACE], true);
    for disk in [other_disk, same_disk] {
        mend.wait_until_safe(world.groups().len());
        two_blocks(world, &mend, disk);
    }
}

/// Returns the folder of a DataNode's replica.
fn same_disk(_: &[PathBuf], replica: &Path) -> PathBuf {
    replica.parent().expect("it is in a folder").to_owned()
}

/// Returns the folder on the other disk in which a DataNode looks for replicas of this one's group.
fn other_disk(disks: &[PathBuf], replica: &Path) -> PathBuf {
    let folder = same_disk(disks, replica);
    let inside = disks.iter().find_map(|disk| folder.strip_prefix(disk).ok()).expect("it is on a disk");
    disks.iter().find(|disk| !folder.starts_with(disk)).expect("there are two disks").join(inside)
}

fn two_blocks(world: &mut World, mend: &Mend, disk: fn(&[PathBuf], &Path) -> PathBuf) {
    let group = world.largest("RS-6-3-1024k");
    let crowded = crowd(world, &group, disk);
    // Until the DataNodes were back, neither was listed. HDFS rebuilds nothing, so the unlisted one comes from Mend.
    eventually("each block to be on a DataNode of its own", || {
        let holders = holders(world, &group);
        let nodes: Option<BTreeSet<usize>> = holders.iter().copied().collect();
        (nodes?.len() == holders.len()).then_some(())
    });
    mend.wait_until_safe(world.groups().len());
    let live = world.cluster.nodes().len() - 1;
    world.cluster.kill(crowded);
    world.cluster.await_nodes(live);
    eventually("one block of the group to be lost", || {
        let lost = holders(world, &group).iter().filter(|holder| holder.is_none()).count();
        (lost == 1).then_some(())
    });
    world.assert_files();
    // Only the listed one returns.
    let listed = holders(world, &group).iter().position(Option::is_none).expect("the lost one");
    remove(world, crowded, &group, if listed == 0 { 1 } else { 0 });
    world.cluster.bring_back(&[crowded]);
    world.assert_whole();
}

/// Moves block 1 of a group to the DataNode of block 0, which is returned.
fn crowd(world: &mut World, group: &Group, disk: fn(&[PathBuf], &Path) -> PathBuf) -> usize {
    let [to, from] = [0, 1].map(|at| group.holders[at].expect("held"));
    [to, from].into_iter().for_each(|node| world.cluster.kill(node));
    // If the NameNode still listed block 1 at its old place, it could have the copy deleted as a surplus one.
    world.cluster.await_nodes(world.cluster.nodes().len() - 2);
    eventually("both blocks to be unlisted", || {
        holders(world, group)[..2].iter().all(Option::is_none).then_some(())
    });
    let [stays, _] = world.replica(to, &group.shape.blocks[0].name).expect("there");
    let folder = disk(world.cluster.nodes()[to].folders(), &stays);
    fs::create_dir_all(&folder).expect("created");
    for path in world.replica(from, &group.shape.blocks[1].name).expect("there") {
        fs::copy(&path, folder.join(path.file_name().expect("a file"))).expect("copied");
        fs::remove_file(&path).expect("removed");
    }
    [to, from].into_iter().for_each(|node| world.cluster.start(node));
    world.await_nodes();
    to
}

/// Removes a block of a group from a DataNode that does not run, unless HDFS has removed it: to HDFS, the block is a
/// surplus copy once another DataNode holds it.
fn remove(world: &World, node: usize, group: &Group, at: usize) {
    let files = world.replica(node, &group.shape.blocks[at].name);
    files.iter().flatten().for_each(|path| fs::remove_file(path).expect("removed"));
}

/// Returns the DataNodes that hold the blocks of a group now, as the NameNode lists them.
fn holders(world: &mut World, group: &Group) -> Vec<Option<usize>> {
    let groups = world.groups().into_iter();
    let now = groups.filter(|now| now.group.number == group.group.number).map(|now| now.holders);
    now.last().expect("the group exists")
}
