//! `mend lab hdfs-raid`: measures HDFS-RAID's layout on a real HDFS with shaped links: degraded reads by every scheme,
//! encoding, and the recovery of a DataNode.
//!
//! Every byte that is read is compared with what was stored, and every rebuilt block and its checksums with the lost
//! ones. A report keeps all repetitions, so an interrupted measurement continues on the same commit.

mod codes;
mod detail;
mod encoding;
mod files;
mod measure;
mod page;
mod papers;
mod readers;
mod tables;

use std::process::ExitCode;

use clap::Args;

use self::codes::RaidCode;
use crate::error::LabError;
use crate::folders::{Folders, first_unusual, usual};
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// Options of the measurement.
#[derive(Debug, Args)]
pub struct HdfsRaidArgs {
    /// The folders for results
    #[command(flatten)]
    pub(crate) folders: Folders,
    /// The rate of all links. Two processors are too slow for much faster links between seventeen machines
    #[arg(long, default_value = "200mbit", value_name = "RATE")]
    rate: Rate,
    /// The codes of files whose blocks are read, as N-K
    #[arg(long, default_values = ["9-6", "12-8", "14-10", "16-12", "6-4", "8-6", "10-8", "12-10", "14-12"], value_delimiter = ',', value_name = "N-K")]
    codes: Vec<RaidCode>,
    /// Repetitions of each measurement
    #[arg(long, default_value_t = 3, value_name = "N")]
    repetitions: usize,
    /// Size of the blocks that are read, in MiB
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    block: usize,
    /// Further block sizes for reads with the code 8-6, in MiB
    #[arg(long, default_values = ["32", "128", "192"], value_delimiter = ',', value_name = "MIB")]
    sizes: Vec<usize>,
    /// Number of stripes of the file that is encoded; 0 skips encoding
    #[arg(long, default_value_t = 4, value_name = "N")]
    stripes: usize,
    /// Size of its blocks, in MiB
    #[arg(long, default_value_t = 16, value_name = "MIB")]
    encoded_block: usize,
    /// Approximate number of blocks on a lost DataNode; 0 skips the recovery of DataNodes
    #[arg(long, default_value_t = 40, value_name = "N")]
    blocks: usize,
    /// Size of these blocks, in MiB
    #[arg(long, default_value_t = 8, value_name = "MIB")]
    small_block: usize,
}

impl HdfsRaidArgs {
    /// Returns the option that makes the measurement a trial, if one does: its value is not the usual one, and does not identify
    /// a result.
    pub(crate) fn trial(&self) -> Option<&'static str> {
        let usual: Self = usual();
        first_unusual([
            ("--stripes", [0, usual.stripes].contains(&self.stripes)),
            ("--blocks", [0, usual.blocks].contains(&self.blocks)),
        ])
    }
}

/// Runs the measurement on a thread that may enter namespaces.
///
/// # Errors
/// [`LabError`].
pub(crate) fn execute(
    names: &Names,
    programs: &Programs,
    args: &HdfsRaidArgs,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    measure::run(names, programs, args, say)
}
