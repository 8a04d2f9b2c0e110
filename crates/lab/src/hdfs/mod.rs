//! `mend lab hdfs`: a real HDFS on shaped links, which rebuilds by itself and then has Mend do it.
//!
//! Every block that was made is held against the lost one, byte for byte with its checksums, and what was read against what was
//! stored. It ends by itself and leaves nothing running.

mod cluster;
mod losses;
mod measure;
mod nodes;
mod page;
mod reads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use testbed::hdfs::Hadoop;

use crate::error::LabError;
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// What is done with the cluster.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Measure lost blocks, whole DataNodes and small reads, and write a page
    Bench(BenchArgs),
}

/// What is measured.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The folder for the page
    #[arg(long, default_value = "docs/results", value_name = "DIR")]
    out: PathBuf,
    /// Rates of the links for single blocks; whole DataNodes and reads are measured at the first
    #[arg(long, default_values = ["1gbit", "500mbit"], value_delimiter = ',', value_name = "RATE")]
    rates: Vec<Rate>,
    /// Each single loss is measured so often
    #[arg(long, default_value_t = 3, value_name = "N")]
    repetitions: usize,
    /// MiB of an internal block where one is lost
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    block: usize,
    /// Blocks of a DataNode that is lost, about; 0 leaves DataNodes out
    #[arg(long, default_value_t = 68, value_name = "N")]
    blocks: usize,
    /// MiB of each of them
    #[arg(long, default_value_t = 8, value_name = "MIB")]
    small_block: usize,
    /// Small reads of each kind; 0 leaves them out
    #[arg(long, default_value_t = 300, value_name = "N")]
    reads: usize,
}

/// Carries it out, on a thread that may go elsewhere.
///
/// # Errors
/// [`LabError`].
pub(crate) fn execute(
    names: &Names,
    programs: &Programs,
    verb: &Verb,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let no_hdfs = |reason| LabError::NoSystem { system: "HDFS", reason };
    let hadoop = Hadoop::install().map_err(no_hdfs)?.optimized();
    match verb {
        Verb::Bench(args) => measure::run(names, programs, hadoop, args, say),
    }
}
