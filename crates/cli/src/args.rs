//! The command line, as clap parses it.

mod attach;
mod nodes;
pub mod times;

use std::ffi::OsString;
use std::net::IpAddr;
use std::num::NonZero;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use client::{ByteRange, ConditionCode};
use cluster::{Bandwidth, ByteSize, Host, Name};
use codes::CodeSpec;
use repair::Scheme;

pub use attach::AttachTo;
pub use nodes::*;
use times::{seconds_or_time, time};

use crate::format::size;
use crate::network::BenchAction;
use crate::raid::RaidAction;
use crate::recoveries::CapsArgs;
use crate::simulate::SimAction;
use crate::watching::WatchArgs;

/// Repairs erasure-coded storage: stores files, reads them despite lost blocks, rebuilds lost blocks
#[derive(Debug, Parser)]
#[command(name = "mend", version, propagate_version = true, after_help = AFTER_HELP)]
pub struct Cli {
    /// The cluster folder [default: the nearest ./mend-cluster or folder with a mend.toml, in this folder or
    /// a parent]
    #[arg(long, global = true, env = "MEND_CLUSTER", value_name = "DIR")]
    pub cluster: Option<PathBuf>,
    /// The client, operator or admin whose certificate to use; `mend issue` makes it [default: admin]
    #[arg(long = "as", global = true, env = "MEND_AS", value_name = "NAME")]
    pub member: Option<Name>,
    /// Output format
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub output: Format,
    /// Log more to stderr; twice for even more (RUST_LOG takes precedence)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Format of the log: text or JSON lines on stderr, or the journal of systemd
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub log: LogFormat,
    #[command(subcommand)]
    pub verb: Verb,
}

const AFTER_HELP: &str = "\
Exit codes:
  0    done
  1    failed
  2    invalid command line
  3    data is unreadable or damaged: a failed read, unrepairable stripes, findings of a scrub
  4    the coordinator is unreachable or rejects our certificate
  130  interrupted
status --check and raid status --check exit as monitoring systems expect:
0 healthy, 1 warning, 2 critical, 3 unknown";

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people
    Text,
    /// A JSON object per line, for log collectors
    Json,
    /// The journal of systemd, with fields
    Journald,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people
    Text,
    /// JSON for programs
    Json,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a cluster: a folder with configuration and certificates, and an empty catalog
    #[command(after_help = "Example: mend init --helpers 6 --code rs-6-4")]
    Init(InitArgs),
    /// Attach to a running storage system: create the cluster folder and print what to start on each server
    #[command(subcommand)]
    Attach(AttachTo),
    /// Run the coordinator
    #[command(after_help = "Example: mend coordinator")]
    Coordinator(CoordinatorArgs),
    /// Run a helper
    #[command(after_help = "Example: mend helper h1")]
    Helper(HelperArgs),
    /// Manage helpers: list, add, recover, drain, replace, remove, maintenance, safety checks
    #[command(subcommand)]
    Node(NodeAction),
    /// Move blocks from full helpers to empty ones
    #[command(after_help = "Example: mend rebalance --dry-run")]
    Rebalance(RebalanceArgs),
    /// Make a new certificate for a member, or for another client
    #[command(after_help = "Example: mend issue client alice --valid-for 90d")]
    Issue(IssueArgs),
    /// Make new certificates for members whose certificates expire soon; daemons load them without a restart
    #[command(after_help = "Example: mend renew --within 60d")]
    Renew(RenewArgs),
    /// Store a file
    #[command(after_help = "Example: mend put film.mkv --name films/film.mkv")]
    Put(PutArgs),
    /// Read a file or a byte range, rebuilding lost blocks on the fly
    #[command(after_help = "Example: mend get films/film.mkv -o film.mkv --range 0+64")]
    Get(GetArgs),
    /// List files
    #[command(after_help = "Example: mend ls -l films/")]
    Ls(LsArgs),
    /// Remove files
    #[command(after_help = "Example: mend rm films/film.mkv")]
    Rm(RmArgs),
    /// Show the location and state of a file, stripe or block
    #[command(after_help = "Example: mend stat films/film.mkv")]
    Stat(StatArgs),
    /// Show whether data is safe: stripes by remaining redundancy, helpers, repairs
    #[command(after_help = "Example: mend status --check")]
    Status(StatusArgs),
    /// Mute a condition of the cluster: it no longer counts for status --check
    #[command(after_help = "Example: mend mute NEARFULL --for 4h")]
    Mute(MuteArgs),
    /// End the mute of a condition
    #[command(after_help = "Example: mend unmute NEARFULL")]
    Unmute(UnmuteArgs),
    /// List losses and repairs, with times and rates
    #[command(after_help = "Example: mend history -n 20")]
    History(HistoryArgs),
    /// List the requests that changed something: by whom, from where, with which arguments and result
    #[command(after_help = "Example: mend audit --since 2d")]
    Audit(HistoryArgs),
    /// Wait until every stripe is healthy, or until no repair is queued or running
    #[command(after_help = "Example: mend wait --for safe --timeout 10m")]
    Wait(WaitArgs),
    /// Rebuild lost blocks
    #[command(after_help = "Example: mend repair --all")]
    Repair(RepairArgs),
    /// Follow repairs until they end, or every event (--events)
    #[command(after_help = "Example: mend watch 7")]
    Watch(WatchArgs),
    /// Show where the time of a repair went, step by step and stripe by stripe
    #[command(after_help = "Example: mend timeline 7")]
    Timeline(TimelineArgs),
    /// Pause a repair; rebuilt data is kept
    #[command(after_help = "Example: mend pause 7")]
    Pause(CancelArgs),
    /// Resume a paused repair
    #[command(after_help = "Example: mend resume 7")]
    Resume(CancelArgs),
    /// Cancel a repair
    #[command(after_help = "Example: mend cancel 7")]
    Cancel(CancelArgs),
    /// Show the capacity of links, disks, racks and regions, and where each figure comes from
    #[command(after_help = "Example: mend topology --output json")]
    Topology,
    /// Measure the bandwidth of the cluster's links
    #[command(subcommand)]
    Bench(BenchAction),
    /// Show or change the bandwidth caps of repairs
    #[command(after_help = "Example: mend caps --total 500Mbit --node h1=50MB/s")]
    Caps(CapsArgs),
    /// Show the plan and cost of a repair without running it
    #[command(after_help = "Example: mend plan 17.3 --compare")]
    Plan(PlanArgs),
    /// Time degraded reads of one block with every scheme against a direct read
    #[command(after_help = "Example: mend compare 17.3 --scheme conventional,pipelined")]
    Compare(CompareArgs),
    /// Read every block and verify its checksums
    #[command(after_help = "Example: mend scrub --parity")]
    Scrub(ScrubArgs),
    /// Back up the catalog, and recover from a lost or outdated one
    #[command(subcommand)]
    Catalog(CatalogAction),
    /// Encode replicated files in HDFS, in the layout of HDFS-RAID; plan this, examine encoded files, or undo it
    #[command(subcommand)]
    Raid(RaidAction),
    /// Simulate recovery time and durability of a cluster; needs no running cluster
    #[command(subcommand)]
    Sim(SimAction),
    /// Run measurements on shaped links in network namespaces (needs root and the program `mend-lab`)
    #[command(disable_help_flag = true, disable_version_flag = true)]
    #[command(after_help = "Example: mend lab check --nodes 4")]
    Lab(LabArgs),
    /// Print the OpenAPI document of the coordinator's API
    #[command(after_help = "Example: mend openapi")]
    Openapi,
    /// Print the version
    #[command(after_help = "Example: mend version")]
    Version,
}

impl Verb {
    /// Returns the network position and rate limit of this process, for verbs that transfer blocks.
    pub fn place(&self) -> Option<&PlaceArgs> {
        match self {
            Self::Put(args) => Some(&args.place),
            Self::Get(args) => Some(&args.place),
            Self::Compare(args) => Some(&args.place),
            _ => None,
        }
    }

    /// Whether the verb is a monitoring check (`status --check`, `raid status --check`).
    pub fn is_check(&self) -> bool {
        match self {
            Self::Status(args) => args.check,
            Self::Raid(RaidAction::Status(args)) => args.check,
            _ => false,
        }
    }

    /// Whether the verb is a daemon, which runs until it is stopped.
    pub fn is_daemon(&self) -> bool {
        matches!(self, Self::Coordinator(_) | Self::Helper(_))
    }
}

#[derive(Debug, Args)]
pub struct LabArgs {
    /// Arguments for `mend-lab`; `mend lab --help` shows its own help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct CoordinatorArgs {
    /// Log automatic repairs instead of running them
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// The cluster folder, new or empty [default: that of --cluster, or ./mend-cluster]
    pub dir: Option<PathBuf>,
    /// Number of helpers, named h1, h2, …
    #[arg(long, default_value_t = 18, value_name = "N")]
    pub helpers: u16,
    /// Code of new stripes, or matrix:FILE for a generator matrix
    #[arg(long, default_value = "rs-14-10", value_parser = code)]
    pub code: CodeSpec,
    /// Block size of new stripes
    #[arg(long, default_value = "64MiB", value_name = "SIZE", value_parser = cluster::parse_block_size)]
    pub block_size: ByteSize,
    /// Default scheme of reads and repairs
    #[arg(long, default_value = "auto")]
    pub scheme: Scheme,
    /// Whether to encrypt data edges, the connections that carry blocks [default: true if a helper listens on
    /// an address other than loopback]
    #[arg(long, value_name = "true|false")]
    pub data_tls: Option<bool>,
    /// Listen address of the coordinator and the helpers
    #[arg(long, default_value = "127.0.0.1", value_name = "IP")]
    pub listen: IpAddr,
    /// Host name or address for other machines to connect to, if it differs from the listen address
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<Host>,
    /// Port of the coordinator's API; the control port is the next one
    #[arg(long, default_value_t = 7400, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..65535))]
    pub coordinator_port: u16,
    /// Port of h1; the other helpers use the next ports. 0 picks a free port for each
    #[arg(long, default_value_t = 7410, value_name = "PORT")]
    pub base_port: u16,
}

#[derive(Debug, Args)]
pub struct HelperArgs {
    /// The helper's name in mend.toml
    pub name: Name,
}

#[derive(Debug, Subcommand)]
pub enum CatalogAction {
    /// Copy the catalog while the coordinator runs
    #[command(after_help = "Example: mend catalog backup /backup/catalog.redb")]
    Backup {
        /// The file to write; an existing file is replaced
        file: PathBuf,
    },
    /// Replace the catalog with a copy; stop the coordinator first
    #[command(after_help = "Example: mend catalog restore /backup/catalog.redb")]
    Restore {
        /// The copy to restore
        file: PathBuf,
    },
    /// Rebuild the catalog from the blocks on the helpers; start the helpers and stop the coordinator first
    #[command(after_help = "Example: mend catalog rebuild --wait 2m")]
    Rebuild {
        /// How long to wait for helpers that do not answer, such as 2m; a plain number means seconds
        #[arg(long, default_value = "30s", value_name = "TIME", value_parser = seconds_or_time)]
        wait: std::time::Duration,
    },
    /// Keep using the current catalog although helpers hold newer blocks
    #[command(after_help = "Example: mend catalog accept --list")]
    Accept {
        /// Only list the helpers and the newer blocks that they report
        #[arg(long, conflicts_with = "reject")]
        list: bool,
        /// Ignore this helper's report of newer blocks until the helper is removed; change nothing else
        #[arg(long, value_name = "HELPER")]
        reject: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct ScrubArgs {
    /// After the scrub, remove blocks that belong to no stripe and are safe to delete
    #[arg(long)]
    pub remove_orphans: bool,
    /// Also check whole stripes against their code's parity equations; detects blocks that were replaced
    /// together with their checksums
    #[arg(long)]
    pub parity: bool,
    /// Stop the running scrub and keep its findings
    #[arg(long, conflicts_with_all = ["remove_orphans", "parity"])]
    pub stop: bool,
}

#[derive(Debug, Args)]
pub struct IssueArgs {
    /// coordinator, helper, client, operator, admin, plugin or monitor
    #[arg(value_enum)]
    pub role: RoleKind,
    /// The member's name; only the coordinator has none
    #[arg(required_if_eq_any([
        ("role", "helper"), ("role", "client"), ("role", "operator"), ("role", "admin"), ("role", "plugin"), ("role", "monitor"),
    ]))]
    pub name: Option<Name>,
    /// Validity period, such as 90d [default: 10 years]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub valid_for: Option<std::time::Duration>,
}

#[derive(Debug, Args)]
pub struct RenewArgs {
    /// Renew certificates that expire within this time
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = time)]
    pub within: std::time::Duration,
    /// Validity period of the new certificates [default: as long as that of each former one]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub valid_for: Option<std::time::Duration>,
}

/// The kind of a cluster member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleKind {
    /// The coordinator
    Coordinator,
    /// A helper
    Helper,
    /// A client, which may store and read files
    Client,
    /// An operator, who may repair, drain, cap, scrub and maintain, but not store or read files
    Operator,
    /// An administrator, who may do everything
    Admin,
    /// A plug-in of another system, which may only read and repair that system's own stripes
    Plugin,
    /// A monitor such as Prometheus, which may only read metrics
    Monitor,
}

#[derive(Debug, Args)]
pub struct PutArgs {
    /// The local file to store
    pub file: PathBuf,
    /// The name to store it under [default: the file's own name, without folders]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Code of the file's stripes, such as rs-14-10, or matrix:FILE for a generator matrix [default: the
    /// cluster's]
    #[arg(long, value_parser = code)]
    pub code: Option<CodeSpec>,
    /// Block size [default: the cluster's]
    #[arg(long, value_name = "SIZE")]
    pub block_size: Option<ByteSize>,
    /// Encode blocks in chunks of this size; only for codes with sub-blocks [default: whole blocks]
    #[arg(long, value_name = "SIZE")]
    pub chunk: Option<ByteSize>,
    /// Replace an existing file of this name
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub struct GetArgs {
    /// The name of the stored file
    pub name: String,
    /// The file to write, or - for stdout [default: the stored name, without folders, in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Check the data against one more block than decoding needs, if one is available; detects a helper that
    /// sends wrong bytes
    #[arg(long)]
    pub verify: bool,
    /// Read only these bytes: FIRST-LAST (inclusive, from 0), FIRST+LENGTH, or FIRST-
    #[arg(long)]
    pub range: Option<ByteRange>,
    #[command(flatten)]
    pub how: HowArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// The network position of this process and its rate limit.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Cap for sending and for receiving, such as 80mbit or 10MB/s
    #[arg(long, value_name = "RATE")]
    pub limit_rate: Option<Bandwidth>,
    /// This machine's rack, as named in mend.toml; plans then avoid links between racks
    #[arg(long, env = "MEND_RACK", value_name = "NAME")]
    pub rack: Option<String>,
}

/// Options for decoding lost blocks.
#[derive(Clone, Copy, Debug, Args)]
pub struct HowArgs {
    /// Scheme for rebuilding lost blocks [default: the cluster's]
    #[arg(long)]
    pub scheme: Option<Scheme>,
    /// Slice size, 4KiB to 4MiB [default: chosen by the planner]
    #[arg(long, value_name = "SIZE", value_parser = slice_bytes)]
    pub slice_size: Option<u32>,
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// List only names that start with this prefix
    #[arg(default_value = "")]
    pub prefix: String,
    /// Also show size, code, stripes and time
    #[arg(short, long)]
    pub long: bool,
}

#[derive(Debug, Args)]
pub struct RmArgs {
    /// The files to remove
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
    /// The block or stripe to repair
    #[arg(value_name = "BLOCK|STRIPE")]
    pub target: Option<String>,
    /// Repair everything that is lost
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub how: HowArgs,
    /// Skip the parity check of rebuilt blocks (digests are always checked)
    #[arg(long)]
    pub no_verify: bool,
    /// Print where the time went, as a table and a drawing
    #[arg(long, conflicts_with = "no_wait")]
    pub timeline: bool,
    /// Return without waiting for the repair to end
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Debug, Args)]
pub struct TimelineArgs {
    /// The numbers of the repairs, which share one timeline [default: the latest repair]
    pub repairs: Vec<u64>,
    /// The latest repairs, up to this number
    #[arg(long, value_name = "N", conflicts_with = "repairs")]
    pub last: Option<NonZero<usize>>,
}

#[derive(Debug, Args)]
pub struct MuteArgs {
    /// The code of the condition, as mend status prints it
    #[arg(value_name = "CODE", value_parser = condition_code)]
    pub code: ConditionCode,
    /// How long, such as 4h [default: until the condition ends]
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub lasts: Option<std::time::Duration>,
}

#[derive(Debug, Args)]
pub struct UnmuteArgs {
    /// The code of the condition, as mend status prints it
    #[arg(value_name = "CODE", value_parser = condition_code)]
    pub code: ConditionCode,
}

fn condition_code(text: &str) -> Result<ConditionCode, String> {
    ConditionCode::named(text).ok_or_else(|| {
        let codes: Vec<&str> = ConditionCode::ALL.iter().map(|code| code.name()).collect();
        format!("there is no such condition; the codes are {}", codes.join(", "))
    })
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The number of the repair
    pub repair: u64,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The block to rebuild; a stripe means all of its lost blocks
    #[arg(value_name = "BLOCK|STRIPE")]
    pub target: String,
    #[command(flatten)]
    pub how: HowArgs,
    /// Compare all schemes in a table
    #[arg(long, conflicts_with = "scheme")]
    pub compare: bool,
    /// Blocks to treat as lost, by name or index, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "BLOCKS")]
    pub lost: Vec<String>,
    /// The helper that receives the blocks, or `client` for a read [default: as a repair would choose]
    #[arg(long, value_name = "HELPER")]
    pub requestor: Option<String>,
}

#[derive(Debug, Args)]
pub struct CompareArgs {
    /// A block, or a file or stripe from which one block is chosen, preferably a lost one
    #[arg(value_name = "BLOCK|STRIPE|FILE")]
    pub target: String,
    /// Schemes to measure, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_name = "SCHEMES")]
    pub scheme: Vec<Scheme>,
    /// Number of reads per scheme; the median is reported
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    pub repeat: u16,
    /// Slice size, 4KiB to 4MiB [default: chosen by the planner]
    #[arg(long, value_name = "SIZE", value_parser = slice_bytes)]
    pub slice_size: Option<u32>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// Parses the name of a code, or `matrix:` and the path of a file with a generator matrix.
fn code(text: &str) -> Result<CodeSpec, String> {
    let Some(path) = text.strip_prefix("matrix:") else {
        return text.parse().map_err(|error: codes::SpecError| error.to_string());
    };
    let rows = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let generator = codes::Generator::from_text(&rows).map_err(|error| format!("{path}: {error}"))?;
    Ok(CodeSpec::Linear(codes::LinearCode::Explicit(generator.into())))
}

fn slice_bytes(text: &str) -> Result<u32, String> {
    let bytes: ByteSize = text.parse().map_err(|error: cluster::ParseQuantityError| error.to_string())?;
    let (least, most) = (repair::Geometry::MIN_SLICE_BYTES, repair::Geometry::MAX_SLICE_BYTES);
    u32::try_from(bytes.bytes())
        .ok()
        .filter(|bytes| (least..=most).contains(bytes) && bytes.is_multiple_of(64))
        .ok_or_else(|| {
            format!("slices have {} to {}, in multiples of 64 B", size(least.into()), size(most.into()))
        })
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

    /// Returns `command` if it has no subcommands, otherwise all verbs below it, each with its full name.
    fn leaves(command: &clap::Command, name: &str) -> Vec<(String, clap::Command)> {
        if !command.has_subcommands() {
            return vec![(name.to_owned(), command.clone())];
        }
        let below = command.get_subcommands().filter(|below| below.get_name() != "help");
        below.flat_map(|below| leaves(below, &format!("{name} {}", below.get_name()))).collect()
    }

    #[test]
    fn every_verb_has_an_example_that_parses() {
        for (name, verb) in leaves(&Cli::command(), "mend") {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = help.strip_prefix("Example: ").unwrap_or_else(|| panic!("no example of {name}"));
            assert!(example.starts_with(&name), "{name}: {example}");
            assert!(parse(example).is_ok(), "{example}: {}", parse(example).unwrap_err());
        }
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
    fn an_unknown_scheme_or_code_lists_the_known_ones() {
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
    fn arguments_after_lab_are_passed_on() {
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
