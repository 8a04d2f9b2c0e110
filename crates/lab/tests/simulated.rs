//! Runs the same small scenarios in network namespaces with real processes, and in the simulator on virtual
//! time. Both must take the same time. The links are slow enough that processor time is irrelevant. The
//! simulator gets only the link rates, the locations of blocks and the request.
//!
//! This is the only test that compares times. It uses ratios of the lab's time to the simulator's, and the
//! best of three attempts, because other programs can only slow the lab down. If no lab can run, the test
//! fails; `MEND_SKIP=lab` skips it.
//!
//! This test is a separate binary, because the lab executes it again inside namespaces as `mend` and
//! `mend-lab`.

mod daemons;

use std::env;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use client::{Client, PutOptions, RepairRequest, RepairState, no_progress};
use cluster::{Cluster, Role};
use codes::BlockIndex;
use lab::{LabCluster, LabNode, Names, Network, NetworkError, Programs, Rate, Topology};
use repair::{Policy, Rates, Scheme};
use serde::{Deserialize, Serialize};
use sim::recovery::Loss;

/// The tolerated ratios of the lab's time to the simulator's. The lab may be slower by more than it may be faster,
/// because its processes share the machine with each other: on machines with two processors, 0.96 to 1.09 was seen.
const RATIOS: RangeInclusive<f64> = 0.95..=1.12;
/// The maximum number of attempts.
const ATTEMPTS: u32 = 3;
/// The payload fraction of a link, after headers of Ethernet, IP and TCP, with packets of 9,000 bytes.
const PAYLOAD: f64 = 8948.0 / 9014.0;
const SLICE_BYTES: u32 = 64 << 10;
const CODE: &str = "rs-6-4";

/// The verbs of `mend` and `mend-lab` that the lab uses, and this test's own verbs, which run in the
/// coordinator's namespace.
#[derive(Parser)]
enum Verb {
    #[command(flatten)]
    Lab(lab::Command),
    Coordinator,
    Helper {
        name: cluster::Name,
    },
    /// Stores the stripes and prints the locations of their blocks.
    Store {
        file: PathBuf,
        block_bytes: u64,
    },
    /// Recovers a killed helper and prints the time.
    Recover {
        helper: String,
    },
}

/// For each stripe, the names of the helpers that hold its blocks.
#[derive(Serialize, Deserialize)]
struct Stored(Vec<Vec<String>>);

#[derive(Serialize, Deserialize)]
struct Recovered {
    seconds: f64,
    blocks: u64,
}

fn main() -> ExitCode {
    let verbs = ["coordinator", "helper", "agent", "direct-serve", "direct-relay", "store", "recover"];
    if env::args().nth(1).is_some_and(|verb| verbs.contains(&verb.as_str())) {
        return serve(Verb::parse());
    }
    if testbed::is_skipped("lab") {
        return ExitCode::SUCCESS;
    }
    let names = Names::with_prefix(&format!("labsim{}", std::process::id() % 1000));
    match Network::up(&names, &Topology::flat(3, rate(50))) {
        Ok(network) => drop(network),
        Err(reason @ (NetworkError::NotRoot | NetworkError::NoProgram { .. } | NetworkError::Kernel(_))) => {
            eprintln!("no lab can be made here: {reason}; MEND_SKIP=lab skips its tests");
            return ExitCode::FAILURE;
        }
        Err(error) => panic!("{error}"),
    }
    agrees("a block read by a star", || read(&names, Scheme::Conventional));
    agrees("a block read by a chain", || read(&names, Scheme::Pipelined));
    agrees("a node recovered", || recovery(&names));
    ExitCode::SUCCESS
}

/// The times of the lab and the simulator, in seconds.
struct Times {
    lab: f64,
    sim: f64,
}

fn agrees(what: &str, attempt: impl Fn() -> Times) {
    let mut ratios = Vec::new();
    for _ in 0..ATTEMPTS {
        let Times { lab, sim } = attempt();
        ratios.push(lab / sim);
        println!("{what}: {lab:.3} s in the lab, {sim:.3} s simulated, ratio {:.3}", lab / sim);
        if RATIOS.contains(&(lab / sim)) {
            return;
        }
    }
    panic!("{what}: the lab took {ratios:.3?} of what the simulator says");
}

fn rate(megabits: u32) -> Rate {
    format!("{megabits}mbit").parse().expect("a rate")
}

/// Returns the payload bytes per second of a link.
fn payload(megabits: u32) -> f64 {
    f64::from(megabits) * 1e6 / 8.0 * PAYLOAD
}

/// Returns this binary as both `mend` and `mend-lab`.
fn programs() -> Programs {
    let own = env::current_exe().unwrap();
    Programs { mend: own.clone(), lab: own }
}

// ---- one lost block ----

const READ_MEGABITS: u32 = 50;
const READ_BLOCK: u64 = 16 << 20;

fn read(names: &Names, scheme: Scheme) -> Times {
    let text = format!(
        r#"
        name = "simulated"
        schemes = "{scheme}"
        code = "{CODE}"
        block_bytes = "{READ_BLOCK}"
        slice_bytes = "{SLICE_BYTES}"
        repetitions = 1
        retries = 0
        [topology]
        nodes = 6
        rate = "{READ_MEGABITS}mbit"
        "#
    );
    let scenario =
        lab::Scenario::parse(&text, "simulated".as_ref()).unwrap_or_else(|error| panic!("{error}"));
    let mut say = |line: &str| println!("  {line}");
    let report = lab::run(names, &programs(), &scenario, &mut say).unwrap();
    Times { lab: report.rows[0].time.median_s, sim: simulated_read(scheme) }
}

/// Simulates the read with real bytes, slice by slice.
fn simulated_read(scheme: Scheme) -> f64 {
    let code: codes::CodeSpec = CODE.parse().unwrap();
    let scenario = sim::Scenario {
        block_bytes: READ_BLOCK,
        tail_bytes: READ_BLOCK,
        kind: sim::Kind::Read { window: 0..READ_BLOCK, sub_blocks: None },
        wanted: vec![BlockIndex(0)],
        policy: Policy { scheme, slice_bytes: Some(SLICE_BYTES), ..Policy::default() },
        checks: sim::Checks { digests: true, parity: false, reread: true },
        machines: sim::Machines {
            rate: payload(READ_MEGABITS),
            window: 1 << 20,
            disk_rate: 2e9,
            budget_bytes: 16 << 20,
            ..sim::Machines::default()
        },
        ..sim::Scenario::repair(code, scheme)
    };
    let ended = sim::World::new(&scenario, sim::Tracing::Off).run();
    assert_eq!(ended.violations, [""; 0]);
    ended.after.as_secs_f64()
}

// ---- a whole node ----

const NODES: u16 = 10;
const STRIPES: u64 = 30;
const NODE_MEGABITS: u32 = 25;
const NODE_BLOCK: u64 = 8 << 20;
const LOST: &str = "h1";

fn recovery(names: &Names) -> Times {
    let mut network = Network::up(names, &Topology::flat(NODES, rate(NODE_MEGABITS))).unwrap();
    let mut fleet = LabCluster::start(&mut network, &programs()).unwrap();
    // Stripes are stored over unshaped links.
    network.reshape(&Topology::flat(NODES, Rate::Unshaped)).unwrap();
    let file = fleet.work().join("file");
    std::fs::write(&file, sim::Dice::new(7).bytes((STRIPES * 4 * NODE_BLOCK) as usize)).unwrap();
    let words = ["store", file.to_str().unwrap(), &NODE_BLOCK.to_string()];
    let Stored(homes) = beside_coordinator(&network, &fleet, &words);
    network.reshape(&Topology::flat(NODES, rate(NODE_MEGABITS))).unwrap();
    fleet.kill(LOST).unwrap();
    let recovered: Recovered = beside_coordinator(&network, &fleet, &["recover", LOST]);
    let on_lost = homes.iter().filter(|homes| homes.iter().any(|home| home == LOST)).count();
    assert_eq!(recovered.blocks, on_lost as u64);
    Times { lab: recovered.seconds, sim: simulated_recovery(&homes) }
}

fn beside_coordinator<T: for<'a> Deserialize<'a>>(
    network: &Network,
    fleet: &LabCluster,
    words: &[&str],
) -> T {
    let mut command = network.command(LabNode::Coordinator, &programs().mend);
    let output = command.args(words).env("MEND_CLUSTER", fleet.cluster()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Simulates the recovery as flows without bytes, with the blocks on the same helpers as in the lab. Helpers
/// without configured rates get the scheduler's default budgets, which are large enough not to slow this
/// recovery.
fn simulated_recovery(homes: &[Vec<String>]) -> f64 {
    let number = |name: &String| name.trim_start_matches('h').parse::<u32>().unwrap() - 1;
    let homes = homes.iter().map(|homes| homes.iter().map(number).collect()).collect();
    let link = payload(NODE_MEGABITS);
    let cluster = sim::recovery::Cluster {
        homes: sim::recovery::Homes::Given(homes),
        block_bytes: NODE_BLOCK,
        rates: Rates { up: link, down: link, read: 2e9, write: 2e9 },
        loss: Loss::Dead,
        ..sim::recovery::Cluster::new(CODE, NODES.into(), STRIPES as u32)
    };
    let finish = cluster.all_at_once().run();
    assert_eq!(finish.violations, [""; 0]);
    finish.seconds
}

// ---- inside namespaces ----

fn serve(verb: Verb) -> ExitCode {
    if let Verb::Lab(command) = verb {
        return lab::execute(command).unwrap_or_else(|error| panic!("{error}"));
    }
    let folder = env::var_os("MEND_CLUSTER").expect("the lab says which");
    let cluster = Cluster::open(folder.as_ref()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match verb {
            Verb::Lab(_) => unreachable!("above"),
            Verb::Coordinator => daemons::coordinate(cluster).await,
            Verb::Helper { name } => daemons::help(&cluster, name).await,
            Verb::Store { file, block_bytes } => store(&connect(&cluster), &file, block_bytes).await,
            Verb::Recover { helper } => recover(&connect(&cluster), helper).await,
        }
    });
    ExitCode::SUCCESS
}

fn connect(cluster: &Cluster) -> Client {
    let role = Role::default_client();
    Client::connect(cluster, &role).unwrap()
}

async fn store(client: &Client, file: &std::path::Path, block_bytes: u64) {
    let options =
        PutOptions { code: Some(CODE.to_owned()), block_bytes: Some(block_bytes), ..PutOptions::default() };
    client.put(file, "file", &options, no_progress()).await.unwrap();
    let layout = client.file("file").await.unwrap().layout;
    let homes =
        |blocks: &[client::BlockView]| blocks.iter().map(|block| block.node.clone().unwrap()).collect();
    print(&Stored(layout.iter().map(|stripe| homes(&stripe.stripe.blocks)).collect()));
}

async fn recover(client: &Client, helper: String) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !client.status().await.unwrap().helpers.nodes_down.contains(&helper) {
        assert!(Instant::now() < give_up, "{helper} still counts as up");
        thread::sleep(Duration::from_millis(20));
    }
    let request = RepairRequest { node: Some(helper), ..RepairRequest::default() };
    let mut view = client.repair(&request).await.unwrap();
    while view.ended_unix_ms.is_none() {
        view = client.await_repair(view.repair, Duration::from_secs(10)).await.unwrap();
    }
    assert_eq!(view.state, RepairState::Done, "{view:?}");
    let seconds = (view.ended_unix_ms.unwrap() - view.started_unix_ms) as f64 / 1e3;
    print(&Recovered { seconds, blocks: view.counts.blocks_rebuilt });
}

fn print(answer: &impl Serialize) {
    println!("{}", serde_json::to_string(answer).unwrap());
}
