//! Processes that are killed while policies encode a file, and two coordinators, on a real HDFS.

use testbed::{AttachCommand, Mend, eventually, eventually_within};

use crate::mend;
use crate::ports::Ports;
use crate::raid_encoding::{BLOCK, clean_up, holders, policy, put};
use crate::raid_policies::{LIMIT, await_encoded, await_remark, evaluate};
use crate::world::{NO_REPAIR, World};

/// The number of data blocks of the files, in two stripes.
const BLOCKS: usize = 20;

/// The coordinator is killed while a policy encodes a file. The next one continues at once, although the draft is a few
/// seconds old, and tells the history.
pub fn a_coordinator(world: &mut World) {
    const FILE: &str = "/killed-coordinator/file";
    let mut mend = encoding(world, FILE);
    mend.kill_coordinator();
    assert_protected(world, FILE);
    mend.start_coordinator();
    await_encoded(world, FILE, BLOCKS);
    await_remark(&mend, "encoding by policies: nothing to do");
    world.assert_files();
    assert_eq!(encoded(&mend, FILE), 1, "{:?}", mend.ask(&["history"]));
    clean_up(world, &["/killed-coordinator"]);
}

/// The NameNode is killed while a policy encodes a file.
pub fn the_namenode(world: &mut World) {
    const FILE: &str = "/killed-namenode/file";
    let mend = encoding(world, FILE);
    world.restart_namenode_with(&NO_REPAIR);
    assert_protected(world, FILE);
    await_encoded(world, FILE, BLOCKS);
    await_remark(&mend, "encoding by policies: nothing to do");
    world.assert_files();
    clean_up(world, &["/killed-namenode"]);
}

/// A second coordinator with the same cluster folder does not start. One of another Mend cluster evaluates the same
/// policies on the same HDFS. At no time has the file less redundancy than before.
pub fn two_coordinators(world: &mut World) {
    const FILE: &str = "/two-coordinators/file";
    let first = encoding(world, FILE);
    let same = first.run(&["coordinator"]);
    assert!(!same.status.success(), "{}", String::from_utf8_lossy(&same.stderr));
    let ports = Ports::take(2);
    let mut second = another(world, ports.first());
    let policies = policy(&second, "/two-coordinators");
    evaluate(&second, &policies);
    second.start_coordinator();
    eventually_within(LIMIT, "the file to be encoded", || {
        assert_protected(world, FILE);
        let nodes = holders(world, FILE);
        nodes.iter().all(|nodes| nodes.len() == 1).then_some(())
    });
    await_encoded(world, FILE, BLOCKS);
    world.assert_files();
    // The second one has left the file to the first one, or found it encoded.
    eventually("the second coordinator to evaluate its policies", || {
        let remarks = second.ask(&["status"])?["remarks"].to_string();
        (remarks.contains("nothing to do") || remarks.contains("another program encodes them")).then_some(())
    });
    // The history names the file once its state has been stable for a while.
    eventually("the history of one of them to name the encoding", || {
        (encoded(&first, FILE) + encoded(&second, FILE) > 0).then_some(())
    });
    clean_up(world, &["/two-coordinators"]);
}

/// Stores a file, and returns Mend once its policies have begun to encode it. If the encoding has begun and ended
/// between two looks, the file is stored again.
fn encoding(world: &mut World, path: &str) -> Mend {
    let folder = path.rsplit_once('/').expect("a path").0;
    let mut mend = mend::attach(world, &["--raid", "--dry-run"], true);
    mend.wait_for_helpers();
    let policies = policy(&mend, folder);
    mend.kill_coordinator();
    evaluate(&mend, &policies);
    let [draft, parity] = ["/tmp/raidrs", "/raidrs"].map(|root| format!("{root}{path}"));
    for _ in 0..5 {
        put(world, path, BLOCKS * BLOCK - 777);
        mend.start_coordinator();
        let is_begun = eventually("the encoding to begin", || {
            let console = world.cluster.console();
            let is_begun = console.exists(&draft);
            (is_begun || console.exists(&parity)).then_some(is_begun)
        });
        if is_begun {
            return mend;
        }
        mend.kill_coordinator();
        world.cluster.console().run(&["dfs", "-rm", "-skipTrash", path, &parity]);
        world.files.forget(path);
    }
    panic!("each encoding ended between two looks");
}

/// Attaches another Mend cluster, of which only the coordinator is to run, at this port.
fn another(world: &World, port: u16) -> Mend {
    let (uri, classpath, port) = (world.cluster.uri(), world.cluster.classpath(), port.to_string());
    let arguments = [
        "hdfs",
        "--namenode",
        &uri,
        "--classpath",
        &classpath,
        "--raid",
        "--dry-run",
        "--coordinator-port",
        &port,
    ];
    Mend::attach(AttachCommand {
        program: env!("CARGO_BIN_EXE_mend").as_ref(),
        arguments: arguments.map(str::to_owned).to_vec(),
        names: Vec::new(),
        ground: world.cluster.ground(),
        root: world.cluster.folder(),
    })
}

/// Asserts that each block has its former replicas, or that the file has parity for all blocks.
fn assert_protected(world: &mut World, path: &str) {
    let data = holders(world, path);
    let parity = holders(world, &format!("/raidrs{path}"));
    let is_whole = parity.len() == BLOCKS.div_ceil(10) * 4 && parity.iter().all(|nodes| !nodes.is_empty());
    assert!(data.len() == BLOCKS, "{data:?}");
    assert!(is_whole || data.iter().all(|nodes| nodes.len() == 3), "{data:?} {parity:?}");
}

/// Returns how often a coordinator has encoded a file, according to its history.
fn encoded(mend: &Mend, path: &str) -> usize {
    let entries = mend.ask(&["history", "--last", "1000"]).expect("an answer");
    let is_such = |entry: &&serde_json::Value| {
        entry["event"] == "file-worked"
            && entry["file"] == path
            && entry["work"] == "encode"
            && entry["by"] == "policy all"
            && entry["failure"].is_null()
    };
    entries.as_array().expect("a list").iter().filter(is_such).count()
}
