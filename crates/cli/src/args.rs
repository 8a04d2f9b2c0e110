//! The command line.

mod attach;
mod nodes;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use client::ByteRange;
use cluster::{Bandwidth, ByteSize, Host, Name};
use codes::CodeSpec;
use repair::Scheme;

pub use attach::AttachTo;
pub use nodes::*;

use crate::network::BenchAction;
use crate::recoveries::{CapsArgs, WatchArgs};
use crate::simulate::SimAction;

/// Repairs erasure-coded storage: put files, read them through losses, rebuild what is lost.
#[derive(Debug, Parser)]
#[command(name = "mend", version, propagate_version = true, after_help = AFTER_HELP)]
pub struct Cli {
    /// The cluster folder [default: the nearest ./mend-cluster or folder with a mend.toml, here or above]
    #[arg(long, global = true, env = "MEND_CLUSTER", value_name = "DIR")]
    pub cluster: Option<PathBuf>,
    /// Ask as this client, whose certificate `mend issue client NAME` made [default: admin]
    #[arg(long, global = true, env = "MEND_CLIENT", value_name = "NAME")]
    pub client: Option<Name>,
    /// How facts are printed
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
    /// Say more on stderr; twice for even more (RUST_LOG overrides it)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub verb: Verb,
}

const AFTER_HELP: &str = "\
Exit codes:
  0    done
  1    failed
  2    the command line makes no sense
  3    data is unreadable or damaged: a read that cannot be served, stripes beyond repair, what a scrub found
  4    the coordinator cannot be reached or does not accept our certificate
  130  interrupted
status --check exits as monitors expect: 0 whole, 1 warning, 2 critical, 3 unknown";

/// How facts are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// For machines
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a cluster: its folder with certificates and configuration, and an empty catalog
    Init(InitArgs),
    /// Work beside a storage system that runs already: make the cluster folder, and say what to start
    #[command(subcommand)]
    Attach(AttachTo),
    /// Run the coordinator
    Coordinator(CoordinatorArgs),
    /// Run a helper
    Helper(HelperArgs),
    /// Helpers: list, add, recover, drain, replace, remove them; maintenance; what may be stopped
    #[command(subcommand)]
    Node(NodeAction),
    /// Move blocks from full helpers to empty ones
    Rebalance(RebalanceArgs),
    /// Make a new certificate for a member, or a further client
    Issue(IssueArgs),
    /// Make new certificates for members whose certificates expire soon; daemons take them up without a restart
    Renew(RenewArgs),
    /// Store a file
    Put(PutArgs),
    /// Read a file or a range of it, also through losses
    Get(GetArgs),
    /// List files
    Ls(LsArgs),
    /// Remove files
    Rm(RmArgs),
    /// Show where a file, stripe or block is and how it is
    Stat(StatArgs),
    /// Am I safe? Stripes by what they can still lose, helpers, repairs
    Status(StatusArgs),
    /// What was lost and repaired, when and how fast
    History(HistoryArgs),
    /// Wait until everything is whole, or no repair is under way
    Wait(WaitArgs),
    /// Rebuild what is lost
    Repair(RepairArgs),
    /// Show how repairs go until they end
    Watch(WatchArgs),
    /// Start nothing more of a repair until it is resumed
    Pause(CancelArgs),
    /// Go on with a repair that was paused
    Resume(CancelArgs),
    /// Give a repair up
    Cancel(CancelArgs),
    /// Show what links, disks, racks and regions carry, as far as that is known, and how it is known
    Topology,
    /// Measure what the cluster's links carry
    #[command(subcommand)]
    Bench(BenchAction),
    /// Show or change what repairs may move
    Caps(CapsArgs),
    /// Explain how something would be repaired and what it would cost, without doing it
    Plan(PlanArgs),
    /// Measure the read of a block as if it was lost, by every scheme, beside a plain read of it
    Compare(CompareArgs),
    /// Read every block and hold it against its checksums
    Scrub(ScrubArgs),
    /// Copies of the catalog, and what to do when it is lost or old
    #[command(subcommand)]
    Catalog(CatalogAction),
    /// Foresee how long recoveries take and how long data lasts, of a cluster that need not exist
    #[command(subcommand)]
    Sim(SimAction),
    /// Measure on shaped links: network namespaces on this machine (needs root, and the program `mend-lab`)
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lab(LabArgs),
    /// Print the OpenAPI document of the coordinator's API
    Openapi,
    /// Print the version
    Version,
}

impl Verb {
    /// Where this process stands, if it moves bytes.
    pub fn place(&self) -> Option<&PlaceArgs> {
        match self {
            Self::Put(args) => Some(&args.place),
            Self::Get(args) => Some(&args.place),
            Self::Compare(args) => Some(&args.place),
            _ => None,
        }
    }

    /// Whether a monitor asks.
    pub fn is_check(&self) -> bool {
        matches!(self, Self::Status(args) if args.check)
    }

    /// Whether it runs until it is stopped.
    pub fn is_daemon(&self) -> bool {
        matches!(self, Self::Coordinator(_) | Self::Helper(_))
    }
}

#[derive(Debug, Args)]
pub struct LabArgs {
    /// What `mend-lab` is told; `mend lab --help` shows its own help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct CoordinatorArgs {
    /// Only say in the log what would be repaired without being asked for
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// The folder, new or empty [default: that of --cluster, or ./mend-cluster]
    pub dir: Option<PathBuf>,
    /// Helpers to make, named h1, h2, …
    #[arg(long, default_value_t = 18, value_name = "N")]
    pub helpers: u16,
    /// The code of new stripes, or matrix:FILE for a generator matrix
    #[arg(long, default_value = "rs-14-10", value_parser = code)]
    pub code: CodeSpec,
    /// The size of a block of new stripes
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    pub block_size: ByteSize,
    /// The scheme of reads and repairs that name none
    #[arg(long, default_value = "auto")]
    pub scheme: Scheme,
    /// Whether data edges are encrypted [default: if helpers listen beyond loopback]
    #[arg(long, value_name = "true|false")]
    pub data_tls: Option<bool>,
    /// What everything listens on
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    pub listen: IpAddr,
    /// The host that others dial, if it is not the one listened on
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<Host>,
    /// Port of the coordinator's API; its control port is the next
    #[arg(long, default_value_t = 7400, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..65535))]
    pub coordinator_port: u16,
    /// Port of h1; those of the others follow. 0 lets the system choose each
    #[arg(long, default_value_t = 7410, value_name = "PORT")]
    pub base_port: u16,
}

#[derive(Debug, Args)]
pub struct HelperArgs {
    /// The helper to run, as named in mend.toml
    pub name: Name,
}

#[derive(Debug, Subcommand)]
pub enum CatalogAction {
    /// Copy the catalog while the coordinator runs
    Backup {
        /// The copy, which replaces a file that has this name
        file: PathBuf,
    },
    /// Put a copy in the place of the catalog; the coordinator must not run
    Restore {
        /// The copy
        file: PathBuf,
    },
    /// Make the catalog anew from what the helpers hold; they must run, and the coordinator must not
    Rebuild {
        /// How long helpers that do not answer are waited for
        #[arg(long, default_value_t = 30, value_name = "SECONDS")]
        wait: u64,
    },
    /// Go on with the catalog as it is, though helpers hold blocks that are newer
    Accept {
        /// Only say which helpers claim to hold which blocks
        #[arg(long, conflicts_with = "reject")]
        list: bool,
        /// Do not believe this helper, and change nothing else; until it is taken off the list of helpers
        #[arg(long, value_name = "HELPER")]
        reject: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct ScrubArgs {
    /// Then remove the blocks that no stripe knows and nothing can refer to
    #[arg(long)]
    pub remove_orphans: bool,
    /// Also hold whole stripes against their code's equations, which finds blocks that were replaced with their checksums
    #[arg(long)]
    pub parity: bool,
    /// Stop the scrub that runs; what it has found stays
    #[arg(long, conflicts_with_all = ["remove_orphans", "parity"])]
    pub stop: bool,
}

#[derive(Debug, Args)]
pub struct IssueArgs {
    /// coordinator, helper, client or plugin
    #[arg(value_enum)]
    pub role: RoleKind,
    /// The name of the helper, client or plug-in
    #[arg(required_if_eq_any([("role", "helper"), ("role", "client"), ("role", "plugin")]))]
    pub name: Option<Name>,
    /// How long it is valid, such as 90d [default: 10 years]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub valid_for: Option<std::time::Duration>,
}

#[derive(Debug, Args)]
pub struct RenewArgs {
    /// Those that expire within this time
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = humantime::parse_duration)]
    pub within: std::time::Duration,
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleKind {
    /// The coordinator
    Coordinator,
    /// A helper
    Helper,
    /// A client
    Client,
    /// Part of another system, which has that system's own stripes read and repaired and may do nothing else
    Plugin,
}

#[derive(Debug, Args)]
pub struct PutArgs {
    /// The file on this machine
    pub file: PathBuf,
    /// The name it gets [default: that of the file, without folders]
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// The code of its stripes, such as rs-14-10, or matrix:FILE for a generator matrix [default: the cluster's]
    #[arg(long, value_parser = code)]
    pub code: Option<CodeSpec>,
    /// The size of a block [default: the cluster's]
    #[arg(long, value_name = "SIZE")]
    pub block_size: Option<ByteSize>,
    /// Encode a block chunk by chunk, of a code with sub-blocks [default: as a whole]
    #[arg(long, value_name = "SIZE")]
    pub chunk: Option<ByteSize>,
    /// Take the place of a file that has this name
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub struct GetArgs {
    /// The file's name
    pub name: String,
    /// Where it goes; - is stdout [default: the file's name, without folders, here]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Hold what is read against one block more than it needs, where there is one: finds a helper that lies
    #[arg(long)]
    pub verify: bool,
    /// Only these bytes: FIRST-LAST (both included, from 0), FIRST+LENGTH, or FIRST-
    #[arg(long)]
    pub range: Option<ByteRange>,
    #[command(flatten)]
    pub how: HowArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Where this process stands, and how fast it moves bytes.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Send and receive no faster than this, such as 80mbit or 10MB/s
    #[arg(long, value_name = "RATE")]
    pub limit_rate: Option<Bandwidth>,
    /// The rack that this machine stands in, by its name in mend.toml, so that plans spare the links between racks
    #[arg(long, env = "MEND_RACK", value_name = "NAME")]
    pub rack: Option<String>,
}

/// How what is lost is decoded.
#[derive(Clone, Copy, Debug, Args)]
pub struct HowArgs {
    /// The scheme for what is lost [default: the cluster's]
    #[arg(long)]
    pub scheme: Option<Scheme>,
    /// The size of a slice, 4KiB to 4MiB [default: the planner's choice]
    #[arg(long, value_name = "SIZE", value_parser = slice_bytes)]
    pub slice_size: Option<u32>,
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// Only files whose names begin so
    #[arg(default_value = "")]
    pub prefix: String,
    /// With length, code, stripes and time
    #[arg(short, long)]
    pub long: bool,
}

#[derive(Debug, Args)]
pub struct RmArgs {
    /// The files
    #[arg(required = true)]
    pub names: Vec<String>,
}

#[derive(Debug, Args)]
pub struct StatArgs {
    /// A file, block or stripe
    #[arg(value_name = "NAME|BLOCK|STRIPE")]
    pub target: String,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["target", "all"]))]
pub struct RepairArgs {
    /// A block or a stripe
    #[arg(value_name = "BLOCK|STRIPE")]
    pub target: Option<String>,
    /// Everything that is lost
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub how: HowArgs,
    /// Do not check parity equations of what was rebuilt (digests are checked always)
    #[arg(long)]
    pub no_verify: bool,
    /// Do not wait for its end
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The repair's number
    pub repair: u64,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A block, or a stripe whose lost blocks are meant
    #[arg(value_name = "BLOCK|STRIPE")]
    pub target: String,
    #[command(flatten)]
    pub how: HowArgs,
    /// Compare all schemes in a table
    #[arg(long, conflicts_with = "scheme")]
    pub compare: bool,
    /// Blocks to be taken as lost, by name or index, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "BLOCKS")]
    pub lost: Vec<String>,
    /// The helper that gets the blocks, or `client` for a read [default: what a repair would choose]
    #[arg(long, value_name = "HELPER")]
    pub requestor: Option<String>,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The block, or a file or stripe of which one is taken: a lost one if there is any
    #[arg(value_name = "BLOCK|STRIPE|FILE")]
    pub target: String,
    /// Only these schemes, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_name = "SCHEMES")]
    pub scheme: Vec<Scheme>,
    /// Reads of each; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    pub repeat: u16,
    /// The size of a slice, 4KiB to 4MiB [default: the planner's choice]
    #[arg(long, value_name = "SIZE", value_parser = slice_bytes)]
    pub slice_size: Option<u32>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// A code by its name, or by the file of its generator matrix.
fn code(text: &str) -> Result<CodeSpec, String> {
    let Some(path) = text.strip_prefix("matrix:") else {
        return text.parse().map_err(|error: codes::SpecError| error.to_string());
    };
    let rows = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let generator = codes::Generator::from_text(&rows).map_err(|error| format!("{path}: {error}"))?;
    Ok(CodeSpec::Linear(codes::LinearCode::Explicit(generator.into())))
}

fn slice_bytes(text: &str) -> Result<u32, String> {
    let size: ByteSize = text.parse().map_err(|error: cluster::ParseQuantityError| error.to_string())?;
    let (least, most) = (repair::Geometry::MIN_SLICE_BYTES, repair::Geometry::MAX_SLICE_BYTES);
    u32::try_from(size.bytes())
        .ok()
        .filter(|bytes| (least..=most).contains(bytes) && bytes.is_multiple_of(64))
        .ok_or_else(|| format!("slices have {least} to {most} bytes, in multiples of 64"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn parse(line: &str) -> Result<Verb, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.verb)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_helper_is_run_or_added() {
        assert!(matches!(parse("mend helper h1"), Ok(verb) if verb.is_daemon()));
        let added = parse("mend node add h9 --listen 127.0.0.1:7500 --bandwidth 1gbit");
        assert!(matches!(&added, Ok(Verb::Node(NodeAction::Add(_)))), "{added:?}");
        assert!(parse("mend helper").is_err());
        assert!(parse("mend helper H1").is_err());
    }

    #[test]
    fn an_unknown_scheme_or_code_lists_those_there_are() {
        let text = parse("mend get f --scheme star").unwrap_err().to_string();
        assert!(text.contains("there is no scheme `star`") && text.contains("pipelined"), "{text}");
        let text = parse("mend put f --code raid-6").unwrap_err().to_string();
        assert!(text.contains("there is no code") && text.contains("clay"), "{text}");
        let text = parse("mend put f --code rs-10-14").unwrap_err().to_string();
        assert!(text.contains("n comes first"), "{text}");
    }

    #[test]
    fn a_code_can_be_a_file_of_its_matrix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        std::fs::write(&path, "1 0\n0 1\n1 1\n").unwrap();
        let put = parse(&format!("mend put f --code matrix:{}", path.display()));
        let Ok(Verb::Put(PutArgs { code: Some(code), .. })) = put else { panic!("{put:?}") };
        assert_eq!(code.to_string(), "explicit-3-2-1-x0101");
        let missing = parse("mend put f --code matrix:/nowhere/rows").unwrap_err().to_string();
        assert!(missing.contains("/nowhere/rows: "), "{missing}");
    }

    #[test]
    fn repair_needs_exactly_one_target() {
        let text = parse("mend repair").unwrap_err().to_string();
        assert!(text.contains("<BLOCK|STRIPE|--all>"), "{text}");
        assert_eq!(parse("mend repair 1 --all").unwrap_err().kind(), ErrorKind::ArgumentConflict);
        assert!(parse("mend repair --all --scheme rp --slice-size 64KiB").is_ok());
        assert!(parse("mend repair 1.2 --slice-size 100").is_err());
    }

    #[test]
    fn maintenance_begins_or_ends() {
        assert!(parse("mend node maintenance h1 --for 10m").is_ok());
        assert!(parse("mend node maintenance h1 --end").is_ok());
        assert!(parse("mend node maintenance h1").is_err());
        assert!(parse("mend node maintenance h1 --end --for 10m").is_err());
        assert!(parse("mend node maintenance h1 --for soon").is_err());
        assert!(parse("mend node repair-after never").is_ok() && parse("mend node repair-after 5m").is_ok());
        assert!(parse("mend node repair-after").is_ok() && parse("mend node repair-after maybe").is_err());
    }

    #[test]
    fn globals_may_follow_the_verb() {
        let cli = Cli::try_parse_from(["mend", "status", "--output", "json", "--cluster", "x"]).unwrap();
        assert_eq!((cli.output, cli.cluster), (Format::Json, Some(PathBuf::from("x"))));
    }

    #[test]
    fn all_that_follows_lab_is_for_the_lab() {
        for line in ["mend lab", "mend lab --help", "mend lab up --nodes 3 --output x -v --version"] {
            let Ok(Verb::Lab(LabArgs { words })) = parse(line) else { panic!("{line}") };
            assert_eq!(words, line.split(' ').skip(2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn ranges_are_checked_at_once() {
        assert!(parse("mend get f --range 0-9").is_ok());
        assert!(parse("mend get f --range 9-0").is_err());
    }
}
