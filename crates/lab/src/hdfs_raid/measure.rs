//! Carries out the measurements that the report lacks, one after another, on one cluster.

use std::fs;
use std::process::ExitCode;

use testbed::hdfs::Pace;
use testbed::{Mend, replace_file};

use super::HdfsRaidArgs;
use super::codes::{CODES, OWN, Point, points};
use super::detail::{Detail, Report, Run};
use super::encoding::{ENCODERS, Encoder, time_encoding};
use super::files::{RaidFile, client_seat, revive};
use super::page::PUBLICATION;
use super::readers::{Block, Client, READERS, Reader};
use crate::error::LabError;
use crate::experiment::report::{Key, Kind};
use crate::experiment::{Book, settle};
use crate::folders::usual;
use crate::hdfs::cluster::{HdfsLab, Machines};
use crate::hdfs::hadoop;
use crate::hdfs::nodes::Gone;
use crate::lab_cluster::Programs;
use crate::network::{LabNode, Names};
use crate::run::Say;
use crate::topology::Rate;

/// As many DataNodes as in both papers' larger clusters, and as blocks in the widest code; and the client's machine.
const MACHINES: Machines = Machines { data_nodes: 16, clients: 1 };
/// The heap of the client's JVM. To decode, a client keeps three blocks in memory.
const CLIENT_HEAP_MEGABYTES: u32 = 2048;
/// The most stripes in a file of the recovery, so that its replicas need little room until it is encoded.
const STRIPES_PER_FILE: usize = 12;
/// The recoveries, by name, with the options of `mend node recover`.
const RECOVERIES: [(&str, &[&str]); 2] =
    [("Mend", &[]), ("Mend, conventional", &["--scheme", "conventional"])];

/// Runs the requested measurements that the report lacks, and writes the page.
pub(super) fn run(
    names: &Names,
    programs: &Programs,
    args: &HdfsRaidArgs,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let book = Book::open(PUBLICATION, &args.folders)?;
    let todo = Todo::of(args, &book.report);
    say(&format!("{} repetitions are to be measured", todo.count()));
    if todo.count() == 0 {
        return book.publish(lacking(&book.report));
    }
    let lab = HdfsLab::up(names, programs, hadoop()?, MACHINES, Pace::Short)?;
    let mut measuring = RaidBench { lab, args, say, book };
    measuring.all(&todo)?;
    measuring.book.publish(lacking(&measuring.book.report))
}

/// Returns the number of repetitions that a complete page has and the report lacks.
fn lacking(report: &Report) -> usize {
    Todo::of(&usual(), report).count()
}

/// The repetitions that the report lacks: measurements with the number of repetitions.
#[derive(Debug, PartialEq)]
struct Todo {
    reads: Vec<(Point, Vec<(Reader, usize)>)>,
    encodings: Vec<(Encoder, usize)>,
    recoveries: Vec<(usize, usize)>,
}

fn read_key(args: &HdfsRaidArgs, point: Point, reader: Reader) -> Key {
    key(args, Kind::Read, (&point.code.to_string(), point.block_mib), &reader.name())
}

fn encoding_key(args: &HdfsRaidArgs, encoder: Encoder) -> Key {
    key(args, Kind::Encoding, (&OWN.to_string(), args.encoded_block), encoder.name)
}

fn recovery_key(args: &HdfsRaidArgs, by: &str) -> Key {
    key(args, Kind::Node, (&OWN.to_string(), args.small_block), by)
}

fn key(args: &HdfsRaidArgs, kind: Kind, (code, block_mib): (&str, usize), by: &str) -> Key {
    let block_bytes = (block_mib << 20) as u64;
    Key { kind, code: code.to_owned(), block_bytes, rate: args.rate.to_string(), by: by.to_owned() }
}

impl Todo {
    fn of(args: &HdfsRaidArgs, report: &Report) -> Self {
        let is_open = |count: &usize| *count > 0;
        let reads = points(&args.codes, args.block, &args.sizes).into_iter().map(|point| {
            let lacks = |reader: Reader| {
                // How long HDFS tries before it fails depends on its settings alone.
                let repetitions = if reader == Reader::Stock { 1 } else { args.repetitions };
                (reader, report.lacks(&read_key(args, point, reader), repetitions))
            };
            (point, READERS.map(lacks).into_iter().filter(|(_, count)| is_open(count)).collect())
        });
        let encodings = ENCODERS.into_iter().filter(|_| args.stripes > 0);
        let encodings =
            encodings.map(|encoder| (encoder, report.lacks(&encoding_key(args, encoder), args.repetitions)));
        let recoveries = RECOVERIES.iter().enumerate().filter(|_| args.blocks > 0);
        let recoveries =
            recoveries.map(|(at, (by, _))| (at, report.lacks(&recovery_key(args, by), args.repetitions)));
        Self {
            reads: reads.filter(|(_, readers): &(_, Vec<_>)| !readers.is_empty()).collect(),
            encodings: encodings.filter(|(_, count)| is_open(count)).collect(),
            recoveries: recoveries.filter(|(_, count)| is_open(count)).collect(),
        }
    }

    /// Returns the number of repetitions.
    fn count(&self) -> usize {
        let reads = self.reads.iter().flat_map(|(_, readers)| readers).map(|(_, count)| count);
        let encodings = self.encodings.iter().map(|(_, count)| count);
        reads.chain(encodings).chain(self.recoveries.iter().map(|(_, count)| count)).sum()
    }
}

/// Returns each item as often as its number says. All items take turns, so that a drift of the machine's speed affects all of
/// them.
fn rounds<T>(items: &[(T, usize)]) -> impl Iterator<Item = &T> {
    let most = items.iter().map(|(_, count)| *count).max().unwrap_or_default();
    let of_round = |round: usize| items.iter().filter(move |(_, count)| round < *count).map(|(item, _)| item);
    (0..most).flat_map(of_round)
}

struct RaidBench<'a> {
    lab: HdfsLab,
    args: &'a HdfsRaidArgs,
    say: Say<'a>,
    book: Book<Detail>,
}

impl RaidBench<'_> {
    fn all(&mut self, todo: &Todo) -> Result<(), LabError> {
        let mut mend = self.attach_to_encode()?;
        for (point, readers) in &todo.reads {
            self.reads(&mut mend, *point, readers)?;
        }
        for &encoder in rounds(&todo.encodings) {
            self.encoding(&mend, encoder)?;
        }
        drop(mend);
        self.recoveries(&todo.recoveries)
    }

    /// Attaches Mend for encodings and reads. Encoded stripes are described by the readers, so the coordinator does not have
    /// to follow raided files.
    fn attach_to_encode(&mut self) -> Result<Mend, LabError> {
        let mend = self.lab.attach_with(&["--dry-run"]);
        name_codecs(&mend)?;
        mend.wait_for_helpers();
        self.lab.certify(&mend);
        Ok(mend)
    }

    fn keep(&mut self, key: &Key, run: Run) -> Result<(), LabError> {
        (self.say)(&format!("{}: {}: {:.2} s", key.by, key.tick(), run.seconds));
        self.book.keep(key, run)
    }

    /// Measures the time to send a block over a link, unless the report has it. The links must be shaped.
    fn direct(&mut self, block_mib: usize) -> Result<(), LabError> {
        self.book.direct(&self.lab.network, (block_mib << 20) as u64, self.args.rate)
    }

    // ---- degraded reads ----

    /// Stores and encodes a file with one stripe, loses a block, and lets all readers read it in turn.
    fn reads(&mut self, mend: &mut Mend, point: Point, readers: &[(Reader, usize)]) -> Result<(), LabError> {
        let Point { code, block_mib } = point;
        (self.say)(&format!("storing and encoding a file with {code} and blocks of {block_mib} MiB"));
        self.lab.shape(Rate::Unshaped)?;
        let file = RaidFile::new(&format!("read-{code}-{block_mib}"), code, 1, block_mib);
        file.store(&mut self.lab)?;
        file.encode(&mut self.lab, mend)?;
        let [lost, kept] = file.lost_and_kept();
        let node = file.lose(&mut self.lab, mend)?;
        let mut client = self.client(point);
        let of = |reader: Reader| if reader == Reader::Plain { &kept } else { &lost };
        self.warm_up(&mut client, readers, of)?;
        self.direct(block_mib)?;
        for &reader in rounds(readers) {
            let run = client.measure(&self.lab.network, reader, of(reader))?;
            self.keep(&read_key(self.args, point, reader), run)?;
        }
        drop(client);
        self.lab.shape(Rate::Unshaped)?;
        file.remove(&mut self.lab);
        revive(&mut self.lab, mend, node);
        Ok(())
    }

    /// Starts the client's JVM.
    fn client(&self, point: Point) -> Client {
        let console = self.lab.cluster.start_console(client_seat(&self.lab), CLIENT_HEAP_MEGABYTES);
        let coordinator = LabNode::Coordinator.address().to_string();
        Client::new(console, self.lab.cluster.folder().join("read"), point.code, coordinator)
    }

    /// Lets each reader read a block once over unshaped links: the JVM compiles its code, and the readers describe the
    /// stripe and connect. Then shapes the links.
    fn warm_up<'b>(
        &mut self,
        client: &mut Client,
        readers: &[(Reader, usize)],
        of: impl Fn(Reader) -> &'b Block,
    ) -> Result<(), LabError> {
        for &(reader, _) in readers.iter().filter(|(reader, _)| *reader != Reader::Stock) {
            client.read(reader, of(reader))?;
        }
        self.lab.shape(self.args.rate)
    }

    // ---- encoding ----

    fn encoding(&mut self, mend: &Mend, encoder: Encoder) -> Result<(), LabError> {
        let (args, key) = (self.args, encoding_key(self.args, encoder));
        (self.say)("storing a file to encode");
        self.lab.shape(Rate::Unshaped)?;
        let file = RaidFile::new("encoded", OWN, args.stripes, args.encoded_block);
        file.store(&mut self.lab)?;
        self.lab.shape(args.rate)?;
        self.direct(args.encoded_block)?;
        let is_settled = settle(&self.lab.network)?;
        let command = file.encode_command(&self.lab, mend, encoder.options)?;
        let mut run = time_encoding(&self.lab.network, command, args.stripes)?;
        run.doubts.unsettled = !is_settled;
        self.lab.shape(Rate::Unshaped)?;
        file.remove(&mut self.lab);
        self.keep(&key, run)
    }

    // ---- recovery ----

    /// Measures the recovery of DataNodes, one after another.
    fn recoveries(&mut self, todo: &[(usize, usize)]) -> Result<(), LabError> {
        for &at in rounds(todo) {
            let stripes = self.fill()?;
            self.recovery(at, stripes)?;
        }
        Ok(())
    }

    /// Removes the files of an earlier recovery, and stores and encodes files until a DataNode has about as many blocks as
    /// requested. So the blocks of every recovery are spread over all DataNodes: after a recovery, the DataNode that
    /// replaced the lost one has none. Returns the number of stripes.
    fn fill(&mut self) -> Result<usize, LabError> {
        (self.say)("storing and encoding files for the recovery");
        self.lab.shape(Rate::Unshaped)?;
        let mend = self.attach_to_encode()?;
        let stripes = (self.args.blocks * self.lab.cluster.nodes().len() / OWN.n).max(1);
        for first in (0..stripes).step_by(STRIPES_PER_FILE) {
            let count = STRIPES_PER_FILE.min(stripes - first);
            let file = RaidFile::new(&format!("many-{first}"), OWN, count, self.args.small_block);
            file.remove(&mut self.lab);
            file.store(&mut self.lab)?;
            file.encode(&mut self.lab, &mend)?;
        }
        Ok(stripes)
    }

    fn recovery(&mut self, at: usize, stripes: usize) -> Result<(), LabError> {
        let ((by, options), args) = (RECOVERIES[at], self.args);
        let mut mend = self.lab.attach_with(&["--raid"]);
        mend.wait_until_safe(stripes);
        self.lab.certify(&mend);
        self.lab.await_whole();
        self.lab.shape(args.rate)?;
        self.book.link(&self.lab.network, args.rate)?;
        let gone = Gone::choose(&mut self.lab, "/", args.blocks)?;
        gone.kill(&mut self.lab, Some(&mut mend));
        gone.await_dead(&mut self.lab, &mend)?;
        let is_settled = settle(&self.lab.network)?;
        let repaired = gone.recover(&mut self.lab, &mend, options)?.after(is_settled);
        self.keep(&recovery_key(args, by), Run::of(repaired, Detail::Node(gone.lost)))?;
        self.lab.shape(Rate::Unshaped)?;
        gone.replace(&mut self.lab, Some(&mut mend));
        Ok(())
    }
}

/// Adds all codecs to `mend.toml`: `mend raid encode` refuses others. The running coordinator has read the file already.
fn name_codecs(mend: &Mend) -> Result<(), LabError> {
    let path = mend.folder().join("mend.toml");
    let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
    let codecs: String = CODES.into_iter().map(|code| code.codec_table("store.raid.codec")).collect();
    replace_file(&path, format!("{text}\n[store.raid]\n{codecs}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: HdfsRaidArgs,
    }

    fn args(words: &[&str]) -> HdfsRaidArgs {
        Cli::parse_from([&["lab"], words].concat()).args
    }

    fn empty() -> Report {
        Report::new(crate::machine::Machine::this())
    }

    #[test]
    fn all_codes_are_measured_by_default() {
        let todo = Todo::of(&args(&[]), &empty());
        assert_eq!(args(&[]).codes, CODES);
        // Nine codes with blocks of 64 MiB, and one code with three further sizes.
        assert_eq!(todo.reads.len(), 9 + 3);
        // Seven readers read three times, and HDFS fails once.
        assert_eq!(todo.count(), 12 * (7 * 3 + 1) + 3 * ENCODERS.len() + 3 * RECOVERIES.len());
    }

    #[test]
    fn repetitions_take_turns() {
        let order: String = rounds(&[("a", 3), ("b", 1), ("c", 2)]).copied().collect();
        assert_eq!(order, "abcaca");
    }

    #[test]
    fn only_what_the_report_lacks_is_measured() {
        let args = args(&["--codes", "14-10", "--repetitions", "2", "--blocks", "0"]);
        let mut report = empty();
        let run = |seconds| crate::experiment::report::tests::run(seconds, Detail::Read);
        let point = Point { code: OWN, block_mib: 64 };
        for reader in READERS {
            report.add(&read_key(&args, point, reader), run(1.0));
        }
        for encoder in ENCODERS {
            report.add(&encoding_key(&args, encoder), run(1.0));
        }
        let todo = Todo::of(&args, &report);
        let [(found, readers)] = &todo.reads[..] else { panic!("{todo:?}") };
        assert_eq!(*found, point);
        let rest: Vec<_> = READERS.into_iter().filter(|reader| *reader != Reader::Stock).collect();
        assert_eq!(*readers, rest.iter().map(|&reader| (reader, 1)).collect::<Vec<_>>());
        assert_eq!(todo.encodings, ENCODERS.map(|encoder| (encoder, 1)));
        assert!(todo.recoveries.is_empty(), "{todo:?}");
        for reader in rest {
            report.add(&read_key(&args, point, reader), run(1.0));
        }
        for encoder in ENCODERS {
            report.add(&encoding_key(&args, encoder), run(1.0));
        }
        assert_eq!(Todo::of(&args, &report).count(), 0);
    }
}
