//! Formats the cells of the report as tables, and as values of drawings.

use super::detail::{Cell, Detail, Report, Run};
use super::tasks::{ALL_UP, ONE_DOWN, STOCK};
use crate::experiment::report::{Key, Kind};
use crate::experiment::{Bar, Reads, Spread, Used, megabytes};
use crate::figure::percent;
use crate::figure::plot::Named;
use crate::report::markdown_table;

/// The names of bounds in drawings.
const ONE_READ: &str = "bound: one read";
const LINKS: &str = "bound of the links";

fn table(columns: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    markdown_table(columns, &rows.collect::<Vec<_>>())
}

/// Formats a number; empty if it was not measured.
fn number(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { String::new() }
}

/// Returns how often the time of `ec.rebuild` contains the cell's time.
fn stock_over(cell: &Cell, report: &Report) -> f64 {
    report.beside(&cell.key, STOCK).map_or(f64::NAN, |stock| stock.seconds() / cell.seconds())
}

/// Returns megabytes received by all and by one, read, written, and the memory of one.
fn used(cell: &Cell) -> [String; 5] {
    let used = cell.middle().map_or(Used::default(), |run| run.used);
    [used.received, used.received_most, used.read, used.written, used.memory].map(megabytes)
}

const USED: [&str; 5] = ["received", "by one", "read", "written", "memory of one"];

// ---- shards ----

/// Returns the time to send one shard of the run over one link, in seconds.
fn one_read(key: &Key, run: &Run, report: &Report) -> f64 {
    match run.detail {
        Detail::Shards { shard_bytes } => report.direct(shard_bytes, &key.rate).unwrap_or(f64::NAN),
        _ => f64::NAN,
    }
}

/// Returns the time relative to the time to send one shard.
pub(super) fn over_read(cell: &Cell, report: &Report) -> Spread {
    cell.over(|run| run.seconds / one_read(&cell.key, run, report))
}

/// Returns the table of repairs of shards.
pub(super) fn losses(report: &Report) -> String {
    let columns = ["code", "shard", "links", "by", "s", "spread", "one read s", "×", "ec.rebuild over it"];
    let row = |cell: &Cell| {
        let times = [
            format!("{:.2}", cell.seconds()),
            percent(cell.time().relative()),
            number(cell.over(|run| one_read(&cell.key, run, report)).median, 2),
            number(over_read(cell, report).median, 2),
            number(stock_over(cell, report), 1),
        ];
        [&cell.key.place()[..], &times, &used(cell), &[cell.marks()]].concat()
    };
    table(&[&columns[..], &USED, &["marks"]].concat(), report.of(Kind::Loss).map(row))
}

/// Returns the bars and the bounds of the drawing of shards.
pub(super) fn loss_values(report: &Report) -> (Vec<Bar>, Vec<Named>) {
    let bar = |cell: &Cell| Bar { tick: cell.key.tick(), series: cell.key.by.clone(), value: cell.time() };
    let bound = |cell: &Cell| {
        let seconds = cell.over(|run| one_read(&cell.key, run, report)).median;
        (cell.key.tick(), ONE_READ.to_owned(), seconds)
    };
    (report.of(Kind::Loss).map(bar).collect(), report.of(Kind::Loss).map(bound).collect())
}

// ---- servers ----

/// Returns the time in which the links could carry a recovery, in seconds.
fn bound(key: &Key, run: &Run, report: &Report) -> f64 {
    match run.detail {
        Detail::Server(lost) => report.over_link(lost.bound(), &key.rate),
        _ => f64::NAN,
    }
}

/// Returns the part that the bound is of the time.
pub(super) fn of_bound(cell: &Cell, report: &Report) -> Spread {
    cell.over(|run| bound(&cell.key, run, report) / run.seconds)
}

/// Returns the number of shards that are rebuilt in a second.
fn per_second(run: &Run) -> f64 {
    match run.detail {
        Detail::Server(lost) => lost.shards as f64 / run.seconds,
        _ => f64::NAN,
    }
}

/// Returns the table of recoveries of servers.
pub(super) fn servers(report: &Report) -> String {
    let columns = [
        "code",
        "shard",
        "links",
        "by",
        "shards",
        "on each",
        "MB",
        "s",
        "spread",
        "bound s",
        "of the links' bound",
        "ec.rebuild over it",
    ];
    let rows = report.of(Kind::Node).filter_map(|cell| server(cell, report));
    table(&[&columns[..], &USED, &["marks"]].concat(), rows)
}

fn server(cell: &Cell, report: &Report) -> Option<Vec<String>> {
    let Detail::Server(lost) = cell.middle()?.detail else { return None };
    let times = [
        lost.shards.to_string(),
        format!("{} to {}", lost.fewest, lost.most),
        megabytes(lost.bytes),
        format!("{:.1}", cell.seconds()),
        percent(cell.time().relative()),
        number(cell.over(|run| bound(&cell.key, run, report)).median, 1),
        of_bound(cell, report).to_string(),
        number(stock_over(cell, report), 1),
    ];
    Some([&cell.key.place()[..], &times, &used(cell), &[cell.marks()]].concat())
}

/// Returns the bars and the bounds of the drawing of servers.
pub(super) fn server_values(report: &Report) -> (Vec<Bar>, Vec<Named>) {
    let bar = |cell: &Cell| Bar {
        tick: cell.key.tick(),
        series: cell.key.by.clone(),
        value: cell.over(per_second),
    };
    let bound = |cell: &Cell| {
        let rate = cell.over(|run| per_second(run) * run.seconds / bound(&cell.key, run, report)).median;
        (cell.key.tick(), LINKS.to_owned(), rate)
    };
    (report.of(Kind::Node).map(bar).collect(), report.of(Kind::Node).map(bound).collect())
}

// ---- reads ----

/// Returns a value of the reads in each repetition.
fn during(cell: &Cell, of: impl Fn(&Reads) -> f64) -> Spread {
    cell.over(|run| match &run.detail {
        Detail::ReadsDuring(reads) => of(reads),
        _ => f64::NAN,
    })
}

/// Returns a value of the reads, divided by that while a server is down and nothing is repaired.
pub(super) fn over_idle(cell: &Cell, report: &Report, of: impl Fn(&Reads) -> f64) -> Spread {
    let idle = report.beside(&cell.key, ONE_DOWN).map_or(f64::NAN, |idle| during(idle, &of).median);
    during(cell, |reads| of(reads) / idle)
}

/// The 99th percentile of the latency, in milliseconds.
pub(super) fn p99(reads: &Reads) -> f64 {
    reads.latencies_ms()[1]
}

/// Returns the table of reads.
pub(super) fn reads(report: &Report) -> String {
    let columns = [
        "code",
        "shard",
        "links",
        "repaired by",
        "lasted s",
        "without reads s",
        "reads/s",
        "of those with a server down",
        "median ms",
        "p99 ms",
        "of those with a server down",
        "failed",
        "marks",
    ];
    let row = |cell: &Cell| {
        let alone = report.find(&Key { kind: Kind::Node, ..cell.key.clone() });
        let found = [
            format!("{:.1}", cell.seconds()),
            number(alone.map_or(f64::NAN, Cell::seconds), 1),
            format!("{:.0}", during(cell, Reads::per_second)),
            number(over_idle(cell, report, Reads::per_second).median, 2),
            format!("{:.1}", during(cell, |reads| reads.latencies_ms()[0])),
            format!("{:.1}", during(cell, p99)),
            number(over_idle(cell, report, p99).median, 1),
            format!("{:.0}", during(cell, |reads| reads.failed() as f64)),
            cell.marks(),
        ];
        [&cell.key.place()[..], &found].concat()
    };
    table(&columns, report.of(Kind::ReadsDuring).map(row))
}

/// Returns the values of the drawing of reads.
pub(super) fn read_values(report: &Report) -> Vec<Named> {
    let values = |cell: &Cell| match &cell.middle()?.detail {
        Detail::ReadsDuring(reads) => Some(reads.named(&cell.key.by)),
        _ => None,
    };
    report.of(Kind::ReadsDuring).filter_map(values).flatten().collect()
}

/// Whether nothing was repaired during the reads of a cell.
pub(super) fn is_idle(cell: &Cell) -> bool {
    [ALL_UP, ONE_DOWN].contains(&cell.key.by.as_str())
}
