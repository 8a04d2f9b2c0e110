//! What Mend does about a cluster that loses blocks, DataNodes and bits, and what HDFS makes of it.

use std::fs;

use hadoop::eventually;

use crate::mend::Mend;
use crate::world::{NO_REPAIR, World};

/// Longer than a DataNode of the test takes to come back.
const GRACE: &str = "90s";
const SHORT_GRACE: &str = "1s";

fn attach(world: &mut World, repair_after: &str) -> Mend {
    let mend = Mend::attach(&world.cluster, &["--repair-after", repair_after], true);
    let groups = world.groups().len();
    let said = &mend.said;
    assert!(said.contains(&format!("{groups} block groups on 15 DataNodes")), "{said}");
    mend.wait_until_safe(groups);
    mend
}

/// Waits until HDFS and Mend both say that all is well.
fn wait_until_whole(world: &mut World, mend: &Mend) {
    world.await_whole();
    mend.wait_until_safe(world.groups().len());
}

pub fn what_is_lost(world: &mut World) {
    let mend = attach(world, GRACE);
    let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
    let lost = [(&narrow, 0), (&narrow, 7), (&wide, 2), (&wide, 12)];
    let before = world.lose(&lost);
    for ((group, at), before) in lost.iter().zip(&before) {
        // It goes back to where it was.
        world.await_replica(group.holders[*at].expect("held"), &group.shape.blocks[*at].name, before);
    }
    wait_until_whole(world, &mend);
    world.assert_whole();
}

/// A data and a parity block with a wrong byte, and one whose files are gone, of which the NameNode knows nothing; and one
/// that it knows to be lost, beside a rotten one.
pub fn what_is_rotten(world: &mut World) {
    let mend = attach(world, GRACE);
    let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
    let bad = [(&narrow, 4), (&narrow, 6), (&wide, 9)];
    let before = [world.rot(&narrow, 4, 700_000), world.rot(&narrow, 6, 3), world.remove(&wide, 9)];
    let found = mend.ask(&["scrub"]).expect("it reports").to_string();
    for ((group, at), before) in bad.iter().zip(&before) {
        let name = group.shape.blocks[*at].name;
        assert!(found.contains(&name.to_string()), "{name}: {found}");
        world.await_replica(group.holders[*at].expect("held"), &name, before);
    }
    wait_until_whole(world, &mend);
    let rotten = world.rot(&narrow, 2, 1);
    let lost = world.lose(&[(&narrow, 5)]).remove(0);
    world.await_replica(narrow.holders[5].expect("held"), &narrow.shape.blocks[5].name, &lost);
    mend.ask(&["scrub"]).expect("it reports");
    world.await_replica(narrow.holders[2].expect("held"), &narrow.shape.blocks[2].name, &rotten);
    wait_until_whole(world, &mend);
    world.assert_whole();
}

pub fn a_dead_datanode(world: &mut World) {
    let mut mend = attach(world, SHORT_GRACE);
    let dead = world.largest("RS-10-4-1024k").holders[1].expect("held");
    let nodes = world.cluster.nodes().len();
    world.cluster.kill(dead);
    mend.kill_helper(dead);
    world.cluster.await_nodes(nodes - 1);
    eventually("all is elsewhere", || {
        let elsewhere = world.groups().iter().all(|group| !group.holders.contains(&Some(dead)));
        (elsewhere && world.cluster.is_healthy("/")).then_some(())
    });
    world.assert_files();
    // It comes back with all that it had, and HDFS removes what is one too many.
    world.cluster.start(dead);
    mend.start_helper(dead);
    world.cluster.await_nodes(nodes);
    wait_until_whole(world, &mend);
    world.assert_whole();
}

pub fn killed_in_the_middle(world: &mut World) {
    let mut mend = attach(world, GRACE);
    let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
    let lost = [(&narrow, 3), (&narrow, 8), (&wide, 0), (&wide, 13)];
    let before = world.lose(&lost);
    // Each time it is at another point: waiting, asking the NameNode, moving, handing over.
    for (round, (group, at)) in lost.iter().enumerate() {
        mend.kill_coordinator();
        mend.start_coordinator();
        let helper = group.holders[*at].expect("held");
        mend.kill_helper(helper);
        mend.start_helper(helper);
        if round == 2 {
            world.cluster.restart_namenode();
        }
        std::thread::sleep(std::time::Duration::from_millis(500 * (round as u64 + 1)));
    }
    world.await_nodes();
    // A coordinator that was killed has forgotten where they were, and nobody is away who could come back with them.
    for ((group, at), before) in lost.iter().zip(&before) {
        world.await_somewhere(&group.shape.blocks[*at].name, before);
    }
    wait_until_whole(world, &mend);
    world.assert_whole();
}

/// A file is removed while blocks of it are being made: HDFS is told of them, and removes them.
pub fn removed_meanwhile(world: &mut World) {
    let mend = attach(world, GRACE);
    world.put("/RS-6-3-1024k/gone", 20_000_000);
    mend.wait_until_safe(world.groups().len());
    let groups: Vec<_> = world.groups().into_iter().filter(|group| group.path.ends_with("/gone")).collect();
    assert!(mend.run(&["caps", "--total", "4Mbit"]).status.success());
    world.lose(&[(&groups[0], 1)]);
    eventually("a repair under way", || {
        let status = mend.ask(&["status"])?;
        status["repairs"]
            .as_array()?
            .iter()
            .any(|repair| repair["bytes_rebuilt"].as_u64() > Some(0))
            .then_some(())
    });
    world.cluster.console().run(&["dfs", "-rm", "-skipTrash", "/RS-6-3-1024k/gone"]);
    world.files.remove("/RS-6-3-1024k/gone");
    assert!(mend.run(&["caps", "--total", "none"]).status.success());
    eventually("nothing is left of it", || {
        let names = groups.iter().flat_map(|group| &group.shape.blocks).map(|block| block.name);
        let nodes = 0..world.cluster.nodes().len();
        let left = names.flat_map(|name| nodes.clone().map(move |node| (node, name)));
        (left.filter(|(node, name)| world.replica(*node, name).is_some()).count() == 0).then_some(())
    });
    wait_until_whole(world, &mend);
    world.assert_whole();
}

/// HDFS rebuilds as well: both make the same bytes, and one copy of each is left.
pub fn both_at_once(world: &mut World) {
    // What a DataNode has begun and not ended is given out again after this, and not after five minutes.
    let patience = "dfs.namenode.reconstruction.pending.timeout-sec=15".to_owned();
    world.cluster.restart_namenode_with(vec![NO_REPAIR[2].to_owned(), patience]);
    world.await_nodes();
    world.await_whole();
    let mend = attach(world, GRACE);
    for round in 0..2 {
        let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
        world.lose(&[(&narrow, round), (&narrow, 6 + round), (&wide, 10 + round)]);
        wait_until_whole(world, &mend);
    }
    world.await_single_copies();
    world.assert_whole();
    drop(mend);
    world.cluster.restart_namenode_with(NO_REPAIR.map(str::to_owned).to_vec());
    world.await_nodes();
    world.await_whole();
}

/// What HDFS would move through the link of the DataNode that goes is made by all.
pub fn a_decommissioned_datanode(world: &mut World) {
    let exclude = world.cluster.folder().join("exclude");
    fs::write(&exclude, "").expect("written");
    let mut settings = NO_REPAIR.map(str::to_owned).to_vec();
    settings.push(format!("dfs.hosts.exclude={}", exclude.display()));
    world.cluster.restart_namenode_with(settings);
    world.await_nodes();
    world.await_whole();
    let mend = attach(world, GRACE);
    let leaving = world.largest("RS-6-3-1024k").holders[0].expect("held");
    let (address, name) = (world.cluster.nodes()[leaving].address(), mend.names()[leaving].clone());
    // Before HDFS knows that it shall go, a second copy would be one too many, and it might remove the new one.
    fs::write(&exclude, &address).expect("written");
    world.cluster.console().run(&["dfsadmin", "-refreshNodes"]);
    let drained = mend.run(&["node", "drain", &name]);
    assert!(drained.status.success(), "{drained:?}");
    eventually("HDFS lets it go", || {
        let said = world.cluster.console().ask(&["dfsadmin", "-report", "-live"]).text;
        said.contains("Decommission Status : Decommissioned").then_some(())
    });
    world.assert_files();
    fs::write(&exclude, "").expect("written");
    world.cluster.console().run(&["dfsadmin", "-refreshNodes"]);
    world.await_whole();
    world.assert_whole();
}

/// A client has met a rotten block and told the NameNode, which does not list it any more.
pub fn rot_that_hdfs_knows(world: &mut World) {
    let mend = attach(world, GRACE);
    let narrow = world.largest("RS-6-3-1024k");
    world.rot(&narrow, 2, 5);
    eventually("the NameNode knows of it", || {
        world.assert_files(); // HDFS reads through the loss.
        (!world.cluster.is_healthy("/")).then_some(())
    });
    wait_until_whole(world, &mend);
    world.assert_whole();
}
