//! The timelines of a page's cells.

use super::report::{Cell, Kind, Report};

const ABOUT: &str = "\
Where Mend's time went in the repetition nearest to the median (`mend timeline`; the clock starts when the coordinator has queued the
repair):
";

/// Returns the timelines of all cells of a kind, each folded; empty if there are none.
pub(crate) fn timelines<D>(report: &Report<D>, kind: Kind) -> String {
    let blocks: String = report.of(kind).filter_map(block).collect();
    if blocks.is_empty() { String::new() } else { format!("\n{ABOUT}\n{blocks}") }
}

fn block<D>(cell: &Cell<D>) -> Option<String> {
    let timeline = cell.timeline()?;
    let summary = format!("{}, {}", cell.key.tick(), cell.key.by);
    Some(format!("<details><summary>{summary}</summary>\n\n```text\n{timeline}```\n\n</details>\n"))
}
