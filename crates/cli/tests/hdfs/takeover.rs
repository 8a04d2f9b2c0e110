//! The NameNode's reconstruction commands, carried out by Mend, and by HDFS itself where Mend cannot.

use testbed::{Mend, eventually};

use crate::mend;
use crate::world::{ALWAYS, Group, NO_REPAIR, World};

/// What a DataNode logs of a command that Mend carried out, and of one that it did not.
const BY_MEND: &str = "Mend reconstructed blocks";
pub const BY_HDFS: &str = "HDFS does it itself";

/// Mend beside the cluster, whose NameNode gives commands from now on.
fn attach(world: &mut World) -> Mend {
    let mend = mend::attach(&world.cluster, &[], false);
    mend.wait_for_helpers();
    testbed::hdfs::issue_plugin(&mend, world.certificates.path());
    world.restart_namenode_with(&ALWAYS);
    mend
}

/// The NameNode gives no commands any more.
fn detach(world: &mut World, mend: Mend) {
    drop(mend);
    world.restart_namenode_with(&NO_REPAIR);
}

/// The lines that some DataNode logged of a group.
pub fn said(world: &World, what: &str, group: &Group) -> Vec<String> {
    let number = format!("blk_{}_", group.group.number);
    let logs = (0..world.cluster.nodes().len()).map(|node| world.cluster.log(node));
    let lines: Vec<String> =
        logs.flat_map(|log| log.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.into_iter().filter(|line| line.contains(what) && line.contains(&number)).collect()
}

/// Waits until some DataNode logs it. That all is whole says little before: the NameNode may not have noticed yet.
fn await_said(world: &World, what: &str, group: &Group) -> Vec<String> {
    eventually(what, || Some(said(world, what, group)).filter(|lines| !lines.is_empty()))
}

pub fn commands(world: &mut World) {
    let mend = attach(world);
    let (narrow, wide, small) =
        (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"), world.smallest("RS-6-3-1024k"));
    assert!(small.shape.blocks.len() < 9, "it has absent blocks");
    let last = small.shape.blocks.len() - 1;
    world.lose(&[(&narrow, 1), (&wide, 3), (&wide, 12), (&small, 1), (&small, last)]);
    world.await_nodes();
    for group in [&narrow, &wide, &small] {
        await_said(world, BY_MEND, group);
        assert_eq!(said(world, BY_HDFS, group), [""; 0]);
    }
    world.assert_whole();
    two_dead_datanodes(world, mend);
}

/// The blocks that a line of [`BY_MEND`] names.
fn named(line: &str) -> Vec<usize> {
    let list = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split(", ").filter_map(|index| index.parse().ok()).collect()
}

/// What two DataNodes had of one group is made by Mend, in one repair if the NameNode misses both at once.
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
        let lines = said(world, BY_MEND, &narrow);
        let new = lines.iter().filter(|line| !known.contains(line));
        let made: Vec<usize> = new.flat_map(|line| named(line)).collect();
        [2, 7].iter().all(|block| made.contains(block)).then_some(())
    });
    eventually("nine whole blocks", || world.cluster.is_healthy("/RS-6-3-1024k").then_some(()));
    world.assert_files();
    world.cluster.bring_back(&dead);
    dead.iter().for_each(|&node| mend.start_helper(node));
    mend.wait_for_helpers();
    a_rotten_source(world, mend);
}

/// The NameNode does not know that a source is rotten. What is made is right all the same.
fn a_rotten_source(world: &mut World, mend: Mend) {
    let narrow = world.largest("RS-6-3-1024k");
    let good = world.rot(&narrow, 4, 1_000_001);
    let before = world.lose(&[(&narrow, 0)]).remove(0);
    world.await_nodes();
    let name = narrow.shape.blocks[0].name;
    // While HDFS writes it, as it does where a DataNode is commanded before its plug-in is there, it has its name and not all bytes.
    world.await_somewhere(&name, &before);
    let node = narrow.holders[4].expect("held");
    if let Some([bytes, _]) = world.replica(node, &narrow.shape.blocks[4].name) {
        std::fs::write(bytes, &good[0]).expect("written");
    }
    world.await_whole();
    a_helper_killed_in_the_middle(world, mend);
}

/// Loses a block of a group, until Mend is at work on it: a DataNode that has just been started may be commanded before its
/// plug-in is there, and does it itself.
fn lose_to_mend(world: &mut World, mend: &Mend, at: usize) -> Group {
    for _ in 0..5 {
        let narrow = world.largest("RS-6-3-1024k");
        let before = world.lose(&[(&narrow, at)]).remove(0);
        let name = narrow.shape.blocks[at].name;
        let is_mends = eventually("somebody to make it", || {
            let under_way = mend::is_under_way(mend)?;
            (under_way || world.has_somewhere(&name, &before)).then_some(under_way)
        });
        if is_mends {
            return narrow;
        }
        println!("HDFS made it: {:?}", said(world, BY_HDFS, &narrow));
        world.await_nodes();
        world.await_whole();
    }
    panic!("HDFS made all of them");
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

/// It takes connections and answers nothing; later there is none at all. HDFS does the work itself.
fn a_coordinator_that_hangs(world: &mut World, mut mend: Mend) {
    let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
    mend.signal_coordinator("STOP");
    world.lose(&[(&narrow, 2)]);
    await_said(world, BY_HDFS, &narrow);
    world.await_whole();
    mend.signal_coordinator("CONT");
    mend.kill_coordinator();
    world.lose(&[(&wide, 3), (&wide, 8)]);
    await_said(world, BY_HDFS, &wide);
    world.await_whole();
    world.assert_whole();
    detach(world, mend);
    another_cluster(world);
}

/// Its certificates are in the folder where those of the one before were, which DataNodes have read: they are not restarted.
fn another_cluster(world: &mut World) {
    let mut mend = attach(world);
    let lost = world.largest("RS-6-3-1024k");
    let (known, dead) = (said(world, BY_MEND, &lost), lost.holders[4].expect("held"));
    world.cluster.kill(dead);
    mend.kill_helper(dead);
    let mistrusted = "does not accept our certificate";
    eventually("Mend to make it", || {
        assert_eq!(said(world, BY_HDFS, &lost).iter().find(|line| line.contains(mistrusted)), None);
        said(world, BY_MEND, &lost).iter().any(|line| !known.contains(line)).then_some(())
    });
    world.await_whole();
    world.cluster.bring_back(&[dead]);
    mend.start_helper(dead);
    mend.wait_for_helpers();
    world.assert_whole();
    detach(world, mend);
}
