//! Reproduces the papers' figures. A figure consists of a scenario to measure, the paper's claims, and how to
//! compare the measurement with these claims.
//!
//! Most figures are files in `lab/figures/`, compiled into the program so that it needs no other files. A
//! measurement writes the report NAME.json to one folder. From the report, it generates NAME.md (tables) and
//! NAME.svg in another folder. Some figures have programs of their own (`OWN`), and some are simulated instead
//! (`simulated`).

mod arithmetic;
mod bounds;
pub mod clients;
mod cold;
mod collective;
mod compute;
mod fastpr_lab;
mod marks;
mod placements;
mod planning;
pub(crate) mod plot;
mod reed_solomon;
mod simulated;
mod table;

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command::{write_json, write_page};
use crate::error::LabError;
use crate::folders::Folders;
use crate::lab_cluster::Programs;
use crate::network::Names;
use crate::pages;
use crate::report::{Report, Row, markdown_table, percentile_95};
use crate::run::Say;
use crate::scenario::{Destination, Scenario, parse_toml};

use plot::Chart;

pub use collective::Constants;

/// The heading of the table of claims on a figure's page.
pub(crate) const CLAIMS: &str = "## The paper and Mend";

/// The files of the figures, in the order in which `list` prints them.
const FILES: &[&str] = &[
    include_str!("../../../../lab/figures/tos21-8a.toml"),
    include_str!("../../../../lab/figures/tos21-8b.toml"),
    include_str!("../../../../lab/figures/tos21-8c.toml"),
    include_str!("../../../../lab/figures/tos21-8d.toml"),
    include_str!("../../../../lab/figures/tos21-8f.toml"),
    include_str!("../../../../lab/figures/tos21-8g.toml"),
    include_str!("../../../../lab/figures/tos21-8i.toml"),
    include_str!("../../../../lab/figures/tos21-8h.toml"),
    include_str!("../../../../lab/figures/tos21-8h-400.toml"),
    include_str!("../../../../lab/figures/tos21-9-north-america.toml"),
    include_str!("../../../../lab/figures/tos21-9-asia.toml"),
    include_str!("../../../../lab/figures/tos21-9-north-america-shared.toml"),
    include_str!("../../../../lab/figures/tos21-9-asia-shared.toml"),
    include_str!("../../../../lab/figures/timeslots-9-6.toml"),
    include_str!("../../../../lab/figures/timeslots-14-10.toml"),
    include_str!("../../../../lab/figures/timeslots-16-12.toml"),
    include_str!("../../../../lab/figures/tos21-11a.toml"),
    include_str!("../../../../lab/figures/ppr-7a.toml"),
    include_str!("../../../../lab/figures/ppr-7b.toml"),
    include_str!("../../../../lab/figures/ppr-7c.toml"),
    include_str!("../../../../lab/figures/ppr-7d.toml"),
    include_str!("../../../../lab/figures/ppr-7e.toml"),
    include_str!("../../../../lab/figures/ppr-9.toml"),
    include_str!("../../../../lab/figures/crr-3.toml"),
    include_str!("../../../../lab/figures/crr-4.toml"),
    include_str!("../../../../lab/figures/hitchhiker-1.toml"),
    include_str!("../../../../lab/figures/code-x-scheme.toml"),
    include_str!("../../../../lab/figures/cold-disk.toml"),
    include_str!("../../../../lab/figures/data-tls.toml"),
];

/// Measures a figure with so many repetitions, and writes its files.
type OwnMeasurement = fn(&Names, &Programs, &Folders, u32, Say<'_>) -> Result<(), LabError>;

/// A figure that has a program of its own instead of a scenario.
struct OwnFigure {
    name: &'static str,
    paper: &'static str,
    title: &'static str,
    /// Whether blocks are transferred, so that the figure depends on everything that transfers depend on.
    transfers: bool,
    /// The other paths on which the figure depends.
    paths: &'static [&'static str],
    /// The usual number of repetitions.
    repetitions: u32,
    measure: OwnMeasurement,
    redraw: fn(&Folders) -> Result<(), LabError>,
}

static OWN: [OwnFigure; 5] = [
    OwnFigure {
        name: clients::NAME,
        paper: clients::PAPER,
        title: clients::TITLE,
        transfers: true,
        paths: &["crates/lab/src/figure/clients", "crates/lab/src/experiment"],
        repetitions: 3,
        measure: clients::measure,
        redraw: redraw_own::<clients::ClientsReport>,
    },
    OwnFigure {
        name: fastpr_lab::NAME,
        paper: fastpr_lab::PAPER,
        title: fastpr_lab::TITLE,
        transfers: true,
        paths: &[
            "crates/recovery",
            "crates/control",
            "crates/coordinator",
            "crates/sim/src/fastpr",
            "crates/lab/src/nodes",
            "crates/lab/src/experiment",
        ],
        repetitions: 3,
        measure: fastpr_lab::measure,
        redraw: redraw_own::<fastpr_lab::FastPrReport>,
    },
    OwnFigure {
        name: compute::NAME,
        paper: compute::PAPER,
        title: compute::TITLE,
        transfers: false,
        paths: &["crates/gf", "crates/lab/src/figure/compute.rs"],
        repetitions: 9,
        measure: |_, _, folders, repetitions, say| compute::measure(folders, repetitions, say),
        redraw: redraw_own::<compute::ComputeReport>,
    },
    OwnFigure {
        name: planning::NAME,
        paper: planning::PAPER,
        title: planning::TITLE,
        transfers: false,
        paths: planning::PATHS,
        repetitions: 5,
        measure: |_, _, folders, repetitions, say| planning::measure(folders, repetitions, say),
        redraw: redraw_own::<planning::PlanningReport>,
    },
    OwnFigure {
        name: arithmetic::NAME,
        paper: arithmetic::PAPER,
        title: arithmetic::TITLE,
        transfers: false,
        paths: arithmetic::PATHS,
        repetitions: 9,
        measure: |_, _, folders, repetitions, say| arithmetic::measure(folders, repetitions, say),
        redraw: redraw_own::<arithmetic::ArithmeticReport>,
    },
];

/// The measurements of a figure that has a program of its own.
trait OwnReport: Serialize + DeserializeOwned {
    /// The name of the figure.
    const NAME: &'static str;
    /// Returns the page.
    fn page(&self) -> String;
    /// Returns the drawing.
    fn chart(&self) -> Chart;
    /// Returns a reason to distrust the measurements, if there is one.
    fn doubt(&self) -> Option<String> {
        None
    }
}

/// Whether a measurement is worth a page.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Reliable,
    /// There is a reason to distrust the measurement, but no better page.
    Doubtful(String),
    /// There is a reason to distrust the measurement, and the page from before is fresh.
    Worse(String),
}

impl Outcome {
    fn of(doubt: Option<String>, name: &str, folders: &Folders) -> Self {
        match doubt {
            None => Self::Reliable,
            Some(doubt) if pages::is_fresh(name, &folders.pages) => Self::Worse(doubt),
            Some(doubt) => Self::Doubtful(doubt),
        }
    }
}

/// Writes a report, and its page and drawing.
fn publish<R: OwnReport>(report: &R, folders: &Folders, say: Say<'_>) -> Result<(), LabError> {
    let outcome = Outcome::of(report.doubt(), R::NAME, folders);
    publish_as(outcome, R::NAME, report, folders, say, || write_own(report, folders))
}

/// Writes a report, and its page and drawing by `write`. A page that is better stays, and so does its report.
fn publish_as(
    outcome: Outcome,
    name: &str,
    report: &impl Serialize,
    folders: &Folders,
    say: Say<'_>,
    write: impl FnOnce() -> Result<(), LabError>,
) -> Result<(), LabError> {
    let keeps_page = matches!(outcome, Outcome::Worse(_));
    let file = folders.report(&if keeps_page { format!("{name}-unreliable") } else { name.to_owned() });
    write_json(&file, report)?;
    if !keeps_page {
        write()?;
        say(&format!("{}", folders.page(name, "md").display()));
    }
    match outcome {
        Outcome::Reliable => Ok(()),
        Outcome::Doubtful(doubt) | Outcome::Worse(doubt) => Err(LabError::Unreliable { doubt, report: file }),
    }
}

/// Rewrites the page and the drawing of a report.
fn redraw_own<R: OwnReport>(folders: &Folders) -> Result<(), LabError> {
    write_own::<R>(&read_report(folders, R::NAME)?, folders)
}

fn write_own<R: OwnReport>(report: &R, folders: &Folders) -> Result<(), LabError> {
    let page = doubted(report.page(), report.doubt());
    write_page(&folders.page(R::NAME, "md"), &page)?;
    report.chart().draw(&folders.page(R::NAME, "svg"))
}

/// Returns a page with a paragraph about the doubt, if there is one, below its title.
fn doubted(page: String, doubt: Option<String>) -> String {
    match doubt {
        Some(doubt) => page.replacen("\n\n", &format!("\n\n{}", pages::unreliable(&doubt)), 1),
        None => page,
    }
}

/// A row of the table of claims on a figure's page.
pub(crate) struct ClaimRow {
    /// The claim in words.
    pub(crate) what: String,
    /// The paper's number, as printed; empty if the paper has none.
    pub(crate) paper: String,
    /// Our number.
    pub(crate) here: String,
    /// The quantity of which percentages are a part; empty for other numbers.
    pub(crate) of: String,
    /// Why our number differs from the paper's; empty if the paper has none.
    pub(crate) difference: String,
}

/// Returns the heading and the table of claims.
pub(crate) fn claims_table(rows: Vec<ClaimRow>) -> String {
    let cells = |row: ClaimRow| vec![row.what, row.paper, row.here, row.of, row.difference];
    let rows: Vec<Vec<String>> = rows.into_iter().map(cells).collect();
    let columns = ["what", "paper", "here", "percent of", "the difference"];
    format!("{CLAIMS}\n\n{}", markdown_table(&columns, &rows))
}

/// Returns a fraction as a percentage.
pub(crate) fn percent(fraction: f64) -> String {
    format!("{:.1}%", fraction * 100.0)
}

/// Returns the range of some fractions as percentages.
pub(crate) fn percents(fractions: impl IntoIterator<Item = f64>) -> String {
    let (low, high) = fractions
        .into_iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    match (percent(low), percent(high)) {
        _ if low > high => "not measured".to_owned(),
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    }
}

/// A figure measured on the network.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) figure: About,
    pub(crate) scenario: Scenario,
}

/// The parts of a figure's file that are measured; the others are prose, claims and the choice of axes.
#[derive(PartialEq, Deserialize)]
struct MeasuredParts {
    figure: MeasuredAbout,
    scenario: Scenario,
}

/// Whether the machine's constants are measured.
#[derive(PartialEq, Deserialize)]
struct MeasuredAbout {
    #[serde(default)]
    time_model: bool,
}

/// The subject of a figure and the claims of its paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) paper: String,
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Quantity,
    /// Whether to show the time model of section 3.3 of the CRR paper next to the measurement.
    #[serde(default)]
    pub(crate) time_model: bool,
    /// How our set-up differs from the paper's, and why the ratios are still meaningful.
    pub(crate) note: String,
    /// The least time of a repair in seconds, if links have different rates.
    #[serde(default)]
    pub(crate) bound_s: Option<f64>,
    #[serde(default)]
    pub(crate) claim: Vec<Claim>,
}

/// The x axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Axis {
    Slice,
    Block,
    Code,
    Rate,
    Edge,
    Loss,
    Placement,
}

/// The y axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Quantity {
    Seconds,
    Throughput,
    /// Time relative to conventional repair of a Reed-Solomon code with the same number of data blocks.
    OverReedSolomon,
    /// By how many percent the time is below that of conventional repair, with all blocks on disks.
    LessThanConventional,
}

/// A quantitative claim of a paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The claim in words.
    pub(crate) text: String,
    /// The paper's number, as printed; empty if the paper has none.
    pub(crate) paper: String,
    /// Why our number differs from the paper's, in a sentence; required if the paper has a number.
    #[serde(default)]
    pub(crate) difference: String,
    pub(crate) kind: Kind,
    /// The scheme that the claim is about.
    pub(crate) of: String,
    /// The scheme to compare with.
    #[serde(default)]
    pub(crate) than: Option<String>,
    /// The quantity to compare; time by default.
    #[serde(default)]
    pub(crate) measure: Measure,
    /// Restricts the claim to this position on the x axis.
    #[serde(default)]
    pub(crate) at: Option<String>,
    /// The position on the x axis to compare with, if it differs from `at`.
    #[serde(default)]
    pub(crate) than_at: Option<String>,
    /// For percentage points: the position on the x axis of conventional repair, whose value is 100%.
    #[serde(default)]
    pub(crate) base_at: Option<String>,
    /// Restricts the claim to this rate.
    #[serde(default)]
    pub(crate) rate: Option<String>,
    /// Restricts the claim to this block size.
    #[serde(default)]
    pub(crate) block: Option<String>,
    /// Restricts the claim to this code.
    #[serde(default)]
    pub(crate) code: Option<String>,
}

/// How to compute a claim's number from the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// By how many percent the value is below that of the other scheme.
    Less,
    /// By how many percentage points of conventional repair (see `base_at`) the value is below that of the other
    /// scheme.
    Points,
    /// The value divided by that of the other scheme.
    Part,
    /// The other scheme's time divided by that of this scheme.
    Times,
    /// By how many percent the time exceeds that of a direct send.
    OverDirect,
    /// The time in seconds.
    Seconds,
    /// The throughput in megabytes per second.
    Throughput,
}

/// The quantity that a claim compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    #[default]
    Time,
    /// The 95th percentile of the time over the repetitions.
    #[serde(rename = "time-95th")]
    Time95th,
    /// Bytes sent by all helpers.
    Network,
    /// Bytes read from disk by all helpers.
    Disk,
    /// Processor seconds of all processes.
    Cpu,
}

impl Measure {
    /// The quantity in words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Time95th => "95th percentile of the time",
            Self::Network => "bytes sent",
            Self::Disk => "bytes read",
            Self::Cpu => "processor seconds",
        }
    }

    pub(crate) fn of(self, row: &Row) -> f64 {
        match self {
            Self::Time => row.time.median_s,
            Self::Time95th => percentile_95(&row.time.times_s),
            Self::Network => row.network_bytes() as f64,
            Self::Disk => row.disk_bytes() as f64,
            Self::Cpu => row.load.cpu_s,
        }
    }
}

impl Axis {
    /// Returns a row's position on the axis.
    pub(crate) fn of(self, row: &Row) -> String {
        match self {
            Self::Slice => row.case.slice.clone(),
            Self::Block => block_of(row),
            Self::Code => row.case.code.clone(),
            Self::Rate => row.case.rate.clone(),
            Self::Edge => row.case.edge.clone().unwrap_or_default(),
            Self::Loss => lost_of(row),
            Self::Placement => row.case.placement.as_ref().map_or(String::new(), |at| at.number.to_string()),
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Slice => "slice size",
            Self::Block => "block size",
            Self::Code => "code",
            Self::Rate => "rate of every link",
            Self::Edge => "rate from each helper to the client",
            Self::Loss => "lost block",
            Self::Placement => "placement of the blocks",
        }
    }
}

impl Quantity {
    pub(crate) fn of(self, row: &Row, report: &Report) -> f64 {
        match self {
            Self::Seconds => row.time.median_s,
            Self::Throughput => throughput(row),
            Self::OverReedSolomon => reed_solomon::time_over(row, report).unwrap_or(f64::NAN),
            Self::LessThanConventional => table::conventional(row, report)
                .map_or(f64::NAN, |other| (1.0 - row.time.median_s / other.time.median_s) * 100.0),
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Seconds => "seconds, median",
            Self::Throughput => "MB/s, median",
            Self::OverReedSolomon => "time over conventional repair of RS",
            Self::LessThanConventional => "% less time than conventional repair, median",
        }
    }
}

pub(crate) fn throughput(row: &Row) -> f64 {
    row.case.block_bytes as f64 / 1e6 / row.time.median_s
}

pub(crate) fn block_of(row: &Row) -> String {
    cluster::ByteSize::from_bytes(row.case.block_bytes).to_string()
}

pub(crate) fn lost_of(row: &Row) -> String {
    let lost: Vec<_> = row.case.lost.iter().map(u16::to_string).collect();
    lost.join("+")
}

/// Returns all figures that are measured on the network.
pub(crate) fn all() -> Vec<Figure> {
    FILES.iter().map(|text| parse(text)).collect()
}

fn parse(text: &str) -> Figure {
    let path = Path::new("lab/figures");
    let figure: Figure = parse_toml(text, path).unwrap_or_else(|error| panic!("a built-in figure: {error}"));
    figure.scenario.check(path).unwrap_or_else(|error| panic!("a built-in figure: {error}"));
    figure
}

/// Returns the names of all figures, in order.
pub(crate) fn names() -> Vec<String> {
    let measured = all().into_iter().map(|figure| figure.figure.name);
    let own = OWN.iter().map(|figure| figure.name.to_owned());
    let simulated = simulated::all().map(|figure| figure.name.to_owned());
    measured.chain(own).chain(simulated).collect()
}

fn own(name: &str) -> Option<&'static OwnFigure> {
    OWN.iter().find(|figure| figure.name == name)
}

/// Returns whether a figure with a program of its own transfers blocks, and the other paths on which it depends;
/// `None` for other figures.
pub(crate) fn own_paths(name: &str) -> Option<(bool, &'static [&'static str])> {
    own(name).map(|figure| (figure.transfers, figure.paths))
}

/// Returns the paths on which a simulated figure depends; `None` for a figure that is measured.
pub(crate) fn simulated_paths(name: &str) -> Option<Vec<String>> {
    simulated::paths_of(name)
}

/// Whether a measured figure repairs onto nodes, which the coordinator does.
pub(crate) fn uses_coordinator(name: &str) -> bool {
    all().iter().any(|Figure { figure, scenario }| figure.name == name && scenario.to == Destination::Node)
}

/// Whether two versions of a figure's file measure the same.
pub(crate) fn is_same_scenario(one: &str, other: &str) -> bool {
    measured_parts(one).zip(measured_parts(other)).is_some_and(|(one, other)| one == other)
}

/// Returns the measured parts of a figure's file; `None` if this version of the lab cannot read it.
fn measured_parts(text: &str) -> Option<MeasuredParts> {
    let mut parts: MeasuredParts = parse_toml(text, Path::new("lab/figures")).ok()?;
    parts.scenario.description.clear();
    Some(parts)
}

/// Simulates a figure, and writes its files. Returns `false` for a figure that is measured.
///
/// # Errors
/// If a file cannot be written.
pub(crate) fn simulate(name: &str, folders: &Folders, say: Say<'_>) -> Result<bool, LabError> {
    let Some(figure) = simulated::named(name) else { return Ok(false) };
    figure.measure(folders, say)?;
    Ok(true)
}

/// Returns the names, papers and titles of all figures, one per line.
pub(crate) fn list() -> String {
    let mut lines: Vec<_> =
        all().iter().map(|Figure { figure, .. }| line(&figure.name, &figure.paper, &figure.title)).collect();
    lines.extend(OWN.iter().map(|figure| line(figure.name, figure.paper, figure.title)));
    lines.extend(simulated::all().map(|figure| line(figure.name, figure.paper, figure.title)));
    lines.concat()
}

fn line(name: &str, paper: &str, title: &str) -> String {
    format!("{name:<13} {paper}: {title}\n")
}

/// Measures a figure, and writes its files.
///
/// # Errors
/// [`LabError`]; [`LabError::Unreliable`] once the report has been written.
pub fn measure(
    names: &Names,
    programs: &Programs,
    name: &str,
    folders: &Folders,
    repetitions: Option<u32>,
    say: Say<'_>,
) -> Result<(), LabError> {
    if let Some(own) = own(name) {
        say(&format!("== {}: {}", own.name, own.title));
        let repetitions = repetitions.unwrap_or(own.repetitions).max(1);
        return (own.measure)(names, programs, folders, repetitions, say);
    }
    if simulate(name, folders, say)? {
        return Ok(());
    }
    let mut figure = chosen(name)?;
    figure.scenario.effort.repetitions = repetitions.unwrap_or(figure.scenario.effort.repetitions).max(1);
    say(&format!("== {}: {}", figure.figure.name, figure.figure.title));
    let mut report = crate::run(names, programs, &figure.scenario, say)?;
    report.constants = figure.figure.time_model.then(Constants::measure);
    let outcome = Outcome::of(report.doubt(), name, folders);
    publish_as(outcome, name, &report, folders, say, || write(&figure, &report, folders))
}

/// Rewrites the table and the drawing of a figure from its report.
///
/// # Errors
/// [`LabError`].
pub fn redraw(name: &str, folders: &Folders) -> Result<(), LabError> {
    if let Some(own) = own(name) {
        return (own.redraw)(folders);
    }
    if simulate(name, folders, &mut |_| ())? {
        return Ok(());
    }
    let figure = chosen(name)?;
    let report: Report = read_report(folders, &figure.figure.name)?;
    write(&figure, &report, folders)
}

/// Reads the report of a figure.
fn read_report<T: DeserializeOwned>(folders: &Folders, name: &str) -> Result<T, LabError> {
    let path = folders.report(name);
    let text = fs::read(&path).map_err(LabError::file("read", &path))?;
    serde_json::from_slice(&text).map_err(|error| LabError::file("read", &path)(std::io::Error::other(error)))
}

fn chosen(name: &str) -> Result<Figure, LabError> {
    let found = all().into_iter().find(|figure| figure.figure.name == name);
    found.ok_or_else(|| LabError::NoFigure { name: name.to_owned() })
}

fn write(figure: &Figure, report: &Report, folders: &Folders) -> Result<(), LabError> {
    let about = &figure.figure;
    write_page(&folders.page(&about.name, "md"), &table::markdown(about, report))?;
    let (ticks, mut series) = table::places(about, report);
    series.extend(bounds::of(about, report, &ticks));
    let chart = Chart {
        title: format!("{}: {}", about.paper, about.title),
        x: about.x.label(),
        y: about.y.label(),
        marks: marks::of(about, report, &ticks),
        ticks,
        series,
        bars: matches!(about.x, Axis::Code | Axis::Loss | Axis::Placement),
    };
    chart.draw(&folders.page(&about.name, "svg"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan_cost::plan_cost;

    #[test]
    fn every_combination_has_a_plan() {
        for Figure { scenario, .. } in all() {
            for (code, bytes) in scenario
                .code
                .iter()
                .flat_map(|code| scenario.block_bytes.iter().map(move |bytes| (code, bytes)))
            {
                for way in scenario.ways() {
                    let plan = plan_cost(code, bytes.bytes(), &scenario.loss.losses[0], way, None);
                    plan.unwrap_or_else(|error| panic!("{}, {code} by {way}: {error}", scenario.name));
                }
            }
        }
    }

    #[test]
    fn every_figure_is_well_formed_and_listed() {
        let figures = all();
        let listed = list();
        for Figure { figure, scenario } in &figures {
            assert_eq!(figure.name, scenario.name);
            assert!(listed.contains(&format!("{} ", figure.name)), "{}", figure.name);
            let schemes: Vec<_> = scenario.ways().iter().map(ToString::to_string).collect();
            let is_placed = scenario.effort.placements > 1;
            assert_eq!(is_placed, figure.x == Axis::Placement, "{}", figure.name);
            for claim in &figure.claim {
                let is_explained = claim.difference.ends_with('.');
                assert_eq!(is_explained, !claim.paper.is_empty(), "{}: {}", figure.name, claim.text);
                assert!(claim.base_at.is_none() || claim.kind == Kind::Points, "{}", figure.name);
                for scheme in std::iter::once(&claim.of).chain(&claim.than) {
                    assert!(schemes.contains(scheme), "{}: {scheme} is not measured", figure.name);
                }
            }
        }
        assert!(matches!(chosen("tos21-9z"), Err(LabError::NoFigure { .. })));
    }

    #[test]
    fn an_unreliable_measurement_does_not_replace_a_better_page() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { pages: folder.path().join("pages"), reports: folder.path().to_owned() };
        let publish = |outcome, report: &str| {
            let write = || write_page(&folders.page("x", "md"), report);
            publish_as(outcome, "x", &report, &folders, &mut |_| (), write)
        };
        let files =
            || ["x.json", "pages/x.md"].map(|file| fs::read_to_string(folder.path().join(file)).unwrap());
        let doubt = || "it rained".to_owned();
        let refused = publish(Outcome::Doubtful(doubt()), "bad").unwrap_err().to_string();
        assert!(refused.contains("not reliable: it rained"), "{refused}");
        assert_eq!(files(), ["\"bad\"\n", "bad"]);
        publish(Outcome::Reliable, "good").unwrap();
        let refused = publish(Outcome::Worse(doubt()), "worse").unwrap_err().to_string();
        assert!(refused.contains("x-unreliable.json"), "{refused}");
        assert_eq!(files(), ["\"good\"\n", "good"]);
        let nothing = Folders { pages: "/nowhere".into(), reports: "/nowhere".into() };
        assert_eq!(Outcome::of(Some(doubt()), "tos21-8a", &nothing), Outcome::Doubtful(doubt()));
        assert_eq!(Outcome::of(None, "tos21-8a", &nothing), Outcome::Reliable);
    }

    #[test]
    fn a_doubt_stands_below_the_title() {
        let page = "# T\n\n![T](x.svg)\n\nN.\n".to_owned();
        let expected = "# T\n\n**These figures are not reliable: it rained.**\n\n![T](x.svg)\n\nN.\n";
        assert_eq!(doubted(page.clone(), Some("it rained".to_owned())), expected);
        assert_eq!(doubted(page.clone(), None), page);
    }
}
