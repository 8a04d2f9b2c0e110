//! `mend lab hdfs`: measures a real HDFS on shaped links. HDFS repairs first alone, then with Mend.
//!
//! Every rebuilt block and its checksums are compared byte for byte with the lost block, and the bytes of all
//! reads with the stored data. The measurement ends on its own and leaves no processes.

pub(crate) mod cluster;
pub(crate) mod losses;
mod measure;
pub(crate) mod nodes;
mod page;
pub(crate) mod reads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use testbed::hdfs::Hadoop;

use self::cluster::Policy;
use crate::error::LabError;
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// The actions on the cluster.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Measure repairs of single blocks and of whole DataNodes, and small reads, and write a page
    Bench(BenchArgs),
}

/// Options of the measurement.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The folder for the page
    #[arg(long, default_value = "docs/results", value_name = "DIR")]
    out: PathBuf,
    /// Link rates for single blocks; whole DataNodes and reads use the first one. Two processors are too slow for
    /// much faster links between fifteen machines
    #[arg(long, default_values = ["200mbit"], value_delimiter = ',', value_name = "RATE")]
    rates: Vec<Rate>,
    /// The erasure coding policies
    #[arg(long, default_values = ["RS-6-3", "RS-10-4"], value_delimiter = ',', value_name = "POLICY", value_parser = ["RS-6-3", "RS-10-4"])]
    policies: Vec<String>,
    /// Only the recoveries of whole DataNodes whose names in the table begin so, such as "Mend, asked" [default: all]
    #[arg(long, value_name = "NAME")]
    by: Vec<String>,
    /// Repetitions of each single loss; 0 skips these losses
    #[arg(long, default_value_t = 3, value_name = "N")]
    repetitions: usize,
    /// Size of an internal block for single losses, in MiB
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    block: usize,
    /// Approximate number of blocks on a lost DataNode; 0 skips whole DataNodes
    #[arg(long, default_value_t = 40, value_name = "N")]
    blocks: usize,
    /// Size of a block for lost DataNodes, in MiB
    #[arg(long, default_value_t = 8, value_name = "MIB")]
    small_block: usize,
    /// Number of small reads of each kind; 0 skips the reads
    #[arg(long, default_value_t = 300, value_name = "N")]
    reads: usize,
}

impl BenchArgs {
    /// Whether the user wants the recovery with this name.
    fn names(&self, who: &str) -> bool {
        self.by.is_empty() || self.by.iter().any(|name| who.starts_with(name))
    }

    /// Whether the user wants measurements under this policy.
    fn measures(&self, policy: &Policy) -> bool {
        self.policies.iter().any(|name| policy.name.starts_with(name))
    }
}

/// Runs the measurement on a thread that may enter namespaces.
///
/// # Errors
/// [`LabError`].
pub(crate) fn execute(
    names: &Names,
    programs: &Programs,
    verb: &Verb,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    match verb {
        Verb::Bench(args) => measure::run(names, programs, hadoop()?, args, say),
    }
}

/// Installs Hadoop, whose daemons use all of the JVM's compilers.
///
/// # Errors
/// [`LabError::NoSystem`].
pub(crate) fn hadoop() -> Result<Hadoop, LabError> {
    let no_hdfs = |reason| LabError::NoSystem { system: "HDFS", reason };
    Ok(Hadoop::install().map_err(no_hdfs)?.optimized())
}
