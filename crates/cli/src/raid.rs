//! Implements `mend raid`: plans the encoding of replicated files in the layout of HDFS-RAID, encodes them, undoes
//! this, and examines encoded files.

#[cfg(test)]
mod doubles;
mod encoder;
mod findings;
mod fsck;
mod left;
mod outcomes;
mod rebuilding;
mod reports;
mod status;
mod steps;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use cluster::Cluster;
use hdfs_raid::{Listing, NodeIndex, Policies, Seat, State, StripePlan, Survey, Total, Unit};
use serde_json::{Value, json};
use stores::RaidNameNode;

use crate::answer::Answer;
use crate::failure::Failure;
use crate::format::{count, printable, size, table};

pub use encoder::{Encoder, EncoderArgs};
use findings::{left_out, left_out_text, listed};
pub use fsck::{RaidFsckArgs, fsck};
pub use hdfs_raid::Direction;
pub use status::{RaidStatusArgs, status};
pub use steps::steps;

/// The number of paths that are printed for each state without `-v`.
const EXAMPLES: usize = 10;

/// A verb about replicated files of HDFS.
#[derive(Debug, Subcommand)]
pub enum RaidAction {
    /// Show which files policies would encode, which replicas stay or move, and the saving; changes nothing
    #[command(after_help = "Example: mend raid plan /warehouse --policy raid.toml")]
    Plan(RaidPlanArgs),
    /// Encode files as policies require, and lower their replication once the parity was checked
    #[command(after_help = "Example: mend raid encode /warehouse --policy raid.toml")]
    Encode(RaidEncodeArgs),
    /// Undo the encoding of files: raise their replication, and then remove their parity
    #[command(after_help = "Example: mend raid undo /warehouse/a --policy raid.toml")]
    Undo(RaidStepsArgs),
    /// Show encoded files by state, the saving, stripes by missing blocks, and the state of parity
    #[command(after_help = "Example: mend raid status /warehouse --policy raid.toml")]
    Status(RaidStatusArgs),
    /// Show the stripes of files with the DataNodes of their blocks, and which missing blocks can be rebuilt
    #[command(after_help = "Example: mend raid fsck /warehouse/2024/a")]
    Fsck(RaidFsckArgs),
}

#[derive(Debug, Args)]
pub struct RaidPlanArgs {
    /// A folder or file of HDFS
    #[arg(value_name = "PATH")]
    pub path: String,
    /// A TOML file with the policies
    #[arg(long, value_name = "FILE")]
    pub policy: PathBuf,
}

#[derive(Debug, Args)]
pub struct RaidStepsArgs {
    #[command(flatten)]
    pub plan: RaidPlanArgs,
    /// Only show the calls, one by one; changes nothing
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct RaidEncodeArgs {
    #[command(flatten)]
    pub steps: RaidStepsArgs,
    #[command(flatten)]
    pub encoder: EncoderArgs,
}

/// Implements `mend raid plan`. `is_detailed` prints every path and stripe.
pub async fn plan(cluster: &Cluster, args: &RaidPlanArgs, is_detailed: bool) -> Result<Answer, Failure> {
    let policies = policies(&args.policy)?;
    let listing = RaidNameNode::of(cluster)?.partial_listing(&args.path, &policies).await?;
    let survey = hdfs_raid::survey(&listing, &policies, now_ms());
    Ok(Answer::new(text(&survey, &listing, is_detailed), &facts(&survey, &listing)))
}

/// Returns the policies in a file; without a file, none.
fn policies_or_none(path: Option<&Path>) -> Result<Policies, Failure> {
    path.map_or_else(|| Ok(Policies::none()), policies)
}

/// Returns the time in milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn policies(path: &Path) -> Result<Policies, Failure> {
    let failed = |why: String| {
        Failure::new(format!("{}: {why}", path.display()))
            .help("docs/guides/hdfs-raid.md has an example of a file with policies")
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    Policies::parse(&text).map_err(|error| failed(error.to_string()))
}

fn text(survey: &Survey, listing: &Listing, is_detailed: bool) -> String {
    let totals = survey.totals();
    let mut text = totals_text(&totals);
    text += &saving_text(&totals);
    let mut by_state: BTreeMap<&str, Vec<&Unit>> = BTreeMap::new();
    let is_shown = |unit: &&Unit| unit.state != State::Raided || unit.held.is_some();
    for unit in survey.units.iter().filter(is_shown) {
        by_state.entry(unit.state.name()).or_default().push(unit);
    }
    for (state, units) in by_state {
        let _ = write!(text, "\n{state}:\n{}", units_text(&units, is_detailed));
        if is_detailed {
            units.iter().for_each(|unit| text += &stripes_text(unit, listing));
        }
    }
    text + &left_out_text(listing, is_detailed)
}

fn totals_text(totals: &BTreeMap<&str, Total>) -> String {
    let row = |(state, total): (&&str, &Total)| {
        let sizes = [total.bytes, total.stored, total.target].map(size);
        let [bytes, stored, target] = sizes;
        [(*state).to_owned(), total.files.to_string(), bytes, stored, target]
    };
    table(["state", ">files", ">data", ">stored", ">encoded"], totals.iter().map(row))
}

fn saving_text(totals: &BTreeMap<&str, Total>) -> String {
    match saving(totals) {
        saved @ 0.. => format!("\nsaving: {}\n", size(saved.unsigned_abs())),
        more => format!("\nadditional space for parity: {}\n", size(more.unsigned_abs())),
    }
}

/// Returns the bytes that would be saved; negative if more would be stored.
fn saving(totals: &BTreeMap<&str, Total>) -> i64 {
    totals.values().map(|total| total.stored as i64 - total.target as i64).sum()
}

fn units_text(units: &[&Unit], is_detailed: bool) -> String {
    let row = |unit: &&Unit| {
        let moves: usize = unit.stripes.iter().map(StripePlan::moves).sum();
        let encoding = [&unit.policy, &unit.codec].map(|name| name.clone().unwrap_or_default());
        let [policy, codec] = encoding;
        let stripes = if unit.stripes.is_empty() { String::new() } else { stripes_summary(unit, moves) };
        let reason = status::reason(unit);
        let note = if reason.is_empty() { stripes } else { reason };
        [unit.path.clone(), size(unit.stored), size(unit.target), policy, codec, note]
    };
    let headings = ["path", ">stored", ">encoded", "policy", "codec", "note"];
    listed(headings, units.iter().map(row).collect(), is_detailed)
}

fn stripes_summary(unit: &Unit, moves: usize) -> String {
    let is_unsafe = unit.stripes.iter().any(|stripe| !stripe.is_rack_safe);
    let racks = if is_unsafe { "; too few racks to survive the loss of one" } else { "" };
    let stripes = count(unit.stripes.len() as u64, "stripe");
    format!("{stripes}, at least {}{racks}", count(moves as u64, "move"))
}

/// Returns a line for each stripe that has a plan, and for each of its blocks.
fn stripes_text(unit: &Unit, listing: &Listing) -> String {
    let mut text = String::new();
    for stripe in &unit.stripes {
        let _ = writeln!(text, "{} stripe {}:", printable(&unit.path), stripe.stripe);
        for (at, seat) in stripe.arrangement.seats.iter().enumerate() {
            let _ = writeln!(text, "  {} {}", block_name(unit, stripe, at), seat_text(*seat, listing));
        }
    }
    text
}

fn block_name(unit: &Unit, stripe: &StripePlan, at: usize) -> String {
    match stripe.members.get(at) {
        Some(member) => format!("block {} of {}", member.block, printable(&unit.files[member.file])),
        None => format!("parity block {}", at - stripe.members.len()),
    }
}

fn address(listing: &Listing, node: NodeIndex) -> &str {
    &listing.nodes[node.0].address
}

fn seat_text(seat: Seat, listing: &Listing) -> String {
    match seat {
        Seat::Kept(node) => format!("stays on {}", address(listing, node)),
        Seat::Moved { from, to } => {
            format!("moves from {} to {}", address(listing, from), address(listing, to))
        }
        Seat::New(node) => format!("is written to {}", address(listing, node)),
    }
}

fn facts(survey: &Survey, listing: &Listing) -> Value {
    let totals = survey.totals();
    let total = |(state, total): (&&str, &Total)| {
        let Total { files, bytes, stored, target } = total;
        let sums = json!({ "files": files, "bytes": bytes, "stored_bytes": stored, "encoded_bytes": target });
        ((*state).to_owned(), sums)
    };
    json!({
        "saved_bytes": saving(&totals),
        "totals": totals.iter().map(total).collect::<serde_json::Map<_, _>>(),
        "left_out": left_out(listing),
        "units": survey.units.iter().map(|unit| unit_facts(unit, listing)).collect::<Vec<_>>(),
    })
}

fn unit_facts(unit: &Unit, listing: &Listing) -> Value {
    let mut facts = status::unit_facts(unit);
    facts["encoded_bytes"] = json!(unit.target);
    facts["stripes"] = unit.stripes.iter().map(|stripe| stripe_facts(unit, stripe, listing)).collect();
    facts
}

fn stripe_facts(unit: &Unit, stripe: &StripePlan, listing: &Listing) -> Value {
    let block = |(at, seat): (usize, &Seat)| {
        let member = stripe.members.get(at);
        let (place, node, from) = match *seat {
            Seat::Kept(node) => ("stays", node, None),
            Seat::Moved { from, to } => ("moves", to, Some(address(listing, from))),
            Seat::New(node) => ("new", node, None),
        };
        json!({
            "file": member.map(|member| &unit.files[member.file]),
            "block": member.map(|member| member.block),
            "place": place,
            "datanode": address(listing, node),
            "from": from,
        })
    };
    json!({
        "stripe": stripe.stripe,
        "rack_safe": stripe.is_rack_safe,
        "blocks": stripe.arrangement.seats.iter().enumerate().map(block).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use hdfs_raid::{Block, File, Node, Owner, Storing};

    use super::*;

    const POLICIES: &str =
        "[[policy]]\nname = \"all\"\npaths = [\"/data\"]\ncodec = \"xor\"\nmin_blocks = 1\n";

    /// Returns a listing with a file of two blocks, which both have their replicas on the first three of `nodes`
    /// DataNodes, and a file without a policy.
    fn listing(nodes: usize) -> Listing {
        let node = |at| Node { address: format!("10.0.0.{at}:9866"), rack: "/r".into(), is_usable: true };
        let block =
            |number| Block { number, stamp: 1, bytes: 1 << 20, replicas: [0, 1, 2].map(NodeIndex).to_vec() };
        let file = |path: &str| File {
            inode: 1,
            path: path.to_owned(),
            bytes: 2 << 20,
            block_bytes: 1 << 20,
            replication: 3,
            modified_ms: 0,
            owner: Owner::Superuser,
            storing: Storing::Replicated,
            is_open: false,
            blocks: (0..2).map(block).collect(),
        };
        let (nodes, files) = ((0..nodes).map(node).collect(), vec![file("/data/f"), file("/other")]);
        Listing { nodes, files, ..Listing::default() }
    }

    fn surveyed(listing: &Listing) -> Survey {
        hdfs_raid::survey(listing, &Policies::parse(POLICIES).expect("policies"), 1 << 40)
    }

    #[test]
    fn the_plan_names_savings_places_and_reasons() {
        let listing = listing(4);
        let survey = surveyed(&listing);
        let short = text(&survey, &listing, false);
        for expected in [
            "saving: 3 MiB",
            "should-encode",
            "1 stripe, at least 0 moves; too few racks",
            "no policy covers it",
        ] {
            assert!(short.contains(expected), "{expected}: {short}");
        }
        assert!(!short.contains("stays on"));
        let long = text(&survey, &listing, true);
        for expected in [
            "/data/f stripe 0:",
            "block 0 of /data/f stays on 10.0.0.0:9866",
            "block 1 of /data/f stays on 10.0.0.1:9866",
            "parity block 0 is written to 10.0.0.3:9866",
        ] {
            assert!(long.contains(expected), "{expected}: {long}");
        }
    }

    #[test]
    fn the_plan_as_json() {
        let listing = listing(4);
        let facts = facts(&surveyed(&listing), &listing);
        assert_eq!(facts["saved_bytes"], 3 << 20);
        assert_eq!(facts["totals"]["should-encode"]["files"], 1);
        let unit = &facts["units"][0];
        assert_eq!((&unit["path"], &unit["state"]), (&json!("/data/f"), &json!("should-encode")));
        let blocks = &unit["stripes"][0]["blocks"];
        assert_eq!((&blocks[0]["place"], &blocks[2]["place"]), (&json!("stays"), &json!("new")));
        assert_eq!((&blocks[2]["file"], &blocks[2]["datanode"]), (&Value::Null, &json!("10.0.0.3:9866")));
        assert_eq!(facts["units"][1]["reason"], "no policy covers it");
    }

    #[test]
    fn only_some_paths_are_listed_without_detail() {
        let mut listing = listing(4);
        let file = listing.files.pop().expect("a file");
        listing.files = (0..12).map(|at| File { path: format!("/other/{at}"), ..file.clone() }).collect();
        let survey = surveyed(&listing);
        assert!(text(&survey, &listing, false).contains("… and 2 more; -v lists all"));
        assert!(!text(&survey, &listing, true).contains("more;"));
    }

    #[test]
    fn mistakes_in_policies_name_the_file() {
        let error = policies(Path::new("/nowhere/raid.toml")).expect_err("no file");
        assert!(error.message().starts_with("/nowhere/raid.toml: "), "{}", error.message());
    }
}
