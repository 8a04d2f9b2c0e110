//! Formats the results as tables.

use std::time::Duration;

use super::cluster::Policy;
use super::nodes;
use super::reads::{BYTES, Reads};
use crate::experiment::{Repaired, Repetitions, megabytes, milliseconds};
use crate::figure::plot::{Drawing, Named};
use crate::report::markdown_table;
use crate::topology::Rate;

/// The repeated repair of one lost block.
pub(super) struct LossRow {
    pub(super) who: &'static str,
    pub(super) policy: Policy,
    pub(super) rate: Rate,
    pub(super) repaired: Repetitions,
}

/// The recovery of one lost DataNode.
pub(super) struct NodeRow {
    pub(super) who: &'static str,
    pub(super) policy: Policy,
    pub(super) blocks: usize,
    pub(super) bytes: usize,
    /// The time to send all blocks of the DataNode over one link.
    pub(super) direct: Duration,
    /// The number of DataNodes that are left.
    pub(super) survivors: usize,
    pub(super) repaired: Repaired,
}

/// The results of one kind of reads.
pub(super) struct ReadsRow {
    pub(super) who: &'static str,
    pub(super) policy: Policy,
    pub(super) reads: Reads,
}

/// The complete page.
#[derive(Default)]
pub(super) struct Page {
    /// The time to send one block over one link, for each rate.
    pub(super) direct: Vec<(Rate, Duration)>,
    pub(super) losses: Vec<LossRow>,
    pub(super) nodes: Vec<NodeRow>,
    pub(super) reads: Vec<ReadsRow>,
}

impl NodeRow {
    fn bound(&self) -> Duration {
        nodes::bound(self.direct, self.policy.data, self.survivors)
    }

    fn timeline(&self) -> String {
        self.repaired.timeline_block(&format!("{}, {}", self.policy.name, self.who))
    }
}

fn kib(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1024.0)
}

fn used(repaired: &Repaired) -> [String; 4] {
    let usage = &repaired.usage;
    let [received, most, read] = [usage.received, usage.received_most, usage.read].map(megabytes);
    [received, most, read, repaired.bound_by()]
}

impl Page {
    fn direct(&self, rate: Rate) -> f64 {
        let found = self.direct.iter().find(|(of, _)| of.to_string() == rate.to_string());
        found.map_or(f64::NAN, |(_, time)| time.as_secs_f64())
    }

    /// Returns the drawings of the tables that have rows.
    pub(super) fn drawings(&self) -> Vec<Drawing> {
        let drawings = [
            Drawing::of(BLOCK, "HDFS: one internal block", "seconds", self.loss_values()),
            Drawing::of(NODE, "HDFS: a whole DataNode", "blocks per second", self.node_values()),
            Drawing::of(
                READING,
                "HDFS: small reads of lost blocks",
                "milliseconds, median",
                self.read_values(),
            ),
        ];
        drawings.into_iter().flatten().collect()
    }

    fn loss_values(&self) -> Vec<Named> {
        let values = self.losses.iter().flat_map(|row| {
            let tick = format!("{}, {}", row.policy.name, row.rate);
            let bound = (tick.clone(), "bound: one read".to_owned(), self.direct(row.rate));
            [(tick, row.who.to_owned(), row.repaired.seconds()), bound]
        });
        values.collect()
    }

    fn node_values(&self) -> Vec<Named> {
        let values = self.nodes.iter().flat_map(|row| {
            let value = |name: &str, time: Duration| {
                (row.policy.name.to_owned(), name.to_owned(), row.blocks as f64 / time.as_secs_f64())
            };
            [value(row.who, row.repaired.time), value("bound of the links", row.bound())]
        });
        values.collect()
    }

    fn read_values(&self) -> Vec<Named> {
        let value = |row: &ReadsRow| {
            let milliseconds = row.reads.median.as_secs_f64() * 1e3;
            (row.policy.name.to_owned(), row.who.to_owned(), milliseconds)
        };
        self.reads.iter().map(value).collect()
    }

    fn losses_table(&self) -> String {
        let columns = [
            "policy",
            "links",
            "by",
            "s",
            "one read s",
            "×",
            "HDFS over it",
            "received MB",
            "by one",
            "read",
            "bound by",
        ];
        let row = |row: &LossRow| {
            let (time, direct) = (row.repaired.seconds(), self.direct(row.rate));
            let same = |other: &&LossRow| {
                other.who == "HDFS"
                    && other.policy == row.policy
                    && other.rate.to_string() == row.rate.to_string()
            };
            let stock = self.losses.iter().find(same).map_or(f64::NAN, |other| other.repaired.seconds());
            let start = [
                row.policy.name.to_owned(),
                row.rate.to_string(),
                row.who.to_owned(),
                format!("{time:.2}"),
                format!("{direct:.2}"),
                format!("{:.2}", time / direct),
                format!("{:.1}", stock / time),
            ];
            let rest = row.repaired.middle().into_iter().flat_map(used);
            start.into_iter().chain(rest).collect()
        };
        markdown_table(&columns, &self.losses.iter().map(row).collect::<Vec<_>>())
    }

    fn nodes_table(&self) -> String {
        let columns = [
            "policy",
            "by",
            "blocks",
            "MB",
            "s",
            "blocks/s",
            "HDFS over it",
            "of the links' bound",
            "received MB",
            "by one",
            "read",
            "bound by",
        ];
        let row = |row: &NodeRow| {
            let per_second = |row: &NodeRow| row.blocks as f64 / row.repaired.time.as_secs_f64();
            let stock = self.nodes.iter().find(|other| other.who == "HDFS" && other.policy == row.policy);
            let start = [
                row.policy.name.to_owned(),
                row.who.to_owned(),
                row.blocks.to_string(),
                megabytes(row.bytes as u64),
                format!("{:.1}", row.repaired.time.as_secs_f64()),
                format!("{:.1}", per_second(row)),
                format!("{:.1}", per_second(row) / stock.map_or(f64::NAN, per_second)),
                format!("{:.2}", row.bound().as_secs_f64() / row.repaired.time.as_secs_f64()),
            ];
            start.into_iter().chain(used(&row.repaired)).collect()
        };
        markdown_table(&columns, &self.nodes.iter().map(row).collect::<Vec<_>>())
    }

    fn reads_table(&self) -> String {
        let columns = [
            "policy",
            "by",
            "median ms",
            "p99 ms",
            "KiB to the reader",
            "KiB by all DataNodes",
            "MiB through Mend",
        ];
        let row = |row: &ReadsRow| {
            let reads = &row.reads;
            vec![
                row.policy.name.to_owned(),
                row.who.to_owned(),
                milliseconds(reads.median),
                milliseconds(reads.p99),
                kib(reads.received),
                kib(reads.sent),
                format!("{:.1}", reads.through_mend as f64 / f64::from(1 << 20)),
            ]
        };
        markdown_table(&columns, &self.reads.iter().map(row).collect::<Vec<_>>())
    }

    pub(super) fn text(&self) -> String {
        let drawings = self.drawings();
        let link = |name: &str| Drawing::link(&drawings, name);
        let mut text = format!("\n\n{ABOUT}\n");
        text += &format!("## One internal block\n\n{}{LOSSES}\n{}\n", link(BLOCK), self.losses_table());
        if let Some(row) = self.nodes.first() {
            let direct = row.direct.as_secs_f64();
            text += &format!(
                "## A whole DataNode\n\n{}{NODES} Sending the blocks of one lost DataNode over one link takes \
                 {direct:.1} s.\n\n",
                link(NODE)
            );
            text += &format!("{}\n{TIMELINES}\n", self.nodes_table());
            self.nodes.iter().for_each(|row| text += &row.timeline());
        }
        if !self.reads.is_empty() {
            text += &format!(
                "## Small reads of lost blocks\n\n{}Reads of {} KiB at random places {READS}\n",
                link(READING),
                BYTES >> 10
            );
            text += &format!("{}\n", self.reads_table());
        }
        text + "Every rebuilt block and its checksums were identical to the lost ones; every byte read was as \
                stored.\n"
    }
}

/// The names of the drawings.
const BLOCK: &str = "hdfs-block";
const NODE: &str = "hdfs-node";
const READING: &str = "hdfs-reads";

const ABOUT: &str = "\
Hadoop 3.4.3, unmodified: a NameNode and 15 DataNodes, JVMs with all compilers, each DataNode in a network namespace of its own
behind a link that is shaped to the rate in both directions. *HDFS*: HDFS repairs on its own, without any part of Mend. *Commanded*: the
NameNode sends a DataNode the same command, and the DataNode's plug-in passes the repair to Mend; the first command for a dead DataNode
begins the recovery of all its blocks. *Asked*: the NameNode sends no commands, and an operator types `mend repair` or
`mend node recover`. *processors* marks rows in which the processors, not the links, limit the speed. The first command for Mend makes a DataNode load classes for about 0.3 s; medians of few repetitions contain this time.
";

const LOSSES: &str = "\
The time from the DataNode's log entry for the command (*asked*: from the start of the program `mend`) until the NameNode lists the
block; the median of the repetitions. One read is a plain TCP send of a block over one such link in the same run; × is the time divided
by it. Bytes received over the links of all DataNodes' machines, over the busiest of these links, and read from files and sockets.
";

const NODES: &str = "\
A DataNode is killed and stays down. The time from the NameNode's declaration that the DataNode is dead (*asked*: from the start of the
program `mend`) until the NameNode lists all blocks again. By default the NameNode sends each DataNode two commands at a time. *Of the links' bound*: the
time in which the links of the surviving DataNodes, all equally busy, could carry k blocks for each rebuilt block, divided by the time.";

const TIMELINES: &str = "\
Where Mend's time went (`mend timeline`; the clock starts when the coordinator has queued the repair's stripes):
";

const READS: &str = "\
of a block whose DataNode is dead and declared dead, one after the other
from a stream that stays open; the reader is on a separate machine whose link is not shaped.
";

#[cfg(test)]
mod tests {
    use super::super::cluster::POLICIES;
    use super::*;

    #[test]
    fn reads_of_stock_and_mend_are_drawn_and_linked() {
        let row = |who: &'static str, median: u64| {
            let [median, p99] = [median, 9].map(Duration::from_millis);
            let reads = Reads { median, p99, received: 1, sent: 1, through_mend: 0 };
            ReadsRow { who, policy: POLICIES[0], reads }
        };
        let page = Page { reads: vec![row("HDFS", 5), row("Mend", 4)], ..Page::default() };
        let drawings = page.drawings();
        assert_eq!(drawings.len(), 1);
        let series = [("HDFS".to_owned(), vec![(0, 5.0)]), ("Mend".to_owned(), vec![(0, 4.0)])];
        assert_eq!(drawings[0].chart.series, series);
        let text = page.text();
        assert!(text.contains("(hdfs-reads.svg)") && !text.contains("(hdfs-block.svg)"), "{text}");
    }
}
