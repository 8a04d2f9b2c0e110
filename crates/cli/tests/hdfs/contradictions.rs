//! Blocks that are wrong though their checksums hold: if parity cannot tell which one it is, neither Mend nor HDFS rebuilds from
//! them.

use serde_json::Value;
use testbed::{Mend, eventually};

use crate::mend;
use crate::takeover::{BY_HDFS, said};
use crate::world::{ALWAYS, Group, NO_REPAIR, World};

/// A DataNode's log line about a command that is not carried out.
const BY_NOBODY: &str = "its blocks contradict each other";

fn contradiction(mend: &Mend, group: &Group) -> Option<Value> {
    let status = mend.ask(&["status"])?;
    let stripe = Value::from(group.group.stripe_id().to_string());
    let known = status["contradictions"].as_array()?.iter().find(|known| known["stripe"] == stripe).cloned();
    known.inspect(|_| {
        assert_eq!((&status["healthy"], &status["severity"]), (&false.into(), &"critical".into()))
    })
}

/// Asserts that these blocks were not made, and that HDFS has not tried since `before`, what DataNodes had logged of it.
fn assert_not_made(world: &World, group: &Group, lost: &[usize], before: &[String]) {
    assert_eq!(said(world, BY_HDFS, group), before);
    for &at in lost {
        let nodes = 0..world.cluster.nodes().len();
        let name = &group.shape.blocks[at].name;
        assert_eq!(nodes.filter(|&node| world.replica(node, name).is_some()).collect::<Vec<_>>(), [0; 0]);
    }
}

/// Two blocks of nine are lost and one is wrong: seven are left, which show that some block is wrong, and not which.
pub fn not_rebuilt_from(world: &mut World) {
    let mut mend = mend::attach(&world.cluster, &["--repair-after", "30m"], true);
    mend.wait_until_safe(world.groups().len());
    testbed::hdfs::issue_plugin(&mend, world.certificates.path());
    let narrow = world.largest("RS-6-3-1024k");
    let good = world.forge(&narrow, 4, 1_000_001);
    let lost = [0, 7];
    let before = world.lose(&lost.map(|at| (&narrow, at)));
    world.await_nodes();
    eventually("a contradiction in the status", || contradiction(&mend, &narrow));
    // The NameNode gives no commands yet, and DataNodes that have been restarted have begun new logs.
    let by_hdfs = said(world, BY_HDFS, &narrow);
    // Now the NameNode has DataNodes rebuild what is lost, again and again.
    let pending = "dfs.namenode.reconstruction.pending.timeout-sec=10";
    world.cluster.restart_namenode_with([ALWAYS[0], ALWAYS[1], pending].map(str::to_owned).to_vec());
    let refused = eventually("a command that is not carried out", || {
        let lines = said(world, BY_NOBODY, &narrow);
        (!lines.is_empty()).then_some(lines.len())
    });
    assert_not_made(world, &narrow, &lost, &by_hdfs);
    // Also while the coordinator cannot be asked.
    await_all_know(world, &narrow);
    mend.kill_coordinator();
    let refused = eventually("another one", || {
        let lines = said(world, BY_NOBODY, &narrow);
        (lines.len() > refused + 1).then_some(lines.len())
    });
    assert_not_made(world, &narrow, &lost, &by_hdfs);
    mend.start_coordinator();
    eventually("the contradiction is remembered", || contradiction(&mend, &narrow));
    eventually("yet another one", || (said(world, BY_NOBODY, &narrow).len() > refused).then_some(()));
    assert_not_made(world, &narrow, &lost, &by_hdfs);
    // The block is put right: what is lost is made as it was.
    world.write_replica(narrow.holders[4].expect("held"), &narrow.shape.blocks[4].name, &good);
    for (at, before) in lost.into_iter().zip(&before) {
        world.await_somewhere(&narrow.shape.blocks[at].name, before);
    }
    world.await_whole();
    drop(mend);
    world.restart_namenode_with(&NO_REPAIR);
    world.assert_whole();
}

/// Waits until every DataNode has logged the group: it meets the contradiction in a repair of its own, or the coordinator tells
/// it, now and then.
fn await_all_know(world: &World, group: &Group) {
    let known = format!("the blocks of {} contradict each other", group.group.stripe_id());
    eventually("all DataNodes know of it", || {
        let mut nodes = 0..world.cluster.nodes().len();
        nodes.all(|node| world.cluster.log(node).contains(&known)).then_some(())
    });
}
