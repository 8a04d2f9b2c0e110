//! Formats the results as tables.

use std::time::Duration;

use crate::experiment::{Reads, Repaired, Repetitions, Usage, megabytes};
use crate::figure::plot::{Drawing, Named};
use crate::report::markdown_table;
use crate::topology::Rate;

/// The repairs of lost shards of one volume.
pub(super) struct LossRow {
    pub(super) shard_bytes: u64,
    pub(super) rate: Rate,
    pub(super) lost: usize,
    pub(super) direct: Duration,
    pub(super) stock: Repetitions,
    pub(super) mend: Repetitions,
}

/// The recovery of one lost server.
pub(super) struct ServerRow {
    pub(super) who: &'static str,
    pub(super) shards: usize,
    pub(super) repaired: Repaired,
}

/// Reads during another activity.
pub(super) struct ReadsRow {
    pub(super) meanwhile: String,
    pub(super) lasted: Duration,
    pub(super) reads: Reads,
}

/// The complete page.
#[derive(Default)]
pub(super) struct Page {
    pub(super) losses: Vec<LossRow>,
    pub(super) servers: Vec<ServerRow>,
    pub(super) direct_of_server: Option<(Rate, u64, Duration)>,
    pub(super) reads: Vec<ReadsRow>,
    pub(super) objects: usize,
}

fn used(usage: &Usage) -> [String; 5] {
    [usage.received, usage.received_most, usage.read, usage.written, usage.memory].map(megabytes)
}

impl LossRow {
    /// Mend's time relative to sending one shard over one link.
    fn ratio(&self) -> f64 {
        self.mend.seconds() / self.direct.as_secs_f64()
    }

    fn cells(&self) -> Vec<String> {
        let (direct, stock, mend) = (self.direct.as_secs_f64(), self.stock.seconds(), self.mend.seconds());
        vec![
            megabytes(self.shard_bytes),
            self.rate.to_string(),
            self.lost.to_string(),
            format!("{direct:.2}"),
            format!("{stock:.2}"),
            format!("{mend:.2}"),
            format!("{:.2}", stock / direct),
            format!("{:.2}", self.ratio()),
            format!("{:.1}", stock / mend),
            self.mend.middle().map(Repaired::bound_by).unwrap_or_default(),
        ]
    }

    fn usages(&self) -> Vec<Vec<String>> {
        let who = [("ec.rebuild", &self.stock), ("mend", &self.mend)];
        let line = |(who, repaired): (&str, &Repetitions)| {
            let one = repaired.middle()?;
            let start =
                [megabytes(self.shard_bytes), self.rate.to_string(), self.lost.to_string(), who.to_owned()];
            Some(start.into_iter().chain(used(&one.usage)).collect())
        };
        who.into_iter().filter_map(line).collect()
    }
}

impl Page {
    /// Returns the drawings of the tables that have rows.
    pub(super) fn drawings(&self) -> Vec<Drawing> {
        let reads = self.reads.iter().flat_map(|row| row.reads.named(&row.meanwhile));
        let drawings = [
            Drawing::of(SHARDS, "SeaweedFS: shards of one volume", "seconds", self.loss_values()),
            Drawing::of(SERVER, "SeaweedFS: a whole server", "shards per second", self.server_values()),
            Drawing::of(READING, "SeaweedFS: latency of reads", "milliseconds", reads.collect()),
        ];
        drawings.into_iter().flatten().collect()
    }

    fn loss_values(&self) -> Vec<Named> {
        let values = self.losses.iter().flat_map(|row| {
            let tick = format!("{} MB, {}, {} lost", megabytes(row.shard_bytes), row.rate, row.lost);
            [
                ("ec.rebuild", row.stock.seconds()),
                ("mend", row.mend.seconds()),
                ("bound: one read", row.direct.as_secs_f64()),
            ]
            .map(|(name, seconds)| (tick.clone(), name.to_owned(), seconds))
        });
        values.collect()
    }

    fn server_values(&self) -> Vec<Named> {
        let value = |row: &ServerRow| {
            let rate = row.shards as f64 / row.repaired.time.as_secs_f64();
            ("a server".to_owned(), row.who.to_owned(), rate)
        };
        self.servers.iter().map(value).collect()
    }

    pub(super) fn losses_table(&self) -> String {
        let columns = [
            "shard MB",
            "links",
            "lost",
            "one read s",
            "ec.rebuild s",
            "mend s",
            "ec.rebuild ×",
            "mend ×",
            "faster",
            "bound by",
        ];
        markdown_table(&columns, &self.losses.iter().map(LossRow::cells).collect::<Vec<_>>())
    }

    fn usage_table(&self) -> String {
        let columns =
            ["shard MB", "links", "lost", "by", "received", "by one", "read", "written", "memory of one"];
        markdown_table(&columns, &self.losses.iter().flat_map(LossRow::usages).collect::<Vec<_>>())
    }

    pub(super) fn servers_table(&self) -> String {
        let columns =
            ["by", "shards", "s", "shards/s", "received", "by one", "read", "written", "memory of one"];
        let row = |row: &ServerRow| {
            let time = row.repaired.time.as_secs_f64();
            let start = [
                row.who.to_owned(),
                row.shards.to_string(),
                format!("{time:.1}"),
                format!("{:.1}", row.shards as f64 / time),
            ];
            start.into_iter().chain(used(&row.repaired.usage)).collect()
        };
        markdown_table(&columns, &self.servers.iter().map(row).collect::<Vec<_>>())
    }

    pub(super) fn reads_table(&self) -> String {
        let columns = ["meanwhile", "lasted s", "reads/s", "median ms", "p99 ms", "failed"];
        let row = |row: &ReadsRow| {
            let start = [row.meanwhile.clone(), format!("{:.1}", row.lasted.as_secs_f64())];
            start.into_iter().chain(row.reads.cells()).collect()
        };
        markdown_table(&columns, &self.reads.iter().map(row).collect::<Vec<_>>())
    }

    pub(super) fn text(&self) -> String {
        let drawings = self.drawings();
        let link = |name: &str| Drawing::link(&drawings, name);
        let mut text = format!("\n\n{ABOUT}\n");
        if !self.losses.is_empty() {
            text += &format!("## Shards of one volume\n\n{}{}\n", link(SHARDS), self.losses_table());
            text += &format!("{USED}\n{}\n", self.usage_table());
        }
        if !self.servers.is_empty() {
            text += &format!("## A whole server\n\n{}{WHOLE}", link(SERVER));
            if let Some((rate, bytes, time)) = self.direct_of_server {
                text += &format!(
                    " Sending its shards, {} MB, over one link of {rate} takes {:.1} s.",
                    megabytes(bytes),
                    time.as_secs_f64()
                );
            }
            text += &format!("\n\n{}\n", self.servers_table());
            for row in &self.servers {
                text += &row.repaired.timeline_block("Where Mend's time went (`mend timeline`)");
            }
        }
        if !self.reads.is_empty() {
            text += &format!("## Reads\n\n{}{READS}\n\n{}\n", link(READING), self.reads_table());
        }
        text + &format!("Afterwards {} objects were read; every byte was unchanged.\n", self.objects)
    }
}

/// The names of the drawings.
const SHARDS: &str = "seaweedfs-shards";
const SERVER: &str = "seaweedfs-server";
const READING: &str = "seaweedfs-reads";

const ABOUT: &str = "\
SeaweedFS 4.48, unmodified: a master, a filer with S3, and 15 volume servers, each in a network namespace of its own behind a
link that is shaped to the rate in both directions. The same number of shards, each on a different server, is lost twice: `mend repair`
rebuilds them the first time, `ec.rebuild -apply` the second time, and `ec.balance` then spreads the shards that it left on one server.
A time is from the request (typed into a shell that is connected and holds the cluster's lock; for Mend, the start of the program
`mend`) until the master lists all 14 shards; the median of the repetitions. One read is a plain TCP send of one shard over one such link
in the same run; × is the time divided by it. Rows in which the processors, not the links, limit Mend are marked. Files are in the page
cache.
";

const USED: &str = "\
Totals of all volume servers (or all helpers), in MB: received over their links, received over the busiest link, read from
files and sockets, written to files, and the largest memory of any of the processes.
";

const WHOLE: &str = "\
A volume server is killed and stays down. The time until the master lists all shards of all volumes again.";

const READS: &str = "\
Objects (needles) of 128 KiB, read by 4 clients, each reading one object at a time from any live server with shards of the volume.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_and_reads_are_drawn_and_linked() {
        let (rate, direct) = ("500mbit".parse().unwrap(), Duration::from_secs(2));
        let (stock, mend) = (Repetitions::default(), Repetitions::default());
        let losses = vec![LossRow { shard_bytes: 66_000_000, rate, lost: 4, direct, stock, mend }];
        let page = Page { losses, ..Page::default() };
        let drawings = page.drawings();
        assert_eq!(drawings.len(), 1);
        let chart = &drawings[0].chart;
        assert_eq!(chart.ticks, ["66 MB, 500mbit, 4 lost"]);
        let names: Vec<&str> = chart.series.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["ec.rebuild", "mend", "bound: one read"]);
        assert_eq!(chart.series[2].1, [(0, 2.0)]);
        let text = page.text();
        assert!(text.contains("(seaweedfs-shards.svg)") && !text.contains("(seaweedfs-reads.svg)"), "{text}");
    }
}
