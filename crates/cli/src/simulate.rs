//! Implements `mend sim`: simulates clusters without contacting a coordinator.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use cluster::{Bandwidth, ByteSize};
use codes::{BlockIndex, Code, CodeSpec};
use recovery::{Bottleneck, HelperPolicy, RepairSpec};
use repair::{Rates, Scheme};
use serde_json::json;
use sim::durability::{Degraded, Durability, Lifetime};
use sim::recovery::{Bottlenecks, Cluster, Finish, Shape, Share};

use crate::answer::Answer;
use crate::failure::Failure;
use crate::format::{count, lasting, size, table};

/// Without `--disk`, disks are this many times faster than links and never the bottleneck.
const FAST_DISK: f64 = 100.0;

/// The quantity to simulate.
#[derive(Debug, Subcommand)]
pub enum SimAction {
    /// Estimate the time to recover a node, and the bandwidth left for reads meanwhile
    #[command(after_help = "Example: mend sim recover --code rs-9-6 --nodes 30 --stripes 400")]
    Recover(SimRecoverArgs),
    /// Compare the mean time to data loss of two codes or schemes
    #[command(
        after_help = "Example: mend sim mttdl --code rs-14-10 --against rs-9-6 --nodes 40 --data 10TiB"
    )]
    Mttdl(MttdlArgs),
}

/// The hardware of the simulated cluster.
#[derive(Debug, Args)]
pub struct HardwareArgs {
    /// Number of nodes, including the one that fails
    #[arg(long, value_name = "N")]
    pub nodes: u32,
    /// Block size
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    pub block_size: ByteSize,
    /// Bandwidth of each node's link, in each direction
    #[arg(long, default_value = "1gbit", value_name = "RATE")]
    pub rate: Bandwidth,
    /// Bandwidth of each node's disk [default: not a bottleneck]
    #[arg(long, value_name = "RATE")]
    pub disk: Option<Bandwidth>,
    /// Cap on what repairs send from a node, and on what they bring to it [default: the link's bandwidth]
    #[arg(long, value_name = "RATE")]
    pub cap: Option<Bandwidth>,
}

#[derive(Debug, Args)]
pub struct SimRecoverArgs {
    /// Code of all stripes
    #[arg(long, value_name = "CODE")]
    pub code: CodeSpec,
    /// Number of stripes; their blocks are spread over all nodes
    #[arg(long, value_name = "N")]
    pub stripes: u64,
    #[command(flatten)]
    pub hardware: HardwareArgs,
    /// Bandwidth of the links of some nodes, by number from 1; node 0 is the one that fails. Can be repeated
    #[arg(long, value_name = "NODE[-NODE]=RATE", conflicts_with = "cap")]
    pub node_rate: Vec<NodeRate>,
    /// Scheme for rebuilding blocks [default: the scheme of a node recovery]
    #[arg(long)]
    pub scheme: Option<Scheme>,
    /// How to choose helpers, as for `mend node recover`
    #[arg(long, default_value_t = HelperPolicy::default())]
    pub policy: HelperPolicy,
}

#[derive(Debug, Args)]
pub struct MttdlArgs {
    /// Code of all stripes
    #[arg(long, value_name = "CODE")]
    pub code: CodeSpec,
    /// Code to compare with [default: the same code]
    #[arg(long, value_name = "CODE", required_unless_present = "against_scheme")]
    pub against: Option<CodeSpec>,
    /// Scheme for rebuilding blocks [default: the scheme of a node recovery]
    #[arg(long)]
    pub scheme: Option<Scheme>,
    /// Scheme of the code to compare with [default: the scheme of a node recovery]
    #[arg(long, value_name = "SCHEME")]
    pub against_scheme: Option<Scheme>,
    /// Size of users' data, without parity
    #[arg(long, value_name = "SIZE")]
    pub data: ByteSize,
    #[command(flatten)]
    pub hardware: HardwareArgs,
    /// Share of all nodes that fail permanently in a year
    #[arg(long, default_value = "2%", value_name = "PERCENT")]
    pub afr: Percent,
    /// How long a node is down before its blocks are rebuilt
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = crate::args::times::time)]
    pub repair_after: Duration,
}

/// The bandwidth of the links of some nodes.
#[derive(Clone, Debug)]
pub struct NodeRate {
    nodes: RangeInclusive<u32>,
    rate: Bandwidth,
}

impl FromStr for NodeRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` names no nodes with a rate: write such as 3=100mbit or 3-7=100mbit");
        let (nodes, rate) = text.split_once('=').ok_or_else(wrong)?;
        let (first, last) = nodes.split_once('-').unwrap_or((nodes, nodes));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let nodes = number(first)?..=number(last)?;
        let rate = rate.parse::<Bandwidth>().map_err(|error| error.to_string())?;
        if nodes.is_empty() || *nodes.start() == 0 || rate.bytes_per_second() <= 0.0 {
            return Err(wrong());
        }
        Ok(Self { nodes, rate })
    }
}

/// A fraction strictly between 0 and 1, written as a percentage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let part = number.map(|number| number / 100.0).filter(|part| *part > 0.0 && *part < 1.0);
        part.map(Self)
            .ok_or_else(|| format!("`{text}` is not a percentage between 0% and 100%: write one such as 2%"))
    }
}

/// Implements `mend sim`.
pub fn simulate(action: &SimAction) -> Result<Answer, Failure> {
    match action {
        SimAction::Recover(args) => recover(args),
        SimAction::Mttdl(args) => mttdl(args),
    }
}

fn shape(scheme: Option<Scheme>) -> Shape {
    scheme.filter(|&scheme| scheme != Scheme::Auto).map_or(Shape::Dealt, Shape::Scheme)
}

impl HardwareArgs {
    fn link(&self) -> f64 {
        self.rate.bytes_per_second()
    }

    /// Returns the bandwidth of links and disks that repairs may use.
    fn rates(&self) -> Rates {
        let link = self.cap.map_or(self.link(), |cap| cap.bytes_per_second().min(self.link()));
        let disk = self.disk.map_or(self.link() * FAST_DISK, Bandwidth::bytes_per_second);
        Rates { up: link, down: link, read: disk, write: disk }
    }

    /// Returns the bandwidth of the nodes whose links differ from the others.
    fn uneven(&self, node_rates: &[NodeRate]) -> Result<BTreeMap<u32, Rates>, Failure> {
        let mut uneven = BTreeMap::new();
        for NodeRate { nodes, rate } in node_rates {
            if *nodes.end() >= self.nodes {
                let wrong =
                    format!("there is no node {}: the nodes are 0 to {}", nodes.end(), self.nodes - 1);
                return Err(Failure::new(wrong).help("name other nodes in --node-rate, or use more --nodes"));
            }
            let (up, down) = (rate.bytes_per_second(), rate.bytes_per_second());
            uneven.extend(nodes.clone().map(|node| (node, Rates { up, down, ..self.rates() })));
        }
        Ok(uneven)
    }

    /// Checks that the cluster can rebuild blocks of this code, and returns the code's properties.
    fn check(&self, code: &CodeSpec, shape: Shape) -> Result<Shown, Failure> {
        let built = code.build().map_err(Failure::new)?;
        let (blocks, sub_blocks) = (built.blocks(), built.sub_blocks() as u64);
        if self.nodes as usize <= blocks {
            let wrong = format!("a stripe of {code} has {blocks} blocks, and rebuilding needs one more node");
            return Err(Failure::new(wrong).help(format!("use --nodes {} or more", blocks + 1)));
        }
        if !self.block_size.bytes().is_multiple_of(64 * sub_blocks) || self.block_size.bytes() == 0 {
            let wrong =
                format!("blocks of {} cannot be divided into {sub_blocks} equal sub-blocks", self.block_size);
            return Err(Failure::new(wrong)
                .help(format!("choose a block size that is a multiple of {}", size(64 * sub_blocks))));
        }
        let few = Cluster {
            block_bytes: self.block_size.bytes(),
            shape,
            ..Cluster::losing(code.clone(), self.nodes, blocks as u32)
        };
        few.check_shape().map_err(Failure::new)?;
        Ok(Shown { blocks, data_blocks: built.data_blocks(), has_bound: reads_any(&*built) })
    }
}

/// The properties of a code that this module displays.
struct Shown {
    blocks: usize,
    data_blocks: usize,
    /// Whether the lower bound on recovery time applies. The bound assumes that k whole blocks are read for
    /// each lost block.
    has_bound: bool,
}

/// Whether every block is rebuilt from k other whole blocks.
fn reads_any(code: &dyn Code) -> bool {
    let blocks: Vec<BlockIndex> = (0..code.blocks() as u16).map(BlockIndex).collect();
    let reads_k = |&lost: &BlockIndex| {
        let others: Vec<_> = blocks.iter().copied().filter(|&block| block != lost).collect();
        code.repair(&[lost], &others).is_ok_and(|recipe| recipe.sources().len() == code.data_blocks())
    };
    code.sub_blocks() == 1 && blocks.iter().all(reads_k)
}

/// Implements `mend sim recover`.
fn recover(args: &SimRecoverArgs) -> Result<Answer, Failure> {
    let shape = shape(args.scheme.or(args.policy.own_scheme()));
    let shown = args.hardware.check(&args.code, shape)?;
    let lost = args.stripes as f64 * shown.blocks as f64 / f64::from(args.hardware.nodes);
    let lost = (lost.round() as u64).max(1);
    let played = u32::try_from(lost).ok().filter(|&lost| lost <= Cluster::MOST_LOST).ok_or_else(|| {
        let most = Cluster::MOST_LOST;
        Failure::new(format!("the node would hold {}, more than {most}", count(lost, "block")))
            .help("use fewer stripes: beyond this number, the time grows in proportion")
    })?;
    let cluster = Cluster {
        block_bytes: args.hardware.block_size.bytes(),
        rates: args.hardware.rates(),
        bottlenecks: Bottlenecks { nodes: args.hardware.uneven(&args.node_rate)?, ..Bottlenecks::default() },
        shape,
        spec: RepairSpec { helpers: args.policy, ..RepairSpec::default() },
        ..Cluster::losing(args.code.clone(), args.hardware.nodes, played)
    };
    let finish = cluster.run();
    if let Some(wrong) = finish.violations.first() {
        return Err(Failure::new(format!("the simulation failed: {wrong}")));
    }
    Ok(recovered(args, &shown, played, &finish))
}

/// Converts shares of the capped bandwidth into shares of the whole link.
fn of_link(hardware: &HardwareArgs, share: Share) -> Share {
    let part = hardware.rates().up / hardware.link();
    Share { mean: share.mean * part, most: share.most * part }
}

fn recovered(args: &SimRecoverArgs, shown: &Shown, lost: u32, finish: &Finish) -> Answer {
    let hardware = &args.hardware;
    let (up, down) = (of_link(hardware, finish.up), of_link(hardware, finish.down));
    let limit = match finish.bound.bottleneck {
        Bottleneck::Uplinks => "uplinks",
        Bottleneck::Downlinks => "downlinks",
        Bottleneck::Takers => "downlinks of the nodes that receive blocks",
        Bottleneck::Disks => "disks",
    };
    let took = |seconds: f64| lasting(Duration::from_secs_f64(seconds));
    let left = |share: f64| format!("{:.0}%", (1.0 - share).max(0.0) * 100.0);
    let alone = hardware.block_size.bytes() as f64 / hardware.link();
    let read = |share: f64| match 1.0 - share {
        left if left > 0.001 => took(alone / left),
        _ => "never".to_owned(),
    };
    let bound = match shown.has_bound {
        true => {
            format!(
                "{}, set by the {limit}; the recovery reaches {:.0}% of that speed",
                took(finish.bound.seconds),
                finish.of_bound() * 100.0
            )
        }
        false => "unknown for a code that reads less than k blocks".to_owned(),
    };
    let text = format!(
        "{} of {} lost with the node\n\
         recovery time   {}; a block is rebuilt after {} on average\n\
         lower bound     {bound}\n\
         left for reads  {} of uplinks and {} of downlinks on average; {} and {} on the busiest node\n\
         read of {}  {} without a recovery, {} during it on average, {} from the busiest node\n",
        count(lost.into(), "block"),
        size(hardware.block_size.bytes()),
        took(finish.seconds),
        took(finish.mean_seconds),
        left(up.mean),
        left(down.mean),
        left(up.most),
        left(down.most),
        size(hardware.block_size.bytes()),
        took(alone),
        read(up.mean),
        read(up.most),
    );
    let facts = json!({
        "blocks": lost,
        "seconds": finish.seconds,
        "mean_block_seconds": finish.mean_seconds,
        "bound_seconds": shown.has_bound.then_some(finish.bound.seconds),
        "limited_by": shown.has_bound.then_some(limit),
        "of_bound": shown.has_bound.then(|| finish.of_bound()),
        "uplinks_used": { "mean": up.mean, "most": up.most },
        "downlinks_used": { "mean": down.mean, "most": down.most },
        "disks_used": { "mean": finish.disk.mean, "most": finish.disk.most },
    });
    Answer::new(text, &facts)
}

/// Implements `mend sim mttdl`.
fn mttdl(args: &MttdlArgs) -> Result<Answer, Failure> {
    let other = args.against.as_ref().unwrap_or(&args.code);
    let one = Case::of(args, &args.code, args.scheme)?;
    let other = Case::of(args, other, args.against_scheme)?;
    let headings =
        ["", ">stripes", ">rebuilt in", ">last spare rebuilt in", ">stripe, years", ">cluster, years"];
    let mut text = table(headings, [one.row(), other.row()]);
    let times = one.lifetime.cluster_years / other.lifetime.cluster_years;
    text += &format!("{} lasts {} times as long as {}\n", one.name(), short(times), other.name());
    let facts = json!({ "one": one.facts(), "other": other.facts(), "times": times });
    Ok(Answer::new(text, &facts))
}

/// A code and a scheme, with the lifetime of data stored with them.
struct Case {
    code: CodeSpec,
    scheme: Option<Scheme>,
    stripes: u64,
    lifetime: Lifetime,
}

impl Case {
    fn of(args: &MttdlArgs, code: &CodeSpec, scheme: Option<Scheme>) -> Result<Self, Failure> {
        let shape = shape(scheme);
        let data_blocks = args.hardware.check(code, shape)?.data_blocks as u64;
        let block_bytes = args.hardware.block_size.bytes();
        let stripes = args.data.bytes().div_ceil(block_bytes * data_blocks).max(1);
        let durability = Durability {
            code: code.clone(),
            shape,
            nodes: args.hardware.nodes,
            stripes,
            block_bytes,
            rates: args.hardware.rates(),
            failing_in_a_year: args.afr.0,
            notice_seconds: args.repair_after.as_secs_f64(),
        };
        Ok(Self { code: code.clone(), scheme, stripes, lifetime: durability.lifetime() })
    }

    fn name(&self) -> String {
        match self.scheme {
            Some(scheme) => format!("{} ({scheme})", self.code),
            None => self.code.to_string(),
        }
    }

    fn row(&self) -> [String; 6] {
        let back = |state: Option<&Degraded>| {
            state.map_or("never".to_owned(), |state| lasting(Duration::from_secs_f64(state.repair_seconds)))
        };
        let Lifetime { stripe_years, cluster_years, ref states } = self.lifetime;
        [
            self.name(),
            self.stripes.to_string(),
            back(states.first()),
            back(states.last()),
            short(stripe_years),
            short(cluster_years),
        ]
    }

    fn facts(&self) -> serde_json::Value {
        let state = |state: &Degraded| json!({ "lost": state.lost, "fatal": state.fatal, "repair_seconds": state.repair_seconds });
        json!({
            "code": self.code.to_string(),
            "scheme": self.scheme,
            "stripes": self.stripes,
            "stripe_years": self.lifetime.stripe_years,
            "cluster_years": self.lifetime.cluster_years,
            "states": self.lifetime.states.iter().map(state).collect::<Vec<_>>(),
        })
    }
}

/// Formats a number with two decimals if it is below 10, and otherwise with none. Numbers below 0.01, and
/// numbers from 10,000 on, are in scientific notation.
fn short(number: f64) -> String {
    match number {
        number if (0.01..10.0).contains(&number) => format!("{number:.2}"),
        number if (10.0..10_000.0).contains(&number) => format!("{number:.0}"),
        number => format!("{number:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Verb};

    fn asked(words: &str) -> Result<serde_json::Value, Failure> {
        let cli = Cli::try_parse_from(format!("mend sim {words}").split_whitespace()).unwrap();
        let Verb::Sim(action) = cli.verb else { panic!("it is another verb") };
        simulate(&action).map(|answer| answer.facts().clone())
    }

    fn number(facts: &serde_json::Value, path: &str) -> f64 {
        facts.pointer(path).and_then(serde_json::Value::as_f64).unwrap()
    }

    #[test]
    fn a_cap_makes_a_recovery_slower_and_leaves_more_to_reads() {
        let words = "recover --code rs-9-6 --nodes 30 --stripes 400 --block-size 16MiB --rate 1gbit";
        let (free, capped) = (asked(words).unwrap(), asked(&format!("{words} --cap 250mbit")).unwrap());
        assert_eq!(number(&free, "/blocks"), 120.0);
        let slower = number(&capped, "/seconds") / number(&free, "/seconds");
        assert!((slower - 4.0).abs() < 0.4, "a quarter of the links: {slower}");
        assert!(number(&free, "/of_bound") <= 1.0 && number(&free, "/uplinks_used/mean") > 0.5);
        assert!(number(&capped, "/uplinks_used/most") <= 0.25 + 1e-9);
    }

    #[test]
    fn push_forwards_whole_blocks_unless_another_scheme_is_requested() {
        let words = "recover --code rs-9-6 --nodes 30 --stripes 100 --policy push-sur";
        let seconds = |more: &str| number(&asked(&format!("{words}{more}")).unwrap(), "/seconds");
        assert_eq!(seconds(""), seconds(" --scheme pipe-b"));
        assert_ne!(seconds(""), seconds(" --scheme pipelined"));
    }

    #[test]
    fn a_disk_that_is_slower_than_links_decides() {
        let facts = asked("recover --code rs-6-4 --nodes 10 --stripes 30 --disk 20MB/s").unwrap();
        assert_eq!(facts["limited_by"], "disks");
        let local = asked("recover --code lrc-6-2-2 --nodes 12 --stripes 30").unwrap();
        assert!(local["of_bound"].is_null() && number(&local, "/seconds") > 0.0, "it reads less: {local}");
    }

    #[test]
    fn slow_nodes_make_a_recovery_slower_but_do_not_decide_it() {
        let words = "recover --code rs-9-6 --nodes 30 --stripes 400 --block-size 16MiB --rate 1gbit";
        let even = asked(words).unwrap();
        let slow = asked(&format!("{words} --node-rate 1-9=250mbit --node-rate 10=500mbit")).unwrap();
        let bound = number(&slow, "/bound_seconds") / number(&even, "/bound_seconds");
        assert!(bound > 1.2 && bound < 1.6, "9 of 29 nodes have a quarter of the bandwidth: {bound}");
        assert!(number(&slow, "/of_bound") > 0.4, "they get a quarter of the work: {slow}");
        let error = asked(&format!("{words} --node-rate 29-30=1gbit")).unwrap_err();
        assert_eq!(error.message(), "there is no node 30: the nodes are 0 to 29");
        for wrong in ["x=1gbit", "0=1gbit", "5-3=1gbit", "3", "3=fast", "3=0"] {
            assert!(wrong.parse::<NodeRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn codes_and_schemes_are_compared() {
        let of = |words: &str| asked(&format!("mttdl --nodes 40 --data 10TiB {words}")).unwrap();
        let parity = of("--code rs-14-10 --against rs-9-6");
        assert!(number(&parity, "/times") > 10.0, "{parity}");
        assert_eq!(number(&parity, "/one/stripes"), (10u64 << 40).div_ceil(10 * (64 << 20)) as f64);
        // With few blocks to rebuild, conventional repair takes as long as sending ten blocks over one link,
        // and pipelined repair takes as long as sending one block.
        let few =
            "mttdl --nodes 200 --data 100GiB --code rs-14-10 --against-scheme conventional --repair-after 0s";
        let speed = asked(few).unwrap();
        assert!(number(&speed, "/times") > 100.0, "{speed}");
        let same = of("--code rs-9-6 --against rs-9-6");
        assert_eq!(number(&same, "/times"), 1.0);
    }

    #[test]
    fn invalid_simulations_are_rejected_with_advice() {
        let refused = |words: &str| asked(words).unwrap_err().message().to_owned();
        let few = refused("recover --code rs-9-6 --nodes 9 --stripes 10");
        assert!(few.contains("one more node"), "{few}");
        let many = refused("recover --code rs-9-6 --nodes 10 --stripes 100000000");
        assert!(many.contains("more than 5000"), "{many}");
        let copies = refused("recover --code rs-9-6 --nodes 12 --stripes 10 --scheme migration");
        assert!(!copies.is_empty());
        assert!(
            refused("recover --code clay-6-4-5 --nodes 12 --stripes 10 --block-size 100")
                .contains("sub-blocks")
        );
        assert_eq!("2%".parse(), Ok(Percent(0.02)));
        assert!(["2", "0%", "100%", "%", "-1%"].iter().all(|text| text.parse::<Percent>().is_err()));
    }
}
