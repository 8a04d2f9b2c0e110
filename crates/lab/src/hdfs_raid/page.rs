//! Formats the report as a page with drawings.

use super::codes::OF_SIZES;
use super::papers::{self, is_common_size};
use super::report::{Cell, Detail, Kind, Report};
use super::tables::{
    encoding_values, encodings_table, has_failed, reads_table, recoveries_table, recovery_values,
};
use crate::figure::plot::{Drawing, Mark};

pub(super) const TITLE: &str = "HDFS-RAID's layout: degraded reads, encoding, recovery";
/// The command that makes the page.
pub(super) const COMMAND: &str = "make bench-hdfs-raid";
/// The names of the drawings.
const CODES: &str = "hdfs-raid-codes";
const SIZES: &str = "hdfs-raid-sizes";
const ENCODING: &str = "hdfs-raid-encoding";
const NODE: &str = "hdfs-raid-node";
/// The name of the bound in drawings of reads.
const ONE_SEND: &str = "bound: one send";

/// Returns the page without its heading.
pub(super) fn text(report: &Report) -> String {
    let drawings = drawings(report);
    let link = |name: &str| Drawing::link(&drawings, name);
    let mut text = format!("\n\n{ABOUT}\n{}", papers::table(report));
    if report.of(Kind::Read).next().is_some() {
        let table = reads_table(report);
        text += &format!("\n## Degraded reads\n\n{}{}{READS}\n{table}", link(CODES), link(SIZES));
    }
    if report.of(Kind::Encoding).next().is_some() {
        text += &format!("\n## Encoding\n\n{}{ENCODINGS}\n{}", link(ENCODING), encodings_table(report));
    }
    if report.of(Kind::Recovery).next().is_some() {
        text += &format!("\n## A whole DataNode\n\n{}{RECOVERIES}\n{}", link(NODE), recoveries_table(report));
        text += &timelines(report);
    }
    text + "\nEvery byte that was read was as stored; every rebuilt block and its checksums were identical to the lost \
            ones.\n"
}

/// Returns the drawings of the tables that have rows.
pub(super) fn drawings(report: &Report) -> Vec<Drawing> {
    let is_common = |cell: &&Cell| is_common_size(cell.key.block_mib, report);
    let is_sized = |cell: &&Cell| cell.key.raid_code() == Some(OF_SIZES);
    let codes: Vec<&Cell> = report.of(Kind::Read).filter(is_common).collect();
    let mut sizes: Vec<&Cell> = report.of(Kind::Read).filter(is_sized).collect();
    sizes.sort_by_key(|cell| cell.key.block_mib);
    let has_sizes = report.sizes_of(OF_SIZES).len() > 1;
    let by_code = |cell: &Cell| format!("{}, {}", cell.key.code, cell.key.rate);
    let by_size = |cell: &Cell| format!("{} MiB, {}", cell.key.block_mib, cell.key.rate);
    let drawings = [
        reads_drawing(CODES, "HDFS-RAID's layout: degraded reads by code", &codes, by_code, report),
        reads_drawing(
            SIZES,
            "HDFS-RAID's layout: degraded reads by block size, 8-6",
            &sizes,
            by_size,
            report,
        )
        .filter(|_| has_sizes),
        Drawing::of(
            ENCODING,
            "HDFS-RAID's layout: encoding",
            "MB of data per second",
            encoding_values(report),
        ),
        Drawing::of(
            NODE,
            "HDFS-RAID's layout: a whole DataNode",
            "blocks per second",
            recovery_values(report),
        ),
    ];
    drawings.into_iter().flatten().collect()
}

/// Returns a drawing of reads, with the spread of each, and the time of one send as the bound.
fn reads_drawing(
    name: &'static str,
    title: &str,
    cells: &[&Cell],
    tick: impl Fn(&Cell) -> String,
    report: &Report,
) -> Option<Drawing> {
    let cells: Vec<&Cell> = cells.iter().copied().filter(|cell| !has_failed(cell)).collect();
    let bounds = cells.iter().map(|cell| (tick(cell), ONE_SEND.to_owned(), report.direct(&cell.key)));
    let times = cells.iter().map(|cell| (tick(cell), cell.key.by.clone(), cell.seconds()));
    let mut drawing = Drawing::of(name, title, "seconds, median", times.chain(bounds).collect())?;
    let mark = |cell: &&Cell| {
        let at = drawing.chart.ticks.iter().position(|known| *known == tick(cell))?;
        let [low, high] = cell.extremes();
        (cell.runs.len() > 1).then(|| Mark { series: cell.key.by.clone(), at, low, high })
    };
    drawing.chart.marks.spreads = cells.iter().filter_map(mark).collect();
    drawing.chart.marks.spread = "shortest to longest";
    Some(drawing)
}

/// Returns where the time of the recoveries went, for one repetition of each.
fn timelines(report: &Report) -> String {
    let block = |cell: &Cell| match &cell.middle()?.detail {
        Detail::Recovery { timeline, .. } if !timeline.is_empty() => {
            Some(format!("{}:\n\n```text\n{timeline}```\n", cell.key.by))
        }
        _ => None,
    };
    let blocks: Vec<_> = report.of(Kind::Recovery).filter_map(block).collect();
    if blocks.is_empty() { String::new() } else { format!("\n{TIMELINES}\n{}", blocks.join("\n")) }
}

const ABOUT: &str = "\
Hadoop 3.4.3, unmodified: a NameNode, 16 DataNodes and a client, each DataNode and the client in a network namespace of its own behind
a link that is shaped to the rate in both directions. Files are stored with three replicas and encoded by `mend raid encode` with
HDFS-RAID's Reed-Solomon codes; each block of a stripe is then on a DataNode of its own. Codes are written n-k. One send is a plain TCP
send of a block over one such link in the same run. *Busiest*: received over the link of the machine that received most, the
client's included; *all*: over all links together. *Marks* count repetitions that other programs disturbed, or in which the processors may
have been slower than the links.

The paper on repair pipelining measured HDFS-RAID with links of 1 Gb/s and 64 MiB blocks, CRR a modified HDFS-RAID with 1 Gb/s, 14 nodes and
32 to 192 MB. The links are slower here, because two processors carry all machines; only ratios are compared.
";

const READS: &str = "\
A program on the client's machine reads a whole block with one positional read; the time is taken in its JVM, after one read over unshaped
links. The DataNode of the lost block and its helper are dead, and the NameNode knows it. *A block that is there*: HDFS's client reads
another block of the file. *HDFS*: its client reads the lost block, and fails. *HDFS-RAID's way*: Mend's file system class without a
coordinator reads k blocks and decodes; HDFS-RAID's client read them at the same time, Mend's reads one after another, and either way
they come over the client's link. *Mend*: the same class with a coordinator, and `mend.scheme`; *conventional* is SRR. *By the formula*:
timeslots of one send, as in [schemes](../reference/schemes.md). The time is the median of the repetitions, *spread* the longest minus
the shortest, divided by it.
";

const ENCODINGS: &str = "\
`mend raid encode` for one file, on the client's machine. The times are those of its calls that make the parity, and that read everything
back and check it; the rest of the command's time is mostly waiting for HDFS to remove replicas. *HDFS-RAID's way* (`--encoder jvm`):
one JVM reads k blocks of each stripe and writes the parity, as RaidNode did. *Mend* (`--encoder helpers`): helpers make each parity block at
its DataNode by the scheme, and check the stripe while they make it. *MB/s* counts data, not parity.
";

const RECOVERIES: &str = "\
A DataNode is killed and stays down; HDFS itself cannot rebuild its blocks, which had one replica. The time from the start of `mend node
recover` until the NameNode lists all blocks again. *Of the links' bound*: the time in which the links of the surviving DataNodes, all equally
busy, could carry k blocks for each rebuilt block, divided by the time; the median, and the range of the repetitions. *Conventional*: each
block is rebuilt on its new DataNode, which receives k blocks, as by HDFS-RAID's distributed repair.
";

const TIMELINES: &str = "\
Where the time went (`mend timeline`; the clock starts when the coordinator has queued the repair's stripes):
";

#[cfg(test)]
mod tests;
