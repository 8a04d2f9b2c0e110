//! Formats the results as tables.

use crate::experiment::Reads;
use crate::figure::plot::{Drawing, Named};
use crate::meter::Metered;
use crate::report::markdown_table;
use crate::topology::Rate;

/// The table that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    SixteenLost,
    Policies,
    Requestors,
    Drains,
    Small,
}

/// A recovered or drained node.
pub(super) struct WholeRow {
    pub(super) what: String,
    pub(super) blocks: usize,
    pub(super) took: f64,
    pub(super) bound: f64,
    pub(super) limit: String,
    /// The time in seconds that the traffic of the busiest link direction takes at the link's rate.
    pub(super) busiest: f64,
    /// The reasons why plans were dropped and replaced.
    pub(super) replanned: Vec<String>,
    pub(super) metered: Metered,
}

/// A cap and the measured rate, in bits per second.
pub(super) struct CapRow {
    pub(super) what: String,
    pub(super) cap: f64,
    pub(super) measured: f64,
}

/// Reads during another activity.
pub(super) struct ReadsRow {
    /// What happened meanwhile.
    pub(super) meanwhile: String,
    pub(super) reads: Reads,
    /// The rate at which all helpers together sent meanwhile, in bits per second.
    pub(super) sent: f64,
    /// The duration of the recovery that ran during the reads, and its bound, in seconds.
    pub(super) recovery: Option<(f64, Option<f64>)>,
}

/// The results of all measurements.
#[derive(Default)]
pub(super) struct Page {
    rows: Vec<(Table, WholeRow)>,
    pub(super) caps: Vec<CapRow>,
    pub(super) reads: Vec<ReadsRow>,
}

impl WholeRow {
    fn marks(&self) -> String {
        let marks = [(self.metered.disturbed, "disturbed"), (self.metered.cpu_bound, "processors")];
        let mut marks: Vec<String> =
            marks.iter().filter(|(is_so, _)| *is_so).map(|&(_, mark)| mark.to_owned()).collect();
        if !self.replanned.is_empty() {
            marks.push(format!("replanned {}×", self.replanned.len()));
        }
        marks.join(", ")
    }

    /// A one-line summary.
    pub(super) fn summary(&self) -> String {
        let Self { what, blocks, took, bound, .. } = self;
        format!(
            "{what}: {blocks} blocks in {took:.2} s, bound {bound:.2} s, {:.3}, the busiest link {:.2} s {}",
            bound / took,
            self.busiest,
            self.marks()
        )
    }

    fn cells(&self) -> Vec<String> {
        let sent: u64 = self.metered.traffic.values().map(|traffic| traffic.sent_bytes).sum();
        vec![
            self.what.clone(),
            self.blocks.to_string(),
            format!("{:.2}", self.took),
            format!("{:.2}", self.bound),
            format!("{:.3}", self.bound / self.took),
            format!("{:.2}", self.busiest),
            format!("{:.0}", sent as f64 / 1e6),
            format!("{:.1}", self.metered.cpu_s),
            self.limit.clone(),
            self.marks(),
        ]
    }
}

impl ReadsRow {
    /// A one-line summary.
    pub(super) fn summary(&self) -> String {
        let [sent, took, part] = self.recovery_cells();
        let summary = format!("{}: {}, helpers sent {sent} Mb/s", self.meanwhile, self.reads.summary());
        match self.recovery {
            Some(_) => format!("{summary}; recovered in {took} s, of the bound {part}"),
            None => summary,
        }
    }

    fn recovery_cells(&self) -> [String; 3] {
        let took = self.recovery.map(|(took, _)| format!("{took:.2}"));
        let part = self.recovery.and_then(|(took, bound)| Some(format!("{:.3}", bound? / took)));
        [format!("{:.0}", self.sent / 1e6), took.unwrap_or_default(), part.unwrap_or_default()]
    }

    fn cells(&self) -> Vec<String> {
        let reads = self.reads.cells().into_iter();
        [self.meanwhile.clone()].into_iter().chain(reads).chain(self.recovery_cells()).collect()
    }
}

impl Page {
    pub(super) fn add(&mut self, table: Table, row: WholeRow) {
        self.rows.push((table, row));
    }

    /// Returns the drawings of the tables that have rows.
    pub(super) fn drawings(&self) -> Vec<Drawing> {
        let title = |what: &str| format!("Whole nodes: {what}");
        let (policies, requestors) = (title("rate by policy"), title("rate by the number of requestors"));
        let (drains, reads) = (title("rate of drains"), title("latency of reads during recovery"));
        let drawings = [
            Drawing::of(POLICIES, &policies, RATE, self.rates(Table::Policies)),
            Drawing::of(REQUESTORS, &requestors, RATE, self.rates(Table::Requestors)),
            Drawing::of(DRAINS, &drains, RATE, self.rates(Table::Drains)),
            Drawing::of(READING, &reads, "milliseconds", self.latencies()),
        ];
        drawings.into_iter().flatten().collect()
    }

    /// Returns the rates of a table's rows and their bounds. A row such as `even, 8 requestors` is the value of the
    /// series `even`.
    fn rates(&self, of: Table) -> Vec<Named> {
        let rows = self.rows.iter().filter(|(table, _)| *table == of);
        let values = rows.flat_map(|(_, row)| {
            let (series, tick) = match of {
                Table::Requestors => row.what.rsplit_once(", ").unwrap_or((row.what.as_str(), "")),
                _ => ("measured", row.what.as_str()),
            };
            let rate = |name: &str, time: f64| (tick.to_owned(), name.to_owned(), row.blocks as f64 / time);
            [rate(series, row.took), rate("bound of the links", row.bound)]
        });
        values.collect()
    }

    fn latencies(&self) -> Vec<Named> {
        self.reads.iter().flat_map(|row| row.reads.named(&row.meanwhile)).collect()
    }

    fn link(&self, name: &str) -> String {
        Drawing::link(&self.drawings(), name)
    }

    fn whole(&self, heading: &str, drawing: &str, of: Table) -> String {
        let columns = [
            "",
            "blocks",
            "took s",
            "bound s",
            "of the bound",
            "busiest link s",
            "sent MB",
            "CPU s",
            "limited by",
            "marks",
        ];
        let rows = self.rows.iter().filter(|(table, _)| *table == of);
        let rows: Vec<_> = rows.map(|(_, row)| row.cells()).collect();
        if rows.is_empty() {
            String::new()
        } else {
            format!("## {heading}\n\n{}{}\n", self.link(drawing), markdown_table(&columns, &rows))
        }
    }

    fn small(&self) -> String {
        let cells = |row: &WholeRow| {
            let blocks = row.blocks as f64;
            vec![
                row.blocks.to_string(),
                format!("{:.2}", row.took),
                format!("{:.0}", blocks / row.took),
                format!("{:.2}", row.metered.cpu_s * 1e3 / blocks),
                row.marks(),
            ]
        };
        let rows = self.rows.iter().filter(|(table, _)| *table == Table::Small);
        let rows: Vec<_> = rows.map(|(_, row)| cells(row)).collect();
        let table = markdown_table(&["blocks", "took s", "repairs/s", "CPU ms of each", "marks"], &rows);
        if rows.is_empty() { String::new() } else { format!("## Small blocks\n\n{SMALL}\n{table}\n") }
    }

    fn caps(&self) -> String {
        let cells = |row: &CapRow| {
            let mbit = |bits: f64| format!("{:.1}", bits / 1e6);
            vec![
                row.what.clone(),
                mbit(row.cap),
                mbit(row.measured),
                format!("{:.3}", row.measured / row.cap),
            ]
        };
        let rows: Vec<_> = self.caps.iter().map(cells).collect();
        let table = markdown_table(&["cap", "Mb/s", "sent Mb/s", "of the cap"], &rows);
        if rows.is_empty() { String::new() } else { format!("## Caps\n\n{CAPS}\n{table}\n") }
    }

    fn reads(&self) -> String {
        let columns = [
            "while",
            "reads/s",
            "median ms",
            "p99 ms",
            "failed",
            "helpers sent Mb/s",
            "recovered in s",
            "of the bound",
        ];
        let rows: Vec<_> = self.reads.iter().map(ReadsRow::cells).collect();
        let table = markdown_table(&columns, &rows);
        if rows.is_empty() {
            String::new()
        } else {
            format!("## Reads during recovery\n\n{}{READS}\n{table}\n", self.link(READING))
        }
    }

    pub(super) fn text(&self, rate: Rate) -> String {
        let parts = [
            format!(" Links of {rate}.\n\n{ABOUT}\n"),
            self.whole("16 blocks of 16 MiB, 13 survivors, RS(9,6)", "", Table::SixteenLost),
            self.whole("Policies: RS(9,6), 64 stripes of 8 MiB blocks, 16 nodes", POLICIES, Table::Policies),
            self.whole("How many get blocks; the same stripes", REQUESTORS, Table::Requestors),
            self.whole("Draining; the same stripes", DRAINS, Table::Drains),
            self.caps(),
            self.reads(),
            self.small(),
        ];
        parts.concat()
    }
}

/// The names of the drawings.
const POLICIES: &str = "nodes-policies";
const REQUESTORS: &str = "nodes-requestors";
const DRAINS: &str = "nodes-drains";
const READING: &str = "nodes-reads";
/// The y axis of drawings.
const RATE: &str = "blocks per second";

const ABOUT: &str = "\
Helpers and the coordinator are processes in network namespaces, each behind a link shaped in both directions; mend.toml states
the rates. For a recovery, h1 is killed (SIGKILL), and `mend node recover h1` is typed once the coordinator has noticed. For a drain, h1
stays up, and `mend node drain h1` is typed. A time is from the start of that program to its end, with parity checked and every block
published and read back. Before each run, the cluster is reset to the same stripes on the same nodes; after it, every block that h1 held
is compared on its new node. The bound is the one that `mend` prints (`docs/explanation/whole-nodes.md`): no schedule is faster on these
links. `limited by` is the most frequent bottleneck according to Mend. `push-rep` and `push-sur` forward whole blocks (`pipe-b`).
";

const CAPS: &str = "\
Recoveries use chains of whole blocks, which send every block k times. The rate under a cap is measured over 5 s, starting 2 s after
the cap was set; the second cap on all helpers together was set during the repair. Bytes of headers are subtracted; their share is known
from the whole repair.
";

const SMALL: &str = "\
1,000 stripes of RS(9,6) with blocks of 4 KiB on 16 nodes: the fixed cost of a repair. Each repair is planned, dispatched to seven
helpers, transferred, checked against parity, published with fsync, recorded by the coordinator and read back, all by processes that
share this machine. PPR's repair manager plans and dispatches 115 to 189 repairs a second.
";

const READS: &str = "\
A client, on a link of the same rate, reads 64 KiB at a random place of a data block, four reads at a time, from each stripe in turn,
for 8 s. Helpers pace recoveries while they take part in reads (`docs/explanation/whole-nodes.md`), so a recovery slows down for 8 s
of its time. The rate that all helpers together sent includes reads and headers, and is measured during the reads.
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn row(what: &str, took: f64) -> WholeRow {
        let metered = Metered {
            cpu_s: 1.0,
            busy: 0.5,
            foreign_s: 0.0,
            disturbed: false,
            cpu_bound: false,
            traffic: BTreeMap::new(),
            disk: BTreeMap::new(),
        };
        let (limit, replanned) = (String::new(), Vec::new());
        WholeRow {
            what: what.to_owned(),
            blocks: 10,
            took,
            bound: 2.0,
            limit,
            busiest: 1.0,
            replanned,
            metered,
        }
    }

    #[test]
    fn rates_are_drawn_against_the_bound_and_linked() {
        let mut page = Page::default();
        page.add(Table::Requestors, row("even, 8 requestors", 2.5));
        page.add(Table::Requestors, row("chains, LRU, 8 requestors", 5.0));
        let reads = Reads::of(Vec::new(), Duration::from_secs(1), 0);
        page.reads.push(ReadsRow { meanwhile: "idle".to_owned(), reads, sent: 0.0, recovery: None });
        let drawings = page.drawings();
        let names: Vec<&str> = drawings.iter().map(|drawing| drawing.name).collect();
        assert_eq!(names, [REQUESTORS, READING]);
        let chart = &drawings[0].chart;
        assert_eq!(chart.ticks, ["8 requestors"]);
        let value = |name: &str, value: f64| (name.to_owned(), vec![(0, value)]);
        let series = [value("even", 4.0), value("bound of the links", 5.0), value("chains, LRU", 2.0)];
        assert_eq!(chart.series, series);
        let text = page.text("100mbit".parse().unwrap());
        assert!(text.contains("(nodes-requestors.svg)") && text.contains("(nodes-reads.svg)"), "{text}");
        assert!(!text.contains("(nodes-policies.svg)"), "{text}");
    }
}
