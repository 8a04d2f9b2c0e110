//! Compares codes with Reed-Solomon: the reads, traffic and time of each repair, relative to conventional
//! repair of a Reed-Solomon code with the same number of data blocks, measured in the same run.

use std::cmp::Ordering;

use super::lost_of;
use crate::report::{Report, Row, markdown_table};

/// Returns the row's time divided by the time of conventional Reed-Solomon repair; `None` if that repair was
/// not measured.
pub(super) fn time_over(row: &Row, report: &Report) -> Option<f64> {
    Some(row.time.median_s / reference(row, report)?.time.median_s)
}

/// Returns the row of conventional Reed-Solomon repair with the same parameters as `row`.
fn reference<'a>(row: &Row, report: &'a Report) -> Option<&'a Row> {
    let place = |row: &Row| {
        (row.case.network.clone(), row.case.data_blocks, row.case.block_bytes, row.case.slice.clone())
    };
    let is_reference =
        |other: &&Row| other.case.scheme == "conventional" && other.case.code.starts_with("rs-");
    report.rows.iter().filter(is_reference).find(|other| place(other) == place(row))
}

/// Returns the section of a figure's page that compares codes with Reed-Solomon.
pub(super) fn section(report: &Report) -> String {
    let columns = [
        "code",
        "scheme",
        "lost",
        "blocks read (plan)",
        "disk bytes / RS",
        "blocks sent (plan)",
        "network bytes / RS",
        "time / RS",
        "marks",
    ];
    let rows: Vec<_> =
        report.rows.iter().filter_map(|row| Some(cells(row, reference(row, report)?))).collect();
    format!(
        "\n## Comparison with Reed-Solomon\n\nRS is conventional repair of a Reed-Solomon code with the same \
         number of data blocks, in the same run. Bytes are measured. Disk bytes: bytes that the helpers' \
         processes read, minus the bytes received over their links (the kernel's counters; reads from the \
         page cache count). Network bytes: bytes that all helpers sent, including headers. The plan's \
         figures are next to them.\n\n{}",
        markdown_table(&columns, &rows)
    )
}

fn cells(row: &Row, reference: &Row) -> Vec<String> {
    let part = |of: fn(&Row) -> f64| {
        let (own, whole) = (of(row), of(reference));
        match whole.partial_cmp(&0.0) {
            Some(Ordering::Greater) => format!("{:.3}", own / whole),
            _ => "not counted".to_owned(),
        }
    };
    let blocks = |value: Option<f64>| value.map_or(String::new(), |blocks| format!("{blocks:.2}"));
    vec![
        row.case.code.clone(),
        row.case.scheme.clone(),
        lost_of(row),
        blocks(row.account.map(|account| account.disk_blocks)),
        part(|row| row.disk_bytes() as f64),
        blocks(row.account.map(|account| account.network_blocks)),
        part(|row| row.network_bytes() as f64),
        part(|row| row.time.median_s),
        row.marks(),
    ]
}
