//! Attaches Mend to the cluster.

use std::path::Path;

use testbed::Mend;
use testbed::hdfs::Attaching;

use crate::world::World;

/// Attaches Mend to the cluster and starts all processes. With `asks_namenode` false, the coordinator knows
/// only the stripes that plug-ins describe.
pub fn attach(world: &mut World, arguments: &[&str], asks_namenode: bool) -> Mend {
    world.use_plugin(!arguments.contains(&"--no-plugin"));
    world.cluster.attach(&Attaching {
        program: Path::new(env!("CARGO_BIN_EXE_mend")),
        arguments,
        asks_namenode,
    })
}

/// Whether a running repair has rebuilt any bytes. `None` if the coordinator does not answer.
pub fn is_under_way(mend: &Mend) -> Option<bool> {
    let status = mend.ask(&["status"])?;
    let begun = |repair: &serde_json::Value| repair["bytes_rebuilt"].as_u64() > Some(0);
    Some(status["repairs"].as_array()?.iter().any(begun))
}
