//! Formats the report as a page with drawings.

use super::detail::{Detail, Report};
use super::tables::{loss_values, losses, read_values, reads, server_values, servers};
use super::targets;
use crate::experiment::report::Kind;
use crate::experiment::{Publication, drawing, timelines, verdicts};
use crate::figure::plot::Drawing;

pub(super) const PUBLICATION: Publication<Detail> = Publication {
    name: "seaweedfs",
    title: "SeaweedFS with and without Mend",
    command: "make bench-seaweedfs",
    text,
    drawings,
};

/// The names of the drawings.
const SHARDS: &str = "seaweedfs-shards";
const SERVER: &str = "seaweedfs-server";
const READING: &str = "seaweedfs-reads";

/// Returns the page without its heading.
fn text(report: &Report) -> String {
    let drawings = drawings(report);
    let link = |name: &str| Drawing::link(&drawings, name);
    let has = |kind: Kind| report.of(kind).next().is_some();
    let mut text = format!("\n\n{ABOUT}");
    let judged = targets::judged(report);
    if !judged.is_empty() {
        text += &format!("\n## Targets\n\nThe median of the repetitions counts.\n\n{}", verdicts(&judged));
    }
    if has(Kind::Loss) {
        text += &format!("\n## Shards of one volume\n\n{}{LOSSES}\n{}", link(SHARDS), losses(report));
        text += &timelines(report, Kind::Loss);
    }
    if has(Kind::Node) {
        text += &format!("\n## A whole server\n\n{}{WHOLE}\n{}", link(SERVER), servers(report));
        text += &timelines(report, Kind::Node);
    }
    if has(Kind::ReadsDuring) {
        text += &format!("\n## Reads\n\n{}{READS}\n{}", link(READING), reads(report));
    }
    text + "\nEvery rebuilt shard was identical to the lost one.\n"
}

/// Returns the drawings of the tables that have rows.
fn drawings(report: &Report) -> Vec<Drawing> {
    let (losses, reads) = loss_values(report);
    let (servers, bounds) = server_values(report);
    let drawings = [
        drawing(SHARDS, "SeaweedFS: shards of one volume", "seconds, median", &losses, reads),
        drawing(SERVER, "SeaweedFS: a whole server", "shards per second, median", &servers, bounds),
        Drawing::of(READING, "SeaweedFS: latency of reads", "milliseconds", read_values(report)),
    ];
    drawings.into_iter().flatten().collect()
}

const ABOUT: &str = "\
SeaweedFS 4.48, unmodified: a master, a filer with S3, and 15 volume servers, each in a network namespace of its own behind a
link that is shaped to the rate in both directions. Volumes have 10 + 4 shards. Times are medians of the repetitions; *spread* is the
longest minus the shortest, divided by the median. Repetitions take turns: every round measures each row once. Before each measurement, dirty
pages are written and the servers are idle. *Marks* count repetitions that other programs disturbed, in which the processors, not the
links, may have limited the speed (*processors*), or that began while the servers were still busy after a minute (*unsettled*). Files are
in the page cache. *ec.rebuild over it*: its time divided by the time.

Totals of all volume servers (or all helpers), in MB: received over their links, received over the busiest link, read from files and
sockets, written to files, and the largest memory of any of the processes.
";

const LOSSES: &str = "\
The same number of shards, each on a different server, is lost again and again. `mend repair` and `ec.rebuild -apply` take turns, and
`ec.balance` then spreads the shards that `ec.rebuild` left on one server. A time is from the request (typed into a shell that is
connected and holds the cluster's lock; for Mend, the start of the program `mend`) until the master lists all 14 shards. One read is a
plain TCP send of one shard over one such link; × is the time divided by it.
";

const WHOLE: &str = "\
A volume server is killed and stays down. The time from the request until the master lists all shards of all volumes again. Afterwards, an
empty server takes its place, and `ec.balance` spreads the shards over all servers, so that every recovery begins with as many shards on each:
*on each* has the fewest and the most shards on a server. *Of the links' bound*: the bound divided by the time, with the range of the
repetitions. The bound is the time in which each of the 14 links that are left carries an equal part of all that must be sent: 10 shards for
each lost one, and one more for each further lost shard of the same volume, if every shard goes to a server without another one of its volume.
";

const READS: &str = "\
Objects (needles) of 128 KiB, read by 4 clients, each reading one object at a time from any live server with shards of the volume. The reads
are those that began during the recovery, or within 10 s without a repair. *Without reads*: the time of the same recovery in the table
above. Failures were neither examined nor repeated: SeaweedFS answers some first reads of a shard that has just moved with 500, and then
reads it ([reference](../reference/seaweedfs.md)).
";

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, Instant};

    use super::super::detail::{Cell, LostServer};
    use super::super::tasks::{ALL_UP, MEND, ONE_DOWN, STOCK, lost_code};
    use super::*;
    use crate::experiment::ReadLog;
    use crate::experiment::report::Key;
    use crate::experiment::report::tests::{report, run};

    const SHARD: u64 = 66_000_000;

    fn cell(kind: Kind, (code, by): (&str, &str), runs: &[(f64, Detail)]) -> Cell {
        let (code, rate, by) = (code.to_owned(), "200Mbit".to_owned(), by.to_owned());
        let block_bytes = if kind == Kind::Loss { SHARD } else { 3_000_000 };
        let runs = runs.iter().map(|(seconds, detail)| run(*seconds, detail.clone())).collect();
        Cell { key: Key { kind, code, block_bytes, rate, by }, runs }
    }

    fn during(count: u32, p99_ms: u64) -> Detail {
        let begun = Instant::now();
        let mut log = ReadLog::default();
        log.reads.extend((0..count).map(|_| (begun, Duration::from_millis(p99_ms))));
        Detail::ReadsDuring(log.within(begun, Duration::from_secs(1)))
    }

    fn server() -> Detail {
        let mut lost = LostServer { survivors: 14, fewest: 49, most: 51, ..LostServer::default() };
        (0..50).for_each(|_| lost.add(1, 7_000_000));
        Detail::Server(lost)
    }

    /// A report with cells of every kind.
    pub(in super::super) fn all() -> Report {
        let shards = |seconds| (seconds, Detail::Shards { shard_bytes: SHARD });
        let four = lost_code(4);
        let mut report = report([
            cell(Kind::Loss, (&four, MEND), &[shards(3.9), shards(3.6), shards(4.2)]),
            cell(Kind::Loss, (&four, STOCK), &[shards(27.0)]),
            cell(Kind::Node, ("10+4", STOCK), &[(33.0, server())]),
            cell(Kind::Node, ("10+4", MEND), &[(11.0, server()), (10.0, server()), (12.0, server())]),
            cell(Kind::ReadsDuring, ("10+4", ALL_UP), &[(10.0, during(1000, 4))]),
            cell(Kind::ReadsDuring, ("10+4", ONE_DOWN), &[(10.0, during(100, 10))]),
            cell(Kind::ReadsDuring, ("10+4", MEND), &[(14.0, during(90, 20))]),
        ]);
        report.add_direct(SHARD, "200Mbit", 3.0);
        report
    }

    /// Returns the cells of the first row after `heading` by this program.
    fn row(text: &str, heading: &str, by: &str) -> Vec<String> {
        let section = text.split_once(heading).unwrap_or_else(|| panic!("{text}")).1;
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let mut rows = section.lines().map(cells);
        rows.find(|row| row.get(3).is_some_and(|found| found == by)).unwrap_or_else(|| panic!("{section}"))
    }

    #[test]
    fn shards_are_compared_with_one_read() {
        let found = row(&text(&all()), "## Shards of one volume", MEND);
        assert_eq!(
            found[..9],
            ["10+4, 4 lost", "66 MB", "200Mbit", "mend", "3.90", "15.4%", "3.00", "1.30", "6.9"]
        );
    }

    #[test]
    fn a_server_is_compared_with_the_links_bound() {
        let text = text(&all());
        let found = row(&text, "## A whole server", MEND);
        assert_eq!(
            found[4..12],
            ["50", "49 to 51", "350", "11.0", "18.2%", "10.1", "0.91 (0.84 to 1.01)", "3.0"]
        );
        assert!(text.contains("ec.balance` spreads the shards over all servers"), "{text}");
        assert!(text.contains("a whole server, of the links' bound: ≥ 0.85"), "{text}");
    }

    #[test]
    fn reads_are_compared_with_those_without_a_repair() {
        let found = row(&text(&all()), "## Reads", MEND);
        assert_eq!(found[4..12], ["14.0", "11.0", "90", "0.90", "20.0", "20.0", "2.0", "0"]);
    }

    #[test]
    fn only_tables_with_rows_are_drawn_and_linked() {
        let mut report = all();
        report.cells_mut().retain(|cell| cell.key.kind == Kind::Loss);
        let drawings = drawings(&report);
        assert_eq!(drawings.len(), 1);
        let chart = &drawings[0].chart;
        assert_eq!(chart.ticks, ["10+4, 4 lost, 66 MB, 200Mbit"]);
        let names: Vec<&str> = chart.series.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["mend", "ec.rebuild", "bound: one read"]);
        assert_eq!(chart.marks.spreads.len(), 1);
        let text = text(&report);
        assert!(text.contains("(seaweedfs-shards.svg)") && !text.contains("(seaweedfs-reads.svg)"), "{text}");
        assert!(!text.contains("## A whole server") && !text.contains("## Reads"), "{text}");
    }
}
