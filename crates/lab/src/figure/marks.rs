//! The marks in the drawing of a measured figure: the shortest and the longest time of each row, and the paper's
//! numbers.
//!
//! A number that the paper states relative to another scheme is drawn relative to our time of that scheme.

use super::plot::{Mark, Marks};
use super::{About, Claim, Kind, Measure, table};
use crate::report::{Report, Row};

/// Returns the marks of a figure with these ticks.
pub(super) fn of(about: &About, report: &Report, ticks: &[String]) -> Marks {
    let places = Places { about, report, ticks };
    let spreads = report.rows.iter().filter_map(|row| places.mark(row, row.time.extremes()?)).collect();
    Marks { spread: "shortest to longest", spreads, paper: papers(&places) }
}

/// The beginning of a number that a paper does not print, but that follows from measurements that it prints.
const COMPUTED: &str = "computed from its ";

/// The places of the rows in a drawing.
struct Places<'a> {
    about: &'a About,
    report: &'a Report,
    ticks: &'a [String],
}

impl Places<'_> {
    /// Returns a mark at the place of a row, for a range of times in seconds; `None` if the row has no value.
    fn mark(&self, row: &Row, times: [f64; 2]) -> Option<Mark> {
        let Self { about, report, ticks } = self;
        let value = |time_s: f64| {
            let mut row = row.clone();
            row.time.median_s = time_s;
            about.y.of(&row, report)
        };
        let [one, other] = times.map(value);
        let at = ticks.iter().position(|tick| *tick == about.x.of(row))?;
        let series = table::name_of(about, row, report);
        let mark = Mark { series, at, low: one.min(other), high: one.max(other) };
        (one.is_finite() && other.is_finite()).then_some(mark)
    }
}

/// Returns the paper's numbers. If several claims are about a row, the first one counts.
fn papers(places: &Places<'_>) -> Vec<Mark> {
    let Places { about, report, .. } = places;
    let mut marks: Vec<Mark> = Vec::new();
    for claim in about.claim.iter().filter(|claim| claim.measure == Measure::Time) {
        for row in table::rows_of(about, claim, report) {
            let times = times(about, claim, row, report);
            let Some(mark) = times.and_then(|times| places.mark(row, times)) else { continue };
            if marks.iter().all(|known| known.series != mark.series || known.at != mark.at) {
                marks.push(mark);
            }
        }
    }
    marks
}

/// Returns the range of times in seconds that the paper's number means for a row; `None` if the number is not a
/// time.
fn times(about: &About, claim: &Claim, row: &Row, report: &Report) -> Option<[f64; 2]> {
    let other = || Some(table::other_of(about, claim, row, report)?.time.median_s);
    let paper = |unit| numbers(&claim.paper, unit);
    match claim.kind {
        Kind::Less => {
            let other = other()?;
            Some(paper("%")?.map(|percent| (1.0 - percent / 100.0) * other))
        }
        Kind::Part => {
            let other = other()?;
            Some(paper("")?.map(|part| part * other))
        }
        Kind::Times => {
            let other = other()?;
            Some(paper("×")?.map(|times| other / times))
        }
        Kind::OverDirect => Some(paper("%")?.map(|percent| (1.0 + percent / 100.0) * row.time.direct_s)),
        Kind::Seconds => paper("s"),
        Kind::Throughput => {
            let megabytes = row.case.block_bytes as f64 / 1e6;
            Some(paper("MB/s")?.map(|rate| megabytes / rate))
        }
        Kind::Points => None,
    }
}

/// Returns the number or the range that a paper prints, such as `89.5%`, `about 7×` or `2.9% to 9.7%`, or the number
/// that follows from measurements that it prints, such as `computed from its 0.57 s and 8.8%: 0.62 s`. Returns `None`
/// for other texts.
fn numbers(paper: &str, unit: &str) -> Option<[f64; 2]> {
    let text = match paper.strip_prefix(COMPUTED) {
        Some(computed) => computed.split_once(": ")?.1,
        None => paper,
    };
    let text =
        ["about ", "around ", "almost "].iter().find_map(|word| text.strip_prefix(word)).unwrap_or(text);
    let (low, high) = text.split_once(" to ").unwrap_or((text, text));
    let number = |text: &str| text.strip_suffix(unit)?.trim().parse::<f64>().ok();
    Some([number(low)?, number(high)?])
}

#[cfg(test)]
mod tests {
    use super::super::{Figure, all};
    use super::*;
    use crate::machine::Machine;

    fn row(scheme: &str, median_s: f64, times_s: &[f64]) -> Row {
        let mut row = Row::default();
        (row.case.scheme, row.case.slice) = (scheme.to_owned(), "32KiB".to_owned());
        (row.time.median_s, row.time.times_s) = (median_s, times_s.to_vec());
        row
    }

    #[test]
    fn papers_numbers_are_relative_to_ours_of_the_other_scheme() {
        let figure = all().into_iter().find(|figure| figure.figure.name == "tos21-8a");
        let Figure { figure, scenario } = figure.expect("the figure exists");
        let rows = vec![row("conventional", 10.0, &[10.0]), row("pipelined", 1.0, &[1.0, 0.9, 1.2])];
        let machine = Machine::this();
        let report =
            Report { scenario, machine, started_unix_ms: 0, checks: Vec::new(), constants: None, rows };
        let Marks { spreads, paper, .. } = of(&figure, &report, &["32KiB".to_owned()]);
        let mark = |series: &str, low, high| Mark { series: series.to_owned(), at: 0, low, high };
        assert_eq!(spreads, [mark("pipelined", 0.9, 1.2)]);
        let found = paper.iter().find(|mark| mark.series == "pipelined").unwrap();
        assert!((found.low - 1.05).abs() < 1e-9 && found.low == found.high, "{found:?}");
        assert_eq!(paper.iter().filter(|mark| mark.series == "pipelined").count(), 1);
        assert!(paper.contains(&mark("conventional", 5.91, 5.91)), "{paper:?}");
    }

    #[test]
    fn throughput_and_factors_of_each_code_stand_beside_ours() {
        let figure = all().into_iter().find(|figure| figure.figure.name == "ppr-7d");
        let Figure { figure, scenario } = figure.expect("the figure exists");
        let row = |code: &str, scheme: &str, rate: &str, median_s: f64| {
            let mut row = row(scheme, median_s, &[median_s]);
            (row.case.code, row.case.rate) = (code.to_owned(), rate.to_owned());
            row.case.block_bytes = 64_000_000;
            row
        };
        let rows = vec![
            row("rs-9-6", "conventional", "1gbit", 3.6),
            row("rs-9-6", "ppr in rounds", "1gbit", 2.0),
            row("rs-16-12", "ppr in rounds", "200mbit", 9.0),
        ];
        let machine = Machine::this();
        let report =
            Report { scenario, machine, started_unix_ms: 0, checks: Vec::new(), constants: None, rows };
        let paper = of(&figure, &report, &["1gbit".to_owned(), "200mbit".to_owned()]).paper;
        let value = |series: &str| paper.iter().find(|mark| mark.series == series).map(|mark| mark.low);
        assert!((value("ppr in rounds, rs-9-6").unwrap() - 32.0).abs() < 1e-9, "1.8 times 64 MB in 3.6 s");
        assert!((value("ppr in rounds, rs-16-12").unwrap() - 6.6).abs() < 1e-9, "{paper:?}");
    }

    #[test]
    fn numbers_of_papers_are_read() {
        assert_eq!(numbers("89.5%", "%"), Some([89.5, 89.5]));
        assert_eq!(numbers("computed from its 0.57 s and 8.8%: 0.62 s", "s"), Some([0.62, 0.62]));
        assert_eq!(numbers("almost 7×", "×"), Some([7.0, 7.0]));
        assert_eq!(numbers("8.5 MB/s", "MB/s"), Some([8.5, 8.5]));
        assert_eq!(numbers("2.9% to 9.7%", "%"), Some([2.9, 9.7]));
        assert_eq!(numbers("about 0.1", ""), Some([0.1, 0.1]));
        for text in ["grows with k", "", "19% additional reduction", "by blocks, 6 of 12: 50%"] {
            assert_eq!(numbers(text, "%"), None, "{text}");
        }
    }
}
