//! The targets for HDFS, judged by the cells of the report.

use super::cluster::Policy;
use super::detail::{Cell, Report};
use super::tables::{blocks_from_device, blocks_read, idle, of_bound, of_bound_from_command, over_idle, p99};
use super::ways::Way;
use crate::experiment::report::Kind;
use crate::experiment::{Goal, Judged, Reads, Spread};

/// Blocks read may exceed their target by this part, which is read with the blocks: folders, and pages read ahead.
const MORE_READ: f64 = 0.01;

/// Judges all targets that were measured.
pub(super) fn judged(report: &Report) -> Vec<Judged> {
    let nodes = report.of(Kind::Node).flat_map(|cell| node(cell, report));
    let cold = report.of(Kind::ColdLoss).flat_map(cold);
    let during = report.of(Kind::ReadsDuring).flat_map(|cell| during(cell, report));
    nodes.chain(cold).chain(during).collect()
}

fn judge(cell: &Cell, target: &'static str, goal: Goal, reached: Spread) -> Judged {
    let place = format!("{}, {}", cell.key.tick(), cell.key.by);
    Judged { target, goal, place, reached, marks: cell.marks() }
}

/// Returns the way of a cell, if Mend repairs and the number of commands is HDFS's default.
fn way(cell: &Cell) -> Option<Way> {
    let way: Option<Way> = cell.key.by.parse().ok();
    way.filter(|way| way.is_mend() && way.is_default())
}

fn node(cell: &Cell, report: &Report) -> Vec<Judged> {
    let stock = report.beside(&cell.key, Way::Hdfs.name());
    match way(cell) {
        Some(Way::Asked) => {
            vec![judge(cell, "asked, of the links' bound", Goal::AtLeast(0.85), of_bound(cell, report))]
        }
        Some(_) => {
            let (target, reached) = (
                "commanded, of the links' bound from the first command",
                of_bound_from_command(cell, report),
            );
            let bound = judge(cell, target, Goal::AtLeast(0.80), reached);
            let faster = |stock: &Cell| {
                let times = cell.over(|run| stock.seconds() / run.seconds);
                judge(cell, "commanded, HDFS's time over it", Goal::AtLeast(1.0), times)
            };
            [bound].into_iter().chain(stock.map(faster)).collect()
        }
        None => Vec::new(),
    }
}

fn cold(cell: &Cell) -> Vec<Judged> {
    let (Some(_), Some(policy)) = (way(cell), Policy::named(&cell.key.code)) else { return Vec::new() };
    let at_most = |blocks: usize| Goal::AtMost(blocks as f64 * (1.0 + MORE_READ));
    vec![
        judge(
            cell,
            "k + 1 blocks read from the device for one",
            at_most(policy.data + 1),
            blocks_from_device(cell),
        ),
        judge(cell, "2k + 1 blocks read in all for one", at_most(2 * policy.data + 1), blocks_read(cell)),
    ]
}

fn during(cell: &Cell, report: &Report) -> Vec<Judged> {
    if way(cell).is_none() || idle(cell, report).is_none() {
        return Vec::new();
    }
    let rate = over_idle(cell, report, Reads::per_second);
    vec![
        judge(cell, "reads during a recovery, of the idle rate", Goal::AtLeast(0.80), rate),
        judge(cell, "their p99, of the idle p99", Goal::AtMost(2.0), over_idle(cell, report, p99)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::{all, report};
    use super::*;

    #[test]
    fn targets_are_judged_where_they_were_measured() {
        let judged = judged(&report(all()));
        let found = |target: &str, by: &str| {
            let mut of = judged.iter().filter(|one| one.target.contains(target) && one.place.ends_with(by));
            of.next().map(|one| one.reached.median)
        };
        // 40 blocks of 8 MiB: 0.3375 s each, six times, over 14 links are 5.79 s.
        let bound = 2.7 / 8.0 * 240.0 / 14.0;
        let near = |value: Option<f64>, expected: f64| {
            assert!(value.is_some_and(|value| (value - expected).abs() < 1e-9), "{value:?}, not {expected}");
        };
        near(found("asked, of the links' bound", "Mend, asked"), bound / 6.6);
        near(found("from the first command", "Mend, commanded"), bound / 7.1);
        near(found("HDFS's time over it", "Mend, commanded"), 24.0 / 10.0);
        near(found("k + 1 blocks", "Mend, asked"), 7.0);
        near(found("of the idle rate", "Mend, asked"), 0.5);
        assert_eq!(found("", "HDFS"), None, "HDFS has no targets");
        assert_eq!(judged.len(), 7);
    }

    #[test]
    fn more_commands_than_by_default_are_not_judged() {
        let mut cells = all();
        cells.iter_mut().for_each(|cell| cell.key.by = Way::CommandedMany.name().to_owned());
        assert!(judged(&report(cells)).is_empty());
    }
}
