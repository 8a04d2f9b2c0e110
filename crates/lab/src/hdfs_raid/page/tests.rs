//! Tests of the tables and drawings.

use repair::Scheme;

use super::super::detail::tests::{cell, report};
use super::super::readers::Reader;
use super::super::tables::LINKS;
use super::*;
use crate::figure::plot::Mark;
use crate::hdfs::nodes::LostNode;

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
    let failed = with(Kind::Read, cell("14-10", 64, "HDFS", &[18.7]), &Detail::Failed);
    report([
        failed,
        cell("14-10", 64, &mend(Scheme::Conventional), &[27.0, 28.0, 26.0]),
        cell("14-10", 64, &mend(Scheme::Pipelined), &[2.7, 2.7, 2.97]),
    ])
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
fn encoding_and_check_are_shown_separately() {
    let block = 16 << 20;
    let detail = Detail::Encoding {
        stripes: 4,
        check_s: 30.0,
        check_received: 4 * 28 * block,
        check_received_most: 4 * 14 * block,
        command_s: 80.0,
    };
    let mut encoding = with(Kind::Encoding, cell("14-10", 16, "one JVM", &[20.0]), &detail);
    encoding.runs[0].used.received_most = 4 * 10 * block;
    let report = report([encoding]);
    let row = cells(&encodings_table(&report), "one JVM");
    // 4 stripes of 10 blocks of 16 MiB are 671 MB.
    let parity = ["4", "20.0", "0.0%", "33.6", "13.4", "10.0", "671", "512"];
    assert_eq!(row[4..12], parity);
    assert_eq!(row[12..16], ["30.0", "14.0", "1879", "80.0"]);
    let chart = &drawings(&report)[0].chart;
    assert!((chart.series[0].1[0].1 - 33.55).abs() < 0.01, "{:?}", chart.series);
}

#[test]
fn a_recovery_is_compared_with_the_links_bound() {
    let lost = LostNode { blocks: 30, survivors: 15, forced: 0, fewest: 29, most: 31 };
    let mut recovery = with(Kind::Node, cell("14-10", 64, "Mend", &[60.0, 54.0, 108.0]), &Detail::Node(lost));
    recovery.runs.iter_mut().for_each(|run| run.timeline = "steps\n".to_owned());
    let report = report([recovery]);
    // 30 blocks take 81 s over one link; ten times this over 15 links is 54 s.
    let row = cells(&recoveries_table(&report), "Mend");
    assert_eq!(row[4..10], ["30", "29 to 31", "60.0", "90.0%", "0.5", "0.90 (0.50 to 1.00)"]);
    let text = text(&report);
    assert!(text.contains("```text\nsteps\n```"), "{text}");
    assert!(!text.contains("## Encoding"), "{text}");
    let drawing = &drawings(&report)[0];
    let bound = &drawing.chart.series.iter().find(|(name, _)| name == LINKS).unwrap().1;
    assert!((bound[0].1 - 30.0 / 54.0).abs() < 1e-6, "{bound:?}");
}
