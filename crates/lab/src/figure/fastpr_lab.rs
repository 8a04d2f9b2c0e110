//! FastPR on real processes: the page and the drawing of the measurements of [`crate::nodes::fastpr`].

use serde::{Deserialize, Serialize};

use super::plot::{Chart, Mark, Marks, Series};
use super::{ClaimRow, OwnReport, claims_table, percent, percents, publish};
use crate::error::LabError;
use crate::folders::Folders;
use crate::lab_cluster::Programs;
use crate::machine::Machine;
use crate::network::Names;
use crate::nodes::fastpr::{self, Clusters, METHODS, Row};
use crate::report::markdown_table;
use crate::run::Say;

pub(super) const NAME: &str = "fastpr-lab";
pub(super) const PAPER: &str = "FastPR (supplement), on real processes";
pub(super) const TITLE: &str = "Emptying a failing node by nodes, code, links, disks and standbys";

const NOTE: &str = "\
The paper: 100 simulated nodes, RS(9,6), chunks of 64 MB, disks of 100 MB/s, links of 1 Gb/s, which are 128 MB/s in its model, 1,000
stripes, three hot standbys. Here, unless a row says otherwise: 21 nodes (the failing one included), RS(9,6), chunks of 4 MiB, packets of
256 KiB, about 12 chunks on the failing node, links of 100 Mb/s, and disks that store 78 Mb/s, so that disks and links have the paper's ratio.
A disk's rate is a cap of twice as much, because a repair reads back what it has written, and the cap counts both; reads from a disk may
use the whole cap. Every node is a process behind a shaped link of its own.
Reconstruction sets are found by the paper's Algorithm 1 on all chunks together, and rounds are scheduled by its Algorithm 2 with the
times of its model. In a round, every rebuilt chunk is read from the k helpers of its set and decoded by its receiver (a star), and the
failing node copies one chunk after another meanwhile; the next round begins when all chunks are published and read back. Receivers are
chosen as in the published prototype. *Mend's drain* is `mend node drain`, which has no rounds, decides block by block, and rebuilds by
pipelined sums instead of stars. Times are those of the repairs, without finding sets and describing stripes. Every chunk was compared
with the failing node's.";

/// The measurements of the figure.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FastPrReport {
    machine: Machine,
    rows: Vec<Row>,
}

/// The savings of FastPR over migration only and over reconstruction only that the paper prints, in percent.
struct Saving {
    point: &'static str,
    setting: &'static str,
    paper: [f64; 2],
    difference: &'static str,
}

const FEWER_NODES: &str = "The paper's 99 healthy nodes rebuild eight chunks of RS(16,12) at once and ours one, which favours \
                           migration.";
const STANDBY_SETS: &str = "The paper's 99 healthy nodes rebuild 16 chunks at once and ours two, so rebuilds load our standbys \
                            less.";
const EC2: &str = "The paper's number of nodes and rate of disks on EC2 are not available to us, so the difference is \
                   unexplained.";
const SAVINGS: [Saving; 4] = [
    Saving { point: "(16,12)", setting: "RS(16,12)", paper: [62.7, 40.6], difference: FEWER_NODES },
    Saving {
        point: "3 standbys",
        setting: "RS(9,6), three standbys",
        paper: [57.7, 41.0],
        difference: STANDBY_SETS,
    },
    Saving {
        point: "50 Mb/s",
        setting: "links of 50 Mb/s (the paper: 0.5 Gb/s)",
        paper: [27.7, 62.5],
        difference: EC2,
    },
    Saving {
        point: "M = 21",
        setting: "links of 100 Mb/s (the paper: 1 Gb/s)",
        paper: [27.1, 61.5],
        difference: EC2,
    },
];
/// The methods with which the paper compares FastPR.
const OTHERS: [&str; 2] = ["migration only", "reconstruction only"];
const FASTPR: &str = "FastPR";

/// Measures the figure, and writes its files.
pub(super) fn measure(
    names: &Names,
    programs: &Programs,
    folders: &Folders,
    repetitions: u32,
    say: Say<'_>,
) -> Result<(), LabError> {
    let machine = Machine::this();
    let rows = fastpr::run(names, programs, Clusters::OfFigure, repetitions, say)?;
    publish(&FastPrReport { machine, rows }, folders, say)
}

impl OwnReport for FastPrReport {
    const NAME: &'static str = NAME;

    fn page(&self) -> String {
        markdown(self)
    }

    fn chart(&self) -> Chart {
        let (ticks, series) = bars(self);
        let title = format!("{PAPER}: {TITLE}");
        let marks = marks_of(self);
        Chart { title, x: "", y: "seconds per chunk", ticks, series, marks, bars: true }
    }

    fn doubt(&self) -> Option<String> {
        let row = self.rows.iter().find(|row| row.disturbed == row.times_s.len())?;
        Some(format!("other programs disturbed all repetitions of {}, {}", row.point, row.method))
    }
}

impl FastPrReport {
    /// The names of the measured clusters, in order.
    fn points(&self) -> Vec<&str> {
        let mut points: Vec<&str> = self.rows.iter().map(|row| row.point.as_str()).collect();
        points.dedup();
        points
    }

    fn row(&self, point: &str, method: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.point == point && row.method == method)
    }

    /// Returns by which part of the time of `than` a method is faster.
    fn less(&self, point: &str, method: &str, than: &str) -> Option<f64> {
        Some(1.0 - self.row(point, method)?.per_chunk() / self.row(point, than)?.per_chunk())
    }

    /// Returns how much longer the rounds take than in the simulator, as parts of its time.
    fn above_simulated(&self) -> impl Iterator<Item = f64> {
        self.rows.iter().filter_map(|row| {
            let simulated = row.simulated_s? / row.chunks as f64;
            Some(row.per_chunk() / simulated - 1.0)
        })
    }
}

fn markdown(report: &FastPrReport) -> String {
    let columns = [
        "",
        "method",
        "chunks",
        "sets",
        "rounds",
        "copied",
        "s/chunk",
        "simulated s/chunk",
        "optimum s/chunk",
        "above it",
        "marks",
    ];
    let rows: Vec<Vec<String>> = report.rows.iter().map(cells).collect();
    format!(
        "# {PAPER}: {TITLE}\n\n![{TITLE}]({NAME}.svg)\n\n{NOTE}\n\n{}\n## All points\n\n{}\n\n{}\nThe optimum is the \
         paper's: copies and rebuilds without pauses, in sets of the largest size, which need not be whole. Simulated: \
         the same rounds in `sim::fastpr`. Marks count repetitions, and replaced plans.\n",
        claims_table(claims(report)),
        report.machine.summary(),
        markdown_table(&columns, &rows),
    )
}

fn claims(report: &FastPrReport) -> Vec<ClaimRow> {
    let mut claims = Vec::new();
    let mut add = |what: String, paper: &str, here: Option<f64>, of: &str, difference: &str| {
        claims.push(ClaimRow {
            what,
            paper: paper.to_owned(),
            here: here.map_or("not measured".to_owned(), percent),
            of: of.to_owned(),
            difference: difference.to_owned(),
        });
    };
    for Saving { point, setting, paper, difference } in &SAVINGS {
        for (than, paper) in OTHERS.into_iter().zip(paper) {
            let here = report.less(point, FASTPR, than);
            let (paper, of) = (format!("{paper:.1}%"), format!("time per chunk of {than}"));
            add(format!("{setting}: FastPR, less than {than}"), &paper, here, &of, difference);
        }
    }
    for point in report.points() {
        let here = report.less(point, "Mend's drain", FASTPR);
        add(format!("{point}: Mend's drain, less than FastPR"), "", here, "time per chunk of FastPR", "");
    }
    claims.push(ClaimRow {
        what: "rounds on real processes, above the same rounds simulated".to_owned(),
        paper: String::new(),
        here: percents(report.above_simulated()),
        of: "simulated time".to_owned(),
        difference: String::new(),
    });
    claims
}

fn cells(row: &Row) -> Vec<String> {
    let seconds = |value: f64| format!("{value:.3}");
    let count = |value: Option<usize>| value.map_or(String::new(), |value| value.to_string());
    vec![
        row.point.clone(),
        row.method.clone(),
        row.chunks.to_string(),
        row.sets.to_string(),
        count(row.rounds.map(|(rounds, _)| rounds)),
        count(row.rounds.map(|(_, copied)| copied)),
        seconds(row.per_chunk()),
        row.simulated_s.map_or(String::new(), |simulated| seconds(simulated / row.chunks as f64)),
        seconds(row.optimum_s),
        percent(row.per_chunk() / row.optimum_s - 1.0),
        marks(row),
    ]
}

fn marks(row: &Row) -> String {
    let counts =
        [("disturbed", row.disturbed), ("CPU-bound", row.cpu_bound), ("replanned", row.replanned.len())];
    let marks = counts.iter().filter(|(_, count)| *count > 0).map(|(mark, count)| format!("{mark} {count}×"));
    marks.collect::<Vec<_>>().join(", ")
}

fn bars(report: &FastPrReport) -> (Vec<String>, Series) {
    let points = report.points();
    let bar = |method: &str, at: usize| Some((at, report.row(points[at], method)?.per_chunk()));
    let of = |method: &str| (method.to_owned(), (0..points.len()).filter_map(|at| bar(method, at)).collect());
    let mut series: Series = METHODS.iter().map(|(method, _)| of(method)).collect();
    let optimum = |at: usize| Some((at, report.rows.iter().find(|row| row.point == points[at])?.optimum_s));
    series.push(("optimum".to_owned(), (0..points.len()).filter_map(optimum).collect()));
    (points.iter().map(|&point| point.to_owned()).collect(), series)
}

/// Returns the ranges over repetitions, and the paper's times of FastPR relative to ours of migration only.
fn marks_of(report: &FastPrReport) -> Marks {
    let points = report.points();
    let at = |point: &str| points.iter().position(|known| *known == point);
    let spread = |row: &Row| Mark::range(&row.method, at(&row.point)?, &row.all_per_chunk());
    let paper = |saving: &Saving| {
        let time = (1.0 - saving.paper[0] / 100.0) * report.row(saving.point, OTHERS[0])?.per_chunk();
        Some(Mark { series: FASTPR.to_owned(), at: at(saving.point)?, low: time, high: time })
    };
    Marks {
        spread: "shortest to longest",
        spreads: report.rows.iter().filter_map(spread).collect(),
        paper: SAVINGS.iter().filter_map(paper).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(point: &str, method: &str, seconds: f64) -> Row {
        Row {
            point: point.to_owned(),
            method: method.to_owned(),
            chunks: 10,
            sets: 4,
            rounds: Some((3, 5)),
            times_s: vec![seconds],
            simulated_s: Some(8.0),
            optimum_s: 0.5,
            disturbed: 0,
            cpu_bound: 1,
            replanned: Vec::new(),
        }
    }

    fn report() -> FastPrReport {
        let seconds = [20.0, 16.0, 10.0, 8.0];
        let rows = METHODS.iter().zip(seconds).map(|((method, _), seconds)| row("(16,12)", method, seconds));
        FastPrReport { machine: Machine::this(), rows: rows.collect() }
    }

    #[test]
    fn savings_are_parts_of_the_other_methods_time() {
        let page = markdown(&report());
        for text in [
            "RS(16,12): FastPR, less than migration only",
            "| 62.7% | 50.0% ",
            "| 40.6% | 37.5% ",
            "time per chunk of reconstruction only",
            "|       | 20.0% ",
            "CPU-bound 1×",
            "not measured",
        ] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
    }

    #[test]
    fn every_method_and_the_optimum_have_bars() {
        let (ticks, series) = bars(&report());
        assert_eq!(ticks, ["(16,12)"]);
        let names: Vec<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["migration only", "reconstruction only", "FastPR", "Mend's drain", "optimum"]);
        assert_eq!(series[2].1, [(0, 1.0)]);
        assert_eq!(series[4].1, [(0, 0.5)]);
    }

    #[test]
    fn the_papers_saving_over_migration_and_the_spread_are_drawn() {
        let mut report = report();
        assert_eq!(report.chart().marks.spreads, [], "one repetition has no spread");
        report.rows[2].times_s = vec![10.0, 9.0, 12.0];
        let Marks { spreads, paper, .. } = report.chart().marks;
        assert_eq!(spreads, [Mark { series: "FastPR".to_owned(), at: 0, low: 0.9, high: 1.2 }]);
        assert_eq!((paper.len(), &*paper[0].series, paper[0].at), (1, "FastPR", 0));
        assert!((paper[0].low - 0.373 * 2.0).abs() < 1e-9, "{paper:?}");
    }
}
