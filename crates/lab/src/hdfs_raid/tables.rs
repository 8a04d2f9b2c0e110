//! Formats the cells of the report as tables, and as values of drawings.

use std::time::Duration;

use repair::Scheme;

use super::readers::{READERS, Reader};
use super::report::{Cell, Detail, Kind, Report, Run};
use crate::experiment::megabytes;
use crate::figure::percent;
use crate::figure::plot::Named;
use crate::hdfs::nodes::bound;
use crate::model::timeslots;
use crate::report::{markdown_table, median};

/// The name of the bound in the drawing of recoveries.
pub(super) const LINKS: &str = "bound of the links";

/// Whether HDFS failed to read a lost block.
pub(super) fn has_failed(cell: &Cell) -> bool {
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
        return row([place(cell).into(), cells.collect(), used(cell).into()]);
    }
    let srr = report.beside(&cell.key, &Reader::Mend(Scheme::Conventional).name());
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

/// Returns the table of encodings.
pub(super) fn encodings_table(report: &Report) -> String {
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

/// Returns the values of the drawing of encodings.
pub(super) fn encoding_values(report: &Report) -> Vec<Named> {
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

/// Returns the table of recoveries.
pub(super) fn recoveries_table(report: &Report) -> String {
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

/// Returns the values of the drawing of recoveries.
pub(super) fn recovery_values(report: &Report) -> Vec<Named> {
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
