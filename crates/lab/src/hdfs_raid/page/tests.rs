//! Tests of the tables and drawings.

use repair::Scheme;

use super::super::readers::Reader;
use super::super::report::tests::{cell, report};
use super::super::tables::LINKS;
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
