//! Implements `mend topology` and `mend bench links`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use client::{
    Client, LinkView, NodeRates, PlaceView, ProbeRequest, ProbeView, ProbedLink, RateSource, RateView,
    TopologyView,
};
use cluster::{ByteSize, Name};

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::format::{count, disk_rate, lasting, link_rate, printable, table};

/// How often to poll a running measurement.
const ASK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Subcommand)]
pub enum BenchAction {
    /// Send zeros between helpers, one link at a time, and store the measured rates; a busy node shows only
    /// its spare capacity
    #[command(after_help = "Example: mend bench links --pairs")]
    Links(BenchLinksArgs),
}

#[derive(Debug, Args)]
pub struct BenchLinksArgs {
    /// The helpers to measure [default: all that are up]
    #[arg(value_name = "NODE")]
    pub nodes: Vec<Name>,
    /// Measure every pair, for networks with unequal distances; by default each helper sends to three others,
    /// which is enough to measure the uplink and the downlink of each helper
    #[arg(long)]
    pub pairs: bool,
    /// Bytes to send over each link, 4MiB to 1GiB [default: 32MiB]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<ByteSize>,
    /// Show the running measurement, or the last one
    #[arg(long, conflicts_with_all = ["nodes", "pairs", "size", "stop"])]
    pub show: bool,
    /// Stop the running measurement and keep its results
    #[arg(long, conflicts_with_all = ["nodes", "pairs", "size"])]
    pub stop: bool,
}

/// Implements `mend topology`.
pub async fn topology(client: &Client) -> Result<Answer, Failure> {
    let view = client.topology().await?;
    Ok(Answer::new(text(&view, now_unix_ms()), &view))
}

/// Implements `mend bench links`.
pub async fn bench_links(client: &Client, args: &BenchLinksArgs) -> Result<Answer, Failure> {
    let mut view = match (args.stop, args.show) {
        (true, _) => client.stop_probes().await?,
        (_, true) => client.probes().await?,
        _ => client.probe(&probe_request(args)).await?,
    };
    let mut said = 0;
    while view.running && !args.show {
        tokio::time::sleep(ASK_EVERY).await;
        view = continued(&view, client.probes().await?)?;
        view.links.iter().skip(said).for_each(|link| tracing::info!("{}", probed_row(link).join("  ")));
        said = view.links.len();
    }
    let exit = if args.show { Exit::Done } else { exit_of(&view) };
    Ok(Answer::new(probe_text(&view), &view).with_exit(exit))
}

/// Returns the latest state, if it is of the same measurement.
fn continued(known: &ProbeView, latest: ProbeView) -> Result<ProbeView, Failure> {
    match latest.started_unix_ms == known.started_unix_ms {
        true => Ok(latest),
        false => Err(Failure::new("this measurement has ended, and another one has begun").help(
            "`mend topology` shows the measured rates, `mend bench links --show` the other measurement",
        )),
    }
}

/// Returns the exit code of a measurement: a failure if no link could be measured.
fn exit_of(view: &ProbeView) -> Exit {
    let has_failed = !view.links.is_empty() && view.links.iter().all(|link| link.bytes_per_s.is_none());
    if has_failed { Exit::Failed } else { Exit::Done }
}

fn probe_request(args: &BenchLinksArgs) -> ProbeRequest {
    ProbeRequest {
        nodes: args.nodes.iter().map(|name| name.as_str().to_owned()).collect(),
        pairs: args.pairs,
        bytes: args.size.map(ByteSize::bytes),
    }
}

fn probe_text(view: &ProbeView) -> String {
    let mut text = table(["from", "to", ">rate"], view.links.iter().map(probed_row));
    if view.running {
        text += &format!("\n{} left", count(view.left, "link"));
    }
    text + "\nsee the resulting rates with `mend topology`"
}

fn probed_row(probed: &ProbedLink) -> [String; 3] {
    let rate = match (probed.bytes_per_s, &probed.error) {
        (Some(rate), _) => link_rate(rate),
        (None, Some(error)) => printable(error).into_owned(),
        (None, None) => "-".to_owned(),
    };
    [probed.from.clone(), probed.to.clone(), rate]
}

fn text(view: &TopologyView, now_ms: u64) -> String {
    let head = [
        "node",
        "rack",
        ">uplink",
        ">downlink",
        ">disk read",
        ">disk write",
        ">observed up",
        ">observed down",
    ];
    let mut text = table(head, view.nodes.iter().map(|node| node_row(node, now_ms)));
    for (what, places) in [("rack", &view.racks), ("region", &view.regions)] {
        if !places.is_empty() {
            text += "\n\n";
            text += &table([what, "region", ">outgoing", ">incoming", "nodes"], places.iter().map(place_row));
        }
    }
    if !view.links.is_empty() {
        text += "\n\n";
        text += &table(["from", "to", ">rate"], view.links.iter().map(|link| link_row(link, now_ms)));
    }
    text
}

fn node_row(node: &NodeRates, now_ms: u64) -> [String; 8] {
    let rack = match (&node.rack, &node.region) {
        (None, _) => "-".to_owned(),
        (Some(rack), None) => printable(rack).into_owned(),
        (Some(rack), Some(region)) => format!("{} in {}", printable(rack), printable(region)),
    };
    let disk = |rate: RateView| disk_rate(rate.bytes_per_s) + &source(rate, now_ms);
    let seen = |rate: Option<u64>| rate.map_or_else(|| "-".to_owned(), link_rate);
    [
        if node.up { node.node.clone() } else { format!("{} (DOWN)", node.node) },
        rack,
        port(node.uplink, now_ms),
        port(node.downlink, now_ms),
        disk(node.disk_read),
        disk(node.disk_write),
        seen(node.seen_up_bytes_per_s),
        seen(node.seen_down_bytes_per_s),
    ]
}

fn place_row(place: &PlaceView) -> [String; 5] {
    let trunk = |rate: Option<u64>| rate.map_or_else(|| "-".to_owned(), link_rate);
    [
        printable(&place.name).into_owned(),
        place.region.as_deref().map_or_else(|| "-".to_owned(), |region| printable(region).into_owned()),
        trunk(place.up_bytes_per_s),
        trunk(place.down_bytes_per_s),
        place.nodes.join(", "),
    ]
}

fn link_row(link: &LinkView, now_ms: u64) -> [String; 3] {
    [printable(&link.from).into_owned(), printable(&link.to).into_owned(), port(link.rate, now_ms)]
}

fn port(rate: RateView, now_ms: u64) -> String {
    link_rate(rate.bytes_per_s) + &source(rate, now_ms)
}

/// Formats the source of a rate. Returns an empty string if mend.toml states the rate.
fn source(rate: RateView, now_ms: u64) -> String {
    let age = |since: Option<u64>| {
        let age = Duration::from_millis(now_ms.saturating_sub(since.unwrap_or(now_ms)));
        format!("{} ago", lasting(Duration::from_secs(age.as_secs().max(1))))
    };
    match rate.source {
        RateSource::Configured => String::new(),
        RateSource::Assumed => " assumed".to_owned(),
        RateSource::Measured => format!(" measured {}", age(rate.since_unix_ms)),
        RateSource::Slow => format!(" SLOW {}", age(rate.since_unix_ms)),
    }
}

fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(started_unix_ms: u64, rates: &[Option<u64>]) -> ProbeView {
        let link = |&bytes_per_s| ProbedLink { from: "a".into(), to: "b".into(), bytes_per_s, error: None };
        let links = rates.iter().map(link).collect();
        ProbeView { running: false, pairs: false, bytes: 1, left: 0, links, started_unix_ms }
    }

    /// It may have more links or fewer.
    #[test]
    fn another_measurement_does_not_continue_this_one() {
        let known = measurement(7, &[None]);
        assert_eq!(continued(&known, measurement(7, &[None, None])).unwrap().links.len(), 2);
        for rates in [&[][..], &[None, None]] {
            let failure = continued(&known, measurement(8, rates)).unwrap_err();
            assert!(failure.message().contains("another one has begun"), "{}", failure.message());
        }
    }

    #[test]
    fn a_measurement_fails_if_every_link_does() {
        let exit = |rates: &[Option<u64>]| exit_of(&measurement(7, rates));
        assert_eq!(exit(&[None, None]), Exit::Failed);
        assert_eq!([exit(&[]), exit(&[None, Some(1)])], [Exit::Done; 2]);
    }

    #[test]
    fn rates_say_how_they_are_known() {
        let rate = |bytes_per_s, source, since_unix_ms| RateView { bytes_per_s, source, since_unix_ms };
        let port = |bytes, source, since| port(rate(bytes, source, since), 100_000);
        assert_eq!(port(125_000_000, RateSource::Configured, None), "1gbit");
        assert_eq!(port(125_000_000, RateSource::Assumed, None), "1gbit assumed");
        assert_eq!(port(117_187_654, RateSource::Measured, Some(30_000)), "937mbit measured 1 min 10 s ago");
        assert_eq!(port(1_500_000, RateSource::Slow, Some(95_000)), "12mbit SLOW 5 s ago");
    }
}
