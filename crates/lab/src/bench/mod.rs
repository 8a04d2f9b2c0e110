//! `mend lab bench`: measures each of our targets and checks whether it is met.
//!
//! Each scenario is a part of a report that is kept, so an interrupted run continues on the same commit and
//! machine.

mod cold_reads;
mod small_reads;
mod targets;

use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::command::write_page;
use crate::error::LabError;
use crate::finding;
pub use crate::finding::{Finding, Verdict};
use crate::folders::Folders;
use crate::kept;
use crate::lab_cluster::Programs;
use crate::machine::Machine;
use crate::network::Names;
use crate::pages::unreliable;
use crate::parts::{Parts, unwritten};
use crate::report::Report;
use crate::run::Say;
use crate::scenario::{Scenario, ScenarioError};

const FILES: [&str; 9] = [
    include_str!("../../../../lab/bench/gigabit.toml"),
    include_str!("../../../../lab/bench/client.toml"),
    include_str!("../../../../lab/bench/node.toml"),
    include_str!("../../../../lab/bench/four.toml"),
    include_str!("../../../../lab/bench/flat.toml"),
    include_str!("../../../../lab/bench/small.toml"),
    include_str!("../../../../lab/bench/formulas.toml"),
    include_str!("../../../../lab/bench/unshaped.toml"),
    include_str!("../../../../lab/bench/cold-reads.toml"),
];
const SMALL_READS: &str = "many-small-reads";

/// The results of a part: a scenario, or the many small reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Part {
    findings: Vec<Finding>,
    /// All figures of a scenario that was measured.
    report: Option<Report>,
}

/// Measures the parts whose names contain `only`; without `only`, the parts that the kept report lacks, or
/// all. Writes `bench.md` once no part is lacking, and the report `bench.json` after each part. Fails if a
/// target is missed although the machine is fast enough for it, or if other programs disturbed the
/// measurements too much.
///
/// # Errors
/// [`LabError`].
pub fn run(
    names: &Names,
    programs: &Programs,
    folders: &Folders,
    only: Option<&str>,
    say: Say<'_>,
) -> Result<ExitCode, LabError> {
    let scenarios = scenarios()?;
    let all = part_names(&scenarios);
    let mut parts: Parts<Part> = kept::resume(&folders.report("bench"), Machine::this())?;
    let due = match only {
        Some(text) => all.iter().copied().filter(|name| name.contains(text)).collect(),
        None => parts.due(&all),
    };
    if due.is_empty() {
        eprintln!("no part has such a name; the parts are {}", all.join(", "));
        return Ok(ExitCode::FAILURE);
    }
    for &name in &due {
        say(&format!("== {name}"));
        let scenario = scenarios.iter().find(|scenario| scenario.name == name);
        parts.replace(name, measure(names, programs, scenario, say)?);
        kept::save(&parts, &folders.report("bench"))?;
    }
    conclude(&parts, &all, if only.is_some() { &due } else { &all }, folders)
}

/// Prints the findings on the parts that were asked for, and writes the page if no part is lacking.
fn conclude(
    parts: &Parts<Part>,
    all: &[&str],
    asked: &[&str],
    folders: &Folders,
) -> Result<ExitCode, LabError> {
    let findings = findings_of(parts, asked);
    println!("{}", finding::table(&findings));
    let file = folders.page("bench", "md");
    match parts.lacking(all) {
        lacking if lacking.is_empty() => write_page(&file, &page(parts, all))?,
        lacking => eprintln!("{}", unwritten(&file, &lacking)),
    }
    let doubts: Vec<_> = reports_of(parts, asked).filter_map(doubt).collect();
    doubts.iter().for_each(|doubt| eprintln!("not reliable: {doubt}"));
    let is_bad = finding::any_fails(&findings) || !doubts.is_empty();
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn scenarios() -> Result<Vec<Scenario>, ScenarioError> {
    FILES.iter().map(|text| Scenario::parse(text, Path::new("lab/bench"))).collect()
}

fn part_names(scenarios: &[Scenario]) -> Vec<&str> {
    scenarios.iter().map(|scenario| scenario.name.as_str()).chain([SMALL_READS]).collect()
}

/// Measures a scenario, or the many small reads if there is none.
fn measure(
    names: &Names,
    programs: &Programs,
    scenario: Option<&Scenario>,
    say: Say<'_>,
) -> Result<Part, LabError> {
    let Some(scenario) = scenario else {
        return Ok(Part { findings: small_reads::many_small_reads(names, programs)?, report: None });
    };
    match crate::run(names, programs, scenario, say) {
        Ok(report) => Ok(Part { findings: targets::findings_of(&report), report: Some(report) }),
        Err(error @ LabError::NoDevice { .. }) => Ok(Part::not_measured(scenario, &error)),
        Err(error) => Err(error),
    }
}

impl Part {
    /// The result of a scenario that this machine does not permit.
    fn not_measured(scenario: &Scenario, reason: &LabError) -> Self {
        let finding = Finding {
            what: scenario.description.clone(),
            target: String::new(),
            measured: String::new(),
            verdict: Verdict::NotMeasured,
            marks: reason.to_string(),
        };
        Self { findings: vec![finding], report: None }
    }
}

/// Returns the findings on these parts, in the order of `names`.
fn findings_of(parts: &Parts<Part>, names: &[&str]) -> Vec<Finding> {
    names.iter().filter_map(|name| parts.of(name)).flat_map(|part| part.findings.clone()).collect()
}

fn reports_of<'a>(parts: &'a Parts<Part>, names: &[&str]) -> impl Iterator<Item = &'a Report> {
    names.iter().filter_map(|name| parts.of(name)?.report.as_ref())
}

/// Returns a reason to distrust a scenario's figures, if there is one: a failed self-check, or rows that
/// other programs disturbed in every repetition. A self-check that failed because the processors are too slow
/// is ignored.
fn doubt(report: &Report) -> Option<String> {
    let is_off = |check: &&Check| !check.holds() && !check.cpu_bound;
    let off = report.checks.iter().find(is_off).map(Check::summary);
    Some(format!("{}: {}", report.scenario.name, off.or_else(|| report.disturbance())?))
}

fn page(parts: &Parts<Part>, names: &[&str]) -> String {
    let details: String = reports_of(parts, names)
        .map(|report| format!("\n## {}\n\n{}", report.scenario.name, report.to_markdown()))
        .collect();
    let (machine, findings) = (parts.machine.summary(), findings_of(parts, names));
    let doubts: Vec<String> = reports_of(parts, names).filter_map(doubt).collect();
    let warning = if doubts.is_empty() { String::new() } else { unreliable(&doubts.join("; ")) };
    format!("# Targets\n\n{warning}{machine}\n\n{ABOUT}\n{}{details}", finding::table(&findings))
}

const ABOUT: &str = "\
Every figure is relative to a baseline without Mend in the same run: times to a direct send of one block, CPU seconds of
all processes to a bare chain (as many relays as the code has data blocks, which only receive, XOR and send; with the cheapest
of the measured slice sizes). A target is not judged if the processors already limit the baseline.

Connections that carry blocks are not encrypted, except in rows with `encrypted`. By default, Mend encrypts them if any helper
can be reached beyond loopback. Reads per rebuilt block are measured with no block in memory. *Device reads* are the block
device's, other programs included; the other reads are those of helpers from files, page cache included. 1% more than the target
is accepted, for checksum lists and counting errors.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_scenarios_are_well_formed() {
        let scenarios = scenarios().unwrap_or_else(|error| panic!("{error}"));
        for scenario in &scenarios {
            assert!(scenario.bare_chain.is_some(), "{}: nothing to hold its CPU time against", scenario.name);
        }
        let names = part_names(&scenarios);
        assert_eq!(names[..4], ["gigabit", "client", "node", "four"]);
        assert_eq!(names[4..], ["flat", "small", "formulas", "unshaped", "cold-reads", SMALL_READS]);
    }

    #[test]
    fn small_blocks_are_also_read_over_encrypted_edges() {
        let scenarios = scenarios().unwrap();
        let small = scenarios.iter().find(|scenario| scenario.name == "small").unwrap();
        let ways: Vec<String> = small.ways().iter().map(ToString::to_string).collect();
        assert_eq!(ways, ["pipelined", "pipelined encrypted"]);
    }

    fn part(what: &str, verdict: Verdict) -> Part {
        let (what, empty) = (what.to_owned(), String::new);
        let finding = Finding { what, target: empty(), measured: empty(), verdict, marks: empty() };
        Part { findings: vec![finding], report: None }
    }

    #[test]
    fn a_run_of_a_single_part_does_not_replace_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders { pages: folder.path().join("pages"), reports: folder.path().join("reports") };
        let (file, all) = (folders.page("bench", "md"), ["a", "b"]);
        std::fs::create_dir_all(&folders.pages).unwrap();
        std::fs::write(&file, "the page").unwrap();
        let mut parts = Parts::new(Machine::this());
        parts.replace("a", part("the first target", Verdict::Holds));
        conclude(&parts, &all, &["a"], &folders).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "the page");
        parts.replace("b", part("the second target", Verdict::Fails));
        let code = conclude(&parts, &all, &["a"], &folders).unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS), "only `a` was asked for");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("the first target") && text.contains("MISSES"), "{text}");
        assert!(text.contains("not encrypted, except in rows with `encrypted`"), "{text}");
        let code = conclude(&parts, &all, &all, &folders).unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::FAILURE));
    }

    #[test]
    fn a_machine_without_a_block_device_lacks_one_verdict_only() {
        let scenarios = scenarios().unwrap();
        let part = Part::not_measured(&scenarios[8], &LabError::NoDevice { path: "/dev/shm/x".into() });
        let table = finding::table(&part.findings);
        assert!(table.contains("not judged: not measured") && table.contains("TMPDIR"), "{table}");
        assert!(!finding::any_fails(&part.findings));
    }
}
