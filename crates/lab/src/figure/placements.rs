//! The placements of a stripe's blocks, if a scenario measures several.

use crate::report::{Report, Row, markdown_table};
use crate::run::Placement;
use crate::topology::Topology;

/// Returns the section of a figure's page on placements; empty if there was only one.
pub(super) fn section(report: &Report) -> String {
    let all = placed(report);
    let Some((_, first)) = all.first() else { return String::new() };
    let seconds: Vec<String> = first.iter().map(|row| format!("{}, s", row.case.scheme)).collect();
    let columns = ["placement", "the helpers of the blocks, by index", "their racks or places"];
    let columns: Vec<&str> = columns.into_iter().chain(seconds.iter().map(String::as_str)).collect();
    let topology = &report.scenario.topologies()[0];
    let rows: Vec<Vec<String>> =
        all.iter().map(|(placement, rows)| cells(placement, rows, topology)).collect();
    format!(
        "\n## The placements\n\nFor each placement, the stripe was stored anew, and the coordinator chose the helpers of the \
         blocks at random. Plans that do not look at the network read the first blocks that are not lost, in this order.\n\n{}",
        markdown_table(&columns, &rows)
    )
}

/// Returns the placements, each with its rows.
fn placed(report: &Report) -> Vec<(&Placement, Vec<&Row>)> {
    let mut all: Vec<(&Placement, Vec<&Row>)> = Vec::new();
    for row in &report.rows {
        let Some(placement) = &row.case.placement else { continue };
        match all.last_mut() {
            Some((last, rows)) if *last == placement => rows.push(row),
            _ => all.push((placement, vec![row])),
        }
    }
    all
}

fn cells(placement: &Placement, rows: &[&Row], topology: &Topology) -> Vec<String> {
    let places: Vec<String> = placement.places(topology).map(|place| (place + 1).to_string()).collect();
    let cells = [placement.number.to_string(), placement.helpers.join(" "), places.join(" ")];
    let seconds = rows.iter().map(|row| format!("{:.4}", row.time.median_s));
    cells.into_iter().chain(seconds).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Figure, all};
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn a_page_lists_every_placement_once() {
        let figure = all().into_iter().find(|figure| figure.figure.name == "tos21-8h");
        let Figure { scenario, .. } = figure.expect("the figure exists");
        let row = |number, helpers: &[&str], scheme: &str, median_s| {
            let mut row = Row::default();
            let helpers = helpers.iter().map(|&helper| helper.to_owned()).collect();
            row.case.placement = Some(Placement { number, helpers });
            (row.case.scheme, row.time.median_s) = (scheme.to_owned(), median_s);
            row
        };
        let rows = vec![
            row(1, &["h9", "h1"], "conventional", 3.0),
            row(1, &["h9", "h1"], "pipelined", 1.5),
            row(2, &["h1", "h4"], "conventional", 2.0),
            row(2, &["h1", "h4"], "pipelined", 1.25),
        ];
        let machine = Machine::this();
        let mut report =
            Report { scenario, machine, started_unix_ms: 0, checks: Vec::new(), constants: None, rows };
        let page = section(&report);
        let text: Vec<&str> = page.lines().filter(|line| line.contains("| h")).collect();
        assert_eq!(text.len(), 2, "{page}");
        let cells = |line: &str| -> Vec<String> {
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        assert_eq!(cells(text[0]), ["1", "h9 h1", "3 1", "3.0000", "1.5000"]);
        assert_eq!(cells(text[1]), ["2", "h1 h4", "1 2", "2.0000", "1.2500"]);
        assert!(page.contains("| pipelined, s |"), "{page}");
        report.rows.clear();
        assert_eq!(section(&report), "");
    }
}
