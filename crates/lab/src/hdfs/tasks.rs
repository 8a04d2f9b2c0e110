//! The measurements that the user wants, each a cell of the report.

use clap::ValueEnum;

use super::BenchArgs;
use super::cluster::{Commands, POLICIES, Policy};
use super::ways::{WAYS, Way};
use crate::experiment::report::{Key, Kind};
use crate::topology::Rate;

/// Bytes of a lost DataNode's blocks, at the most. A cluster of fifteen DataNodes then stores 8 GB.
const NODE_MIB: usize = 512;
/// The repetitions with evicted caches: the numbers of bytes hardly vary.
const COLD_REPETITIONS: usize = 1;
/// The policy of files that are read during a recovery. With RS-10-4, hardly any file has no block on the lost DataNode.
const OF_READS: Policy = POLICIES[0];

/// The recoveries during which files are read.
const OF_READERS: [By; 2] = [By::Way(Way::Hdfs), By::Way(Way::Asked)];

/// A part of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// Repairs of single blocks
    Blocks,
    /// The same with cold caches
    Cold,
    /// Recoveries of whole DataNodes
    Nodes,
    /// Recoveries onto a single new DataNode, as in the paper on repair pipelining
    OneTarget,
    /// Small reads of lost blocks
    Reads,
    /// Small reads during a recovery
    ReadsDuring,
}

/// A small read of a block whose DataNode is dead, or was not killed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Healthy,
    Stock,
    Mend,
}

pub(super) const READERS: [Reader; 3] = [Reader::Healthy, Reader::Stock, Reader::Mend];

impl Reader {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Healthy => "HDFS, nothing lost",
            Self::Stock => "HDFS",
            Self::Mend => "Mend",
        }
    }
}

/// The program that a measurement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Way(Way),
    Reader(Reader),
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) kind: Kind,
    pub(super) policy: Policy,
    pub(super) block_mib: usize,
    pub(super) rate: Rate,
    pub(super) by: By,
    pub(super) repetitions: usize,
}

impl Task {
    pub(super) fn name(&self) -> &'static str {
        match self.by {
            By::Way(way) => way.name(),
            By::Reader(reader) => reader.name(),
        }
    }

    /// Returns the cell of the report.
    pub(super) fn key(&self) -> Key {
        Key {
            kind: self.kind,
            code: self.policy.name.to_owned(),
            block_bytes: self.block_bytes() as u64,
            rate: self.rate.to_string(),
            by: self.name().to_owned(),
        }
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_mib << 20
    }

    /// Whether Mend runs during the measurement.
    pub(super) fn needs_mend(&self) -> bool {
        match self.by {
            By::Way(way) => way.is_mend(),
            By::Reader(_) => true,
        }
    }

    /// Whether the measurement needs no other files than one block group of each policy.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.kind, Kind::Loss | Kind::ColdLoss | Kind::SmallReads)
    }

    /// The commands that the NameNode sends meanwhile.
    pub(super) fn commands(&self) -> Commands {
        match self.by {
            By::Way(way) => way.commands(),
            By::Reader(_) => Commands::None,
        }
    }
}

/// Returns the number of blocks of a lost DataNode: as many as requested, unless they are too large.
pub(super) fn blocks_of(block_mib: usize, requested: usize) -> usize {
    requested.min(NODE_MIB / block_mib).max(1)
}

/// Returns all measurements that the user wants, in the order in which they are carried out.
pub(super) fn tasks(args: &BenchArgs) -> Vec<Task> {
    let parts = |part| args.parts.contains(&part);
    let mut tasks = Vec::new();
    if parts(Part::Blocks) {
        tasks.extend(repairs(args, Kind::Loss, &args.rates, &[args.block], args.repetitions));
    }
    if parts(Part::Cold) {
        tasks.extend(repairs(args, Kind::ColdLoss, &args.rates[..1], &[args.block], COLD_REPETITIONS));
    }
    if parts(Part::Reads) {
        tasks.extend(small_reads(args));
    }
    if parts(Part::Nodes) {
        tasks.extend(repairs(args, Kind::Node, &args.rates, &args.small_block, args.repetitions));
    }
    if parts(Part::OneTarget) {
        tasks.extend(repairs(args, Kind::NodeToOne, &args.rates, &args.small_block, args.repetitions));
    }
    if parts(Part::ReadsDuring) {
        tasks.extend(reads_during(args));
    }
    tasks
}

/// Returns repairs in all wanted ways. Repairs in the same way come together, so that the NameNode's commands seldom
/// change.
fn repairs(args: &BenchArgs, kind: Kind, rates: &[Rate], sizes: &[usize], repetitions: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for way in WAYS.into_iter().filter(|way| args.by.contains(way)) {
        for policy in POLICIES.into_iter().filter(|policy| args.measures(policy)) {
            for &block_mib in sizes {
                let task = |&rate| Task { kind, policy, block_mib, rate, by: By::Way(way), repetitions };
                tasks.extend(rates.iter().map(task));
            }
        }
    }
    // More commands at a time make no difference to a single block.
    tasks.retain(|task| !task.is_single() || task.commands() != Commands::Many);
    tasks
}

fn small_reads(args: &BenchArgs) -> Vec<Task> {
    let policies = POLICIES.into_iter().filter(|policy| args.measures(policy));
    let (kind, block_mib, rate) = (Kind::SmallReads, args.block, args.rates[0]);
    let of = |policy| {
        READERS.map(|reader| Task { kind, policy, block_mib, rate, by: By::Reader(reader), repetitions: 1 })
    };
    policies.flat_map(of).collect()
}

fn reads_during(args: &BenchArgs) -> Vec<Task> {
    let (rates, sizes) = (&args.rates[..1], &args.small_block[..1]);
    let mut tasks = repairs(args, Kind::ReadsDuring, rates, sizes, args.during);
    tasks.retain(|task| task.policy == OF_READS && OF_READERS.contains(&task.by));
    tasks
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn wanted(words: &[&str]) -> Vec<Task> {
        tasks(&Cli::parse_from([&["lab"], words].concat()).args)
    }

    fn count(tasks: &[Task], kind: Kind) -> usize {
        tasks.iter().filter(|task| task.kind == kind).map(|task| task.repetitions).sum()
    }

    #[test]
    fn by_default_three_ways_are_measured_three_times() {
        let tasks = wanted(&[]);
        // Two policies; whole DataNodes with two sizes of blocks.
        assert_eq!(count(&tasks, Kind::Loss), 2 * 3 * 3);
        assert_eq!(count(&tasks, Kind::ColdLoss), 2 * 3);
        assert_eq!(count(&tasks, Kind::Node), 2 * 2 * 3 * 3);
        assert_eq!(count(&tasks, Kind::NodeToOne), 0);
        assert_eq!(count(&tasks, Kind::SmallReads), 2 * 3);
        assert_eq!(count(&tasks, Kind::ReadsDuring), 2);
        let way = |way: Way| tasks.iter().filter(|task| task.by == By::Way(way)).count();
        assert_eq!((way(Way::HdfsMany), way(Way::CommandedMany)), (0, 0));
    }

    #[test]
    fn lists_of_rates_and_sizes_are_combined() {
        let words = ["--parts", "nodes", "--rates", "100mbit,200mbit", "--small-block", "8,64"];
        let tasks = wanted(&[&words[..], &["--policies", "RS-6-3", "--by", "Mend, asked"]].concat());
        let places: Vec<String> = tasks.iter().map(|task| task.key().tick()).collect();
        let expected = [
            "RS-6-3-1024k, 8 MiB, 100mbit",
            "RS-6-3-1024k, 8 MiB, 200mbit",
            "RS-6-3-1024k, 64 MiB, 100mbit",
            "RS-6-3-1024k, 64 MiB, 200mbit",
        ];
        assert_eq!(places, expected);
        assert!(tasks.iter().all(|task| task.by == By::Way(Way::Asked)));
    }

    #[test]
    fn a_name_selects_one_way_only() {
        let tasks = wanted(&["--by", "HDFS", "--parts", "nodes,blocks"]);
        assert!(tasks.iter().all(|task| task.by == By::Way(Way::Hdfs)), "{tasks:?}");
        let tasks = wanted(&["--by", "HDFS, 20 streams", "--parts", "nodes,blocks"]);
        assert!(tasks.iter().all(|task| task.kind == Kind::Node), "{tasks:?}");
    }

    #[test]
    fn large_blocks_are_fewer() {
        assert_eq!((blocks_of(8, 40), blocks_of(64, 40), blocks_of(1024, 40)), (40, 8, 1));
    }
}
