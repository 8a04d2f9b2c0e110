//! Whole nodes: `mend node recover` and `mend node drain`; `mend watch`, `mend pause`, `mend resume` and `mend caps`.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use client::{
    CapsRequest, CapsView, Client, LeavingView, ProgressView, RepairReason, RepairRequest, RepairState,
    RepairView,
};
use cluster::{Bandwidth, Name};
use recovery::HelperPolicy;

use crate::answer::Answer;
use crate::args::HowArgs;
use crate::failure::Failure;
use crate::format::{count, lasting, printable, size};
use crate::repairs::{self, Detail};

/// What is done with a whole node.
#[derive(Debug, Subcommand)]
pub enum WholeNode {
    /// Rebuild every block of a helper that is gone on the others
    Recover(RecoverArgs),
    /// Empty a helper that is about to fail or to be taken away; it gets no blocks from now on
    Drain(DrainArgs),
}

#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// The helper
    pub node: Name,
    #[command(flatten)]
    pub options: WideArgs,
}

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The helper
    pub node: Name,
    /// Only copy from it
    #[arg(long, conflicts_with = "rebuild_only")]
    pub migrate_only: bool,
    /// Only rebuild from others, as far as they can
    #[arg(long)]
    pub rebuild_only: bool,
    /// Call the drain off: the helper stays, and gets blocks again
    #[arg(long, conflicts_with_all = ["migrate_only", "rebuild_only", "policy", "requestors", "no_wait"])]
    pub stop: bool,
    #[command(flatten)]
    pub options: WideArgs,
}

/// How many stripes are repaired.
#[derive(Debug, Args)]
pub struct WideArgs {
    /// How helpers are chosen: even, free-budget, lowest-index, least-recently-used, load-greedy, m-ppr, push-rep, push-sur
    #[arg(long)]
    pub policy: Option<HelperPolicy>,
    /// The only helpers that get blocks, separated by commas [default: any]
    #[arg(long, value_delimiter = ',', value_name = "HELPERS")]
    pub requestors: Vec<Name>,
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
pub struct WatchArgs {
    /// The repair's number [default: all that run]
    pub repair: Option<u64>,
}

#[derive(Debug, Args)]
pub struct CapsArgs {
    /// What all helpers together send for repairs, such as 500Mbit or 50MB/s; `none` takes the cap away
    #[arg(long, value_name = "RATE")]
    pub total: Option<Rate>,
    /// What a helper sends for repairs, and what it receives
    #[arg(long, value_name = "HELPER=RATE")]
    pub node: Vec<NamedRate>,
    /// What repairs read from and write to the disk of a helper
    #[arg(long, value_name = "HELPER=RATE")]
    pub disk: Vec<NamedRate>,
    /// What the helpers of a rack together send for repairs, and receive
    #[arg(long, value_name = "RACK=RATE")]
    pub rack: Vec<NamedRate>,
    /// Take all other caps away
    #[arg(long)]
    pub none: bool,
}

/// Bytes per second, or 0 for no cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(0));
        }
        let others = "`mend pause` pauses a repair, `none` takes a cap away";
        let rate: Bandwidth =
            text.parse().map_err(|error: cluster::ParseQuantityError| format!("{error}; {others}"))?;
        match rate.bytes_per_second() as u64 {
            0 => Err(format!("nothing would ever be repaired; {others}")),
            rate => Ok(Self(rate)),
        }
    }
}

/// `NAME=RATE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRate(String, Rate);

impl FromStr for NamedRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rate) = text.split_once('=').ok_or("a name, =, and a rate, such as h1=50MB/s")?;
        Ok(Self(name.to_owned(), rate.parse()?))
    }
}

/// `mend node`
pub async fn node(client: &Client, action: &WholeNode, detail: Detail) -> Result<Answer, Failure> {
    match action {
        WholeNode::Recover(args) => recover(client, args, detail).await,
        WholeNode::Drain(args) if args.stop => stop_drain(client, &args.node).await,
        WholeNode::Drain(args) => drain(client, args, detail).await,
    }
}

async fn recover(client: &Client, args: &RecoverArgs, detail: Detail) -> Result<Answer, Failure> {
    let request = RepairRequest { node: Some(args.node.to_string()), ..request(&args.options) };
    let view = client.repair(&request).await?;
    repairs::await_unless(client, view, args.options.no_wait, detail).await
}

async fn drain(client: &Client, args: &DrainArgs, detail: Detail) -> Result<Answer, Failure> {
    let way = match (args.migrate_only, args.rebuild_only) {
        (true, _) => Some("migrate".to_owned()),
        (_, true) => Some("rebuild".to_owned()),
        _ => None,
    };
    let request = RepairRequest { drain: Some(args.node.to_string()), way, ..request(&args.options) };
    let view = client.repair(&request).await?;
    let answer = repairs::await_unless(client, view, args.options.no_wait, detail).await?;
    let leaving = client.status().await?.leaving;
    let left = leaving.iter().find(|leaving| leaving.node == args.node.as_str());
    Ok(match left.filter(|_| !args.options.no_wait) {
        Some(leaving) => answer.with_line(&leaving_line(leaving)),
        None => answer,
    })
}

async fn stop_drain(client: &Client, node: &Name) -> Result<Answer, Failure> {
    client.stop_drain(node.as_str()).await?;
    let text = format!("{node} stays, and gets blocks again; what was moved stays where it is");
    Ok(Answer::new(text, &serde_json::json!({ "stopped": node.as_str() })))
}

fn request(options: &WideArgs) -> RepairRequest {
    RepairRequest {
        policy: options.policy.map(|policy| policy.to_string()),
        requestors: options.requestors.iter().map(Name::to_string).collect(),
        scheme: options.how.scheme.map(|scheme| scheme.to_string()),
        slice_bytes: options.how.slice_size,
        verify_parity: options.no_verify.then_some(false),
        ..RepairRequest::default()
    }
}

/// What `mend status` says of a helper that is to be emptied.
pub fn leaving_line(leaving: &LeavingView) -> String {
    format!("{}\n", printable(&leaving.text))
}

/// `mend watch`
pub async fn watch(client: &Client, args: &WatchArgs, detail: Detail) -> Result<Answer, Failure> {
    if let Some(repair) = args.repair {
        let view = client.await_progress(repair, 0, Duration::ZERO).await?;
        return repairs::await_unless(client, view, false, detail).await;
    }
    let mut ended: Vec<RepairView> = Vec::new();
    while let Some(open) = client.status().await?.repairs.into_iter().next() {
        ended.push(repairs::await_end(client, open).await?);
    }
    let text: String = ended.iter().map(line).collect();
    Ok(Answer::new(if text.is_empty() { "nothing is being repaired".to_owned() } else { text }, &ended))
}

/// `mend pause` and `mend resume`
pub async fn pause(client: &Client, repair: u64, paused: bool) -> Result<Answer, Failure> {
    let view = client.pause_repair(repair, paused).await?;
    let text = match paused {
        true => format!(
            "repair {repair} is paused: nothing of it moves, and what it has rebuilt or received is kept. Go on with `mend \
             resume {repair}`"
        ),
        false => format!("repair {repair} goes on"),
    };
    Ok(Answer::new(text, &view))
}

/// `mend caps`
pub async fn caps(client: &Client, args: &CapsArgs) -> Result<Answer, Failure> {
    let rates =
        |named: &[NamedRate]| named.iter().map(|NamedRate(name, rate)| (name.clone(), rate.0)).collect();
    let request = CapsRequest {
        none: args.none,
        cluster: args.total.map(|rate| rate.0),
        nodes: rates(&args.node),
        disks: rates(&args.disk),
        racks: rates(&args.rack),
    };
    let caps = match request == CapsRequest::default() {
        true => client.caps().await?,
        false => client.change_caps(&request).await?,
    };
    Ok(Answer::new(caps_text(&caps), &caps))
}

fn caps_text(caps: &CapsView) -> String {
    if *caps == CapsView::default() {
        return "repairs are not capped".to_owned();
    }
    let each = |what: &str, rates: &BTreeMap<String, u64>| -> String {
        rates.iter().map(|(name, &rate)| format!("{what} {}: {}/s\n", printable(name), size(rate))).collect()
    };
    let cluster = caps.cluster.map(|rate| format!("all together: {}/s\n", size(rate)));
    cluster.unwrap_or_default()
        + &each("node", &caps.nodes)
        + &each("disk of", &caps.disks)
        + &each("rack", &caps.racks)
}

/// A repair in a line, running or ended.
pub fn line(repair: &RepairView) -> String {
    let mut text = format!(
        "repair {} ({}): {}, {} of {}, {} of {}",
        repair.repair,
        printable(&repair.target),
        repair.state,
        repair.stripes_done,
        count(repair.stripes, "stripe"),
        size(repair.bytes_rebuilt),
        size(repair.bytes)
    );
    if repair.state == RepairState::Paused {
        text += &format!("; mend resume {} goes on with it", repair.repair);
    } else if let Some(progress) = &repair.progress {
        text += &match repair.ended_unix_ms {
            None => running(progress),
            Some(_) => format!("; {}", took(progress)),
        };
    }
    text.extend(repair.reasons.iter().map(|reason| format!("; {}", failed(reason))));
    text + "\n"
}

/// Stripes that failed alike, and why.
pub fn failed(reason: &RepairReason) -> String {
    format!("{} failed: {}", count(reason.stripes, "stripe"), printable(&reason.reason))
}

fn running(progress: &ProgressView) -> String {
    let ms = |ms: u64| lasting(Duration::from_millis(ms));
    let mut text = progress.rate_bytes_per_s.map_or_else(String::new, |rate| format!(", {}/s", size(rate)));
    text += &match (progress.soonest_ms, progress.latest_ms) {
        (Some(soonest), Some(latest)) if soonest == latest => format!(", {} left", ms(latest)),
        (Some(soonest), Some(latest)) => format!(", {} to {} left", ms(soonest), ms(latest)),
        (Some(soonest), None) => format!(", at least {} left", ms(soonest)),
        _ => String::new(),
    };
    text + &progress.limited_by.iter().map(|limit| format!("; limited by {limit}")).collect::<String>()
}

/// How long a repair took, beside the least that it could.
fn took(progress: &ProgressView) -> String {
    let mut text = format!("took {}", lasting(Duration::from_millis(progress.elapsed_ms)));
    text += &progress.rate_bytes_per_s.map_or_else(String::new, |rate| format!(" at {}/s", size(rate)));
    text.extend(beside_the_bound(progress).map(|bound| format!("; {bound}")));
    text
}

/// The least time that a repair that has ended could have taken, and what kept it from that, as far as is known.
pub fn beside_the_bound(progress: &ProgressView) -> Option<String> {
    let bound = progress.bound_ms.filter(|_| progress.elapsed_ms > 0).map(|bound| {
        let share = bound as f64 / progress.elapsed_ms as f64 * 100.0;
        format!("links and disks allow {} ({share:.0}%)", lasting(Duration::from_millis(bound)))
    });
    let limit = progress.limited_by.iter().map(|limit| format!("mostly limited by {limit}"));
    let parts: Vec<String> = bound.into_iter().chain(limit).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_named_and_may_be_none() {
        assert_eq!("h1=8Mbit".parse(), Ok(NamedRate("h1".into(), Rate(1_000_000))));
        assert_eq!("none".parse(), Ok(Rate(0)));
        assert!("0B/s".parse::<Rate>().unwrap_err().contains("mend pause"));
        assert!("h1".parse::<NamedRate>().is_err());
    }

    #[test]
    fn an_end_says_how_near_to_the_bound_it_came() {
        let progress = ProgressView {
            rate_bytes_per_s: Some(25 << 20),
            soonest_ms: None,
            latest_ms: None,
            limited_by: Some("the uplink of h3".into()),
            elapsed_ms: 20_000,
            bound_ms: Some(10_000),
        };
        assert_eq!(
            took(&progress),
            "took 20 s at 25 MiB/s; links and disks allow 10 s (50%); mostly limited by the uplink of h3"
        );
        let running = running(&ProgressView { soonest_ms: Some(3000), latest_ms: Some(9000), ..progress });
        assert_eq!(running, ", 25 MiB/s, 3 s to 9 s left; limited by the uplink of h3");
    }
}
