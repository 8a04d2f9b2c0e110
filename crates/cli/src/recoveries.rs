//! Recovery and drain of whole nodes (`mend node recover`, `mend node drain`), and `mend pause`, `resume` and
//! `caps`.

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
use crate::format::{cap, count, lasting, printable, size};
use crate::repairs::{self, Detail};

/// Operations on a whole node.
#[derive(Debug, Subcommand)]
pub enum WholeNode {
    /// Rebuild every block of a lost helper on the others
    #[command(after_help = "Example: mend node recover h7")]
    Recover(RecoverArgs),
    /// Empty a helper that is failing or being retired; it receives no new blocks from then on
    #[command(after_help = "Example: mend node drain h7")]
    Drain(DrainArgs),
}

#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// The helper to recover
    pub node: Name,
    #[command(flatten)]
    pub options: WideArgs,
}

#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The helper to drain
    pub node: Name,
    /// Only copy blocks from the helper
    #[arg(long, conflicts_with = "rebuild_only")]
    pub migrate_only: bool,
    /// Copy no block that can be rebuilt from blocks of other helpers
    #[arg(long)]
    pub rebuild_only: bool,
    /// Stop the drain; the helper stays and receives new blocks again
    #[arg(long, conflicts_with_all = ["migrate_only", "rebuild_only", "policy", "requestors", "no_wait"])]
    pub stop: bool,
    #[command(flatten)]
    pub options: WideArgs,
}

/// Options for repairs of many stripes.
#[derive(Debug, Args)]
pub struct WideArgs {
    /// How to choose helpers: even, free-budget, lowest-index, least-recently-used, load-greedy, m-ppr,
    /// push-rep, push-sur
    #[arg(long)]
    pub policy: Option<HelperPolicy>,
    /// The only helpers that may receive blocks, separated by commas [default: any]
    #[arg(long, value_delimiter = ',', value_name = "HELPERS")]
    pub requestors: Vec<Name>,
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
pub struct CapsArgs {
    /// Cap on what all helpers together send for repairs, such as 500Mbit or 50MB/s; `none` removes the cap
    #[arg(long, value_name = "RATE")]
    pub total: Option<Rate>,
    /// Cap on what a helper sends, and on what it receives, for repairs
    #[arg(long, value_name = "HELPER=RATE")]
    pub node: Vec<NamedRate>,
    /// Cap on what repairs read from and write to a helper's disk
    #[arg(long, value_name = "HELPER=RATE")]
    pub disk: Vec<NamedRate>,
    /// Cap on what the helpers of a rack together send, and receive, for repairs
    #[arg(long, value_name = "RACK=RATE")]
    pub rack: Vec<NamedRate>,
    /// Remove all caps that this command does not set
    #[arg(long)]
    pub none: bool,
}

/// A cap in bytes per second; 0 means no cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(0));
        }
        let others = "`mend pause` pauses a repair, `none` removes a cap";
        let rate: Bandwidth =
            text.parse().map_err(|error: cluster::ParseQuantityError| format!("{error}; {others}"))?;
        match rate.bytes_per_second() as u64 {
            0 => Err(format!("a cap of 0 would stop all repairs; {others}")),
            rate => Ok(Self(rate)),
        }
    }
}

/// A cap for one helper, disk or rack, written `NAME=RATE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRate(String, Rate);

impl FromStr for NamedRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rate) = text.split_once('=').ok_or("write NAME=RATE, such as h1=50MB/s")?;
        Ok(Self(name.to_owned(), rate.parse()?))
    }
}

/// Implements `mend node recover` and `mend node drain`.
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
    let detail = detail.with_timeline(args.options.timeline);
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
    let detail = detail.with_timeline(args.options.timeline);
    let answer = repairs::await_unless(client, view, args.options.no_wait, detail).await?;
    if args.options.no_wait {
        return Ok(answer);
    }
    Ok(match client.status().await {
        Ok(status) => {
            match status.helpers.leaving.iter().find(|leaving| leaving.node == args.node.as_str()) {
                Some(leaving) => answer.with_line(&leaving_line(leaving)),
                None => answer,
            }
        }
        // The drain has ended all the same.
        Err(error) => answer.but(error.into()),
    })
}

async fn stop_drain(client: &Client, node: &Name) -> Result<Answer, Failure> {
    client.stop_drain(node.as_str()).await?;
    let text =
        format!("stopped the drain: {node} stays and receives blocks again; moved blocks are not moved back");
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

/// Formats the state of a draining helper as a line of `mend status`.
pub fn leaving_line(leaving: &LeavingView) -> String {
    format!("{}\n", printable(&leaving.text))
}

/// Implements `mend pause` and `mend resume`.
pub async fn pause(client: &Client, repair: u64, paused: bool) -> Result<Answer, Failure> {
    let view = client.pause_repair(repair, paused).await?;
    let text = match paused {
        true => format!(
            "repair {repair} is paused; rebuilt and received data is kept. Resume it with `mend resume {repair}`"
        ),
        false => format!("repair {repair} resumed"),
    };
    Ok(Answer::new(text, &view))
}

/// Implements `mend caps`.
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
        rates.iter().map(|(name, &rate)| format!("{what} {}: {}\n", printable(name), cap(rate))).collect()
    };
    let cluster = caps.cluster.map(|rate| format!("total: {}\n", cap(rate)));
    cluster.unwrap_or_default()
        + &each("node", &caps.nodes)
        + &each("disk of", &caps.disks)
        + &each("rack", &caps.racks)
}

/// Formats a running or ended repair as one line.
pub fn line(repair: &RepairView) -> String {
    let mut text = format!(
        "repair {} ({}): {}, {} of {}, {} of {}",
        repair.repair,
        printable(&repair.target),
        repair.state,
        repair.counts.stripes_done,
        count(repair.counts.stripes, "stripe"),
        size(repair.counts.bytes_rebuilt),
        size(repair.counts.bytes)
    );
    if repair.state == RepairState::Paused {
        text += &format!("; resume it with `mend resume {}`", repair.repair);
    } else if let Some(progress) = &repair.progress {
        text += &match repair.ended_unix_ms {
            None => running(progress),
            Some(_) => format!("; {}", took(progress)),
        };
    }
    text.extend(repair.reasons.iter().map(|reason| format!("; {}", failed(reason))));
    text.extend(repairs::unknown_text(repair).map(|unknown| format!("; {unknown}")));
    text + "\n"
}

/// Formats how many stripes failed for one reason, and the reason.
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
    text.extend(progress.limited_by.iter().map(|limit| format!("; limited by {}", printable(limit))));
    text
}

/// Formats how long a repair took, its rate, and the lower bound on its duration.
fn took(progress: &ProgressView) -> String {
    let mut text = format!("took {}", lasting(Duration::from_millis(progress.elapsed_ms)));
    text += &progress.rate_bytes_per_s.map_or_else(String::new, |rate| format!(" at {}/s", size(rate)));
    text.extend(beside_the_bound(progress).map(|bound| format!("; {bound}")));
    text
}

/// Formats the lower bound on the duration of an ended repair, and the repair's bottleneck. Omits what is
/// unknown, and returns `None` if both are unknown.
pub fn beside_the_bound(progress: &ProgressView) -> Option<String> {
    let bound = progress.bound_ms.filter(|_| progress.elapsed_ms > 0).map(|bound| {
        let share = bound as f64 / progress.elapsed_ms as f64 * 100.0;
        format!(
            "links and disks allow {} at best ({share:.0}% of the time taken)",
            lasting(Duration::from_millis(bound))
        )
    });
    let limit = progress.limited_by.iter().map(|limit| format!("mostly limited by {}", printable(limit)));
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
    fn the_end_of_a_repair_compares_it_with_its_lower_bound() {
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
            "took 20 s at 25 MiB/s; links and disks allow 10 s at best (50% of the time taken); mostly \
             limited by the uplink of h3"
        );
        let running = running(&ProgressView { soonest_ms: Some(3000), latest_ms: Some(9000), ..progress });
        assert_eq!(running, ", 25 MiB/s, 3 s to 9 s left; limited by the uplink of h3");
    }
}
