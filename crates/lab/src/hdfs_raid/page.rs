//! Formats the report as a page with drawings.

use std::collections::BTreeSet;

use super::codes::OF_SIZES;
use super::detail::{Cell, Detail, Report, raid_code};
use super::papers::{self, is_common_size};
use super::tables::{
    encoding_bars, encodings_table, has_failed, one_send, reads_table, recoveries_table, recovery_values,
};
use crate::experiment::report::Kind;
use crate::experiment::report::size;
use crate::experiment::{Bar, Publication, drawing, timelines};
use crate::figure::plot::Drawing;

pub(super) const PUBLICATION: Publication<Detail> = Publication {
    name: "hdfs-raid",
    title: "HDFS-RAID's layout: degraded reads, encoding, recovery",
    command: "make bench-hdfs-raid",
    text,
    drawings,
};
/// The names of the drawings.
const CODES: &str = "hdfs-raid-codes";
const SIZES: &str = "hdfs-raid-sizes";
const ENCODING: &str = "hdfs-raid-encoding";
const NODE: &str = "hdfs-raid-node";
/// Their titles.
const TITLES: [&str; 4] = [
    "HDFS-RAID's layout: degraded reads by code",
    "HDFS-RAID's layout: degraded reads by block size, 8-6",
    "HDFS-RAID's layout: encoding",
    "HDFS-RAID's layout: a whole DataNode",
];
/// The name of the bound in drawings of reads.
const ONE_SEND: &str = "bound: one send";

/// Returns the page without its heading.
fn text(report: &Report) -> String {
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
    if report.of(Kind::Node).next().is_some() {
        text += &format!("\n## A whole DataNode\n\n{}{RECOVERIES}\n{}", link(NODE), recoveries_table(report));
        text += &timelines(report, Kind::Node);
    }
    text + "\nEvery byte that was read was as stored; every rebuilt block and its checksums were identical to the lost \
            ones.\n"
}

/// Returns the drawings of the tables that have rows.
fn drawings(report: &Report) -> Vec<Drawing> {
    let is_common = |cell: &&Cell| is_common_size(cell.key.block_bytes, report);
    let is_sized = |cell: &&Cell| raid_code(&cell.key) == Some(OF_SIZES);
    let codes: Vec<&Cell> = report.of(Kind::Read).filter(is_common).collect();
    let mut sizes: Vec<&Cell> = report.of(Kind::Read).filter(is_sized).collect();
    sizes.sort_by_key(|cell| cell.key.block_bytes);
    let has_sizes = sizes.iter().map(|cell| cell.key.block_bytes).collect::<BTreeSet<_>>().len() > 1;
    let by_code = |cell: &Cell| format!("{}, {}", cell.key.code, cell.key.rate);
    let by_size = |cell: &Cell| format!("{}, {}", size(cell.key.block_bytes), cell.key.rate);
    let (nodes, bounds) = recovery_values(report);
    let [by_codes, by_sizes, encoding, node] = TITLES;
    let drawings = [
        reads_drawing(CODES, by_codes, &codes, by_code, report),
        reads_drawing(SIZES, by_sizes, &sizes, by_size, report).filter(|_| has_sizes),
        drawing(ENCODING, encoding, "MB of data per second", &encoding_bars(report), Vec::new()),
        drawing(NODE, node, "blocks per second", &nodes, bounds),
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
    let bar = |cell: &&Cell| Bar { tick: tick(cell), series: cell.key.by.clone(), value: cell.time() };
    let bars: Vec<Bar> = cells.iter().map(bar).collect();
    let bounds = cells.iter().map(|cell| (tick(cell), ONE_SEND.to_owned(), one_send(cell, report)));
    drawing(name, title, "seconds, median", &bars, bounds.collect())
}

const ABOUT: &str = "\
Hadoop 3.4.3, unmodified: a NameNode, 16 DataNodes and a client, each DataNode and the client in a network namespace of its own behind
a link that is shaped to the rate in both directions. Files are stored with three replicas and encoded by `mend raid encode` with
HDFS-RAID's Reed-Solomon codes; each block of a stripe is then on a DataNode of its own. Codes are written n-k. One send is a plain TCP
send of a block over one such link. *Busiest*: received over the link of the machine that received most, the
client's included; *all*: over all links together. *Marks* count repetitions that other programs disturbed, in which the processors may
have been slower than the links (*processors*), or that began while the JVMs were still busy after a minute (*unsettled*).

HDFS has its default settings, except that waiting is shorter, which no time in the tables contains: heartbeats come every second, redundancy is
checked every second, and a DataNode counts as dead after 14 s. A busy DataNode remains a candidate for blocks
(`dfs.namenode.redundancy.considerLoad=false`). The JVMs have heaps of 128 MB (the client 2 GB) and all compilers, but no native library.

The paper on repair pipelining measured HDFS-RAID with links of 1 Gb/s and 64 MiB blocks, CRR a modified HDFS-RAID with 1 Gb/s, 14 nodes and
32 to 192 MB. The links are slower here, because two processors carry all machines; only ratios are compared. Slices have the papers' size: 32 KiB
for the codes of repair pipelining, 1 MiB for those of CRR.
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
`mend raid encode` for one file, on the client's machine. Time and bytes of making the parity are counted separately from those of the calls
that read everything back and check it; the rest of the command's time is mostly waiting for HDFS to move and remove replicas. The drawing
shows the rate without the check. *HDFS-RAID's way* (`--encoder jvm`): one JVM reads k blocks of each stripe and writes the parity, as
RaidNode did. *Mend* (`--encoder helpers`): helpers make each parity block at its DataNode by the scheme, and check the stripe while they
make it. *MB/s* counts data, not parity.
";

const RECOVERIES: &str = "\
A DataNode is killed and stays down; HDFS itself cannot rebuild its blocks, which had one replica. The time from the start of `mend node
recover` until the NameNode lists all blocks again. Before every recovery, all files are removed, stored and encoded again, so that blocks are
spread over all DataNodes: *on each* has the fewest and the most blocks on a DataNode. *Of the links' bound*: the bound divided by the time, with the
range of the repetitions. The bound is the time in which a link carries k · U / 15 blocks, for U lost blocks and 15 DataNodes that are left: each
rebuilt block is a sum over k blocks of other DataNodes than the one that takes it. *Conventional*: each block is rebuilt on its new DataNode,
which receives k blocks, as by HDFS-RAID's distributed repair.
";

#[cfg(test)]
mod tests;
