//! Reconstruction commands of the NameNode. Mend executes these commands; if Mend cannot, HDFS does.

use testbed::{Mend, eventually};

use crate::mend;
use crate::world::{ALWAYS, Group, NO_REPAIR, World};

/// The DataNode's log message for a command that Mend has executed, and for one that HDFS executes itself.
const BY_MEND: &str = "Mend reconstructed blocks";
pub const BY_HDFS: &str = "HDFS reconstructs it itself";

/// Attaches Mend, and restarts the NameNode with settings that make it send reconstruction commands.
fn attach(world: &mut World) -> Mend {
    let mend = mend::attach(world, &[], false);
    mend.wait_for_helpers();
    testbed::hdfs::issue_plugin(&mend, world.certificates.path());
    world.restart_namenode_with(&ALWAYS);
    mend
}

/// Detaches Mend, and restarts the NameNode with settings that keep it from sending reconstruction commands.
fn detach(world: &mut World, mend: Mend) {
    drop(mend);
    world.restart_namenode_with(&NO_REPAIR);
}

/// Returns the lines about a group that contain `what`, from the logs of all DataNodes.
pub fn said(world: &World, what: &str, group: &Group) -> Vec<String> {
    let number = format!("blk_{}_", group.group.number);
    let logs = (0..world.cluster.nodes().len()).map(|node| world.cluster.log(node));
    let lines: Vec<String> =
        logs.flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.into_iter().filter(|line| line.contains(what) && line.contains(&number)).collect()
}

/// Returns the lines about a group that contain `what`, except those that were `known` before.
fn new_lines(world: &World, what: &str, group: &Group, known: &[String]) -> Vec<String> {
    said(world, what, group).into_iter().filter(|line| !known.contains(line)).collect()
}

/// Loses blocks, and waits until a DataNode logs the message `what` about each of their groups. Waiting for a healthy
/// cluster is not enough, because the NameNode may not have noticed the loss yet.
fn lose_until_said(world: &mut World, what: &str, lost: &[(&Group, usize)]) {
    let known: Vec<Vec<String>> = lost.iter().map(|(group, _)| said(world, what, group)).collect();
    world.lose_before_commands(lost);
    for ((group, _), known) in lost.iter().zip(&known) {
        eventually(what, || (!new_lines(world, what, group, known).is_empty()).then_some(()));
    }
}

pub fn commands(world: &mut World) {
    let mend = attach(world);
    let (narrow, wide, small) =
        (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"), world.smallest("RS-6-3-1024k"));
    assert!(small.shape.blocks.len() < 9, "it has absent blocks");
    let last = small.shape.blocks.len() - 1;
    let lost = [(&narrow, 1), (&wide, 3), (&wide, 12), (&small, 1), (&small, last)];
    lose_until_said(world, BY_MEND, &lost);
    for group in [&narrow, &wide, &small] {
        assert_eq!(said(world, BY_HDFS, group), [""; 0]);
    }
    world.assert_whole();
    two_dead_datanodes(world, mend);
}

/// Returns the block indices in a log line of [`BY_MEND`].
fn named(line: &str) -> Vec<usize> {
    let list = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split(", ").filter_map(|index| index.parse().ok()).collect()
}

/// Two DataNodes with blocks of a group die, and Mend rebuilds these blocks. If the NameNode notices both
/// deaths at once, this is a single repair.
fn two_dead_datanodes(world: &mut World, mut mend: Mend) {
    let narrow = world.largest("RS-6-3-1024k");
    let known = said(world, BY_MEND, &narrow);
    let dead = [2, 7].map(|at| narrow.holders[at].expect("held"));
    for node in dead {
        world.cluster.kill(node);
        mend.kill_helper(node);
    }
    let nodes = world.cluster.nodes().len();
    world.cluster.await_nodes(nodes - 2);
    eventually("Mend to make both", || {
        assert_eq!(said(world, BY_HDFS, &narrow), [""; 0]);
        let lines = new_lines(world, BY_MEND, &narrow, &known);
        let made: Vec<usize> = lines.iter().flat_map(|line| named(line)).collect();
        [2, 7].iter().all(|block| made.contains(block)).then_some(())
    });
    eventually("nine whole blocks", || world.cluster.console().is_healthy("/RS-6-3-1024k").then_some(()));
    world.assert_files();
    world.cluster.bring_back(&dead);
    dead.iter().for_each(|&node| mend.start_helper(node));
    mend.wait_for_helpers();
    a_rotten_source(world, mend);
}

/// A source of the repair is corrupt, which the NameNode has not noticed. The rebuilt block is correct
/// nevertheless.
fn a_rotten_source(world: &mut World, mend: Mend) {
    let narrow = world.largest("RS-6-3-1024k");
    let good = world.rot(&narrow, 4, 1_000_001);
    let before = world.lose_before_commands(&[(&narrow, 0)]).remove(0);
    let name = narrow.shape.blocks[0].name;
    // Compare the contents: if HDFS rebuilds the block itself, the file exists before it is complete.
    world.await_somewhere(&name, &before);
    let node = narrow.holders[4].expect("held");
    if let Some([bytes, _]) = world.replica(node, &narrow.shape.blocks[4].name) {
        std::fs::write(bytes, &good[0]).expect("written");
    }
    world.await_whole();
    a_helper_killed_in_the_middle(world, mend);
}

/// Loses a block of a group, repeatedly until a repair by Mend is seen. The repair may end between two looks, or HDFS
/// may rebuild the block.
fn lose_to_mend(world: &mut World, mend: &Mend, at: usize) -> Group {
    for _ in 0..5 {
        let narrow = world.largest("RS-6-3-1024k");
        let before = world.lose_before_commands(&[(&narrow, at)]).remove(0);
        let name = narrow.shape.blocks[at].name;
        let is_mends = eventually("somebody to make it", || {
            let under_way = mend::is_under_way(mend)?;
            (under_way || world.has_somewhere(&name, &before)).then_some(under_way)
        });
        if is_mends {
            return narrow;
        }
        println!("no repair was seen; HDFS made it: {:?}", said(world, BY_HDFS, &narrow));
        world.await_whole();
    }
    panic!("no repair by Mend was seen");
}

fn a_helper_killed_in_the_middle(world: &mut World, mut mend: Mend) {
    assert!(mend.run(&["caps", "--total", "8Mbit"]).status.success());
    let narrow = lose_to_mend(world, &mend, 5);
    let killed = narrow.holders[1].expect("held");
    mend.kill_helper(killed);
    assert!(mend.run(&["caps", "--total", "none"]).status.success());
    world.await_nodes();
    world.await_whole();
    mend.start_helper(killed);
    mend.wait_for_helpers();
    world.assert_whole();
    a_coordinator_that_hangs(world, mend);
}

/// The coordinator first accepts connections without answering, and is then down. In both cases HDFS rebuilds
/// the blocks itself.
fn a_coordinator_that_hangs(world: &mut World, mut mend: Mend) {
    let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
    mend.signal_coordinator("STOP");
    lose_until_said(world, BY_HDFS, &[(&narrow, 2)]);
    world.await_whole();
    mend.signal_coordinator("CONT");
    mend.kill_coordinator();
    lose_until_said(world, BY_HDFS, &[(&wide, 3), (&wide, 8)]);
    world.await_whole();
    world.assert_whole();
    detach(world, mend);
    another_cluster(world);
}

/// Certificates of a new Mend cluster replace those that the DataNodes have already loaded. The DataNodes
/// must use the new certificates without a restart.
fn another_cluster(world: &mut World) {
    let mut mend = attach(world);
    let is_mends = (4..7).any(|at| is_made_by_mend(world, &mut mend, at));
    assert!(is_mends, "HDFS made all of them");
    world.assert_whole();
    detach(world, mend);
}

/// Kills the DataNode with a block until the block is rebuilt elsewhere, and returns whether Mend has done so. A
/// DataNode does not ask a coordinator that was down a moment ago.
fn is_made_by_mend(world: &mut World, mend: &mut Mend, at: usize) -> bool {
    let lost = world.largest("RS-6-3-1024k");
    let [by_mend, by_hdfs] = [BY_MEND, BY_HDFS].map(|what| said(world, what, &lost));
    let dead = lost.holders[at].expect("held");
    world.cluster.kill(dead);
    mend.kill_helper(dead);
    let mistrusted = "does not accept our certificate";
    let is_mends = eventually("somebody to make it", || {
        assert_eq!(said(world, BY_HDFS, &lost).iter().find(|line| line.contains(mistrusted)), None);
        let is_mends = !new_lines(world, BY_MEND, &lost, &by_mend).is_empty();
        (is_mends || !new_lines(world, BY_HDFS, &lost, &by_hdfs).is_empty()).then_some(is_mends)
    });
    world.await_whole();
    world.cluster.bring_back(&[dead]);
    mend.start_helper(dead);
    mend.wait_for_helpers();
    is_mends
}

/// The NameNode commands that the blocks of a dead DataNode be rebuilt. Mend recovers the DataNode as a whole,
/// although `repair_after` is `never`.
pub fn a_dead_datanode(world: &mut World) {
    let mut mend = mend::attach(world, &["--repair-after", "never"], true);
    mend.wait_for_helpers();
    testbed::hdfs::issue_plugin(&mend, world.certificates.path());
    world.restart_namenode_with(&ALWAYS);
    world.await_whole();
    let dead = world.largest("RS-6-3-1024k").holders[3].expect("held");
    world.cluster.kill(dead);
    mend.kill_helper(dead);
    let target = format!("node {}", mend.names()[dead]);
    let recovery = eventually("the recovery of the DataNode", || {
        let repairs = mend.ask(&["timeline", "--last", "100"])?;
        let recovery = repairs.as_array()?.iter().find(|repair| repair["target"] == target.as_str())?.clone();
        (recovery["state"] == "done").then_some(recovery)
    });
    assert_eq!(recovery["by_itself"], true, "{recovery}");
    world.await_whole();
    world.assert_files();
    world.cluster.bring_back(&[dead]);
    mend.start_helper(dead);
    mend.wait_for_helpers();
    world.assert_whole();
    detach(world, mend);
}
