//! Formats the cells of the report as tables, and as values of drawings.

use repair::Scheme;

use super::detail::{Cell, Detail, Report, Run, raid_code};
use super::readers::{READERS, Reader};
use crate::experiment::report::Kind;
use crate::experiment::{Bar, megabytes};
use crate::figure::percent;
use crate::figure::plot::Named;
use crate::model::timeslots;
use crate::report::markdown_table;

/// The name of the bound in the drawing of recoveries.
pub(super) const LINKS: &str = "bound of the links";

/// Whether HDFS failed to read a lost block.
pub(super) fn has_failed(cell: &Cell) -> bool {
    cell.runs.iter().any(|run| run.detail == Detail::Failed)
}

/// Returns the last cells of a row: megabytes received by the busiest machine and by all, and the marks.
fn used(cell: &Cell) -> [String; 3] {
    let bytes = |of: fn(&Run) -> u64| cell.middle().map_or(String::new(), |run| megabytes(of(run)));
    [bytes(|run| run.used.received_most), bytes(|run| run.used.received), cell.marks()]
}

fn row(parts: [Vec<String>; 3]) -> Vec<String> {
    parts.concat()
}

// ---- degraded reads ----

/// Returns the table of degraded reads.
pub(super) fn reads_table(report: &Report) -> String {
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
        return row([cell.key.place().into(), cells.collect(), used(cell).into()]);
    }
    let srr = report.beside(&cell.key, &Reader::Mend(Scheme::Conventional).name());
    let less = srr.map_or(String::new(), |srr| percent(1.0 - cell.seconds() / srr.seconds()));
    let middle = [
        format!("{:.2}", cell.seconds()),
        percent(cell.time().relative()),
        format!("{:.2}", cell.seconds() / one_send(cell, report)),
        formula(cell).map_or(String::new(), |slots| format!("{slots:.2}")),
        less,
    ];
    row([cell.key.place().into(), middle.into(), used(cell).into()])
}

/// Returns the time to send a block of the cell over one of its links, in seconds.
pub(super) fn one_send(cell: &Cell, report: &Report) -> f64 {
    report.direct(cell.key.block_bytes, &cell.key.rate).unwrap_or(f64::NAN)
}

/// Returns the number of timeslots that a read takes with many slices.
fn formula(cell: &Cell) -> Option<f64> {
    let code = raid_code(&cell.key)?;
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
    /// The time of making the parity.
    seconds: f64,
    check_s: f64,
    command_s: f64,
    stripes: usize,
    /// Blocks that the busiest machine received for each stripe while the parity was made, and while it was checked.
    blocks: [f64; 2],
}

impl Encoded {
    fn of(cell: &Cell, run: &Run) -> Option<Self> {
        let &Detail::Encoding { stripes, check_s, check_received_most, command_s, .. } = &run.detail else {
            return None;
        };
        let (block, seconds) = (cell.key.block_bytes as f64, run.seconds);
        let bytes = (stripes * raid_code(&cell.key)?.k) as f64 * block;
        let blocks = [run.used.received_most, check_received_most];
        let blocks = blocks.map(|most| most as f64 / (stripes as f64 * block));
        Some(Self { bytes, seconds, check_s, command_s, stripes, blocks })
    }

    /// Returns the megabytes of data that are encoded per second, without the check.
    fn rate(&self) -> f64 {
        self.bytes / 1e6 / self.seconds
    }
}

/// Returns the table of encodings.
pub(super) fn encodings_table(report: &Report) -> String {
    let columns = [
        "code",
        "block",
        "links",
        "by",
        "stripes",
        "parity s",
        "spread",
        "data MB/s",
        "with the check",
        "blocks to the busiest, for each stripe",
        "busiest MB",
        "all MB",
        "check s",
        "blocks to the busiest",
        "all MB",
        "command s",
        "marks",
    ];
    markdown_table(&columns, &report.of(Kind::Encoding).filter_map(encoding_row).collect::<Vec<_>>())
}

fn encoding_row(cell: &Cell) -> Option<Vec<String>> {
    let run = cell.middle()?;
    let one = Encoded::of(cell, run)?;
    let &Detail::Encoding { check_received, .. } = &run.detail else { return None };
    let parity = [
        one.stripes.to_string(),
        format!("{:.1}", one.seconds),
        percent(cell.time().relative()),
        format!("{:.1}", one.rate()),
        format!("{:.1}", one.bytes / 1e6 / (one.seconds + one.check_s)),
        format!("{:.1}", one.blocks[0]),
        megabytes(run.used.received_most),
        megabytes(run.used.received),
    ];
    let rest = vec![
        format!("{:.1}", one.check_s),
        format!("{:.1}", one.blocks[1]),
        megabytes(check_received),
        format!("{:.1}", one.command_s),
        cell.marks(),
    ];
    Some(row([cell.key.place().into(), parity.into(), rest]))
}

/// Returns the bars of the drawing of encodings.
pub(super) fn encoding_bars(report: &Report) -> Vec<Bar> {
    let bar = |cell: &Cell| {
        let value = cell.over(|run| Encoded::of(cell, run).map_or(f64::NAN, |one| one.rate()));
        Bar { tick: cell.key.tick(), series: cell.key.by.clone(), value }
    };
    report.of(Kind::Encoding).map(bar).collect()
}

// ---- recovery ----

/// Returns the number of lost blocks.
fn lost_blocks(run: &Run) -> f64 {
    match run.detail {
        Detail::Node(lost) => lost.blocks as f64,
        _ => f64::NAN,
    }
}

/// Returns the time in which the links could carry a recovery, in seconds.
fn bound_s(cell: &Cell, run: &Run, report: &Report) -> f64 {
    let (Detail::Node(lost), Some(code)) = (&run.detail, raid_code(&cell.key)) else { return f64::NAN };
    report.over_link(lost.bound(code.k) * cell.key.block_bytes as f64, &cell.key.rate)
}

/// Returns the table of recoveries.
pub(super) fn recoveries_table(report: &Report) -> String {
    let columns = [
        "code",
        "block",
        "links",
        "by",
        "blocks",
        "on each",
        "s",
        "spread",
        "blocks/s",
        "of the links' bound",
        "busiest MB",
        "all MB",
        "marks",
    ];
    let rows: Vec<_> = report.of(Kind::Node).filter_map(|cell| recovery_row(cell, report)).collect();
    markdown_table(&columns, &rows)
}

fn recovery_row(cell: &Cell, report: &Report) -> Option<Vec<String>> {
    let Detail::Node(lost) = cell.middle()?.detail else { return None };
    let middle = vec![
        lost.blocks.to_string(),
        format!("{} to {}", lost.fewest, lost.most),
        format!("{:.1}", cell.seconds()),
        percent(cell.time().relative()),
        format!("{:.1}", cell.over(|run| lost_blocks(run) / run.seconds).median),
        cell.over(|run| bound_s(cell, run, report) / run.seconds).to_string(),
    ];
    Some(row([cell.key.place().into(), middle, used(cell).into()]))
}

/// Returns the bars and the bounds of the drawing of recoveries.
pub(super) fn recovery_values(report: &Report) -> (Vec<Bar>, Vec<Named>) {
    let bar = |cell: &Cell| {
        let value = cell.over(|run| lost_blocks(run) / run.seconds);
        Bar { tick: cell.key.tick(), series: cell.key.by.clone(), value }
    };
    let bound = |cell: &Cell| {
        let rate = cell.over(|run| lost_blocks(run) / bound_s(cell, run, report)).median;
        (cell.key.tick(), LINKS.to_owned(), rate)
    };
    (report.of(Kind::Node).map(bar).collect(), report.of(Kind::Node).map(bound).collect())
}
