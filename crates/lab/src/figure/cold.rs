//! Measurements with cold disks: the planned number of reads of a repair, and the number that the device
//! counted.

use cluster::ByteSize;

use super::lost_of;
use crate::report::{Report, Row, markdown_table};

/// Returns the section of a figure's page on measurements with a cold cache; empty for other measurements.
pub(super) fn section(report: &Report) -> String {
    if !report.scenario.effort.cold {
        return String::new();
    }
    let columns = [
        "code",
        "block",
        "scheme",
        "lost",
        "reads (plan)",
        "of",
        "device reads",
        "of",
        "device bytes / plan",
        "median s",
        "marks",
    ];
    let rows: Vec<_> = report.rows.iter().filter_map(cells).collect();
    let except = match report.scenario.effort.cached.iter().any(|&cached| cached) {
        true => ", except in rows marked `cached`: there, as many survivors were as a repair reads",
        false => "",
    };
    format!(
        "\n## Cold disks\n\nNo block was in memory when a repair began{except}. The plan counts ranges of \
         neighbouring bytes over all helpers. The device's own counters are next to it: all helpers share \
         the device, it splits reads larger than its largest request, and its counters include checksum \
         lists and other programs' reads.\n\n{}",
        markdown_table(&columns, &rows)
    )
}

fn cells(row: &Row) -> Option<Vec<String>> {
    let (account, device) = (row.account?, row.moved.device?);
    let planned = account.disk_blocks * row.case.block_bytes as f64;
    let mean = |bytes: f64, reads: u64| match reads {
        0 => String::new(),
        reads => format!("{:.0} KiB", bytes / reads as f64 / 1024.0),
    };
    Some(vec![
        row.case.code.clone(),
        ByteSize::from_bytes(row.case.block_bytes).to_string(),
        row.case.scheme.clone(),
        lost_of(row),
        account.disk_reads.to_string(),
        mean(planned, account.disk_reads),
        device.reads.to_string(),
        mean(device.bytes as f64, device.reads),
        format!("{:.3}", device.bytes as f64 / planned),
        format!("{:.4}", row.time.median_s),
        row.marks(),
    ])
}
