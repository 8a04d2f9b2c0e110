//! Formats the report as a page with drawings.

use super::report::{
    CAPS, CapRow, DISTURBED, DRAINS, MANY, POLICIES, Part, READS, REQUESTORS, ReadsRow, SIXTEEN, SMALL,
    WholeRow, is_disturbed,
};
use super::{measure, verdicts};
use crate::figure::plot::{Drawing, Mark, Named};
use crate::finding;
use crate::pages::unreliable;
use crate::parts::Parts;
use crate::report::{markdown_table, median};
use crate::topology::Rate;

/// The names of the drawings.
const POLICIES_DRAWN: &str = "nodes-policies";
const REQUESTORS_DRAWN: &str = "nodes-requestors";
const DRAINS_DRAWN: &str = "nodes-drains";
const READS_DRAWN: &str = "nodes-reads";
/// The name of the bounds in a drawing.
const BOUND: &str = "bound of the links";

/// A table of recoveries or drains.
struct Section {
    part: &'static str,
    heading: &'static str,
    /// The name and the title of the drawing, if there is one.
    drawing: Option<(&'static str, &'static str)>,
}

const SECTIONS: [Section; 4] = [
    Section { part: SIXTEEN, heading: "About 16 blocks of 16 MiB, 13 survivors, RS(9,6)", drawing: None },
    Section {
        part: POLICIES,
        heading: "Policies: RS(9,6), 64 stripes of 8 MiB blocks, 16 nodes",
        drawing: Some((POLICIES_DRAWN, "Whole nodes: rate by policy")),
    },
    Section {
        part: REQUESTORS,
        heading: "How many get blocks; the same stripes",
        drawing: Some((REQUESTORS_DRAWN, "Whole nodes: rate by the number of requestors")),
    },
    Section {
        part: DRAINS,
        heading: "Draining; the same stripes",
        drawing: Some((DRAINS_DRAWN, "Whole nodes: rate of drains")),
    },
];

/// Returns the page with the parts that the report has.
pub(super) fn text(parts: &Parts<Part>, rate: Rate) -> String {
    let drawings = drawings(parts);
    let machine = parts.machine.summary();
    let warning = if is_disturbed(parts, &measure::names()) { unreliable(DISTURBED) } else { String::new() };
    let head = format!(
        "# Whole nodes on real processes\n\n{warning}`mend lab nodes`. {machine}\nLinks of {rate}.\n\n{ABOUT}\n"
    );
    let sections = SECTIONS.iter().map(|section| section.text(parts, &drawings));
    let rest = [caps(parts), reads(parts, &drawings, rate), small(parts)];
    [head, targets(parts, rate)].into_iter().chain(sections).chain(rest).collect()
}

/// Returns the drawings of the parts that the report has.
pub(super) fn drawings(parts: &Parts<Part>) -> Vec<Drawing> {
    let sections = SECTIONS.iter().filter_map(|section| section.drawn(parts));
    let latencies = parts.of(READS).map(|part| part.reads.iter().flat_map(latencies).collect());
    let reads = latencies.and_then(|values: Vec<Named>| {
        Drawing::of(READS_DRAWN, "Whole nodes: latency of reads during recovery", "milliseconds", values)
    });
    sections.chain(reads).collect()
}

fn targets(parts: &Parts<Part>, rate: Rate) -> String {
    let findings = verdicts::findings(parts, &measure::names(), rate);
    match findings.is_empty() {
        true => String::new(),
        false => format!("## Targets\n\n{TARGETS}\n{}\n", finding::table(&findings)),
    }
}

impl Section {
    fn text(&self, parts: &Parts<Part>, drawings: &[Drawing]) -> String {
        let Some(part) = parts.of(self.part) else { return String::new() };
        let drawing = self.drawing.map(|(name, _)| Drawing::link(drawings, name)).unwrap_or_default();
        let (heading, table) = (self.heading, whole_table(&part.whole));
        format!("## {heading}\n\n{drawing}{table}\n{}", timelines(&part.whole))
    }

    /// Returns the rates of the rows with their spreads, and the bounds.
    fn drawn(&self, parts: &Parts<Part>) -> Option<Drawing> {
        let ((name, title), part) = (self.drawing?, parts.of(self.part)?);
        let values = part.whole.iter().flat_map(|row| {
            let (series, tick) = self.place(row);
            let rate = |name: &str, times: f64| (tick.to_owned(), name.to_owned(), times);
            let bound = row.median(|run| run.blocks as f64 / run.bound_s.unwrap_or(f64::NAN));
            let values = [rate(series, row.median(|run| run.blocks as f64 / run.took_s)), rate(BOUND, bound)];
            values.into_iter().filter(|(.., rate)| rate.is_finite())
        });
        let mut drawing = Drawing::of(name, title, "blocks per second", values.collect())?;
        let mark = |row: &WholeRow| self.spread(row, &drawing.chart.ticks);
        drawing.chart.marks.spreads = part.whole.iter().filter_map(mark).collect();
        drawing.chart.marks.spread = "shortest to longest";
        Some(drawing)
    }

    /// Returns the series and the tick of a row. A row such as `even, 8 requestors` is the value of the
    /// series `even`.
    fn place<'a>(&self, row: &'a WholeRow) -> (&'a str, &'a str) {
        match self.part {
            REQUESTORS => row.what.rsplit_once(", ").unwrap_or((&row.what, "")),
            _ => ("measured", &row.what),
        }
    }

    fn spread(&self, row: &WholeRow, ticks: &[String]) -> Option<Mark> {
        let (series, tick) = self.place(row);
        let at = ticks.iter().position(|known| known == tick)?;
        let rates = || row.runs.iter().map(|run| run.blocks as f64 / run.took_s);
        let (low, high) = (rates().fold(f64::NAN, f64::min), rates().fold(f64::NAN, f64::max));
        (row.runs.len() > 1).then(|| Mark { series: series.to_owned(), at, low, high })
    }
}

fn whole_table(rows: &[WholeRow]) -> String {
    let columns = [
        "",
        "runs",
        "blocks",
        "took s",
        "spread",
        "bound s",
        "of the bound",
        "busiest link s",
        "sent MB",
        "CPU s",
        "limited by",
        "marks",
    ];
    let rows: Vec<_> = rows.iter().map(whole_cells).collect();
    markdown_table(&columns, &rows)
}

fn whole_cells(row: &WholeRow) -> Vec<String> {
    let middle = row.middle();
    let blocks = middle.map_or(0, |run| run.blocks);
    vec![
        row.what.clone(),
        row.runs.len().to_string(),
        blocks.to_string(),
        format!("{:.2}", row.took_s()),
        spread(row),
        number(row.median(|run| run.bound_s.unwrap_or(f64::NAN)), 2),
        number(row.of_bound(), 3),
        format!("{:.2}", row.median(|run| run.busiest_s)),
        format!("{:.0}", row.median(|run| run.sent_bytes() as f64) / 1e6),
        format!("{:.1}", row.median(|run| run.metered.cpu_s)),
        middle.map(|run| run.limit.clone()).unwrap_or_default(),
        row.marks(),
    ]
}

/// Returns the spread of a row's times; empty for a single run.
fn spread(row: &WholeRow) -> String {
    if row.runs.len() > 1 { format!("{:.1}%", row.spread() * 100.0) } else { String::new() }
}

/// Formats a number; empty if it is unknown.
fn number(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { String::new() }
}

/// Returns the timelines of the default ways.
fn timelines(rows: &[WholeRow]) -> String {
    let block =
        |row: &WholeRow| Some(format!("*{}*:\n\n```text\n{}```\n\n", row.what, row.middle()?.timeline));
    rows.iter().filter(|row| row.is_default).filter_map(block).collect()
}

fn caps(parts: &Parts<Part>) -> String {
    let Some(part) = parts.of(CAPS) else { return String::new() };
    let cells = |row: &CapRow| {
        let mbit = |bits: f64| format!("{:.1}", bits / 1e6);
        vec![row.what.clone(), mbit(row.cap), mbit(row.measured), format!("{:.3}", row.measured / row.cap)]
    };
    let rows: Vec<_> = part.caps.iter().map(cells).collect();
    let table = markdown_table(&["cap", "Mb/s", "sent Mb/s", "of the cap"], &rows);
    format!("## Caps\n\n{CAPS_ABOUT}\n{table}\n")
}

fn reads(parts: &Parts<Part>, drawings: &[Drawing], rate: Rate) -> String {
    let Some(part) = parts.of(READS) else { return String::new() };
    let columns = [
        "while",
        "runs",
        "reads/s",
        "median ms",
        "p99 ms",
        "failed",
        "helpers sent Mb/s",
        "of what reads leave",
        "recovered in s",
        "of the bound",
        "marks",
    ];
    let cells = |row: &ReadsRow| reads_cells(row, part.of_the_rest(row, verdicts::links(rate)));
    let rows: Vec<_> = part.reads.iter().map(cells).collect();
    let (drawing, table) = (Drawing::link(drawings, READS_DRAWN), markdown_table(&columns, &rows));
    format!("## Reads during recovery\n\n{drawing}{READS_ABOUT}\n{table}\n")
}

fn reads_cells(row: &ReadsRow, of_the_rest: Option<f64>) -> Vec<String> {
    let recovery = row.recovery();
    let of_bound = recovery.and_then(|recovery| Some(recovery.bound_s? / recovery.took_s));
    vec![
        row.meanwhile.to_string(),
        row.runs.len().to_string(),
        format!("{:.0}", row.median(|run| run.per_second)),
        format!("{:.1}", row.median(|run| run.median_ms)),
        format!("{:.1}", row.median(|run| run.p99_ms)),
        row.runs.iter().map(|run| run.failed).sum::<usize>().to_string(),
        format!("{:.0}", row.median(|run| run.sent) / 1e6),
        number(of_the_rest.unwrap_or(f64::NAN), 2),
        number(recovery.map_or(f64::NAN, |recovery| recovery.took_s), 2),
        number(of_bound.unwrap_or(f64::NAN), 3),
        row.marks(),
    ]
}

/// Returns the values of a drawing: the median and the 99th percentile of the latency in milliseconds.
fn latencies(row: &ReadsRow) -> [Named; 2] {
    let values =
        [("median", row.median(|run| run.median_ms)), ("99th percentile", row.median(|run| run.p99_ms))];
    values.map(|(name, value)| (row.meanwhile.to_string(), name.to_owned(), value))
}

fn small(parts: &Parts<Part>) -> String {
    let sizes = [("4 KiB", SMALL), ("64 KiB", MANY)];
    let measured: Vec<(&str, &Part)> =
        sizes.iter().filter_map(|&(size, name)| Some((size, parts.of(name)?))).collect();
    if measured.is_empty() {
        return String::new();
    }
    let columns = [
        "blocks of",
        "runs",
        "blocks",
        "took s",
        "spread",
        "blocks/s",
        "of the bound",
        "CPU ms of each",
        "ms of each",
        "ms of a single repair",
        "of each / of a single repair",
        "marks",
    ];
    let rows =
        measured.iter().flat_map(|(size, part)| part.whole.iter().map(|row| small_cells(size, row, part)));
    let table = markdown_table(&columns, &rows.collect::<Vec<_>>());
    let timelines: String = measured.iter().map(|(size, part)| small_timeline(size, part)).collect();
    format!("## Small blocks\n\n{SMALL_ABOUT}\n{table}\n{timelines}")
}

fn small_cells(size: &str, row: &WholeRow, part: &Part) -> Vec<String> {
    let blocks = row.middle().map_or(0, |run| run.blocks) as f64;
    let (each_ms, single_ms) = (row.took_s() * 1e3 / blocks, median(&part.single_s) * 1e3);
    vec![
        size.to_owned(),
        row.runs.len().to_string(),
        format!("{blocks:.0}"),
        format!("{:.2}", row.took_s()),
        spread(row),
        format!("{:.0}", blocks / row.took_s()),
        number(row.of_bound(), 3),
        format!("{:.2}", row.median(|run| run.metered.cpu_s) * 1e3 / blocks),
        format!("{each_ms:.2}"),
        number(single_ms, 2),
        number(each_ms / single_ms, 2),
        row.marks(),
    ]
}

fn small_timeline(size: &str, part: &Part) -> String {
    let timeline = part.whole.first().and_then(WholeRow::middle).map(|run| &run.timeline[..]);
    format!("*Blocks of {size}*:\n\n```text\n{}```\n\n", timeline.unwrap_or_default())
}

const ABOUT: &str = "\
Helpers and the coordinator are processes in network namespaces, each behind a link shaped in both directions; mend.toml states
the rates. Connections that carry blocks are not encrypted (`data_tls = false`); by default, Mend encrypts them if any helper can be
reached beyond loopback. For a recovery, h1 is killed (SIGKILL), and `mend node recover h1` is typed once the coordinator has noticed.
For a drain, h1 stays up, and `mend node drain h1` is typed. A time is from the start of that program to its end, with parity checked
and every block published and read back. Before each run, the cluster is reset to the same stripes on the same nodes; after it, every
block that h1 held is compared on its new node.

The ways to recover take turns. Mend's default way is repeated, and the other ways are measured once. Values are medians of the runs,
*spread* is the longest minus the shortest time, divided by the median. Runs that other programs disturbed were repeated up to three
times; *marks* count those that stayed disturbed, or in which the processors may have been slower than the links. The bound is the one
that `mend` prints (`docs/explanation/whole-nodes.md`): no schedule is faster on these links. `limited by` is the most frequent
bottleneck according to Mend. `push-rep` and `push-sur` forward whole blocks (`pipe-b`). Below a table, the timeline of the median run of
the default way (`mend timeline`) shows where the time went; its clock starts when the coordinator has queued the repair's stripes.
";

const TARGETS: &str = "\
A recovery in the default way has to reach 0.95 of the links' bound, with any number of requestors and with few blocks. During a recovery
without caps, reads have to keep 80% of their rate, and at most twice their 99th percentile, compared with reads while all helpers are up.
";

const CAPS_ABOUT: &str = "\
Recoveries use chains of whole blocks, which send every block k times. The rate under a cap is measured over 5 s, starting 2 s after
the cap was set; the second cap on all helpers together was set during the repair. Bytes of headers are subtracted; their share is known
from the whole repair.
";

const SMALL_ABOUT: &str = "\
RS(9,6) on 16 nodes: the fixed cost of a repair. Each repair is planned, dispatched to seven helpers, transferred, checked against parity,
published with fsync, recorded by the coordinator and read back, all by processes that share this machine. A *single repair* is that of
one stripe while nothing else is repaired, from the request to its end; the median of nine stripes, one after another. PPR's repair
manager plans and dispatches 115 to 189 repairs a second.
";

const READS_ABOUT: &str = "\
A client, on a link of the same rate, reads 64 KiB at a random place of a data block, four reads at a time, from each stripe in turn.
Reads, and the bytes that all helpers together sent (headers included), are counted in a window of 8 s. A recovery either has filled the
links for 2 s when reads and window begin, or begins during reads, and the window begins when it has moved its first bytes. It has to
run until the end of the window. Helpers pace recoveries while they take part in reads (`docs/explanation/whole-nodes.md`), so it is
slower than without reads for that time. *Of what reads leave*: the bandwidth that the recovery used, divided by the bandwidth of the
uplinks of all helpers minus that of the reads, if each read needs as many bytes as without a recovery.
";

#[cfg(test)]
mod tests {
    use super::super::report::Meanwhile;
    use super::super::report::tests::{reads, whole};
    use super::*;
    use crate::machine::Machine;

    fn parts() -> Parts<Part> {
        let mut parts = Parts::new(Machine::this());
        let rows = vec![
            whole("even, 8 requestors", true, &[2.5, 2.0, 4.0]),
            whole("chains, LRU, 8 requestors", false, &[5.0]),
        ];
        parts.replace(REQUESTORS, Part { whole: rows, ..Part::default() });
        let rows = vec![
            reads(Meanwhile::AllUp, 200.0, 20.0, 100.0),
            reads(Meanwhile::OneDown, 200.0, 25.0, 150.0),
            reads(Meanwhile::Recovered, 150.0, 41.0, 787.5),
        ];
        parts.replace(READS, Part { reads: rows, ..Part::default() });
        parts
    }

    fn page(parts: &Parts<Part>) -> String {
        text(parts, "100mbit".parse().unwrap())
    }

    /// Returns the cells of the first row that begins with this text.
    fn row(page: &str, begin: &str) -> Vec<String> {
        let line = page.lines().find(|line| line.starts_with(&format!("| {begin} ")));
        let line = line.unwrap_or_else(|| panic!("no row {begin}: {page}"));
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn rates_are_drawn_against_the_bound_and_linked() {
        let parts = parts();
        let drawings = drawings(&parts);
        let names: Vec<&str> = drawings.iter().map(|drawing| drawing.name).collect();
        assert_eq!(names, [REQUESTORS_DRAWN, READS_DRAWN]);
        let chart = &drawings[0].chart;
        assert_eq!(chart.ticks, ["8 requestors"]);
        let value = |name: &str, value: f64| (name.to_owned(), vec![(0, value)]);
        let series = [value("even", 4.0), value(BOUND, 5.0), value("chains, LRU", 2.0)];
        assert_eq!(chart.series, series);
        let mark = Mark { series: "even".to_owned(), at: 0, low: 2.5, high: 5.0 };
        assert_eq!(chart.marks.spreads, [mark]);
        let text = page(&parts);
        assert!(text.contains("(nodes-requestors.svg)") && text.contains("(nodes-reads.svg)"), "{text}");
        assert!(!text.contains("(nodes-policies.svg)"), "{text}");
    }

    #[test]
    fn repetitions_targets_and_timelines_are_shown() {
        let text = page(&parts());
        let expected =
            ["even, 8 requestors", "3", "10", "2.50", "80.0%", "2.00", "0.800", "1.00", "0", "1.0"];
        assert_eq!(row(&text, "even, 8 requestors")[..10], expected);
        assert_eq!(row(&text, "chains, LRU, 8 requestors")[1..6], ["1", "10", "5.00", "", "2.00"]);
        assert!(text.contains("*even, 8 requestors*:\n\n```text\ntimeline of 2.5 s\n```"), "{text}");
        assert!(!text.contains("timeline of 5 s"), "{text}");
        let target = "recovery, even, 8 requestors: 36 blocks of 8 MiB, links' bound / time";
        assert_eq!(row(&text, target)[1..4], ["≥ 0.95", "0.800 (spread 80.0%)", "MISSES"]);
        assert!(text.contains("not encrypted (`data_tls = false`)"), "{text}");
        assert!(!text.contains("## Small blocks") && !text.contains("## Caps"), "{text}");
    }

    #[test]
    fn reads_are_shown_with_the_bandwidth_that_they_leave() {
        let text = page(&parts());
        let cells = row(&text, "it is being recovered, uncapped");
        assert_eq!(cells[1..], ["1", "150", "20.5", "41.0", "0", "788", "0.49", "20.00", "0.500", ""]);
        assert_eq!(row(&text, "all helpers are up")[7..], ["", "", "", ""]);
    }

    #[test]
    fn small_blocks_are_compared_with_a_single_repair() {
        let mut parts = parts();
        let part = Part {
            whole: vec![whole("even", true, &[2.5])],
            single_s: vec![0.4, 0.5, 0.6],
            ..Part::default()
        };
        parts.replace(MANY, part);
        let cells = row(&page(&parts), "64 KiB");
        let expected = ["1", "10", "2.50", "", "4", "0.800", "100.00", "250.00", "500.00", "0.50", ""];
        assert_eq!(cells[1..], expected);
    }

    #[test]
    fn caps_are_compared_with_the_measured_rate() {
        let mut parts = parts();
        let row_of = CapRow { what: "h2 20Mbit, sends".to_owned(), cap: 20e6, measured: 10e6 };
        parts.replace(CAPS, Part { caps: vec![row_of], ..Part::default() });
        assert_eq!(row(&page(&parts), "h2 20Mbit, sends")[1..], ["20.0", "10.0", "0.500"]);
    }
}
