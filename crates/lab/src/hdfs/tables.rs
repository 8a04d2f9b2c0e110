//! Formats the cells of the report as tables, and as values of drawings.

use super::cluster::Policy;
use super::detail::{Cell, Detail, Report, Run};
use super::measure::NO_REPAIR;
use super::reads::SmallReads;
use super::ways::Way;
use crate::experiment::report::{Key, Kind};
use crate::experiment::{Bar, Reads, Spread, megabytes, milliseconds};
use crate::figure::percent;
use crate::figure::plot::Named;
use crate::report::markdown_table;

/// The names of bounds in drawings.
const ONE_SEND: &str = "bound: one send";
const LINKS: &str = "bound of the links";
/// Bytes of checksums for each byte of a block, by default.
const CHECKSUMS: f64 = 4.0 / 512.0;

fn table(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    markdown_table(columns, &rows.collect::<Vec<_>>())
}

/// Returns how often HDFS's time contains the cell's time.
fn hdfs_over(cell: &Cell, report: &Report) -> f64 {
    report.beside(&cell.key, Way::Hdfs.name()).map_or(f64::NAN, |stock| stock.seconds() / cell.seconds())
}

/// Formats a number; empty if it was not measured.
fn number(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { String::new() }
}

fn data(key: &Key) -> f64 {
    Policy::named(&key.code).map_or(f64::NAN, |policy| policy.data as f64)
}

/// Returns megabytes received by all machines and by the one that received most.
fn received(cell: &Cell) -> [String; 2] {
    let bytes = |of: fn(&Run) -> u64| cell.middle().map_or(String::new(), |run| megabytes(of(run)));
    [bytes(|run| run.used.received), bytes(|run| run.used.received_most)]
}

/// Returns how many blocks were read from files for each rebuilt block, with their checksums.
pub(super) fn blocks_read(cell: &Cell) -> Spread {
    cell.over(|run| run.used.read_from_files() as f64 / with_checksums(&cell.key, run))
}

/// Returns how many blocks were read from the device for each rebuilt block.
pub(super) fn blocks_from_device(cell: &Cell) -> Spread {
    cell.over(|run| run.used.from_device as f64 / with_checksums(&cell.key, run))
}

/// Returns the bytes of all rebuilt blocks and their checksums.
fn with_checksums(key: &Key, run: &Run) -> f64 {
    let blocks = run.detail.node().map_or(1, |(lost, _)| lost.blocks);
    blocks as f64 * key.block_bytes as f64 * (1.0 + CHECKSUMS)
}

// ---- single blocks ----

/// Returns the time to send a block of the cell over one of its links, in seconds.
fn one_send(key: &Key, report: &Report) -> f64 {
    report.direct(key.block_bytes, &key.rate).unwrap_or(f64::NAN)
}

/// Returns the table of repairs of single blocks.
pub(super) fn losses(report: &Report) -> String {
    let columns = [
        "policy",
        "block",
        "links",
        "by",
        "s",
        "spread",
        "one send s",
        "×",
        "HDFS over it",
        "received MB",
        "by one",
        "blocks read",
        "marks",
    ];
    table(&columns, report.of(Kind::Loss).map(|cell| loss(cell, report)))
}

fn loss(cell: &Cell, report: &Report) -> Vec<String> {
    let direct = one_send(&cell.key, report);
    let times = [
        format!("{:.2}", cell.seconds()),
        percent(cell.time().relative()),
        number(direct, 2),
        number(cell.seconds() / direct, 2),
        number(hdfs_over(cell, report), 1),
    ];
    let read = [number(blocks_read(cell).median, 1), cell.marks()];
    [&cell.key.place()[..], &times, &received(cell), &read].concat()
}

/// Returns the bars and the bounds of the drawing of single blocks.
pub(super) fn loss_values(report: &Report) -> (Vec<Bar>, Vec<Named>) {
    let bar = |cell: &Cell| Bar { tick: cell.key.tick(), series: cell.key.by.clone(), value: cell.time() };
    let bound = |cell: &Cell| (cell.key.tick(), ONE_SEND.to_owned(), one_send(&cell.key, report));
    (report.of(Kind::Loss).map(bar).collect(), report.of(Kind::Loss).map(bound).collect())
}

/// Returns the table of reads with cold caches.
pub(super) fn cold(report: &Report) -> String {
    let columns = [
        "policy",
        "block",
        "links",
        "by",
        "s",
        "from the device",
        "k + 1",
        "reads in all",
        "2k + 1",
        "marks",
    ];
    let row = |cell: &Cell| {
        let k = data(&cell.key);
        let reads = [
            format!("{:.2}", cell.seconds()),
            format!("{:.2}", blocks_from_device(cell)),
            format!("{:.0}", k + 1.0),
            format!("{:.2}", blocks_read(cell)),
            format!("{:.0}", 2.0 * k + 1.0),
            cell.marks(),
        ];
        [&cell.key.place()[..], &reads].concat()
    };
    table(&columns, report.of(Kind::ColdLoss).map(row))
}

// ---- whole DataNodes ----

/// Returns the time in which the links could carry a recovery, in seconds.
fn bound(key: &Key, run: &Run, report: &Report) -> f64 {
    let lost = run.detail.node().map(|(lost, _)| lost);
    let blocks = lost.map_or(f64::NAN, |lost| lost.bound(data(key) as usize));
    report.over_link(blocks * key.block_bytes as f64, &key.rate)
}

/// Returns the part that the bound is of the time.
pub(super) fn of_bound(cell: &Cell, report: &Report) -> Spread {
    cell.over(|run| bound(&cell.key, run, report) / run.seconds)
}

/// Returns the part that the bound is of the time from the first command; NaN if there was no command.
pub(super) fn of_bound_from_command(cell: &Cell, report: &Report) -> Spread {
    cell.over(|run| bound(&cell.key, run, report) / from_command(run))
}

fn from_command(run: &Run) -> f64 {
    run.detail.node().and_then(|(_, from_command_s)| from_command_s).unwrap_or(f64::NAN)
}

/// Returns the number of blocks that are rebuilt in a second.
fn per_second(run: &Run) -> f64 {
    run.detail.node().map_or(f64::NAN, |(lost, _)| lost.blocks as f64 / run.seconds)
}

/// Returns the table of recoveries.
pub(super) fn nodes(report: &Report, kind: Kind) -> String {
    let columns = [
        "policy",
        "block",
        "links",
        "by",
        "blocks",
        "on each",
        "s",
        "spread",
        "of the links' bound",
        "from the first command s",
        "of the links' bound",
        "HDFS over it",
        "received MB",
        "by one",
        "blocks read for one",
        "marks",
    ];
    table(&columns, report.of(kind).filter_map(|cell| node(cell, report)))
}

fn node(cell: &Cell, report: &Report) -> Option<Vec<String>> {
    let (lost, _) = cell.middle()?.detail.node()?;
    let range = |spread: Spread| if spread.median.is_finite() { spread.to_string() } else { String::new() };
    let times = [
        lost.blocks.to_string(),
        format!("{} to {}", lost.fewest, lost.most),
        format!("{:.1}", cell.seconds()),
        percent(cell.time().relative()),
        range(of_bound(cell, report)),
        number(cell.over(from_command).median, 1),
        range(of_bound_from_command(cell, report)),
        number(hdfs_over(cell, report), 1),
    ];
    let read = [number(blocks_read(cell).median, 1), cell.marks()];
    Some([&cell.key.place()[..], &times, &received(cell), &read].concat())
}

/// Returns the bars and the bounds of the drawing of recoveries.
pub(super) fn node_values(report: &Report) -> (Vec<Bar>, Vec<Named>) {
    let bar = |cell: &Cell| {
        let value = cell.over(per_second);
        Bar { tick: cell.key.tick(), series: cell.key.by.clone(), value }
    };
    let bound = |cell: &Cell| {
        let rate = cell.over(|run| per_second(run) * run.seconds / bound(&cell.key, run, report)).median;
        (cell.key.tick(), LINKS.to_owned(), rate)
    };
    (report.of(Kind::Node).map(bar).collect(), report.of(Kind::Node).map(bound).collect())
}

/// Returns the table of HDFS's times over Mend's, with this size of blocks.
pub(super) fn compared(report: &Report, block_bytes: u64) -> String {
    let columns = [
        "policy",
        "links",
        "rebuilt on",
        "HDFS s",
        "asked s",
        "commanded s",
        "HDFS / asked",
        "HDFS / commanded",
        "HDFS / bound",
    ];
    let cells = [(Kind::Node, "all DataNodes"), (Kind::NodeToOne, "one new DataNode")];
    let rows = cells.into_iter().flat_map(|(kind, target)| {
        let is_stock =
            move |cell: &&Cell| cell.key.by == Way::Hdfs.name() && cell.key.block_bytes == block_bytes;
        report.of(kind).filter(is_stock).map(move |stock| compared_row(stock, target, report))
    });
    table(&columns, rows)
}

fn compared_row(stock: &Cell, target: &str, report: &Report) -> Vec<String> {
    let time = |way: Way| report.beside(&stock.key, way.name()).map_or(f64::NAN, Cell::seconds);
    let (hdfs, asked, commanded) = (stock.seconds(), time(Way::Asked), time(Way::Commanded));
    vec![
        stock.key.code.clone(),
        stock.key.rate.clone(),
        target.to_owned(),
        format!("{hdfs:.1}"),
        number(asked, 1),
        number(commanded, 1),
        number(hdfs / asked, 1),
        number(hdfs / commanded, 1),
        number(1.0 / of_bound(stock, report).median, 1),
    ]
}

// ---- reads ----

fn small(cell: &Cell) -> Option<SmallReads> {
    match cell.middle()?.detail {
        Detail::SmallReads(reads) => Some(reads),
        _ => None,
    }
}

/// Returns the table of small reads of lost blocks.
pub(super) fn small_reads(report: &Report) -> String {
    let columns = [
        "policy",
        "block",
        "links",
        "by",
        "reads",
        "median ms",
        "p99 ms",
        "KiB to the reader",
        "KiB by all DataNodes",
        "MiB through Mend",
        "marks",
    ];
    let row = |cell: &Cell| {
        let reads = small(cell)?;
        let kib = |bytes: u64| format!("{:.0}", bytes as f64 / 1024.0);
        let found = [
            reads.count.to_string(),
            milliseconds(reads.median),
            milliseconds(reads.p99),
            kib(reads.received),
            kib(reads.sent),
            format!("{:.1}", reads.through_mend as f64 / f64::from(1 << 20)),
            cell.marks(),
        ];
        Some([&cell.key.place()[..], &found].concat())
    };
    table(&columns, report.of(Kind::SmallReads).filter_map(row))
}

/// Returns the values of the drawing of small reads.
pub(super) fn small_values(report: &Report) -> Vec<Named> {
    let value = |cell: &Cell| {
        let milliseconds = small(cell)?.median.as_secs_f64() * 1e3;
        Some((cell.key.code.clone(), cell.key.by.clone(), milliseconds))
    };
    report.of(Kind::SmallReads).filter_map(value).collect()
}

/// Returns a value of the reads in each repetition.
pub(super) fn during(cell: &Cell, of: impl Fn(&Reads) -> f64) -> Spread {
    cell.over(|run| match &run.detail {
        Detail::ReadsDuring(reads) => of(reads),
        _ => f64::NAN,
    })
}

/// Returns the reads of the same files in the same system while nothing was repaired.
pub(super) fn idle<'a>(cell: &Cell, report: &'a Report) -> Option<&'a Cell> {
    let is_mend = cell.key.by.starts_with("Mend");
    report.beside(&cell.key, NO_REPAIR[usize::from(is_mend)])
}

/// Returns the median of a value, divided by that while nothing was repaired.
pub(super) fn over_idle(cell: &Cell, report: &Report, of: impl Fn(&Reads) -> f64) -> Spread {
    let idle = idle(cell, report).map_or(f64::NAN, |idle| during(idle, &of).median);
    during(cell, |reads| of(reads) / idle)
}

/// The 99th percentile of the latency, in milliseconds.
pub(super) fn p99(reads: &Reads) -> f64 {
    reads.latencies_ms()[1]
}

/// Returns the table of reads during recoveries.
pub(super) fn reads_during(report: &Report) -> String {
    let columns = [
        "policy",
        "block",
        "links",
        "repaired by",
        "reads/s",
        "of idle",
        "median ms",
        "p99 ms",
        "of idle",
        "failed",
        "recovery s",
        "without reads s",
        "marks",
    ];
    table(&columns, report.of(Kind::ReadsDuring).map(|cell| reads_row(cell, report)))
}

fn reads_row(cell: &Cell, report: &Report) -> Vec<String> {
    let is_idle = NO_REPAIR.contains(&cell.key.by.as_str());
    let alone = report.find(&Key { kind: Kind::Node, ..cell.key.clone() });
    let recovery = if is_idle { f64::NAN } else { cell.seconds() };
    let found = [
        format!("{:.0}", during(cell, Reads::per_second)),
        number(over_idle(cell, report, Reads::per_second).median, 2),
        format!("{:.1}", during(cell, |reads| reads.latencies_ms()[0])),
        format!("{:.1}", during(cell, p99)),
        number(over_idle(cell, report, p99).median, 1),
        format!("{:.0}", during(cell, |reads| reads.failed() as f64)),
        number(recovery, 1),
        number(alone.map_or(f64::NAN, Cell::seconds), 1),
        cell.marks(),
    ];
    [&cell.key.place()[..], &found].concat()
}
