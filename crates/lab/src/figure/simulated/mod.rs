//! Figures that are simulated instead of measured: they need no network and no quiet machine. The same commit
//! gives the same page, except for the processor times of `fastpr-6`, which are measured.

mod clusters;
mod fastpr;
mod fastpr_lrc;
mod links;
mod pipe_s;
mod recoveries;

use std::fmt::Write;

use super::{ClaimRow, claims_table, percent, percents};
use crate::command::write_page;
use crate::error::LabError;
use crate::figure::plot::{Chart, Mark, Marks, Series};
use crate::folders::Folders;
use crate::machine::Machine;
use crate::report::markdown_table;
use crate::run::Say;

/// All simulated figures, in the order in which `list` prints them, each with the module that has its points.
static ALL: [(&str, Simulated); 14] = [
    ("fastpr", fastpr::SCATTERED),
    ("fastpr", fastpr::STANDBYS),
    ("fastpr", fastpr::STRIPES),
    ("fastpr", fastpr::PACKETS),
    ("fastpr", fastpr::BANDWIDTH),
    ("fastpr", fastpr::SETS),
    ("fastpr_lrc", fastpr_lrc::LRC),
    ("links", links::RACKS),
    ("links", links::REGIONS),
    ("pipe_s", pipe_s::PIPE_S),
    ("clusters", clusters::REQUESTORS),
    ("clusters", clusters::HDFS),
    ("clusters", clusters::PUSH),
    ("clusters", clusters::M_PPR),
];

/// A simulated figure.
pub(super) struct Simulated {
    pub(super) name: &'static str,
    pub(super) paper: &'static str,
    pub(super) title: &'static str,
    /// How our set-up differs from the paper's.
    note: &'static str,
    /// The paths on which the figure depends, in addition to the module that has its points.
    paths: &'static [&'static str],
    /// Whether processor times are measured, so that the page names the machine.
    is_timed: bool,
    simulate: fn() -> Results,
}

/// The results of a simulation.
struct Results {
    /// A summary of the results, and the reasons for differences to the paper's.
    findings: String,
    claims: Vec<Claim>,
    tables: Vec<Table>,
    y: &'static str,
    ticks: Vec<String>,
    series: Series,
    /// The meaning of `spreads`, for the legend.
    spread: &'static str,
    spreads: Vec<Mark>,
}

/// A number of the paper and ours.
struct Claim {
    text: String,
    /// The paper's number, as printed; empty for a number of ours that the paper does not have.
    paper: &'static str,
    here: String,
    /// The quantity of which a percentage is a part.
    of: &'static str,
    /// Why our number differs from the paper's; required if the paper has one.
    difference: &'static str,
    /// The paper's number in the drawing.
    marks: Vec<Mark>,
}

struct Table {
    heading: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Claim {
    fn new(text: impl Into<String>, paper: &'static str, here: impl Into<String>) -> Self {
        Self { text: text.into(), paper, here: here.into(), of: "", difference: "", marks: Vec::new() }
    }

    /// Names the quantity of which the number is a percentage.
    fn of(self, of: &'static str) -> Self {
        Self { of, ..self }
    }

    /// Says why our number differs from the paper's.
    fn because(self, difference: &'static str) -> Self {
        Self { difference, ..self }
    }

    /// Draws the paper's number, or its range, at a tick of a series.
    fn drawn(mut self, series: &str, at: usize, values: &[f64]) -> Self {
        let (low, high) = range(values);
        self.marks.push(Mark { series: series.to_owned(), at, low, high });
        self
    }

    /// Draws the paper's savings, in percent of these values of another series.
    fn drawn_below<'a>(
        self,
        series: &str,
        less: &[f64],
        than: impl IntoIterator<Item = &'a (usize, f64)>,
    ) -> Self {
        than.into_iter().fold(self, |claim, &(at, value)| {
            let values: Vec<f64> = less.iter().map(|percent| (1.0 - percent / 100.0) * value).collect();
            claim.drawn(series, at, &values)
        })
    }

    fn row(&self) -> ClaimRow {
        let Self { text, paper, here, of, difference, .. } = self;
        assert_eq!(paper.is_empty(), difference.is_empty(), "the difference is explained: {text}");
        ClaimRow {
            what: text.clone(),
            paper: (*paper).to_owned(),
            here: here.clone(),
            of: (*of).to_owned(),
            difference: (*difference).to_owned(),
        }
    }
}

/// Returns all simulated figures.
pub(super) fn all() -> impl Iterator<Item = &'static Simulated> {
    ALL.iter().map(|(_, figure)| figure)
}

/// Returns the figure of this name.
pub(super) fn named(name: &str) -> Option<&'static Simulated> {
    all().find(|figure| figure.name == name)
}

/// Returns the paths on which the figure of this name depends.
pub(super) fn paths_of(name: &str) -> Option<Vec<String>> {
    let (module, figure) = ALL.iter().find(|(_, figure)| figure.name == name)?;
    let points = format!("crates/lab/src/figure/simulated/{module}.rs");
    Some(figure.paths.iter().map(|&path| path.to_owned()).chain([points]).collect())
}

impl Simulated {
    /// Simulates the figure, and writes its table and its drawing.
    pub(super) fn measure(&self, folders: &Folders, say: Say<'_>) -> Result<(), LabError> {
        let Self { name, paper, title, .. } = self;
        say(&format!("== {name}: {title}"));
        let results = (self.simulate)();
        let page = folders.page(name, "md");
        write_page(&page, &self.page(&results, &Machine::this()))?;
        say(&format!("{}", page.display()));
        let chart = Chart {
            title: format!("{paper}: {title}"),
            x: "",
            y: results.y,
            ticks: results.ticks,
            marks: Marks { spread: results.spread, spreads: results.spreads, paper: papers(&results.claims) },
            series: results.series,
            bars: true,
        };
        chart.draw(&folders.page(name, "svg"))
    }

    fn page(&self, results: &Results, machine: &Machine) -> String {
        let Self { name, paper, title, note, is_timed, .. } = self;
        let origin = match is_timed {
            true => format!(". {}", machine.summary()),
            false => format!(", commit {}.", machine.commit),
        };
        let mut text = format!(
            "# {paper}: {title}\n\n![{title}]({name}.svg)\n\n{note}\n\nSimulated by `mend lab figure \
             {name}`{origin}\n\n{}\n\n{}",
            results.findings,
            claims_table(results.claims.iter().map(Claim::row).collect()),
        );
        for Table { heading, columns, rows } in &results.tables {
            write!(text, "\n## {heading}\n\n{}", markdown_table(columns, rows)).expect("text takes all");
        }
        text
    }
}

/// Returns the paper's numbers in a drawing. If several claims are about a bar, the first one counts.
fn papers(claims: &[Claim]) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    for mark in claims.iter().flat_map(|claim| &claim.marks) {
        if marks.iter().all(|known| known.series != mark.series || known.at != mark.at) {
            marks.push(mark.clone());
        }
    }
    marks
}

/// Returns the points of a series.
fn points_of<'a>(series: &'a Series, name: &str) -> &'a [(usize, f64)] {
    series.iter().find(|(known, _)| known == name).map_or(&[], |(_, points)| points)
}

/// Returns the least and the largest value.
fn range(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)))
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// Runs `work` for each seed on a thread of its own, and returns the results in the order of the seeds.
fn for_seeds<T: Send>(seeds: std::ops::RangeInclusive<u64>, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = seeds.map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a panic has been printed")).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_state_their_commit_and_claims() {
        let results = Results {
            findings: "Found.".to_owned(),
            claims: vec![Claim::new("less", "9%", percents([0.07, 0.08])).of("time").because("Unexplained.")],
            tables: vec![Table { heading: "All", columns: vec!["a"], rows: vec![vec!["1".to_owned()]] }],
            y: "s",
            ticks: Vec::new(),
            series: Vec::new(),
            spread: "",
            spreads: Vec::new(),
        };
        let machine = Machine { commit: "0123456789ab".to_owned(), ..Machine::this() };
        let page = ALL[0].1.page(&results, &machine);
        for text in [
            "commit 0123456789ab.",
            "| less | 9%    | 7.0% to 8.0% | time       | Unexplained.   |",
            "## All",
            "(fastpr-1.svg)",
        ] {
            assert!(page.contains(text), "{text} is not in {page}");
        }
        let timed = named("fastpr-6").unwrap().page(&results, &machine);
        assert!(timed.contains(&machine.summary()), "{timed}");
    }

    #[test]
    fn the_papers_savings_are_drawn_below_ours_of_the_other_method() {
        let stars = [(0, 10.0), (1, 20.0)];
        let claims = [
            Claim::new("less", "31% to 47%", "").drawn_below("m-PPR", &[31.0, 47.0], &stars),
            Claim::new("at the first tick", "", "").drawn("m-PPR", 0, &[1.0]).drawn("dealt", 0, &[2.0]),
        ];
        let marks = papers(&claims);
        let rounded: Vec<_> = marks
            .iter()
            .map(|mark| (&*mark.series, mark.at, (mark.low * 10.0).round(), (mark.high * 10.0).round()))
            .collect();
        let expected = [("m-PPR", 0, 53.0, 69.0), ("m-PPR", 1, 106.0, 138.0), ("dealt", 0, 20.0, 20.0)];
        assert_eq!(rounded, expected);
    }

    #[test]
    fn seeds_are_in_order() {
        assert_eq!(for_seeds(1..=4, |seed| seed * seed), [1, 4, 9, 16]);
    }
}
