//! The targets for SeaweedFS, judged by the cells of the report.

use super::detail::{Cell, Report};
use super::tables::{is_idle, of_bound, over_idle, over_read, p99};
use super::tasks::{LOSSES, MEND, ONE_DOWN, lost_code};
use crate::experiment::report::Kind;
use crate::experiment::{Goal, Judged, Reads, Spread};

/// Judges all targets that were measured.
pub(super) fn judged(report: &Report) -> Vec<Judged> {
    let is_mend = |cell: &&Cell| cell.key.by.starts_with(MEND);
    let servers = report.of(Kind::Node).filter(is_mend).map(|cell| {
        judge(cell, "a whole server, of the links' bound", Goal::AtLeast(0.85), of_bound(cell, report))
    });
    let four = lost_code(LOSSES[1].len());
    let losses = report.of(Kind::Loss).filter(is_mend).filter(|cell| cell.key.code == four);
    let losses = losses
        .map(|cell| judge(cell, "four shards, of one read", Goal::AtMost(1.35), over_read(cell, report)));
    let reads = report.of(Kind::ReadsDuring).filter(is_mend).flat_map(|cell| reads(cell, report));
    servers.chain(losses).chain(reads).collect()
}

fn judge(cell: &Cell, target: &'static str, goal: Goal, reached: Spread) -> Judged {
    let place = format!("{}, {}", cell.key.tick(), cell.key.by);
    Judged { target, goal, place, reached, marks: cell.marks() }
}

fn reads(cell: &Cell, report: &Report) -> Vec<Judged> {
    if is_idle(cell) || report.beside(&cell.key, ONE_DOWN).is_none() {
        return Vec::new();
    }
    let rate = over_idle(cell, report, Reads::per_second);
    vec![
        judge(cell, "reads during a recovery, of those without", Goal::AtLeast(0.80), rate),
        judge(cell, "their p99, of that without", Goal::AtMost(2.0), over_idle(cell, report, p99)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::all;
    use super::*;

    #[test]
    fn targets_are_judged_for_mend_only() {
        let judged = judged(&all());
        let found: Vec<(&str, f64)> = judged.iter().map(|one| (one.target, one.reached.median)).collect();
        assert_eq!(found.len(), 4, "{judged:?}");
        // 50 shards of 7 MB, ten times, over 14 links: 250 MB at 2.7 s for 64 MiB.
        let bound = 2.7 * 250e6 / f64::from(64 << 20);
        assert!(
            found[0].0.starts_with("a whole server") && (found[0].1 - bound / 11.0).abs() < 1e-9,
            "{found:?}"
        );
        assert!(found[1].0.starts_with("four shards") && (found[1].1 - 1.3).abs() < 1e-9, "{found:?}");
        assert_eq!(
            found[2..],
            [("reads during a recovery, of those without", 0.9), ("their p99, of that without", 2.0)]
        );
    }
}
