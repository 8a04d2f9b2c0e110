//! `mend lab seaweedfs`: a real SeaweedFS cluster on shaped links, with and without Mend.
//!
//! [`Verb::Demo`] shows the main points in a few minutes. [`Verb::Bench`] measures and writes
//! `docs/results/seaweedfs.md`. Both end on their own and leave no processes.

mod cluster;
mod demo;
mod losses;
mod measure;
mod page;
mod reads;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::error::LabError;
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// The actions on the cluster.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show a killed server and its automatic repair by Mend, compared with ec.rebuild on the same loss
    Demo,
    /// Measure repairs of lost shards and of a whole server, and reads meanwhile, and write a page
    Bench(BenchArgs),
}

/// Options of the measurement.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The folder for the page
    #[arg(long, default_value = "docs/results", value_name = "DIR")]
    out: PathBuf,
    /// Link rates
    #[arg(long, default_values = ["500mbit", "1gbit"], value_delimiter = ',', value_name = "RATE")]
    rates: Vec<Rate>,
    /// Sizes in MB of the volumes that lose shards; a shard has a tenth of its volume's size
    #[arg(long, default_values_t = [660, 1000], value_delimiter = ',', value_name = "MB")]
    volumes: Vec<usize>,
    /// Encrypt Mend's data edges; SeaweedFS does not encrypt its own
    #[arg(long)]
    encrypted: bool,
    /// Repetitions of each loss
    #[arg(long, default_value_t = 3, value_name = "N")]
    repetitions: usize,
    /// Number of volumes for the recovery of a whole server; 0 skips servers and reads
    #[arg(long, default_value_t = 54, value_name = "N")]
    small_volumes: usize,
    /// Size in MB of each volume for the recovery of a whole server
    #[arg(long, default_value_t = 30, value_name = "MB")]
    small_megabytes: usize,
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
