//! The verbs of `mend lab`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::{Args, Subcommand};
use cluster::Bandwidth;

use crate::check::check;
use crate::error::LabError;
use crate::lab_cluster::{LabCluster, Programs};
use crate::network::{LabNode, Names, Network, Status};
use crate::nodes::NodesArgs;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::topology::{Matrix, Racks, Rate, Topology};
use crate::{agent, bench, direct, figure, hdfs, nodes, seaweedfs};

/// Where reports go: they are large, anybody can make them again, and so they are no part of the repository.
const REPORTS: &str = "target/lab";

/// Measure on shaped links: network namespaces on this machine (needs root)
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a network with a cluster in it, and leave it up
    Up {
        /// What it looks like
        #[command(flatten)]
        network: NetworkArgs,
    },
    /// Remove the lab and all that is in it, also one that was killed
    Down,
    /// Show whether a lab is up
    Status,
    /// Make a network, compare a direct send with its nominal rate, and remove it
    Check {
        /// What it looks like
        #[command(flatten)]
        network: NetworkArgs,
    },
    /// Carry out a scenario and write its report
    Run {
        /// The scenario, a TOML file (docs/lab.md)
        scenario: PathBuf,
        /// The report, a JSON file [default: target/lab/NAME.json]
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Measure each so often, whatever the scenario says
        #[arg(long, value_name = "N")]
        repetitions: Option<u32>,
    },
    /// Measure a figure of a paper again: table and drawing beside the paper's numbers
    Figure {
        /// Which; `mend lab figures` lists them
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// All of them
        #[arg(long, conflicts_with = "name")]
        all: bool,
        /// The folder for tables and drawings
        #[arg(long, default_value = "docs/results", value_name = "DIR")]
        out: PathBuf,
        /// The folder for the reports that they are made of, as JSON
        #[arg(long, default_value = REPORTS, value_name = "DIR")]
        reports: PathBuf,
        /// Measure each so often, whatever the figure says
        #[arg(long, value_name = "N")]
        repetitions: Option<u32>,
        /// Draw again from the reports that are there, without measuring
        #[arg(long)]
        redraw: bool,
    },
    /// List the figures
    Figures,
    /// Measure each target and say whether it holds; less than ten minutes
    Bench {
        /// The folder for the table
        #[arg(long, default_value = "docs/results", value_name = "DIR")]
        out: PathBuf,
        /// The folder for the reports that it is made of, as JSON
        #[arg(long, default_value = REPORTS, value_name = "DIR")]
        reports: PathBuf,
        /// Only targets whose name contains this
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// Whole nodes: recovered under every policy, drained in every way, with caps and reads beside; half an hour
    Nodes(NodesArgs),
    /// A real SeaweedFS cluster, with Mend beside it and without
    Seaweedfs {
        /// What to do with it
        #[command(subcommand)]
        what: seaweedfs::Verb,
    },
    /// A real HDFS, which repairs by itself and then has Mend do it
    Hdfs {
        /// What to do with it
        #[command(subcommand)]
        what: hdfs::Verb,
    },
    /// Send bytes to whoever asks (started by the lab inside a namespace)
    #[command(hide = true)]
    DirectServe {
        /// Where
        #[arg(long)]
        listen: SocketAddr,
    },
    /// One link of a bare chain of relays (started by the lab inside a namespace)
    #[command(hide = true)]
    DirectRelay {
        /// Where
        #[arg(long)]
        listen: SocketAddr,
        /// The link before it
        #[arg(long)]
        from: Option<SocketAddr>,
        /// Bytes passed on at once
        #[arg(long)]
        slice_bytes: usize,
    },
    /// Carry out orders from standard input (started by the lab inside a namespace)
    #[command(hide = true)]
    Agent {
        /// The cluster folder
        #[arg(long)]
        cluster: PathBuf,
    },
}

/// What a network looks like.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// Helpers
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub nodes: u16,
    /// Of every link, in both directions; `unshaped` leaves it to the processors
    #[arg(long, default_value = "1gbit")]
    pub rate: Rate,
    /// Racks and the rate between each and the core, such as 3:400mbit
    #[arg(long, value_name = "COUNT:RATE")]
    pub racks: Option<Racks>,
    /// A rate for every pair: north-america, asia, or a file
    #[arg(long, value_name = "MATRIX")]
    pub matrix: Option<Matrix>,
    /// The rate from each helper to the client
    #[arg(long, value_name = "RATE")]
    pub edge: Option<Bandwidth>,
}

/// Carries a verb out. May be called from anywhere, also from a runtime's thread.
///
/// # Errors
/// [`LabError`]; a lab that was made is removed.
pub fn execute(command: Command) -> Result<ExitCode, LabError> {
    match command {
        Command::DirectServe { listen } => {
            direct::serve(listen).map_err(LabError::file("listen at", listen.to_string()))?;
        }
        Command::DirectRelay { listen, from, slice_bytes } => {
            direct::relay(listen, from, slice_bytes)
                .map_err(LabError::file("listen at", listen.to_string()))?;
        }
        // On a thread of its own: it makes a runtime.
        Command::Agent { cluster } => {
            on_thread(move || agent::run(&cluster)).map_err(LabError::file("serve", "standard input"))?
        }
        Command::Down => {
            Network::down(&Names::default())?;
            println!("no lab is up");
        }
        Command::Status => return status(),
        Command::Figures => print!("{}", figure::list()),
        Command::Figure { name, out, reports, redraw: true, .. } => {
            figure::redraw(name.as_deref(), &Folders { pages: out, reports })?
        }
        measuring => return until_interrupted(move || measure(measuring)),
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(command: Command) -> Result<ExitCode, LabError> {
    let (names, programs) = (Names::default(), Programs::find()?);
    match command {
        Command::Up { network } => up(&names, &programs, &network.topology()?),
        Command::Check { network } => {
            let mut network = Network::up(&names, &network.topology()?)?;
            let mut fleet = LabCluster::start(&mut network, &programs)?;
            let found = check(&network, &mut fleet)?;
            println!("{}", found.summary());
            Ok(if found.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Run { scenario, out, repetitions } => {
            let mut scenario = Scenario::read(&scenario)?;
            scenario.repetitions = repetitions.unwrap_or(scenario.repetitions).max(1);
            let report = crate::run(&names, &programs, &scenario, &mut say)?;
            let out = out.unwrap_or_else(|| Path::new(REPORTS).join(format!("{}.json", scenario.name)));
            write_json(&out, &report)?;
            print!("{}", report.to_markdown());
            println!("\nreport: {}", out.display());
            Ok(trusted(&report))
        }
        Command::Figure { name, out, reports, repetitions, .. } => {
            let folders = Folders { pages: out, reports };
            figure::measure(&names, &programs, name.as_deref(), &folders, repetitions, &mut say)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Bench { out, reports, only } => {
            let folders = Folders { pages: out, reports };
            bench::run(&names, &programs, &folders, only.as_deref(), &mut say)
        }
        Command::Nodes(args) => nodes::execute(&names, &programs, &args, &mut say),
        Command::Hdfs { what } => hdfs::execute(&names, &programs, &what, &mut say),
        Command::Seaweedfs { what } => seaweedfs::execute(&names, &programs, &what, &mut say),
        _ => unreachable!("carried out before"),
    }
}

fn up(names: &Names, programs: &Programs, topology: &Topology) -> Result<ExitCode, LabError> {
    let mut network = Network::up(names, topology)?;
    let mut fleet = LabCluster::start(&mut network, programs)?;
    let found = check(&network, &mut fleet)?;
    println!("lab up: {}", network.topology());
    println!("self-check: {}", found.summary());
    println!(
        "use it:  ip netns exec {} env MEND_CLUSTER={} mend status",
        names.of(LabNode::Client),
        fleet.cluster().display()
    );
    println!("end it:  mend lab down");
    fleet.keep();
    network.keep()?;
    Ok(if found.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn status() -> Result<ExitCode, LabError> {
    match Network::status(&Names::default())? {
        Status::Down => println!("no lab is up"),
        Status::Up { topology, folder } => {
            println!("a lab is up: {topology}");
            if let Some(folder) = folder {
                println!("cluster: {}", folder.join("cluster").display());
            }
        }
        Status::Busy { pid } => println!("process {pid} is using the lab"),
        Status::Leftovers { namespaces } => {
            println!(
                "a lab that was killed left {} namespaces; remove them with `mend lab down`",
                namespaces.len()
            );
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn say(line: &str) {
    eprintln!("{line}");
}

fn trusted(report: &Report) -> ExitCode {
    let Some(doubt) = report.doubt() else { return ExitCode::SUCCESS };
    eprintln!("not to be trusted: {doubt}");
    ExitCode::FAILURE
}

/// Where results go.
#[derive(Debug, Clone)]
pub struct Folders {
    /// Tables and drawings, for people.
    pub pages: PathBuf,
    /// Reports, for programs.
    pub reports: PathBuf,
}

impl Folders {
    pub(crate) fn page(&self, name: &str, extension: &str) -> PathBuf {
        self.pages.join(format!("{name}.{extension}"))
    }

    pub(crate) fn report(&self, name: &str) -> PathBuf {
        self.reports.join(format!("{name}.json"))
    }
}

/// Writes a page; its folder is made if it is not there.
pub(crate) fn write_page(path: &Path, text: &str) -> Result<(), LabError> {
    make_folder_of(path)?;
    fs::write(path, text).map_err(LabError::file("write", path))
}

fn make_folder_of(path: &Path) -> Result<(), LabError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), |folder| fs::create_dir_all(folder).map_err(LabError::file("create", folder)))
}

/// Writes a report; its folder is made if it is not there.
pub(crate) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), LabError> {
    make_folder_of(path)?;
    let text = serde_json::to_string_pretty(value).expect("plain data") + "\n";
    fs::write(path, text).map_err(LabError::file("write", path))
}

impl NetworkArgs {
    fn topology(self) -> Result<Topology, LabError> {
        let Self { nodes, rate, racks, matrix, edge } = self;
        let topology = Topology { racks, matrix, edge, ..Topology::flat(nodes, rate) };
        topology.check()?;
        Ok(topology)
    }
}

/// Runs on a thread of its own, where a runtime may be made whatever the caller is.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().expect("a panic has been printed"))
}

/// Runs `work`, and removes the lab if the user stops it.
fn until_interrupted(
    work: impl FnOnce() -> Result<ExitCode, LabError> + Send + 'static,
) -> Result<ExitCode, LabError> {
    on_thread(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(LabError::file("make", "a runtime"))?;
        runtime.block_on(async {
            let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
                .map_err(LabError::file("listen for", "signals"))?;
            tokio::select! {
                done = tokio::task::spawn_blocking(work) => done.expect("a panic has been printed"),
                _ = tokio::signal::ctrl_c() => Err(interrupted()),
                _ = terminated.recv() => Err(interrupted()),
            }
        })
    })
}

/// Ends the process: the thread that measures cannot be stopped otherwise.
fn interrupted() -> LabError {
    let names = Names::default();
    // Only our own: we may have been stopped while another process measures.
    let is_ours = matches!(Network::status(&names), Ok(Status::Busy { pid }) if pid == std::process::id());
    if is_ours && let Err(error) = Network::down(&names) {
        eprintln!("mend lab: {error}");
    }
    eprintln!("mend lab: {}", LabError::Interrupted);
    std::process::exit(130)
}
