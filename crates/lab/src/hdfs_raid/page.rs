//! Formats the report as tables and drawings.

use std::time::Duration;

use super::codes::OF_SIZES;
use super::papers::{self, is_common_size};
use super::readers::{READERS, Reader};
use super::report::{Cell, Detail, Kind, Report, Run};
use crate::experiment::megabytes;
use crate::figure::percent;
use crate::figure::plot::{Drawing, Mark, Named};
use crate::hdfs::nodes::bound;
use crate::model::timeslots;
use crate::report::{markdown_table, median};

pub(super) const TITLE: &str = "HDFS-RAID's layout: degraded reads, encoding, recovery";
/// The command that makes the page.
pub(super) const COMMAND: &str = "make bench-hdfs-raid";
/// The names of the drawings.
const CODES: &str = "hdfs-raid-codes";
const SIZES: &str = "hdfs-raid-sizes";
const ENCODING: &str = "hdfs-raid-encoding";
const NODE: &str = "hdfs-raid-node";
/// The names of bounds in drawings.
const ONE_SEND: &str = "bound: one send";
const LINKS: &str = "bound of the links";

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

fn has_failed(cell: &Cell) -> bool {
    cell.runs.iter().any(|run| run.detail == Detail::Failed)
}

/// Returns the first cells of a row: code, block size, rate and name.
fn place(cell: &Cell) -> [String; 4] {
    let key = &cell.key;
    [key.code.clone(), format!("{} MiB", key.block_mib), key.rate.clone(), key.by.clone()]
}

/// Returns the last cells of a row: megabytes received by the busiest machine and by all, and the marks.
fn used(cell: &Cell) -> [String; 3] {
    let bytes = |of: fn(&Run) -> u64| cell.middle().map_or(String::new(), |run| megabytes(of(run)));
    [bytes(|run| run.received_most), bytes(|run| run.received), cell.marks()]
}

fn row(parts: [Vec<String>; 3]) -> Vec<String> {
    parts.concat()
}

// ---- degraded reads ----

fn reads_table(report: &Report) -> String {
    let columns = [
        "code",
        "block",
        "links",
        "by",
        "s",
        "spread",
        "× one send",
        "by the formula",
        "less than SRR",
        "busiest MB",
        "all MB",
        "marks",
    ];
    let rows: Vec<_> = report.of(Kind::Read).map(|cell| read_row(cell, report)).collect();
    markdown_table(&columns, &rows)
}

fn read_row(cell: &Cell, report: &Report) -> Vec<String> {
    if has_failed(cell) {
        let cells =
            [format!("fails after {:.1}", cell.seconds())].into_iter().chain([const { String::new() }; 4]);
        return row([place(cell).into(), cells.collect(), used(cell).into()]);
    }
    let srr = report.beside(&cell.key, &Reader::Mend(repair::Scheme::Conventional).name());
    let less = srr.map_or(String::new(), |srr| percent(1.0 - cell.seconds() / srr.seconds()));
    let middle = [
        format!("{:.2}", cell.seconds()),
        percent(cell.spread()),
        format!("{:.2}", cell.seconds() / report.direct(&cell.key)),
        formula(cell).map_or(String::new(), |slots| format!("{slots:.2}")),
        less,
    ];
    row([place(cell).into(), middle.into(), used(cell).into()])
}

/// Returns the number of timeslots that a read takes with many slices.
fn formula(cell: &Cell) -> Option<f64> {
    let code = cell.key.raid_code()?;
    match READERS.into_iter().find(|reader| reader.name() == cell.key.by)? {
        Reader::Plain => Some(1.0),
        Reader::Stock => None,
        Reader::Decoder => Some(code.k as f64),
        Reader::Mend(scheme) => timeslots(scheme, code.k, usize::MAX),
    }
}

// ---- encoding ----

/// An encoding in one repetition.
struct Encoded {
    /// Bytes of data.
    bytes: f64,
    seconds: f64,
    check_s: f64,
    command_s: f64,
    stripes: usize,
    /// Blocks that the busiest machine received for each stripe.
    blocks: f64,
}

impl Encoded {
    fn of(cell: &Cell, run: &Run) -> Option<Self> {
        let &Detail::Encoding { stripes, check_s, command_s } = &run.detail else { return None };
        let block = (cell.key.block_mib << 20) as f64;
        let bytes = (stripes * cell.key.raid_code()?.k) as f64 * block;
        let blocks = run.received_most as f64 / (stripes as f64 * block);
        Some(Self { bytes, seconds: run.seconds, check_s, command_s, stripes, blocks })
    }

    /// Returns the megabytes of data that are encoded per second.
    fn rate(&self) -> f64 {
        self.bytes / 1e6 / self.seconds
    }
}

fn encodings_table(report: &Report) -> String {
    let columns = [
        "code",
        "block",
        "links",
        "by",
        "stripes",
        "parity s",
        "check s",
        "spread",
        "data MB/s",
        "without the check",
        "command s",
        "blocks to the busiest, for each stripe",
        "busiest MB",
        "all MB",
        "marks",
    ];
    markdown_table(&columns, &report.of(Kind::Encoding).filter_map(encoding_row).collect::<Vec<_>>())
}

fn encoding_row(cell: &Cell) -> Option<Vec<String>> {
    let one = Encoded::of(cell, cell.middle()?)?;
    let parity_s = one.seconds - one.check_s;
    let middle = vec![
        one.stripes.to_string(),
        format!("{parity_s:.1}"),
        format!("{:.1}", one.check_s),
        percent(cell.spread()),
        format!("{:.1}", one.rate()),
        format!("{:.1}", one.bytes / 1e6 / parity_s),
        format!("{:.1}", one.command_s),
        format!("{:.1}", one.blocks),
    ];
    Some(row([place(cell).into(), middle, used(cell).into()]))
}

fn encoding_values(report: &Report) -> Vec<Named> {
    let value = |cell: &Cell| {
        let one = Encoded::of(cell, cell.middle()?)?;
        let tick = format!("{}, {} MiB, {}", cell.key.code, cell.key.block_mib, cell.key.rate);
        Some((tick, cell.key.by.clone(), one.rate()))
    };
    report.of(Kind::Encoding).filter_map(value).collect()
}

// ---- recovery ----

/// A recovery in one repetition.
struct Recovered {
    blocks: usize,
    seconds: f64,
    /// The time in which the links could carry the recovery.
    bound_s: f64,
}

impl Recovered {
    fn of(cell: &Cell, run: &Run, report: &Report) -> Option<Self> {
        let &Detail::Recovery { blocks, survivors, .. } = &run.detail else { return None };
        let direct = Duration::try_from_secs_f64(report.direct(&cell.key) * blocks as f64).ok()?;
        let bound_s = bound(direct, cell.key.raid_code()?.k, survivors).as_secs_f64();
        Some(Self { blocks, seconds: run.seconds, bound_s })
    }

    fn all(cell: &Cell, report: &Report) -> Vec<Self> {
        cell.runs.iter().filter_map(|run| Self::of(cell, run, report)).collect()
    }

    fn rate(&self) -> f64 {
        self.blocks as f64 / self.seconds
    }

    fn of_bound(&self) -> f64 {
        self.bound_s / self.seconds
    }
}

fn median_of(recovered: &[Recovered], of: fn(&Recovered) -> f64) -> f64 {
    median(&recovered.iter().map(of).collect::<Vec<_>>())
}

fn recoveries_table(report: &Report) -> String {
    let columns = [
        "code",
        "block",
        "links",
        "by",
        "blocks",
        "s",
        "blocks/s",
        "of the links' bound",
        "from",
        "to",
        "busiest MB",
        "all MB",
        "marks",
    ];
    let rows: Vec<_> = report.of(Kind::Recovery).filter_map(|cell| recovery_row(cell, report)).collect();
    markdown_table(&columns, &rows)
}

fn recovery_row(cell: &Cell, report: &Report) -> Option<Vec<String>> {
    let all = Recovered::all(cell, report);
    let one = Recovered::of(cell, cell.middle()?, report)?;
    let parts = || all.iter().map(Recovered::of_bound);
    let [least, most] = [parts().fold(f64::NAN, f64::min), parts().fold(f64::NAN, f64::max)];
    let middle = vec![
        one.blocks.to_string(),
        format!("{:.1}", one.seconds),
        format!("{:.1}", median_of(&all, Recovered::rate)),
        format!("{:.2}", median_of(&all, Recovered::of_bound)),
        format!("{least:.2}"),
        format!("{most:.2}"),
    ];
    Some(row([place(cell).into(), middle, used(cell).into()]))
}

fn recovery_values(report: &Report) -> Vec<Named> {
    let values = |cell: &Cell| {
        let all = Recovered::all(cell, report);
        let tick = format!("{}, {} MiB, {}", cell.key.code, cell.key.block_mib, cell.key.rate);
        let bound = median_of(&all, |one| one.blocks as f64 / one.bound_s);
        [
            (tick.clone(), cell.key.by.clone(), median_of(&all, Recovered::rate)),
            (tick, LINKS.to_owned(), bound),
        ]
    };
    report.of(Kind::Recovery).flat_map(values).collect()
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
back and check it; the rest of the command's time is mostly waiting for HDFS to remove replicas. *HDFS-RAID's way*: without a coordinator,
one JVM reads k blocks of each stripe and writes the parity, as RaidNode did. *MB/s* counts data, not parity.
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
mod tests {
    use repair::Scheme;

    use super::super::report::tests::{cell, report};
    use super::*;

    fn mend(scheme: Scheme) -> String {
        Reader::Mend(scheme).name()
    }

    fn with(kind: Kind, mut cell: Cell, detail: &Detail) -> Cell {
        cell.key.kind = kind;
        cell.runs.iter_mut().for_each(|run| run.detail = detail.clone());
        cell
    }

    /// Returns the row of a table whose line contains `name`, as trimmed cells.
    fn cells(table: &str, name: &str) -> Vec<String> {
        let line = table.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{table}"));
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    }

    fn reads() -> Report {
        report([
            cell("14-10", 64, "HDFS", &[18.7]),
            cell("14-10", 64, &mend(Scheme::Conventional), &[27.0, 28.0, 26.0]),
            cell("14-10", 64, &mend(Scheme::Pipelined), &[2.7, 2.7, 2.97]),
        ])
        .map_failed("HDFS")
    }

    impl Report {
        /// Turns the runs by this reader into failures.
        fn map_failed(mut self, by: &str) -> Self {
            let cells = self.cells.iter_mut().filter(|cell| cell.key.by == by);
            cells.flat_map(|cell| &mut cell.runs).for_each(|run| run.detail = Detail::Failed);
            self
        }
    }

    #[test]
    fn a_read_is_compared_with_a_send_the_formula_and_srr() {
        let table = reads_table(&reads());
        let row = cells(&table, "Mend, pipelined");
        let expected = [
            "14-10",
            "64 MiB",
            "200Mbit",
            "Mend, pipelined",
            "2.70",
            "10.0%",
            "1.00",
            "1.00",
            "90.0%",
            "128",
            "512",
            "",
        ];
        assert_eq!(row, expected);
        assert_eq!(cells(&table, "Mend, conventional")[4..9], ["27.00", "7.4%", "10.00", "10.00", "0.0%"]);
        assert_eq!(cells(&table, "| HDFS ")[4..7], ["fails after 18.7", "", ""]);
    }

    #[test]
    fn failures_are_not_drawn_and_spreads_are() {
        let drawings = drawings(&reads());
        let [drawing] = &drawings[..] else { panic!("{} drawings", drawings.len()) };
        let names: Vec<_> = drawing.chart.series.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Mend, conventional", "Mend, pipelined", ONE_SEND]);
        let spread = Mark { series: mend(Scheme::Conventional), at: 0, low: 26.0, high: 28.0 };
        assert_eq!(drawing.chart.marks.spreads[0], spread);
        assert!(text(&reads()).contains("(hdfs-raid-codes.svg)"));
    }

    #[test]
    fn block_sizes_are_drawn_in_their_order() {
        let by = mend(Scheme::Ppr);
        let report = report([cell("8-6", 64, &by, &[5.0]), cell("8-6", 32, &by, &[2.5])]);
        let drawings = drawings(&report);
        let sizes = drawings.iter().find(|drawing| drawing.name == SIZES).unwrap();
        assert_eq!(sizes.chart.ticks, ["32 MiB, 200Mbit", "64 MiB, 200Mbit"]);
    }

    #[test]
    fn encoding_is_shown_as_a_rate_of_data() {
        let detail = Detail::Encoding { stripes: 4, check_s: 30.0, command_s: 80.0 };
        let encoding = with(Kind::Encoding, cell("14-10", 16, "one JVM", &[50.0]), &detail);
        let row = cells(&encodings_table(&report([encoding])), "one JVM");
        // 4 stripes of 10 blocks of 16 MiB are 671 MB; the busiest machine received 128 MB for 4 stripes.
        assert_eq!(row[4..12], ["4", "20.0", "30.0", "0.0%", "13.4", "33.6", "80.0", "1.9"]);
    }

    #[test]
    fn a_recovery_is_compared_with_the_links_bound() {
        let detail = Detail::Recovery { blocks: 30, survivors: 15, timeline: "steps\n".to_owned() };
        let recovery = with(Kind::Recovery, cell("14-10", 64, "Mend", &[60.0, 54.0, 108.0]), &detail);
        let report = report([recovery]);
        // 30 blocks take 81 s over one link; ten times this over 15 links is 54 s.
        assert_eq!(
            cells(&recoveries_table(&report), "Mend")[4..10],
            ["30", "60.0", "0.5", "0.90", "0.50", "1.00"]
        );
        let text = text(&report);
        assert!(text.contains("Mend:\n\n```text\nsteps\n```"), "{text}");
        assert!(!text.contains("## Encoding"), "{text}");
        let drawing = &drawings(&report)[0];
        let bound = &drawing.chart.series.iter().find(|(name, _)| name == LINKS).unwrap().1;
        assert!((bound[0].1 - 30.0 / 54.0).abs() < 1e-6, "{bound:?}");
    }
}
