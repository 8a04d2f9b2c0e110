//! Mend's automatic reaction to lost blocks, dead DataNodes and corrupt blocks, and HDFS's view of the
//! results.

use hdfs::{BlockTerms, HdfsBlocks};
use repair::{Permit, Sink, SinkEnd};
use store_api::{Delivery, Sinks};
use testbed::{Mend, eventually};

use crate::mend;
use crate::world::{ALWAYS, NO_REPAIR, World};

/// How long DataNodes may be down before their blocks are rebuilt elsewhere: longer than a case runs.
const GRACE: &str = "30m";
const SHORT_GRACE: &str = "1s";

fn attach(world: &mut World, repair_after: &str) -> Mend {
    let mend = mend::attach(world, &["--repair-after", repair_after], true);
    let groups = world.groups().len();
    let said = &mend.said;
    assert!(said.contains(&format!("{groups} block groups on 15 DataNodes")), "{said}");
    mend.wait_until_safe(groups);
    mend
}

/// Waits until HDFS and Mend both report a healthy state.
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
        // On its old DataNode, unless that has not restarted in time.
        world.await_somewhere(&group.shape.blocks[*at].name, before);
    }
    wait_until_whole(world, &mend);
    world.assert_whole();
}

/// Without a plug-in, a helper sends rebuilt blocks to its DataNode over HDFS's write protocol, with a token
/// from the coordinator. A corrupt replica is removed first.
pub fn without_the_plug_in(world: &mut World) {
    world.use_plugin(false);
    assert_token_wanted(world);
    let mend = mend::attach(world, &["--repair-after", GRACE, "--no-plugin"], true);
    mend.wait_until_safe(world.groups().len());
    let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
    let lost = [(&narrow, 2), (&wide, 11)];
    let before = world.lose(&lost);
    for ((group, at), before) in lost.iter().zip(&before) {
        world.await_replica(group.holders[*at].expect("held"), &group.shape.blocks[*at].name, before);
    }
    let good = world.rot(&wide, 4, 12_345);
    mend.ask(&["scrub"]).expect("it reports");
    world.await_replica(wide.holders[4].expect("held"), &wide.shape.blocks[4].name, &good);
    wait_until_whole(world, &mend);
    world.assert_whole();
}

/// Asserts that a DataNode rejects blocks without a token or with a forged one.
fn assert_token_wanted(world: &mut World) {
    let group = world.largest("RS-6-3-1024k");
    let (node, block) = (&world.cluster.nodes()[group.holders[2].expect("held")], &group.shape.blocks[2]);
    let blocks = HdfsBlocks::open(node.folders(), None).expect("its folders");
    let blocks = blocks.with_pushes(node.address().parse().expect("an address"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let refused = |permit| {
        let end = SinkEnd::Kept { label: None, permit };
        let sink =
            Sink { index: block.index, id: block.name.block_id(), bytes: block.bytes, digest: None, end };
        let Delivery::HandedOver(mut writer) = blocks.deliver(&sink).expect("room") else {
            panic!("it is pushed");
        };
        runtime.block_on(writer.prepare()).expect_err("no token of the NameNode's").to_string()
    };
    let without = refused(None);
    assert!(without.contains("dfs.block.access.token.enable"), "{without}");
    // A `TokenProto` that has an identifier and a password, but neither kind nor service.
    let forged = Permit::new(b"\x0a\x01i\x12\x01p\x1a\x00\x22\x00".to_vec()).expect("short");
    let terms = BlockTerms { checksums: None, token: Some(forged) };
    let with_forged = refused(terms.to_permit().expect("short"));
    assert!(with_forged.contains("it rejects the coordinator's block token"), "{with_forged}");
}

/// Repairs a data block and a parity block with one wrong byte each, and a block whose files were deleted
/// without the NameNode noticing; then a lost block in a group that also has a corrupt one.
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
        (elsewhere && world.cluster.console().is_healthy("/")).then_some(())
    });
    world.assert_files();
    // The DataNode returns with all its blocks, and HDFS removes the surplus copies.
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
    // In each round the repair is probably in another phase: waiting, querying the NameNode, moving data, or
    // handing over the block.
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
    // A restarted coordinator does not know where the lost blocks were, so they may be rebuilt on any
    // DataNode.
    for ((group, at), before) in lost.iter().zip(&before) {
        world.await_somewhere(&group.shape.blocks[*at].name, before);
    }
    wait_until_whole(world, &mend);
    world.assert_whole();
}

/// A file is deleted while one of its blocks is being rebuilt. HDFS then removes the rebuilt block.
pub fn removed_meanwhile(world: &mut World) {
    let mend = attach(world, GRACE);
    world.put("/RS-6-3-1024k/gone", 20_000_000);
    wait_until_whole(world, &mend);
    let groups: Vec<_> = world.groups().into_iter().filter(|group| group.path.ends_with("/gone")).collect();
    assert!(mend.run(&["caps", "--total", "4Mbit"]).status.success());
    let is_under_way = (0..5).any(|_| loses_block_of(world, &mend, "/gone"));
    assert!(is_under_way, "each repair ended between two looks");
    world.delete("/RS-6-3-1024k/gone");
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

/// Loses a block of the first group of a file, and returns whether its repair has begun. It may end between two
/// looks.
fn loses_block_of(world: &mut World, mend: &Mend, file: &str) -> bool {
    wait_until_whole(world, mend);
    let group = world.groups().into_iter().find(|group| group.path.ends_with(file)).expect("a group");
    let before = world.lose(&[(&group, 1)]).remove(0);
    eventually("the repair", || {
        let is_under_way = mend::is_under_way(mend)?;
        (is_under_way || world.has_somewhere(&group.shape.blocks[1].name, &before)).then_some(is_under_way)
    })
}

/// HDFS and Mend rebuild concurrently. Both produce the same bytes, and one copy of each block remains.
pub fn both_at_once(world: &mut World) {
    // The NameNode reissues unfinished commands after this time instead of five minutes.
    let pending = "dfs.namenode.reconstruction.pending.timeout-sec=15";
    world.restart_namenode_with(&[&ALWAYS[..], &[pending]].concat());
    let mend = attach(world, GRACE);
    for round in 0..2 {
        let (narrow, wide) = (world.largest("RS-6-3-1024k"), world.largest("RS-10-4-1024k"));
        let lost = [(&narrow, round), (&narrow, 6 + round), (&wide, 10 + round)];
        let before = world.lose(&lost);
        for ((group, at), before) in lost.iter().zip(&before) {
            world.await_somewhere(&group.shape.blocks[*at].name, before);
        }
        // HDFS tells a DataNode only once to delete a surplus copy, so a DataNode that is killed before it has
        // done so keeps the copy. The NameNode may have forgotten blocks until their DataNodes report them again.
        world.await_single_copies();
        wait_until_whole(world, &mend);
    }
    world.assert_whole();
    drop(mend);
    world.restart_namenode_with(&NO_REPAIR);
}

/// HDFS decommissions a DataNode, and Mend rebuilds its blocks from all DataNodes. HDFS alone would copy them
/// over the link of the decommissioned DataNode.
pub fn a_decommissioned_datanode(world: &mut World) {
    let mend = attach(world, GRACE);
    let leaving = world.largest("RS-6-3-1024k").holders[0].expect("held");
    // Decommission first. Until HDFS knows that the DataNode is leaving, it counts a second copy as surplus
    // and might remove the new one.
    world.cluster.decommission(Some(leaving));
    let drained = mend.run(&["node", "drain", &mend.names()[leaving]]);
    assert!(drained.status.success(), "{drained:?}");
    eventually("HDFS lets it go", || {
        let said = world.cluster.console().ask(&["dfsadmin", "-report", "-live"]).text;
        said.contains("Decommission Status : Decommissioned").then_some(())
    });
    eventually("so does Mend", || {
        mend.run(&["node", "safe-to-remove", &mend.names()[leaving]]).status.success().then_some(())
    });
    world.assert_files();
    world.cluster.decommission(None);
    world.await_whole();
    world.assert_whole();
}

/// A client has reported a corrupt block to the NameNode, so the NameNode no longer lists that block.
pub fn rot_that_hdfs_knows(world: &mut World) {
    let mend = attach(world, GRACE);
    let narrow = world.largest("RS-6-3-1024k");
    let (before, name) = (world.rot(&narrow, 2, 5), narrow.shape.blocks[2].name);
    eventually("the NameNode knows of it", || {
        world.assert_files(); // HDFS decodes the block during the read.
        // Only Mend repairs, and only after the NameNode knows of it: it may be done already.
        (!world.cluster.console().is_healthy("/") || world.has_somewhere(&name, &before)).then_some(())
    });
    world.await_somewhere(&name, &before);
    wait_until_whole(world, &mend);
    world.assert_whole();
}
