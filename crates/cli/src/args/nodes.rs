//! `mend node …`, and what else an operator says.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use cluster::{Address, Bandwidth, Name, RepairAfter};

use crate::recoveries::WholeNode;

#[derive(Debug, Subcommand)]
pub enum NodeAction {
    /// List the helpers
    List,
    #[command(flatten)]
    Whole(WholeNode),
    /// Add a helper to mend.toml and make its certificate (where `mend init` ran)
    Add(AddNodeArgs),
    /// Take a helper off the list that is down and holds nothing that is needed
    Remove {
        /// The helper
        #[arg(value_name = "NODE")]
        node: Name,
    },
    /// Leave a helper alone for some time: what it holds is not rebuilt elsewhere while somebody works on it
    #[command(group = ArgGroup::new("when").required(true))]
    Maintenance {
        /// The helper
        #[arg(value_name = "NODE")]
        node: Name,
        /// For how long, such as 10m or 2h
        #[arg(long = "for", group = "when", value_name = "TIME", value_parser = time)]
        time: Option<Duration>,
        /// It is done
        #[arg(long, group = "when")]
        end: bool,
    },
    /// Could everything still be read, and lose another block, if these helpers were stopped? Exits with 0 if so, 1 if not
    OkToStop {
        #[command(flatten)]
        args: NodesArgs,
        /// How many further blocks every stripe must still be able to lose
        #[arg(long, value_name = "N", default_value_t = 1)]
        leave: u32,
    },
    /// May these helpers be taken away for good? Exits with 0 if so, 1 if not
    SafeToRemove(NodesArgs),
    /// Bring all that a helper has, or had, to another one
    Replace {
        /// The helper that leaves
        #[arg(value_name = "OLD")]
        old: Name,
        /// The one that takes its place, which must be up
        #[arg(value_name = "NEW")]
        new: Name,
        /// Do not wait for its end
        #[arg(long)]
        no_wait: bool,
    },
    /// Show or set how long a helper may be gone before its blocks are rebuilt elsewhere
    RepairAfter {
        /// A time such as 10m, never, or default (what mend.toml says)
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
    /// Its name
    pub name: Name,
    /// Where it listens for data of other helpers
    #[arg(long, value_name = "IP:PORT")]
    pub listen: SocketAddr,
    /// What others dial, if it differs
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<Address>,
    /// Its block folder [default: helpers/NAME/blocks in the cluster folder]
    #[arg(long, value_name = "DIR")]
    pub blocks: Option<PathBuf>,
    /// The rack it stands in
    #[arg(long)]
    pub rack: Option<String>,
    /// Its link, such as 1gbit or 100MB/s
    #[arg(long)]
    pub bandwidth: Option<Bandwidth>,
}

#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Say one line and exit as monitors expect: 0 whole, 1 warning, 2 critical, 3 unknown
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Args)]
pub struct RebalanceArgs {
    /// Only say what would move
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait for its end
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
pub struct WaitArgs {
    /// What is waited for
    #[arg(long = "for", value_enum, value_name = "WHAT")]
    pub what: WaitFor,
    /// Give up after this long, such as 10m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    /// Every stripe is whole
    Safe,
    /// No repair is under way or waiting
    Done,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The last so many entries
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    pub last: usize,
}

fn time(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write a time such as 10m or 2h"))
}

fn repair_after(text: &str) -> Result<String, String> {
    match text {
        "default" => Ok(text.to_owned()),
        _ => text.parse::<RepairAfter>().map(|after| after.to_string()).map_err(|error| error.to_string()),
    }
}
