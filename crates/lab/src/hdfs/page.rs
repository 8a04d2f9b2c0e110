//! Formats the report as a page with drawings.

use super::detail::{Detail, Report};
use super::reads::BYTES;
use super::tables::{
    cold, compared, loss_values, losses, node_values, nodes, reads_during, small_reads, small_values,
};
use super::targets;
use crate::experiment::report::Kind;
use crate::experiment::{Publication, drawing, timelines, verdicts};
use crate::figure::plot::Drawing;

pub(super) const PUBLICATION: Publication<Detail> = Publication {
    name: "hdfs",
    title: "HDFS with and without Mend",
    command: "make bench-hdfs",
    text,
    drawings,
};

/// The names of the drawings.
const BLOCK: &str = "hdfs-block";
const NODE: &str = "hdfs-node";
const READING: &str = "hdfs-reads";
/// The block size of the paper on repair pipelining.
const PAPER_BYTES: u64 = 64 << 20;

/// Returns the page without its heading.
fn text(report: &Report) -> String {
    let drawings = drawings(report);
    let parts = [targets, blocks, cold_caches, whole, to_one, paper, small, during];
    let parts = parts.map(|part| part(report, &drawings));
    format!("\n\n{ABOUT}\n{SETTINGS}\n{NAMESPACE}{}\n{CHECKED}", parts.concat())
}

/// Returns a section, if the report has cells of this kind.
fn section(report: &Report, kind: Kind, heading: &str, body: impl FnOnce() -> String) -> String {
    match report.of(kind).next() {
        Some(_) => format!("\n## {heading}\n\n{}", body()),
        None => String::new(),
    }
}

fn targets(report: &Report, _: &[Drawing]) -> String {
    let judged = targets::judged(report);
    if judged.is_empty() {
        String::new()
    } else {
        format!("\n## Targets\n\n{TARGETS}\n{}", verdicts(&judged))
    }
}

fn blocks(report: &Report, drawings: &[Drawing]) -> String {
    section(report, Kind::Loss, "One internal block", || {
        let (link, table) = (Drawing::link(drawings, BLOCK), losses(report));
        format!("{link}{LOSSES}\n{table}{}", timelines(report, Kind::Loss))
    })
}

fn cold_caches(report: &Report, _: &[Drawing]) -> String {
    section(report, Kind::ColdLoss, "Reads with cold caches", || format!("{COLD}\n{}", cold(report)))
}

fn whole(report: &Report, drawings: &[Drawing]) -> String {
    section(report, Kind::Node, "A whole DataNode", || {
        let (link, table) = (Drawing::link(drawings, NODE), nodes(report, Kind::Node));
        format!("{link}{NODES}\n{table}{}", timelines(report, Kind::Node))
    })
}

fn to_one(report: &Report, _: &[Drawing]) -> String {
    section(report, Kind::NodeToOne, "Onto one new DataNode", || {
        let table = nodes(report, Kind::NodeToOne);
        format!("{TO_ONE}\n{table}{}", timelines(report, Kind::NodeToOne))
    })
}

fn paper(report: &Report, _: &[Drawing]) -> String {
    section(report, Kind::Node, "Compared with the paper on repair pipelining", || {
        format!("{PAPER}\n{}", compared(report, PAPER_BYTES))
    })
}

fn small(report: &Report, drawings: &[Drawing]) -> String {
    section(report, Kind::SmallReads, "Small reads of lost blocks", || {
        let (link, kib) = (Drawing::link(drawings, READING), BYTES >> 10);
        format!("{link}Reads of {kib} KiB {READS}\n{}", small_reads(report))
    })
}

fn during(report: &Report, _: &[Drawing]) -> String {
    section(report, Kind::ReadsDuring, "Reads during a recovery", || {
        format!("Reads of {} KiB {DURING}\n{}", BYTES >> 10, reads_during(report))
    })
}

/// Returns the drawings of the tables that have rows.
fn drawings(report: &Report) -> Vec<Drawing> {
    let (losses, sends) = loss_values(report);
    let (nodes, bounds) = node_values(report);
    let drawings = [
        drawing(BLOCK, "HDFS: one internal block", "seconds, median", &losses, sends),
        drawing(NODE, "HDFS: a whole DataNode", "blocks per second, median", &nodes, bounds),
        Drawing::of(
            READING,
            "HDFS: small reads of lost blocks",
            "milliseconds, median",
            small_values(report),
        ),
    ];
    drawings.into_iter().flatten().collect()
}

const CHECKED: &str =
    "Every rebuilt block and its checksums were identical to the lost ones; every byte read was as stored.\n";

const ABOUT: &str = "\
Hadoop 3.4.3, unmodified: a NameNode and 15 DataNodes, each DataNode in a network namespace of its own behind a link that is
shaped to the rate in both directions. *HDFS*: HDFS repairs on its own, without any part of Mend. *Commanded*: the NameNode sends
a DataNode the same command, and the DataNode's plug-in passes the repair to Mend; the first command for a dead DataNode begins the
recovery of all its blocks. *Asked*: the NameNode sends no commands, and an operator types `mend repair` or `mend node recover`.

Times are medians of the repetitions; *spread* is the longest minus the shortest, divided by the median. Repetitions take turns: HDFS's
among themselves, then Mend's, because loading the plug-in restarts all DataNodes. Before each measurement, dirty pages are
written and the JVMs are idle. *Marks* count repetitions that other programs disturbed, in which the processors, not the links,
may have limited the speed (*processors*), or that began while the JVMs were still busy after a minute (*unsettled*). *HDFS over it*: HDFS's
time divided by the time. The first command for Mend makes a DataNode load classes for about 0.3 s.
";

/// Deviations from HDFS's defaults, as in the testbed's launcher.
const SETTINGS: &str = "\
HDFS has its default settings: heartbeats and checks of redundancy every 3 s, and two commands at a time for each DataNode, which
the NameNode sends in answer to heartbeats. The deviations:

- A DataNode counts as dead 14 s after its last heartbeat, not after ten and a half minutes: the NameNode has
  `dfs.heartbeat.interval=1`, from which it derives only time limits, and `dfs.namenode.heartbeat.recheck-interval=2000`. The DataNodes
  send heartbeats every 3 s.
- *20 streams*: `dfs.namenode.replication.max-streams=20` and `…max-streams-hard-limit=40`. *Asked*: both are 0.
- `dfs.namenode.safemode.extension=0`, `ipc.client.connect.retry.interval=200`, `dfs.permissions.enabled=false` and
  `dfs.namenode.datanode.registration.ip-hostname-check=false`, which concern starts, rights and names only; for clients,
  `dfs.client.retry.window.base=100`.
- The JVMs have heaps of 128 MB (the NameNode 256 MB), the serial collector and all compilers. Hadoop's native library is missing, so HDFS
  computes in Java. Changes of blocks are logged (`BlockStateChange=DEBUG`). All DataNodes, with two disks each, share one device.
";

const NAMESPACE: &str = "[Following a namespace](hdfs-namespace.md) has the memory of the coordinator for each block group, and the time until it knows of changes.\n";

const TARGETS: &str = "\
The median of the repetitions counts. HDFS hands out its first command at a heartbeat, up to 6 s after it has declared a DataNode dead, and
only then does Mend know that it shall begin; so *commanded* is judged from the first command. The table of whole DataNodes has the time from
the declaration as well.
";

const LOSSES: &str = "\
The time from the DataNode's log entry for the command (*asked*: from the start of the program `mend`) until the NameNode lists the
block. One send is a plain TCP send of a block over one such link; × is the time divided by it. Bytes received over the links of all
DataNodes' machines, and over the busiest of these links. *Blocks read*: bytes that all DataNodes and helpers read from files, the page
cache included, in blocks with their checksums.
";

const COLD: &str = "\
All blocks are evicted from the page cache before the repair of one block. The numbers are blocks with their checksums: *from the device*, what
all DataNodes and helpers caused to be read from the disk (`read_bytes` in `/proc/ID/io`); *reads in all*, what they obtained from files
(`rchar` minus the bytes received over links).
";

const NODES: &str = "\
A DataNode is killed and stays down. The time from the NameNode's declaration that the DataNode is dead (*asked*: from the start of the
program `mend`) until the NameNode lists all blocks again; in a column of its own, the time from the first command. Before every
recovery, all files are removed and stored again, so that the blocks are spread over all DataNodes: *on each* has the fewest and the most
blocks on a DataNode. *Of the links' bound*: the bound divided by the time. The bound is the time in which a link carries k · U / 14 blocks, for
U lost blocks and 14 DataNodes that are left: each rebuilt block is a sum over k blocks of other DataNodes than the one that takes it, so k · U
blocks are sent over 14 links. If one DataNode has to take more blocks than that, because all others hold blocks of the same groups, these
are the bound.
";

const TO_ONE: &str = "\
As many DataNodes run as a group has blocks, and files are stored. Then a new DataNode is started, and one of the others is killed. All its
blocks have to go to the new one, whose link is the bound: U blocks. The columns are those above.
";

/// Independent of the results, as the page is generated.
const PAPER: &str = "\
In the paper (TOS 2021, Figure 10b), repair pipelining recovers a DataNode of HDFS-3 5.1 to 16 times as fast as HDFS, by the width of the
code, with blocks of 64 MiB and links of 1 Gb/s between machines. The paper rebuilds the blocks on a new DataNode: each of HDFS's repairs moves k
blocks over the link of that DataNode, and repair pipelining moves one. Where all blocks go to one DataNode, the links alone therefore
allow k times HDFS's speed: 6 times with RS-6-3, 10 times with RS-10-4; more than k comes from other costs of HDFS's repairs.

Where the rebuilt blocks go to all DataNodes, as HDFS does by default, HDFS's repairs use all links together, and the bound k · U / 14 holds for
HDFS as for Mend. Mend can then be faster only by the factor by which HDFS falls short of that bound (*HDFS / bound*). HDFS falls short because
it hands out two commands for each DataNode at a heartbeat and the next ones after both have ended, because the few blocks of a node are spread
unequally over targets, each of which receives k blocks, and because a repair reads, decodes and writes one after the other. Links are slower
here than in the paper, so that two processors can carry all machines; costs of HDFS other than bytes weigh less on slow links.
";

const READS: &str = "\
at random places of a block whose DataNode is dead and declared dead, one after the other
from a stream that stays open; the reader is on a separate machine whose link is not shaped. The table has the number of reads; one in a hundred is
above the p99.
";

const DURING: &str = "\
at random places of files without a block on the lost DataNode, one after the other, by HDFS's own client on a machine of its own behind a
link of the same rate. The reads are those that began during the recovery, or within 10 s without a repair. *Of idle*: divided by the median
without a repair. *Without reads*: the time of the same recovery in the table of whole DataNodes.
";

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, Instant};

    use super::super::detail::{Cell, Run};
    use super::super::measure::NO_REPAIR;
    use super::super::nodes::LostNode;
    use super::super::reads::SmallReads;
    use super::*;
    use crate::experiment::ReadLog;
    use crate::experiment::report::Key;
    use crate::experiment::report::tests::run;

    pub(in super::super) use crate::experiment::report::tests::report;

    fn key(kind: Kind, by: &str) -> Key {
        let (code, rate) = ("RS-6-3-1024k".to_owned(), "200Mbit".to_owned());
        let block_bytes = if matches!(kind, Kind::Node | Kind::ReadsDuring) { 8 << 20 } else { 64 << 20 };
        Key { kind, code, block_bytes, rate, by: by.to_owned() }
    }

    fn cell(kind: Kind, by: &str, runs: impl IntoIterator<Item = (f64, Detail)>) -> Cell {
        let runs = runs.into_iter().map(|(seconds, detail)| run(seconds, detail)).collect();
        Cell { key: key(kind, by), runs }
    }

    fn node(from_command_s: Option<f64>) -> Detail {
        let lost = LostNode { blocks: 40, survivors: 14, forced: 3, fewest: 38, most: 41 };
        Detail::Node { lost, from_command_s }
    }

    fn reads(count: u32, p99_ms: u64) -> Detail {
        let begun = Instant::now();
        let mut log = ReadLog::default();
        log.reads.extend((0..count).map(|_| (begun, Duration::from_millis(p99_ms))));
        Detail::ReadsDuring(log.within(begun, Duration::from_secs(1)))
    }

    fn lost_reads(median_ms: u64) -> Detail {
        let [median, p99] = [median_ms, 9].map(Duration::from_millis);
        Detail::SmallReads(SmallReads { count: 1000, median, p99, received: 1, sent: 1, through_mend: 0 })
    }

    /// A repair whose reads were seven blocks with their checksums, all from the device.
    fn cold(by: &str) -> Cell {
        let mut cell = cell(Kind::ColdLoss, by, [(3.0, Detail::Block)]);
        let bytes = 7 * ((64 << 20) + (64 << 20) / 128);
        let used = &mut cell.runs[0].used;
        (used.received, used.read, used.from_device) = (1000, bytes + 1000, bytes);
        cell
    }

    /// Cells of every kind.
    pub(in super::super) fn all() -> Vec<Cell> {
        let block = |seconds| (seconds, Detail::Block);
        vec![
            cell(Kind::Loss, "HDFS", [16.2, 17.0, 16.5].map(block)),
            cell(Kind::Loss, "Mend, asked", [2.7, 2.97, 2.7].map(block)),
            cold("HDFS"),
            cold("Mend, asked"),
            cell(Kind::Node, "HDFS", [(24.0, node(Some(20.0)))]),
            cell(Kind::Node, "Mend, asked", [(6.6, node(None)), (6.0, node(None)), (7.0, node(None))]),
            cell(Kind::Node, "Mend, commanded", [(10.0, node(Some(7.1)))]),
            cell(Kind::SmallReads, "HDFS", [(5.0, lost_reads(5))]),
            cell(Kind::SmallReads, "Mend", [(4.0, lost_reads(4))]),
            cell(Kind::ReadsDuring, NO_REPAIR[1], [(10.0, reads(200, 10))]),
            cell(Kind::ReadsDuring, "Mend, asked", [(8.0, reads(100, 30))]),
        ]
    }

    /// Returns the cells of the first row of the page after `heading` whose line contains all words.
    fn row(text: &str, heading: &str, words: &[&str]) -> Vec<String> {
        let section = text.split_once(heading).unwrap_or_else(|| panic!("{text}")).1;
        let line = section.lines().find(|line| words.iter().all(|word| line.contains(word)));
        let line = line.unwrap_or_else(|| panic!("{section}"));
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn a_block_is_compared_with_a_send_and_with_hdfs() {
        let text = text(&report(all()));
        let found = row(&text, "## One internal block", &["Mend, asked"]);
        let expected =
            ["RS-6-3-1024k", "64 MiB", "200Mbit", "Mend, asked", "2.70", "10.0%", "2.70", "1.00", "6.1"];
        assert_eq!(found[..9], expected);
    }

    #[test]
    fn a_recovery_is_compared_with_the_bound_from_both_beginnings() {
        let text = text(&report(all()));
        let asked = row(&text, "## A whole DataNode", &["Mend, asked"]);
        assert_eq!(asked[4..12], ["40", "38 to 41", "6.6", "15.2%", "0.88 (0.83 to 0.96)", "", "", "3.6"]);
        let commanded = row(&text, "## A whole DataNode", &["Mend, commanded"]);
        assert_eq!(commanded[6..12], ["10.0", "0.0%", "0.58", "7.1", "0.81", "2.4"]);
        let verdict = row(&text, "## Targets", &["first command", "Mend, commanded"]);
        assert_eq!(verdict[3], "holds");
    }

    #[test]
    fn reads_during_a_recovery_are_compared_with_idle_ones() {
        let text = text(&report(all()));
        let found = row(&text, "## Reads during a recovery", &["Mend, asked"]);
        assert_eq!(found[4..12], ["100", "0.50", "30.0", "30.0", "3.0", "0", "8.0", "6.6"]);
        let idle = row(&text, "## Reads during a recovery", &[NO_REPAIR[1]]);
        assert_eq!(idle[4..12], ["200", "1.00", "10.0", "10.0", "1.0", "0", "", ""]);
    }

    #[test]
    fn device_reads_are_counted_in_blocks() {
        let text = text(&report(all()));
        let found = row(&text, "## Reads with cold caches", &["Mend, asked"]);
        assert_eq!(found[5..9], ["7.00", "7", "7.00", "13"]);
    }

    #[test]
    fn the_paper_is_compared_with_large_blocks() {
        let mut cells = all();
        cells.retain(|cell| cell.key.kind == Kind::Node);
        cells.iter_mut().for_each(|cell| cell.key.block_bytes = PAPER_BYTES);
        let text = text(&report(cells));
        assert!(text.contains("5.1 to 16 times"), "{text}");
        let found = row(&text, "## Compared with the paper", &["all DataNodes", "RS-6-3"]);
        // 40 blocks, six times, over 14 links are 46.3 s.
        assert_eq!(found[3..], ["24.0", "6.6", "10.0", "3.6", "2.4", "0.5"]);
    }

    #[test]
    fn only_tables_with_rows_are_drawn_and_linked() {
        let reads: Vec<Cell> = all().into_iter().filter(|cell| cell.key.kind == Kind::SmallReads).collect();
        let report = report(reads);
        let drawings = drawings(&report);
        assert_eq!(drawings.len(), 1);
        let series = [("HDFS".to_owned(), vec![(0, 5.0)]), ("Mend".to_owned(), vec![(0, 4.0)])];
        assert_eq!(drawings[0].chart.series, series);
        let text = text(&report);
        assert!(text.contains("(hdfs-reads.svg)") && !text.contains("(hdfs-block.svg)"), "{text}");
        assert!(!text.contains("## A whole DataNode") && !text.contains("## Targets"), "{text}");
    }

    #[test]
    fn every_timeline_is_on_the_page() {
        let mut cells = all();
        let with = |run: &mut Run| run.timeline = "steps\n".to_owned();
        cells.iter_mut().flat_map(|cell| &mut cell.runs).for_each(with);
        let text = text(&report(cells));
        assert_eq!(text.matches("```text\nsteps\n```").count(), 5, "{text}");
    }

    #[test]
    fn deviations_from_the_defaults_are_stated() {
        let text = text(&report(all()));
        for setting in
            ["recheck-interval=2000", "every 3 s", "permissions.enabled=false", "hdfs-namespace.md"]
        {
            assert!(text.contains(setting), "{setting}");
        }
    }
}
