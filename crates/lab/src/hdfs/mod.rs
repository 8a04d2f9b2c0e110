//! `mend lab hdfs`: measures a real HDFS on shaped links. HDFS repairs first alone, then with Mend.
//!
//! Every rebuilt block and its checksums are compared byte for byte with the lost block, and the bytes of all
//! reads with the stored data. A report keeps all repetitions, so partial and interrupted measurements add to the same
//! page on the same commit. The measurement ends on its own and leaves no processes.

pub(crate) mod cluster;
mod commands;
mod detail;
mod during;
pub(crate) mod losses;
mod measure;
pub(crate) mod nodes;
mod page;
pub(crate) mod reads;
mod tables;
mod targets;
mod tasks;
mod ways;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use testbed::hdfs::Hadoop;

use self::cluster::Policy;
use self::tasks::Part;
use self::ways::Way;
use crate::error::LabError;
use crate::folders::{Folders, first_unusual, usual};
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// The actions on the cluster.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Measure repairs of single blocks and of whole DataNodes, and small reads, and write a page; takes an hour and a
    /// half with the default options, and continues where it was interrupted
    #[command(after_help = EXAMPLES)]
    Bench(BenchArgs),
}

const EXAMPLES: &str = "\
Runs on the same commit and machine add to the same page. Longer matrices:

  mend lab hdfs bench --parts nodes --rates 100mbit          whole DataNodes behind slower links (an hour and a half)
  mend lab hdfs bench --parts nodes --by \"HDFS, 20 streams\" --by \"Mend, commanded, 20 streams\"   (an hour)
  mend lab hdfs bench --parts one-target --small-block 64 --repetitions 1   (half an hour)
  mend lab hdfs bench --parts nodes --by \"Mend, asked\" --policies RS-6-3   (a quarter of an hour)";

/// Options of the measurement.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The folders for results
    #[command(flatten)]
    pub(crate) folders: Folders,
    /// The parts to measure
    #[arg(long, value_enum, default_values = ["blocks", "cold", "nodes", "reads", "reads-during"], value_delimiter = ',', value_name = "PART")]
    parts: Vec<Part>,
    /// Link rates for single blocks and whole DataNodes; the other parts use the first one. Two processors are too slow
    /// for much faster links between fifteen machines
    #[arg(long, default_values = ["200mbit"], value_delimiter = ',', value_name = "RATE")]
    rates: Vec<Rate>,
    /// The erasure coding policies
    #[arg(long, default_values = ["RS-6-3", "RS-10-4"], value_delimiter = ',', value_name = "POLICY", value_parser = ["RS-6-3", "RS-10-4"])]
    policies: Vec<String>,
    /// Who repairs; may be repeated. "HDFS, 20 streams" and "Mend, commanded, 20 streams" repair whole DataNodes only
    #[arg(long, default_values = ["HDFS", "Mend, asked", "Mend, commanded"], value_name = "NAME")]
    by: Vec<Way>,
    /// Repetitions of each repair
    #[arg(long, default_value_t = 3, value_name = "N")]
    repetitions: usize,
    /// Size of an internal block for single losses and reads, in MiB
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    block: usize,
    /// Approximate number of blocks on a lost DataNode; fewer if they would exceed 512 MiB
    #[arg(long, default_value_t = 40, value_name = "N")]
    blocks: usize,
    /// Sizes of a block for lost DataNodes, in MiB; reads during a recovery use the first one
    #[arg(long, default_values_t = [8, 64], value_delimiter = ',', value_name = "MIB")]
    small_block: Vec<usize>,
    /// Number of small reads of each kind
    #[arg(long, default_value_t = 1000, value_name = "N")]
    reads: usize,
    /// Repetitions of recoveries during which a client reads
    #[arg(long, default_value_t = 1, value_name = "N")]
    during: usize,
}

impl BenchArgs {
    /// Whether the user wants measurements under this policy.
    fn measures(&self, policy: &Policy) -> bool {
        self.policies.iter().any(|name| policy.name.starts_with(name))
    }

    /// Returns the option that makes the measurement a trial, if one does: its value is not the usual one, and does not identify
    /// a result.
    pub(crate) fn trial(&self) -> Option<&'static str> {
        let usual: Self = usual();
        first_unusual([("--blocks", self.blocks == usual.blocks), ("--reads", self.reads == usual.reads)])
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
