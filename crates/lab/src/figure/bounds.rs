//! The bounds in the drawing of a measured figure: no repair is faster.
//!
//! Over links of equal rate, the bound is a multiple of the direct send that was measured with a row. Over other
//! links, the file of the figure states it.

use codes::CodeSpec;

use super::plot::{Series, gather};
use super::{About, Axis};
use crate::model::least_timeslots;
use crate::report::{Report, Row};
use crate::scenario::Destination;
use crate::topology::Topology;

const OF_ONE_SEND: &str = "bound: direct send";
const OF_LINKS: &str = "bound of the links";

/// Returns the bounds, as lines over these ticks.
pub(super) fn of(about: &About, report: &Report, ticks: &[String]) -> Series {
    let is_even = report.scenario.topologies().iter().all(Topology::is_uniform);
    let line = |row: &Row| {
        let (name, time_s) = match about.bound_s {
            Some(time_s) => (OF_LINKS, time_s),
            None => even(row, report.scenario.to).filter(|_| is_even)?,
        };
        let mut bound = row.clone();
        bound.time.median_s = time_s;
        let value = about.y.of(&bound, report);
        value.is_finite().then(|| (about.x.of(row), format!("{name}{}", varied(about, row, report)), value))
    };
    let (known, mut series) = gather(report.rows.iter().filter_map(line));
    let at = |tick: usize| ticks.iter().position(|tick_of| *tick_of == known[tick]);
    for (_, points) in &mut series {
        *points = points.iter().filter_map(|&(tick, value)| Some((at(tick)?, value))).collect();
    }
    series
}

/// Returns the parameters of a row that vary, and on which a bound depends.
fn varied(about: &About, row: &Row, report: &Report) -> String {
    let varies = |axis: &Axis| report.rows.iter().any(|other| axis.of(other) != axis.of(row));
    let axes = [Axis::Rate, Axis::Block].into_iter().filter(|axis| about.x != *axis && varies(axis));
    axes.map(|axis| format!(", {}", axis.of(row))).collect()
}

/// Returns the name of the bound over equal links, and the bound in seconds.
fn even(row: &Row, to: Destination) -> Option<(&'static str, f64)> {
    let lost = row.case.lost.len();
    let timeslots = match (lost, to) {
        (0, _) => return None,
        (1, _) => return Some((OF_ONE_SEND, row.time.direct_s)),
        (_, Destination::Client) => lost.min(row.case.data_blocks) as f64,
        (_, Destination::Node) => {
            let blocks = row.case.code.parse::<CodeSpec>().ok()?.blocks();
            least_timeslots(blocks, row.case.data_blocks, lost)
        }
    };
    Some((OF_LINKS, timeslots * row.time.direct_s))
}

#[cfg(test)]
mod tests {
    use super::super::{Figure, all};
    use super::*;
    use crate::machine::Machine;

    /// Returns the bounds of a figure with these rows; each row has a direct send of a second.
    fn bounds(name: &str, ticks: &[&str], rows: Vec<Row>) -> Series {
        let figure = all().into_iter().find(|figure| figure.figure.name == name);
        let Figure { figure, scenario } = figure.expect("the figure exists");
        let machine = Machine::this();
        let report =
            Report { scenario, machine, started_unix_ms: 0, checks: Vec::new(), constants: None, rows };
        let ticks: Vec<String> = ticks.iter().map(|&tick| tick.to_owned()).collect();
        of(&figure, &report, &ticks)
    }

    fn row(code: &str, lost: &[u16]) -> Row {
        let mut row = Row::default();
        (row.case.code, row.case.lost) = (code.to_owned(), lost.to_vec());
        (row.case.scheme, row.case.slice) = ("pipelined".to_owned(), "32KiB".to_owned());
        (row.case.data_blocks, row.time.direct_s) = (10, 1.0);
        row
    }

    #[test]
    fn one_block_takes_a_direct_send_and_several_blocks_what_the_links_allow() {
        let series = bounds("tos21-8a", &["4KiB", "32KiB"], vec![row("rs-14-10", &[0])]);
        assert_eq!(series, [(OF_ONE_SEND.to_owned(), vec![(1, 1.0)])]);
        let four = || vec![row("rs-14-10", &[0, 1, 2, 3])];
        let series = bounds("timeslots-14-10", &["0+1+2+3"], four());
        let (name, points) = &series[0];
        assert!(name == OF_LINKS && (points[0].1 - 1.265).abs() < 1e-3, "{series:?}");
        let series = bounds("tos21-8f", &["0+1+2+3"], four());
        assert_eq!(series[0].1, [(0, 4.0)], "one requestor receives four blocks");
    }

    #[test]
    fn a_bound_is_named_by_what_it_depends_on() {
        let row = |code: &str, block_bytes: u64| {
            let mut row = row(code, &[0]);
            row.case.block_bytes = block_bytes;
            row
        };
        let rows = vec![row("rs-9-6", 8 << 20), row("rs-9-6", 64 << 20), row("rs-14-10", 8 << 20)];
        let series = bounds("ppr-7a", &["rs-9-6", "rs-14-10"], rows);
        let expected = [
            ("bound: direct send, 8MiB".to_owned(), vec![(0, 1.0), (1, 1.0)]),
            ("bound: direct send, 64MiB".to_owned(), vec![(0, 1.0)]),
        ];
        assert_eq!(series, expected);
    }

    #[test]
    fn the_file_of_a_figure_states_the_bound_of_uneven_links() {
        let series = bounds("tos21-8g", &["100mbit"], vec![]);
        assert_eq!(series, []);
        let mut edge = row("rs-14-10", &[0]);
        edge.case.edge = Some("100mbit".to_owned());
        let series = bounds("tos21-8g", &["100mbit"], vec![edge]);
        assert!((series[0].1[0].1 - 0.537).abs() < 1e-3, "{series:?}");
    }
}
