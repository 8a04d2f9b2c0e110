//! Section 7.6 of the PPR paper: the number of repairs that one repair manager plans in a second. No network is
//! needed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use codes::CodeSpec;
use repair::Scheme;
use serde::{Deserialize, Serialize};

use super::plot::{Chart, Mark, Marks};
use super::{ClaimRow, OwnReport, claims_table, publish};
use crate::error::LabError;
use crate::folders::Folders;
use crate::machine::Machine;
use crate::plan_cost::plan_cost;
use crate::report::{markdown_table, median};
use crate::run::Say;
use crate::variant::Variant;

pub(super) const NAME: &str = "ppr-plans";
pub(super) const PAPER: &str = "PPR (EuroSys'16), section 7.6";
pub(super) const TITLE: &str = "Plans per second of one coordinator";
pub(super) const PATHS: &[&str] =
    &["crates/codes", "crates/repair", "crates/lab/src/plan_cost.rs", "crates/lab/src/figure/planning.rs"];

const NOTE: &str = "\
The paper measures from the creation of a plan to the end of its distribution: 5.3 ms for RS(6,3) and 8.7 ms for RS(12,4), of which the
coefficients are a negligible part. Here a plan is made and not sent, on one thread: the code is built from its name, the stripe is
described, one block of 64 MiB is lost, and the plan and its cost are computed. All links are equal. The page `nodes.md` has the rate of
whole repairs of small blocks, with all messages.";

/// The codes by name, with the rate of the paper if it prints one.
const CODES: [(&str, Option<f64>); 4] =
    [("rs-9-6", Some(189.0)), ("rs-11-8", None), ("rs-14-10", None), ("rs-16-12", Some(115.0))];
const SCHEMES: [Scheme; 3] = [Scheme::Ppr, Scheme::Pipelined, Scheme::Auto];
const BLOCK_BYTES: u64 = 64 << 20;
/// The duration of a repetition.
const LASTS: Duration = Duration::from_millis(200);

/// The measurements of the figure.
#[derive(Serialize, Deserialize)]
pub(super) struct PlanningReport {
    machine: Machine,
    rows: Vec<Planned>,
}

#[derive(Serialize, Deserialize)]
struct Planned {
    code: String,
    scheme: String,
    /// The plans per second of each repetition.
    rates: Vec<f64>,
}

impl Planned {
    fn extremes(&self) -> [f64; 2] {
        let rates = || self.rates.iter().copied();
        [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)]
    }
}

/// Measures the figure, and writes its files.
pub(super) fn measure(folders: &Folders, repetitions: u32, say: Say<'_>) -> Result<(), LabError> {
    let mut rows = Vec::new();
    for (code, _) in CODES {
        for scheme in SCHEMES {
            let rates = (0..repetitions).map(|_| plans_per_second(code, scheme, LASTS)).collect();
            rows.push(Planned { code: code.to_owned(), scheme: scheme.name().to_owned(), rates });
        }
    }
    publish(&PlanningReport { machine: Machine::this(), rows }, folders, say)
}

fn plans_per_second(code: &str, scheme: Scheme, lasts: Duration) -> f64 {
    let spec: CodeSpec = code.parse().expect("a code's name");
    let started = Instant::now();
    let mut plans = 0;
    while started.elapsed() < lasts {
        let cost = plan_cost(black_box(&spec), BLOCK_BYTES, &[0], Variant::own(scheme), None);
        black_box(cost.expect("one lost block can be planned"));
        plans += 1;
    }
    f64::from(plans) / started.elapsed().as_secs_f64()
}

impl OwnReport for PlanningReport {
    const NAME: &'static str = NAME;

    fn page(&self) -> String {
        let cells = |row: &Planned| {
            let [least, most] = row.extremes();
            let rate = |value: f64| format!("{value:.0}");
            vec![row.code.clone(), row.scheme.clone(), rate(median(&row.rates)), rate(least), rate(most)]
        };
        let rows: Vec<_> = self.rows.iter().map(cells).collect();
        format!(
            "# {PAPER}: {TITLE}\n\n![{TITLE}]({NAME}.svg)\n\n{NOTE}\n\n{}\n## All measurements\n\n{}\n\n{}",
            claims_table(CODES.iter().filter_map(|&(code, paper)| self.claim(code, paper?)).collect()),
            self.machine.summary(),
            markdown_table(&["code", "scheme", "plans/s, median", "least", "most"], &rows),
        )
    }

    fn chart(&self) -> Chart {
        let at = |row: &Planned| CODES.iter().position(|(code, _)| *code == row.code);
        let series = SCHEMES.iter().map(|scheme| {
            let rows = self.rows.iter().filter(|row| row.scheme == scheme.name());
            let points = rows.filter_map(|row| Some((at(row)?, median(&row.rates))));
            (scheme.name().to_owned(), points.collect())
        });
        Chart {
            title: format!("{PAPER}: {TITLE}"),
            x: "code",
            y: "plans per second, median",
            ticks: CODES.iter().map(|(code, _)| (*code).to_owned()).collect(),
            series: series.collect(),
            marks: Marks { spread: "least to most", spreads: self.spreads(), paper: papers() },
            bars: true,
        }
    }
}

impl PlanningReport {
    fn claim(&self, code: &str, paper: f64) -> Option<ClaimRow> {
        let row = self.rows.iter().find(|row| row.code == code && row.scheme == Scheme::Ppr.name())?;
        Some(ClaimRow {
            what: format!("plans of PPR per second, {code}"),
            paper: format!("{paper:.0}"),
            here: format!("{:.0}", median(&row.rates)),
            of: String::new(),
            difference: "The paper's number contains the distribution of the plan, and ours does not."
                .to_owned(),
        })
    }

    fn spreads(&self) -> Vec<Mark> {
        let mark = |row: &Planned| {
            let at = CODES.iter().position(|(code, _)| *code == row.code)?;
            let [low, high] = row.extremes();
            Some(Mark { series: row.scheme.clone(), at, low, high })
        };
        self.rows.iter().filter_map(mark).collect()
    }
}

/// Returns the paper's numbers.
fn papers() -> Vec<Mark> {
    let mark = |(at, &(_, paper)): (usize, &(&str, Option<f64>))| {
        let paper = paper?;
        Some(Mark { series: Scheme::Ppr.name().to_owned(), at, low: paper, high: paper })
    };
    CODES.iter().enumerate().filter_map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_rates_stand_beside_ours() {
        let row = |code: &str, rates: &[f64]| Planned {
            code: code.to_owned(),
            scheme: "ppr".to_owned(),
            rates: rates.to_vec(),
        };
        let rows = vec![row("rs-9-6", &[3000.0, 1000.0, 2000.0]), row("rs-16-12", &[900.0])];
        let report = PlanningReport { machine: Machine::this(), rows };
        let page = report.page();
        for text in
            ["| plans of PPR per second, rs-9-6   | 189   | 2000 |", "| 115   | 900  |", "| 1000  | 3000 |"]
        {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        let chart = report.chart();
        assert_eq!(chart.series[0], ("ppr".to_owned(), vec![(0, 2000.0), (3, 900.0)]));
        assert_eq!(chart.marks.paper.iter().map(|mark| mark.at).collect::<Vec<_>>(), [0, 3]);
        assert_eq!((chart.marks.spreads[0].low, chart.marks.spreads[0].high), (1000.0, 3000.0));
    }

    #[test]
    fn plans_are_counted() {
        for (code, _) in CODES {
            assert!(plans_per_second(code, Scheme::Ppr, Duration::from_millis(1)) > 0.0);
        }
    }
}
