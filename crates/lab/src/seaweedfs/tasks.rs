//! The measurements that the user wants, each a cell of the report.

use super::BenchArgs;
use crate::experiment::report::{Key, Kind};
use crate::topology::Rate;

/// The losses, as shard numbers: one data shard; and two data and two parity shards, the maximum that a 10+4
/// volume tolerates.
pub(super) const LOSSES: [&[u8]; 2] = [&[3], &[0, 6, 11, 13]];
/// The code of all volumes.
pub(super) const CODE: &str = "10+4";
/// The total repair cap in capped measurements.
pub(super) const CAP: &str = "250Mbit";
/// The number of data shards, over which a volume is spread.
const DATA: u64 = 10;

/// The program that repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Stock,
    Mend,
    /// Mend, with a cap on all repairs together.
    Capped,
}

/// The names of rows in which nothing is repaired.
pub(super) const ALL_UP: &str = "no repair, all servers are up";
pub(super) const ONE_DOWN: &str = "no repair, a server is down";
/// The names of the programs.
pub(super) const STOCK: &str = "ec.rebuild";
pub(super) const MEND: &str = "mend";
pub(super) const MEND_ENCRYPTED: &str = "mend, encrypted";

impl By {
    /// Returns the name in tables. With `is_encrypted`, Mend encrypts its data edges.
    pub(super) fn name(self, is_encrypted: bool) -> String {
        let mend = if is_encrypted { MEND_ENCRYPTED } else { MEND };
        match self {
            Self::Stock => STOCK.to_owned(),
            Self::Mend => mend.to_owned(),
            Self::Capped => format!("{mend}, {CAP}/s in all"),
        }
    }
}

/// A measurement.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Task {
    pub(super) key: Key,
    pub(super) rate: Rate,
    pub(super) by: By,
    /// The index of the volume's size among those that were requested.
    pub(super) volume: usize,
    /// The shards to lose; empty for servers.
    pub(super) lost: &'static [u8],
    pub(super) repetitions: usize,
}

/// Returns the nominal size of a shard of a volume with this many megabytes.
fn shard_bytes(megabytes: usize) -> u64 {
    megabytes as u64 * 1_000_000 / DATA
}

/// Returns the code of a cell in which this many shards of a volume are lost.
pub(super) fn lost_code(shards: usize) -> String {
    format!("{CODE}, {shards} lost")
}

fn task(args: &BenchArgs, (kind, code, megabytes): (Kind, String, usize), rate: Rate, by: By) -> Task {
    let key = Key {
        kind,
        code,
        block_bytes: shard_bytes(megabytes),
        rate: rate.to_string(),
        by: by.name(args.encrypted),
    };
    Task { key, rate, by, volume: 0, lost: &[], repetitions: args.repetitions }
}

/// Returns the losses of shards of a volume. Mend and SeaweedFS take turns.
pub(super) fn losses(args: &BenchArgs) -> Vec<Task> {
    let mut tasks = Vec::new();
    for &rate in &args.rates {
        for (volume, &megabytes) in args.volumes.iter().enumerate() {
            for lost in LOSSES {
                let place = || (Kind::Loss, lost_code(lost.len()), megabytes);
                let of = |by| Task { volume, lost, ..task(args, place(), rate, by) };
                tasks.extend([By::Mend, By::Stock].map(of));
            }
        }
    }
    tasks
}

/// Returns the recoveries of servers.
pub(super) fn servers(args: &BenchArgs) -> Vec<Task> {
    let place = || (Kind::Node, CODE.to_owned(), args.small_megabytes);
    let rates = args.rates.iter().filter(|_| args.small_volumes > 0);
    rates.flat_map(|&rate| [By::Stock, By::Mend].map(|by| task(args, place(), rate, by))).collect()
}

/// Returns the recoveries of servers with reads, at the fastest rate.
pub(super) fn reads(args: &BenchArgs) -> Vec<Task> {
    let place = || (Kind::ReadsDuring, CODE.to_owned(), args.small_megabytes);
    let rate = args.rates.iter().max().filter(|_| args.small_volumes > 0 && args.reads);
    let of = |&rate| {
        [By::Stock, By::Mend, By::Capped].map(|by| Task { repetitions: 1, ..task(args, place(), rate, by) })
    };
    rate.into_iter().flat_map(of).collect()
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

    fn args(words: &[&str]) -> BenchArgs {
        Cli::parse_from([&["lab"], words].concat()).args
    }

    #[test]
    fn the_targets_rates_are_the_default() {
        let args = args(&[]);
        let place = |task: &Task| format!("{}, {}", task.key.tick(), task.key.by);
        let losses: Vec<String> = losses(&args).iter().map(place).collect();
        assert_eq!(
            losses[..2],
            ["10+4, 1 lost, 66 MB, 100mbit, mend", "10+4, 1 lost, 66 MB, 100mbit, ec.rebuild"]
        );
        assert_eq!(losses[7], "10+4, 4 lost, 66 MB, 200mbit, ec.rebuild");
        let servers: Vec<String> = servers(&args).iter().map(place).collect();
        assert_eq!(servers.len(), 4);
        assert_eq!(servers[3], "10+4, 3 MiB, 200mbit, mend".replace("3 MiB", "3 MB"));
        let reads: Vec<String> = reads(&args).iter().map(place).collect();
        assert_eq!(reads[2], "10+4, 3 MB, 200mbit, mend, 250Mbit/s in all");
    }

    #[test]
    fn encrypted_repairs_are_cells_of_their_own() {
        let args = args(&["--encrypted", "--small-volumes", "0"]);
        assert!(losses(&args).iter().any(|task| task.key.by == "mend, encrypted"));
        assert!(servers(&args).is_empty() && reads(&args).is_empty());
    }
}
