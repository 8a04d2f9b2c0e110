//! `mend lab seaweedfs`: a real SeaweedFS cluster on shaped links, with Mend beside it and without.
//!
//! [`Verb::Demo`] tells the story in a few minutes, [`Verb::Bench`] measures and writes `docs/results/seaweedfs.md`. Both end by
//! themselves and leave nothing running.

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

/// What is done with the cluster.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Objects, a server killed, and Mend repairing by itself, beside ec.rebuild on the same loss
    Demo,
    /// Measure losses, a whole server and reads meanwhile, and write a page
    Bench(BenchArgs),
}

/// What is measured.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// The folder for the page
    #[arg(long, default_value = "docs/results", value_name = "DIR")]
    out: PathBuf,
    /// Rates of the links
    #[arg(long, default_values = ["500mbit", "1gbit"], value_delimiter = ',', value_name = "RATE")]
    rates: Vec<Rate>,
    /// Megabytes of the volumes of which shards are lost; a shard is a tenth
    #[arg(long, default_values_t = [660, 1000], value_delimiter = ',', value_name = "MB")]
    volumes: Vec<usize>,
    /// Have Mend encrypt its data edges; SeaweedFS does not
    #[arg(long)]
    encrypted: bool,
    /// Each loss is measured so often
    #[arg(long, default_value_t = 3, value_name = "N")]
    repetitions: usize,
    /// Volumes that a whole server is recovered with; 0 leaves servers and reads out
    #[arg(long, default_value_t = 54, value_name = "N")]
    small_volumes: usize,
    /// Megabytes of each of them
    #[arg(long, default_value_t = 30, value_name = "MB")]
    small_megabytes: usize,
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
    let weed =
        testbed::seaweedfs::install().map_err(|reason| LabError::NoSystem { system: "SeaweedFS", reason })?;
    match verb {
        Verb::Demo => demo::run(names, programs, &weed),
        Verb::Bench(args) => measure::run(names, programs, &weed, args, say),
    }
}
