//! Wrong blocks with matching checksums. If parity cannot identify the wrong block, neither Mend nor HDFS
//! rebuilds blocks from the group.

use serde_json::Value;
use testbed::{Mend, eventually};

use crate::mend;
use crate::takeover::{BY_HDFS, said};
use crate::world::{ALWAYS, Group, NO_REPAIR, World};

/// A DataNode's log message when it refuses a command because of a contradiction.
const BY_NOBODY: &str = "its blocks contradict each other";

fn contradiction(mend: &Mend, group: &Group) -> Option<Value> {
    let status = mend.ask(&["status"])?;
    let stripe = Value::from(group.group.stripe_id().to_string());
    let known = status["contradictions"].as_array()?.iter().find(|known| known["stripe"] == stripe).cloned();
    known.inspect(|_| {
        assert_eq!((&status["healthy"], &status["severity"]), (&false.into(), &"critical".into()))
    })
}

/// Asserts that these blocks were not rebuilt, and that HDFS has not tried to since the log lines in
/// `before`.
fn assert_not_made(world: &World, group: &Group, lost: &[usize], before: &[String]) {
    assert_eq!(said(world, BY_HDFS, group), before);
    for &at in lost {
        let nodes = 0..world.cluster.nodes().len();
        let name = &group.shape.blocks[at].name;
        assert_eq!(nodes.filter(|&node| world.replica(node, name).is_some()).collect::<Vec<_>>(), [0; 0]);
    }
}

/// Two of nine blocks are lost and one is wrong. The six correct blocks and the wrong one show that a block
/// is wrong, but not which.
pub fn not_rebuilt_from(world: &mut World) {
    let mut mend = mend::attach(world, &["--repair-after", "30m"], true);
    mend.wait_until_safe(world.groups().len());
    testbed::hdfs::issue_plugin(&mend, world.certificates.path());
    let narrow = world.largest("RS-6-3-1024k");
    let good = world.forge(&narrow, 4, 1_000_001);
    let lost = [0, 7];
    let before = world.lose(&lost.map(|at| (&narrow, at)));
    world.await_nodes();
    eventually("a contradiction in the status", || contradiction(&mend, &narrow));
    // Take the log lines now: the NameNode does not send commands yet, and DataNodes that were restarted have
    // new logs.
    let by_hdfs = said(world, BY_HDFS, &narrow);
    // Now the NameNode repeatedly commands DataNodes to rebuild the lost blocks.
    let pending = "dfs.namenode.reconstruction.pending.timeout-sec=10";
    let settings = ALWAYS.into_iter().chain([pending]).map(str::to_owned);
    world.cluster.restart_namenode_with(settings.collect());
    let refused = eventually("a command that is not carried out", || {
        let lines = said(world, BY_NOBODY, &narrow);
        (!lines.is_empty()).then_some(lines.len())
    });
    assert_not_made(world, &narrow, &lost, &by_hdfs);
    // DataNodes that know of the contradiction also refuse commands while the coordinator is down.
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
    // Once the wrong block is restored, the lost blocks are rebuilt correctly.
    world.write_replica(narrow.holders[4].expect("held"), &narrow.shape.blocks[4].name, &good);
    for (at, before) in lost.into_iter().zip(&before) {
        world.await_somewhere(&narrow.shape.blocks[at].name, before);
    }
    world.await_whole();
    drop(mend);
    world.restart_namenode_with(&NO_REPAIR);
    world.assert_whole();
}

/// Waits until every DataNode has logged the contradiction. A DataNode learns of it in a repair of its own,
/// or periodically from the coordinator.
fn await_all_know(world: &World, group: &Group) {
    let known = format!("the blocks of {} contradict each other", group.group.stripe_id());
    eventually("all DataNodes know of it", || {
        let mut nodes = 0..world.cluster.nodes().len();
        nodes.all(|node| world.cluster.log(node).contains(&known)).then_some(())
    });
}
