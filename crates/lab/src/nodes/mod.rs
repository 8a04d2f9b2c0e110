//! `mend lab nodes`: recovery and drain of whole nodes on shaped links, with real processes. A node is killed
//! and recovered under every policy, or drained in every way, also with caps and concurrent reads. Every
//! block is compared afterwards.
//!
//! All measurements of one kind of cluster start with the same stripes on the same nodes: the cluster folder
//! is restored before each measurement.

mod cluster;
pub mod fastpr;
mod measure;
mod page;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::error::LabError;
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::run::Say;
use crate::topology::Rate;

/// Options of the measurement.
#[derive(Debug, Args)]
pub struct NodesArgs {
    /// The folder for the page
    #[arg(long, default_value = "docs/results", value_name = "DIR")]
    out: PathBuf,
    /// Rate of every helper's link
    #[arg(long, default_value = "100mbit", value_name = "RATE")]
    rate: Rate,
    /// Only run parts whose name contains this: issue, policies, requestors, drains, caps, reads, small
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Repetitions of each recovery in the first part
    #[arg(long, default_value_t = 3, value_name = "N")]
    repetitions: usize,
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
const SMALL: Setup = Setup { block_bytes: 4 << 10, stripes: 1_000, ..WIDE };

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
