//! `mend lab seaweedfs`: a real SeaweedFS cluster on shaped links, with and without Mend.
//!
//! [`Verb::Demo`] shows the main points in a few minutes. [`Verb::Bench`] measures and writes
//! `docs/results/seaweedfs.md`; its report keeps all repetitions, so partial and interrupted measurements add to the same
//! page on the same commit. Both end on their own and leave no processes.

mod cluster;
mod demo;
mod detail;
mod losses;
mod measure;
mod page;
mod reads;
mod servers;
mod tables;
mod targets;
mod tasks;

use std::process::ExitCode;

use clap::{ArgAction, Args, Subcommand};

use crate::error::LabError;
use crate::folders::{Folders, first_unusual, usual};
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// The actions on the cluster.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show a killed server and its automatic repair by Mend, compared with ec.rebuild on the same loss
    Demo,
    /// Measure repairs of lost shards and of a whole server, and reads meanwhile, and write a page; takes three quarters
    /// of an hour with the default options, and continues where it was interrupted
    #[command(after_help = EXAMPLES)]
    Bench(BenchArgs),
}

const EXAMPLES: &str = "\
Runs on the same commit and machine add to the same page. Longer matrices:

  mend lab seaweedfs bench --small-volumes 0 --volumes 660,1000   more sizes of shards (half an hour)
  mend lab seaweedfs bench --small-volumes 0 --rates 500mbit,1gbit   faster links, for machines with more processors
  mend lab seaweedfs bench --encrypted   Mend with encrypted data edges, in rows of its own (half an hour)";

/// Options of the measurement.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The folders for results
    #[command(flatten)]
    pub(crate) folders: Folders,
    /// Link rates; reads during a recovery use the fastest one. Two processors are too slow for much faster links between
    /// fifteen servers
    #[arg(long, default_values = ["100mbit", "200mbit"], value_delimiter = ',', value_name = "RATE")]
    rates: Vec<Rate>,
    /// Sizes in MB of the volumes that lose shards; a shard has a tenth of its volume's size
    #[arg(long, default_values_t = [660], value_delimiter = ',', value_name = "MB")]
    volumes: Vec<usize>,
    /// Encrypt Mend's data edges; SeaweedFS does not encrypt its own
    #[arg(long)]
    encrypted: bool,
    /// Repetitions of each repair
    #[arg(long, default_value_t = 3, value_name = "N")]
    repetitions: usize,
    /// Number of volumes for the recovery of a whole server; 0 skips servers and reads
    #[arg(long, default_value_t = 42, value_name = "N")]
    small_volumes: usize,
    /// Size in MB of each volume for the recovery of a whole server
    #[arg(long, default_value_t = 30, value_name = "MB")]
    small_megabytes: usize,
    /// Whether to measure reads during the recovery of a server
    #[arg(long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    reads: bool,
}

impl BenchArgs {
    /// Returns the option that makes the measurement a trial, if one does: its value is not the usual one, and does not identify
    /// a result.
    pub(crate) fn trial(&self) -> Option<&'static str> {
        let usual: Self = usual();
        first_unusual([("--small-volumes", [0, usual.small_volumes].contains(&self.small_volumes))])
    }
}

/// Runs the verb on a thread that may enter namespaces.
///
/// # Errors
/// [`LabError`].
pub(crate) fn execute(
    names: &Names,
    programs: &Programs,
    verb: &Verb,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let weed =
        testbed::seaweedfs::install().map_err(|reason| LabError::NoSystem { system: "SeaweedFS", reason })?;
    match verb {
        Verb::Demo => demo::run(names, programs, &weed),
        Verb::Bench(args) => measure::run(names, programs, &weed, args, say),
    }
}
