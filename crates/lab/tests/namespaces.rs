//! Tests a whole lab, as root: creates, checks, uses, kills and removes it. `MEND_SKIP=lab` skips the tests.
//!
//! This test is a separate binary, because the lab executes it again inside namespaces as `mend` and
//! `mend-lab`.

mod daemons;

use std::process::{Command, ExitCode};

use clap::Parser;
use cluster::Cluster;
use lab::figure::clients::{self, Extent};
use lab::nodes::fastpr::{self, Clusters};
use lab::{LabCluster, Names, Network, NetworkError, Programs, Scenario, Status, Topology};

/// The verbs of `mend` and `mend-lab` that the lab uses.
#[derive(Parser)]
enum Mend {
    #[command(flatten)]
    Lab(lab::Command),
    Coordinator,
    Helper {
        name: cluster::Name,
    },
}

type Test = (&'static str, fn(&Names));

fn main() -> ExitCode {
    let is_started_by_lab = std::env::args().nth(1).is_some_and(|verb| {
        ["coordinator", "helper", "agent", "direct-serve", "direct-relay"].contains(&verb.as_str())
    });
    if is_started_by_lab {
        return serve(Mend::parse());
    }
    if testbed::is_skipped("lab") {
        return ExitCode::SUCCESS;
    }
    let names = Names::with_prefix(&format!("labtest{}", std::process::id() % 1000));
    match Network::up(&names, &Topology::flat(3, "200mbit".parse().unwrap())) {
        Ok(network) => drop(network),
        Err(reason @ (NetworkError::NotRoot | NetworkError::NoProgram { .. } | NetworkError::Kernel(_))) => {
            eprintln!("no lab can be made here: {reason}; MEND_SKIP=lab skips its tests");
            return ExitCode::FAILURE;
        }
        Err(error) => panic!("{error}"),
    }
    let tests: [Test; 5] = [
        ("what is up is known, and nothing is left", up_and_down),
        ("leftovers of a killed lab are found and removed", leftovers),
        ("a scenario is carried out and its bytes are right", scenario),
        ("several clients read at the same time and their bytes are right", several_clients),
        ("a failing node is emptied in rounds and its bytes are right", failing_node),
    ];
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    for (name, test) in tests.into_iter().filter(|(name, _)| name.contains(&filter)) {
        println!("test {name} ...");
        test(&names);
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn serve(verb: Mend) -> ExitCode {
    if let Mend::Lab(command) = verb {
        return lab::execute(command).unwrap_or_else(|error| panic!("{error}"));
    }
    let folder = std::env::var_os("MEND_CLUSTER").expect("the lab says which");
    let cluster = Cluster::open(folder.as_ref()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match verb {
            Mend::Lab(_) => unreachable!("above"),
            Mend::Coordinator => daemons::coordinate(cluster).await,
            Mend::Helper { name } => daemons::help(&cluster, name).await,
        }
    });
    ExitCode::SUCCESS
}

/// Returns this binary as both `mend` and `mend-lab`.
fn programs() -> Programs {
    let own = std::env::current_exe().unwrap();
    Programs { mend: own.clone(), lab: own }
}

fn nothing_is_left(names: &Names) {
    assert_eq!(Network::status(names).unwrap(), Status::Down);
    assert!(!names.state_file().exists());
    assert!(names.control_group().is_none_or(|group| !group.exists()));
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(!listed.lines().any(|line| names.owns(line)), "{listed}");
}

fn up_and_down(names: &Names) {
    nothing_is_left(names);
    let topology = Topology::flat(3, "200mbit".parse().unwrap());
    let network = Network::up(names, &topology).unwrap();
    assert_eq!(Network::status(names).unwrap(), Status::Busy { pid: std::process::id() });
    assert!(matches!(Network::up(names, &topology), Err(NetworkError::Busy { .. })));
    network.keep().unwrap();
    assert!(matches!(Network::status(names).unwrap(), Status::Up { .. }));
    let second = Network::up(names, &topology).unwrap_err();
    assert!(second.to_string().contains("mend lab down"), "{second}");
    Network::down(names).unwrap();
    nothing_is_left(names);
    Network::down(names).unwrap();
}

fn leftovers(names: &Names) {
    let mut network = Network::up(names, &Topology::flat(3, "200mbit".parse().unwrap())).unwrap();
    let fleet = LabCluster::start(&mut network, &programs()).unwrap();
    let folder = fleet.work().to_owned();
    // Simulate that the lab's process was killed: nothing is dropped, and the state file names a process that
    // does not exist.
    fleet.keep();
    std::mem::forget(network);
    let state = std::fs::read_to_string(names.state_file()).unwrap();
    let own = format!("\"pid\": {}", std::process::id());
    std::fs::write(names.state_file(), state.replace(&own, "\"pid\": 4194303")).unwrap();
    assert!(matches!(Network::status(names).unwrap(), Status::Leftovers { .. }));
    let again = Network::up(names, &Topology::flat(3, "200mbit".parse().unwrap())).unwrap();
    assert!(!folder.exists());
    drop(again);
    nothing_is_left(names);
}

fn scenario(names: &Names) {
    let text = r#"
        name = "test"
        schemes = ["conventional", "pipelined"]
        code = "rs-4-2"
        block_bytes = "1MiB"
        losses = [[0], [1, 2]]
        bare_chain = ["16KiB", "64KiB"]
        repetitions = 1
        retries = 0
        [topology]
        nodes = 4
        rate = "200mbit"
    "#;
    let ways = [("", 4), ("to = \"node\"", 4), ("how = \"kill\"", 4), ("to = \"node\"\nhow = \"kill\"", 6)];
    for (way, nodes) in ways {
        let text = format!("{way}\n{text}").replace("nodes = 4", &format!("nodes = {nodes}"));
        let scenario = Scenario::parse(&text, "test".as_ref()).unwrap_or_else(|error| panic!("{error}"));
        let mut say = |line: &str| println!("  {line}");
        let report = lab::run(names, &programs(), &scenario, &mut say).unwrap();
        // Two bare chains and two schemes, each for two losses.
        assert_eq!(report.rows.len(), 8);
        for row in &report.rows {
            assert!(
                row.time.median_s > 0.0 && row.time.direct_s > 0.0 && row.cpu_ratio().unwrap() > 0.0,
                "{row:?}"
            );
            assert!(row.moved.traffic.values().any(|traffic| traffic.sent_bytes >= 1 << 20), "{row:?}");
        }
        println!("{}", report.to_markdown());
        nothing_is_left(names);
    }
}

/// Every read is compared with the bytes that were stored.
fn several_clients(names: &Names) {
    let mut say = |line: &str| println!("  {line}");
    let report = clients::run(names, &programs(), Extent::Small, 1, &mut say).unwrap();
    assert_eq!(report.schemes(), ["conventional", "crr-r", "crr-r in rounds", "crr-s", "pipelined"]);
    nothing_is_left(names);
}

/// Every chunk is compared on its new node.
fn failing_node(names: &Names) {
    let mut say = |line: &str| println!("  {line}");
    let rows = fastpr::run(names, &programs(), Clusters::Small, 1, &mut say).unwrap();
    assert_eq!(rows.len(), 4, "FastPR, migration only, reconstruction only, Mend's drain");
    assert!(rows.iter().all(|row| row.per_chunk() > 0.0), "{rows:?}");
    nothing_is_left(names);
}
