//! The verbs of `mend lab`.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::{Args, Subcommand};
use cluster::Bandwidth;
use tokio::signal::unix::{SignalKind, signal};

use crate::check::check;
use crate::checkout::require_publishable;
use crate::error::LabError;
use crate::folders::{Folders, REPORTS};
use crate::hdfs_raid::HdfsRaidArgs;
use crate::lab_cluster::{LabCluster, Programs};
use crate::network::{LabNode, Names, Network, Status};
use crate::nodes::NodesArgs;
use crate::pages;
use crate::report::Report;
use crate::scenario::Scenario;
use crate::topology::{Matrix, Racks, Rate, Topology};
use crate::{agent, bench, direct, figure, figures, hdfs, hdfs_raid, nodes, seaweedfs};

/// Run measurements on shaped links in network namespaces (needs root)
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a network with a cluster in it, and leave it running
    Up {
        /// The network to create
        #[command(flatten)]
        network: NetworkArgs,
    },
    /// Remove the lab with everything in it, even after a crash
    Down,
    /// Show whether a lab is up
    Status,
    /// Create a network, compare a direct send with its nominal rate, and remove the network
    Check {
        /// The network to create
        #[command(flatten)]
        network: NetworkArgs,
    },
    /// Run a scenario and write its report
    Run {
        /// The scenario, a TOML file (docs/reference/lab.md)
        scenario: PathBuf,
        /// The report, a JSON file [default: target/lab/NAME.json]
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Number of repetitions, overriding the scenario
        #[arg(long, value_name = "N")]
        repetitions: Option<u32>,
    },
    /// Reproduce a figure of a paper: a table and a drawing next to the paper's numbers
    Figure {
        /// The figure's name; `mend lab figures --list` lists them
        name: String,
        /// The folders for results
        #[command(flatten)]
        folders: Folders,
        /// Number of repetitions, overriding the figure
        #[arg(long, value_name = "N")]
        repetitions: Option<u32>,
        /// Redraw from existing reports, without measuring
        #[arg(long)]
        redraw: bool,
    },
    /// Reproduce every figure whose page is not fresh; continues where an earlier run was interrupted or
    /// failed
    Figures {
        /// Only list the figures
        #[arg(long, conflicts_with_all = ["check", "index", "redraw"])]
        list: bool,
        /// Only tell which pages are fresh; exits with 1 if some are not
        #[arg(long, conflicts_with_all = ["index", "redraw"])]
        check: bool,
        /// Only write the index of the figures into the README of the pages
        #[arg(long, conflicts_with = "redraw")]
        index: bool,
        /// Redraw every figure that has a report, without measuring
        #[arg(long)]
        redraw: bool,
        /// The folders for results
        #[command(flatten)]
        folders: Folders,
    },
    /// Measure each target and check whether it is met; takes less than ten minutes
    Bench {
        /// The folders for results
        #[command(flatten)]
        folders: Folders,
        /// Only measure targets whose name contains this text
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// Measure whole nodes: recovery under every policy, drains of every kind, caps, and concurrent reads;
    /// takes half an hour
    Nodes(NodesArgs),
    /// Measure a real SeaweedFS cluster with and without Mend
    Seaweedfs {
        /// The action
        #[command(subcommand)]
        what: seaweedfs::Verb,
    },
    /// Measure a real HDFS, first repairing on its own and then with Mend
    Hdfs {
        /// The action
        #[command(subcommand)]
        what: hdfs::Verb,
    },
    /// Measure replicated files with parity in the layout of HDFS-RAID on a real HDFS: degraded reads by every scheme,
    /// encoding, and the recovery of a DataNode; takes more than an hour, and continues where it was interrupted
    HdfsRaid(HdfsRaidArgs),
    /// Send bytes on request (started by the lab inside a namespace)
    #[command(hide = true)]
    DirectServe {
        /// The listen address
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Run one relay of a bare chain (started by the lab inside a namespace)
    #[command(hide = true)]
    DirectRelay {
        /// The listen address
        #[arg(long)]
        listen: SocketAddr,
        /// The address of the previous relay
        #[arg(long)]
        from: Option<SocketAddr>,
        /// Bytes to forward at once
        #[arg(long)]
        slice_bytes: usize,
    },
    /// Execute instructions from standard input (started by the lab inside a namespace)
    #[command(hide = true)]
    Agent {
        /// The cluster folder
        #[arg(long)]
        cluster: PathBuf,
    },
}

/// The network to create.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// Number of helpers
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub nodes: u16,
    /// Rate of every link, in both directions; `unshaped` is limited by the processors only
    #[arg(long, default_value = "1gbit")]
    pub rate: Rate,
    /// Racks, and the rate of the link from each to the core, such as 3:400mbit
    #[arg(long, value_name = "COUNT:RATE")]
    pub racks: Option<Racks>,
    /// A rate for every pair of nodes: north-america, asia, or a file
    #[arg(long, value_name = "MATRIX")]
    pub matrix: Option<Matrix>,
    /// Rate from each helper to the client
    #[arg(long, value_name = "RATE")]
    pub edge: Option<Bandwidth>,
}

/// Runs a verb. Also works on a thread of an async runtime.
///
/// # Errors
/// [`LabError`]. A lab that this call created has been removed by then.
pub fn execute(command: Command) -> Result<ExitCode, LabError> {
    match command {
        Command::DirectServe { listen } => {
            direct::serve(listen).map_err(LabError::file("listen at", listen.to_string()))?;
        }
        Command::DirectRelay { listen, from, slice_bytes } => {
            direct::relay(listen, from, slice_bytes)
                .map_err(LabError::file("listen at", listen.to_string()))?;
        }
        // The agent runs on a separate thread, because it creates an async runtime.
        Command::Agent { cluster } => {
            on_thread(move || agent::run(&cluster)).map_err(LabError::file("serve", "standard input"))?
        }
        Command::Down => {
            Network::down(&Names::default())?;
            println!("no lab is up");
        }
        Command::Status => return status(),
        Command::Figures { list: true, .. } => print!("{}", figure::list()),
        Command::Figures { check: true, folders, .. } => {
            let (text, is_fresh) = pages::check(&folders.pages);
            print!("{text}");
            return Ok(if is_fresh { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Figures { index: true, folders, .. } => pages::write_index(&folders.pages)?,
        Command::Figures { redraw: true, folders, .. } => return figures::redraw(&folders, &mut say),
        Command::Figure { name, folders, .. } if figure::simulated_paths(&name).is_some() => {
            require_publishable(&folders.pages, &this_program()?, None)?;
            figure::simulate(&name, &folders, &mut say)?;
        }
        Command::Figure { name, folders, redraw: true, .. } => figure::redraw(&name, &folders)?,
        measuring => return until_interrupted(move || measure(measuring)),
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(command: Command) -> Result<ExitCode, LabError> {
    let (names, programs) = (Names::default(), Programs::find()?);
    if let Some((folders, trial)) = folders_of(&command) {
        folders.check(trial)?;
        require_publishable(&folders.pages, &programs.lab, Some(&programs.mend))?;
    }
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
            scenario.effort.repetitions = repetitions.unwrap_or(scenario.effort.repetitions).max(1);
            let report = crate::run(&names, &programs, &scenario, &mut say)?;
            let out = out.unwrap_or_else(|| Path::new(REPORTS).join(format!("{}.json", scenario.name)));
            write_json(&out, &report)?;
            print!("{}", report.to_markdown());
            println!("\nreport: {}", out.display());
            Ok(trusted(&report))
        }
        Command::Figure { name, folders, repetitions, .. } => {
            figure::measure(&names, &programs, &name, &folders, repetitions, &mut say)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Figures { folders, .. } => figures::measure_stale(&names, &programs, &folders, &mut say),
        Command::Bench { folders, only } => {
            bench::run(&names, &programs, &folders, only.as_deref(), &mut say)
        }
        Command::Nodes(args) => nodes::execute(&names, &programs, &args, &mut say),
        Command::Hdfs { what } => hdfs::execute(&names, &programs, &what, &mut say),
        Command::HdfsRaid(args) => hdfs_raid::execute(&names, &programs, &args, &mut say),
        Command::Seaweedfs { what } => seaweedfs::execute(&names, &programs, &what, &mut say),
        _ => unreachable!("carried out before"),
    }
}

/// Returns the folders of a verb that measures and writes pages, and the option that makes the measurement a trial, if one
/// does.
fn folders_of(command: &Command) -> Option<(&Folders, Option<&'static str>)> {
    match command {
        Command::Figure { folders, repetitions, .. } => Some((folders, repetitions.map(|_| "--repetitions"))),
        Command::Figures { folders, .. } | Command::Bench { folders, .. } => Some((folders, None)),
        Command::Nodes(args) => Some((&args.folders, args.trial())),
        Command::Hdfs { what: hdfs::Verb::Bench(args) } => Some((&args.folders, args.trial())),
        Command::HdfsRaid(args) => Some((&args.folders, args.trial())),
        Command::Seaweedfs { what: seaweedfs::Verb::Bench(args) } => Some((&args.folders, args.trial())),
        _ => None,
    }
}

fn this_program() -> Result<PathBuf, LabError> {
    env::current_exe().map_err(LabError::file("find", "this program"))
}

fn up(names: &Names, programs: &Programs, topology: &Topology) -> Result<ExitCode, LabError> {
    let mut network = Network::up(names, topology)?;
    let mut fleet = LabCluster::start(&mut network, programs)?;
    let found = check(&network, &mut fleet)?;
    println!("lab up: {}", network.topology());
    println!("self-check: {}", found.summary());
    println!(
        "to use it:    ip netns exec {} env MEND_CLUSTER={} mend status",
        names.of(LabNode::Client),
        fleet.cluster().display()
    );
    println!("to remove it: mend lab down");
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
    eprintln!("not reliable: {doubt}");
    ExitCode::FAILURE
}

/// Writes a page, creating its folder if needed. A page of results ends with its command and the paths on
/// which it depends.
pub(crate) fn write_page(path: &Path, text: &str) -> Result<(), LabError> {
    make_folder_of(path)?;
    let page = path.file_stem().and_then(OsStr::to_str).and_then(pages::named);
    let provenance = page.map_or(String::new(), |page| page.provenance());
    fs::write(path, text.to_owned() + &provenance).map_err(LabError::file("write", path))
}

fn make_folder_of(path: &Path) -> Result<(), LabError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.map_or(Ok(()), |folder| fs::create_dir_all(folder).map_err(LabError::file("create", folder)))
}

/// Writes a report, creating its folder if needed. If it cannot be written, or the process ends meanwhile, the former
/// report stays.
pub(crate) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), LabError> {
    make_folder_of(path)?;
    let text = serde_json::to_string_pretty(value).expect("plain data") + "\n";
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(LabError::file("write", &new))?;
    fs::rename(&new, path).map_err(LabError::file("write", path))
}

impl NetworkArgs {
    fn topology(self) -> Result<Topology, LabError> {
        let Self { nodes, rate, racks, matrix, edge } = self;
        let topology = Topology { racks, matrix, edge, ..Topology::flat(nodes, rate) };
        topology.check()?;
        Ok(topology)
    }
}

/// Runs `work` on a separate thread, so that it may create an async runtime even if the caller runs in one.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().expect("a panic has been printed"))
}

/// Runs `work`. If the user interrupts the program, removes the lab and ends the process.
fn until_interrupted(
    work: impl FnOnce() -> Result<ExitCode, LabError> + Send + 'static,
) -> Result<ExitCode, LabError> {
    on_thread(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(LabError::file("make", "a runtime"))?;
        runtime.block_on(async {
            let listen = |kind| signal(kind).map_err(LabError::file("listen for", "signals"));
            let (mut terminated, mut hung_up) =
                (listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
            tokio::select! {
                done = tokio::task::spawn_blocking(work) => done.expect("a panic has been printed"),
                _ = tokio::signal::ctrl_c() => Err(interrupted()),
                _ = terminated.recv() => Err(interrupted()),
                _ = hung_up.recv() => Err(interrupted()),
            }
        })
    })
}

/// Removes the lab if this process created it: it may belong to another one.
pub(crate) fn remove_own_lab(names: &Names) {
    let is_ours = matches!(Network::status(names), Ok(Status::Busy { pid }) if pid == std::process::id());
    if is_ours && let Err(error) = Network::down(names) {
        eprintln!("mend lab: {error}");
    }
}

/// Removes the lab and ends the whole process, because the thread that measures cannot be stopped.
fn interrupted() -> LabError {
    remove_own_lab(&Names::default());
    eprintln!("mend lab: {}", LabError::Interrupted);
    std::process::exit(130)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::checkout::PUBLISHED;

    #[test]
    fn measurements_write_pages_and_some_are_trials() {
        #[derive(Parser)]
        struct Line {
            #[command(subcommand)]
            command: Command,
        }
        let found = |line: &str| {
            let command = Line::parse_from(line.split(' ')).command;
            folders_of(&command).map(|(folders, trial)| (folders.pages.clone(), trial))
        };
        let pages = Path::new(PUBLISHED).to_owned();
        for line in ["figures", "figure x", "bench", "nodes", "hdfs bench", "hdfs-raid", "seaweedfs bench"] {
            assert_eq!(found(&format!("l {line}")), Some((pages.clone(), None)), "{line}");
        }
        for (line, option) in [
            ("figure x --repetitions 1", "--repetitions"),
            ("nodes --small-blocks 9", "--small-blocks"),
            ("hdfs bench --reads 9", "--reads"),
            ("hdfs-raid --stripes 1", "--stripes"),
            ("seaweedfs bench --small-volumes 9", "--small-volumes"),
        ] {
            assert_eq!(found(&format!("l {line} --out x")), Some(("x".into(), Some(option))), "{line}");
        }
        let parts = ["hdfs bench --parts nodes --repetitions 1", "hdfs-raid --stripes 0 --blocks 0"];
        assert!(parts.into_iter().all(|line| found(&format!("l {line}")) == Some((pages.clone(), None))));
        assert!(
            ["l seaweedfs demo", "l check", "l run x.toml"].into_iter().all(|line| found(line).is_none())
        );
    }

    #[test]
    fn pages_of_results_end_with_their_provenance() {
        let folder = tempfile::tempdir().unwrap();
        let written = |name: &str| {
            let file = folder.path().join("new").join(name);
            write_page(&file, "# T\n").unwrap();
            fs::read_to_string(file).unwrap()
        };
        assert!(written("nodes.md").contains("## Provenance"));
        assert_eq!(written("other.md"), "# T\n");
    }
}
