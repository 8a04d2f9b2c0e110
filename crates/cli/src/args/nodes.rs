//! Arguments of `mend node …` and of other operator verbs.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use cluster::{Address, Bandwidth, Name, RepairAfter};

use super::times::{moment, time};
use crate::recoveries::WholeNode;

#[derive(Debug, Subcommand)]
pub enum NodeAction {
    /// List the helpers
    #[command(after_help = "Example: mend node list")]
    List,
    #[command(flatten)]
    Whole(WholeNode),
    /// Add a helper to mend.toml and make its certificate; run this command where `mend init` ran
    #[command(after_help = "Example: mend node add h7 --listen 10.0.0.7:7410")]
    Add(AddNodeArgs),
    /// Remove a helper that is down and holds no needed blocks
    #[command(after_help = "Example: mend node remove h7")]
    Remove {
        /// The helper to remove
        #[arg(value_name = "NODE")]
        node: Name,
    },
    /// Put a helper into maintenance; until the maintenance ends, its blocks are not rebuilt elsewhere
    #[command(group = ArgGroup::new("when").required(true))]
    #[command(after_help = "Example: mend node maintenance h7 --for 2h")]
    Maintenance {
        /// The helper
        #[arg(value_name = "NODE")]
        node: Name,
        /// Duration, such as 10m or 2h
        #[arg(long = "for", group = "when", value_name = "TIME", value_parser = time)]
        time: Option<Duration>,
        /// End the maintenance
        #[arg(long, group = "when")]
        end: bool,
    },
    /// Check whether helpers may be stopped: all stripes must stay readable and be able to lose another
    /// helper. Exits with 0 if the helpers may be stopped, 1 if not
    #[command(after_help = "Example: mend node ok-to-stop h7 h8")]
    OkToStop {
        #[command(flatten)]
        args: NodesArgs,
        /// Number of further helpers that every stripe must be able to lose
        #[arg(long, value_name = "N", default_value_t = 1)]
        leave: u32,
    },
    /// Check whether helpers may be removed permanently: they must hold no blocks. Exits with 0 if the
    /// helpers may be removed, 1 if not
    #[command(after_help = "Example: mend node safe-to-remove h7")]
    SafeToRemove(NodesArgs),
    /// Move all blocks of a helper, whether it is up or down, to another helper
    #[command(after_help = "Example: mend node replace h7 h9")]
    Replace {
        /// The helper to empty
        #[arg(value_name = "OLD")]
        old: Name,
        /// The helper that receives the blocks; it must be up
        #[arg(value_name = "NEW")]
        new: Name,
        /// Return without waiting for the repair to end
        #[arg(long)]
        no_wait: bool,
    },
    /// Show or set how long a helper may be down before its blocks are rebuilt elsewhere
    #[command(after_help = "Example: mend node repair-after 30m")]
    RepairAfter {
        /// A duration such as 10m, or never, or default (the value in mend.toml)
        #[arg(value_name = "TIME|never|default", value_parser = repair_after)]
        after: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct NodesArgs {
    /// The helpers
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<Name>,
}

#[derive(Debug, Args)]
pub struct AddNodeArgs {
    /// The helper's name
    pub name: Name,
    /// The address where the helper listens for connections of other helpers and of clients
    #[arg(long, value_name = "IP:PORT")]
    pub listen: SocketAddr,
    /// The address for other machines to connect to, if it differs from the listen address
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<Address>,
    /// The block folder [default: helpers/NAME/blocks in the cluster folder]
    #[arg(long, value_name = "DIR")]
    pub blocks: Option<PathBuf>,
    /// The rack, as named in mend.toml
    #[arg(long)]
    pub rack: Option<String>,
    /// Link bandwidth, such as 1gbit or 100MB/s
    #[arg(long)]
    pub bandwidth: Option<Bandwidth>,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Print one line and exit as monitoring systems expect: 0 healthy, 1 warning, 2 critical, 3 unknown
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Args)]
pub struct RebalanceArgs {
    /// Print the moves without making them
    #[arg(long)]
    pub dry_run: bool,
    /// Return without waiting for the moves to end
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The state to wait for
    #[arg(long = "for", value_enum, value_name = "WHAT")]
    pub what: WaitFor,
    /// Give up after this time, such as 10m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
}

/// The state to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    /// Every stripe is healthy
    Safe,
    /// No repair is queued or running
    Done,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The number of entries to show [default: 50, or all with --since]
    #[arg(short = 'n', long, value_name = "N")]
    pub last: Option<NonZero<usize>>,
    /// Show entries since this time: 2h, or 2026-11-26T17:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<SystemTime>,
}

fn repair_after(text: &str) -> Result<String, String> {
    match text {
        "default" => Ok(text.to_owned()),
        _ => text.parse::<RepairAfter>().map(|after| after.to_string()).map_err(|error| error.to_string()),
    }
}
