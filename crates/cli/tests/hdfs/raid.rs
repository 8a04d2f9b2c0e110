//! `mend raid` on replicated files of a real HDFS.

use std::fs;

use serde_json::Value;
use testbed::eventually;

use crate::mend;
use crate::world::World;

/// The block size of the tests' files.
const BLOCK: u64 = 4 << 20;

/// A file of ten blocks is planned: every block keeps one of its replicas, and four parity blocks get DataNodes of
/// their own. Other files have a reason.
pub fn a_plan(world: &mut World) {
    let mend = mend::attach(world, &["--dry-run"], true);
    let console = world.cluster.console();
    console.run(&["dfs", "-mkdir", "-p", "/plain/kept"]);
    console.run(&["dfsadmin", "-allowSnapshot", "/plain/kept"]);
    console.run(&["dfs", "-createSnapshot", "/plain/kept", "s1"]);
    world.put("/plain/large", 10 * BLOCK as usize);
    world.put("/plain/small", 9000);
    world.put("/plain/kept/file", 10 * BLOCK as usize);
    let policy = mend.folder().join("raid.toml");
    let text = "[[policy]]\nname = \"plain\"\npaths = [\"/plain\"]\ncodec = \"rs\"\nmin_age = \"0s\"\n";
    fs::write(&policy, text).expect("written");
    let policy = policy.to_str().expect("text");
    // A DataNode reports a replica a moment after the client has written it.
    let plan = eventually("the file to be planned", || {
        let plan = mend.ask(&["raid", "plan", "/plain", "--policy", policy])?;
        (plan["totals"]["should-encode"]["files"] == 1).then_some(plan)
    });
    assert_planned(&plan);
    let state = |path: &str| {
        let units = plan["units"].as_array().expect("units");
        units.iter().find(|unit| unit["path"] == path).expect("a unit")["state"].clone()
    };
    assert_eq!([state("/plain/small"), state("/plain/kept/file")], ["too-small", "snapshots"]);
    let console = world.cluster.console();
    console.run(&["dfs", "-deleteSnapshot", "/plain/kept", "s1"]);
    console.run(&["dfsadmin", "-disallowSnapshot", "/plain/kept"]);
    ["/plain/large", "/plain/small", "/plain/kept/file"].iter().for_each(|path| world.delete(path));
    world.assert_whole();
}

fn assert_planned(plan: &Value) {
    let unit = plan["units"].as_array().expect("units").iter().find(|unit| unit["state"] == "should-encode");
    let unit = unit.expect("a unit");
    assert_eq!([&unit["path"], &unit["codec"]], ["/plain/large", "rs"]);
    assert_eq!(
        (unit["stored_bytes"].as_u64(), unit["encoded_bytes"].as_u64()),
        (Some(30 * BLOCK), Some(14 * BLOCK))
    );
    let blocks = unit["stripes"][0]["blocks"].as_array().expect("blocks");
    let place = |place: &str| blocks.iter().filter(|block| block["place"] == place).count();
    // With fifteen DataNodes, replicas may by chance stand so that a block has to move.
    assert_eq!((place("stays") + place("moves"), place("new")), (10, 4));
    let mut nodes: Vec<&str> = blocks.iter().filter_map(|block| block["datanode"].as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes.len(), 14);
}
