//! `mend lab nodes`: recovery and drain of whole nodes on shaped links, with real processes. A node is killed
//! and recovered under every policy, or drained in every way, also with caps and concurrent reads. Every
//! block is compared afterwards, and Mend's default way is judged by its targets.
//!
//! All measurements of one kind of cluster start with the same stripes on the same nodes: the cluster folder
//! is restored before each measurement. A report keeps the results of each part, so an interrupted
//! measurement continues on the same commit.

mod caps;
mod cluster;
pub mod fastpr;
mod measure;
mod page;
mod reads;
mod report;
mod small;
mod verdicts;
mod whole;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::error::LabError;
use crate::folders::{Folders, first_unusual, usual};
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// Options of the measurement.
#[derive(Debug, Args)]
pub struct NodesArgs {
    /// The folders for results
    #[command(flatten)]
    pub(crate) folders: Folders,
    /// Rate of every helper's link
    #[arg(long, default_value = "100mbit", value_name = "RATE")]
    rate: Rate,
    /// Measure these parts, separated by commas; without this option, those that the report lacks, or all
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = PossibleValuesParser::new(measure::names()))]
    only: Vec<String>,
    /// Repetitions of each recovery and drain in Mend's default way, and of reads; other ways are measured
    /// once
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Approximate number of 64 KiB blocks on the lost node in the part `many`
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    small_blocks: u64,
}

impl NodesArgs {
    /// Returns the option that makes the measurement a trial, if one does: its value is not that of the page.
    pub(crate) fn trial(&self) -> Option<&'static str> {
        let usual: Self = usual();
        first_unusual([
            ("--rate", self.rate == usual.rate),
            ("--repetitions", self.repetitions == usual.repetitions),
            ("--small-blocks", self.small_blocks == usual.small_blocks),
        ])
    }
}

/// The size and content of a cluster before a node is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setup {
    helpers: u16,
    /// The number of helpers that hold no blocks; these are the last helpers.
    spare: u16,
    code: &'static str,
    data_blocks: u64,
    blocks: u64,
    block_bytes: u64,
    stripes: u64,
}

/// 225 blocks on 14 helpers, about 16 on each.
const SIXTEEN_LOST: Setup = Setup {
    helpers: 14,
    spare: 0,
    code: "rs-9-6",
    data_blocks: 6,
    blocks: 9,
    block_bytes: 16 << 20,
    stripes: 25,
};
const WIDE: Setup = Setup {
    helpers: 16,
    spare: 0,
    code: "rs-9-6",
    data_blocks: 6,
    blocks: 9,
    block_bytes: 8 << 20,
    stripes: 64,
};

/// The stripes of `WIDE` on 16 helpers, plus 16 empty helpers to receive blocks.
const SPARED: Setup = Setup { helpers: 32, spare: 16, ..WIDE };
/// Small blocks: a repair costs little more than planning, dispatch and publishing.
const TINY: Setup = Setup { block_bytes: 4 << 10, stripes: 1_000, ..WIDE };
/// The size of the blocks in the part `many`, in bytes: that of small objects.
const SMALL_OBJECT: u64 = 64 << 10;

/// The caps on all repairs together, as text and in bits per second: the initial cap, and the one set while a
/// repair runs. The first one also caps a recovery during reads.
const TOTAL_CAPS: [(&str, f64); 2] = [("160Mbit", 160e6), ("320Mbit", 320e6)];
/// The time after which a recovery begins that finds reads running.
const LATER: Duration = Duration::from_secs(2);

/// Returns a cluster in which each node holds about this number of small blocks.
fn many(blocks: u64) -> Setup {
    let stripes = (blocks * u64::from(WIDE.helpers)).div_ceil(WIDE.blocks);
    Setup { block_bytes: SMALL_OBJECT, stripes, ..WIDE }
}

impl Setup {
    /// The number of stripes in each file. Reads need files of one stripe; with small blocks, which are not
    /// read, files of many stripes are stored faster.
    const fn stripes_per_file(&self) -> u64 {
        if self.block_bytes <= SMALL_OBJECT { 100 } else { 1 }
    }
}

/// Runs the measurements and writes `nodes.md`.
///
/// # Errors
/// [`LabError`].
pub(crate) fn execute(
    names: &Names,
    programs: &Programs,
    args: &NodesArgs,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    measure::run(names, programs, args, say)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: NodesArgs,
    }

    impl NodesArgs {
        pub(super) fn of(words: &[&str]) -> Result<Self, clap::Error> {
            Line::try_parse_from(["nodes"].iter().chain(words)).map(|line| line.args)
        }
    }

    #[test]
    fn parts_are_named_exactly() {
        assert_eq!(NodesArgs::of(&["--only", "small,reads"]).unwrap().only, ["small", "reads"]);
        let error = NodesArgs::of(&["--only", "read"]).unwrap_err().to_string();
        assert!(error.contains("sixteen, policies, drains, caps, reads, requestors, small, many"), "{error}");
        assert!(NodesArgs::of(&["--repetitions", "0"]).is_err());
        assert_eq!(NodesArgs::of(&[]).unwrap().repetitions, 3);
    }

    #[test]
    fn many_small_blocks_are_on_each_node() {
        let setup = many(2000);
        assert_eq!((setup.stripes, setup.stripes * setup.blocks / u64::from(setup.helpers)), (3556, 2000));
        assert_eq!((setup.stripes_per_file(), WIDE.stripes_per_file()), (100, 1));
    }
}
