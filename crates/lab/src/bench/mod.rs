//! `mend lab bench`: measures each of our targets in one run and checks whether it is met.

mod cold_reads;
mod small_reads;
mod targets;

use std::path::Path;
use std::process::ExitCode;

use crate::check::Check;
use crate::command::{Folders, write_json, write_page};
use crate::error::LabError;
use crate::finding;
pub use crate::finding::{Finding, Verdict};
use crate::lab_cluster::Programs;
use crate::machine::Machine;
use crate::network::Names;
use crate::report::Report;
use crate::run::Say;
use crate::scenario::Scenario;

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

/// Measures all targets and writes `bench.md`, plus `bench.json` in the folder of reports. Fails if a target
/// is missed although the machine is fast enough for it, or if other programs disturbed the measurements too
/// much.
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
    let wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    let (mut findings, mut reports) = (Vec::new(), Vec::new());
    for text in FILES {
        let scenario = Scenario::parse(text, Path::new("lab/bench"))?;
        if !wanted(&scenario.name) {
            continue;
        }
        say(&format!("== {}", scenario.name));
        let report = crate::run(names, programs, &scenario, say)?;
        findings.extend(targets::findings_of(&report));
        reports.push(report);
    }
    if wanted(SMALL_READS) {
        say(&format!("== {SMALL_READS}"));
        findings.extend(small_reads::many_small_reads(names, programs)?);
    }
    write_page(&folders.page("bench", "md"), &page(&findings, &reports))?;
    write_json(&folders.report("bench"), &(&findings, &reports))?;
    println!("{}", finding::table(&findings));
    let doubts: Vec<_> = reports.iter().filter_map(doubt).collect();
    doubts.iter().for_each(|doubt| eprintln!("not reliable: {doubt}"));
    Ok(if finding::any_fails(&findings) || !doubts.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns a reason to distrust a scenario's figures, if there is one: a failed self-check, or rows that
/// other programs disturbed in every repetition. A self-check that failed because the processors are too slow
/// is ignored.
fn doubt(report: &Report) -> Option<String> {
    let is_off = |check: &&Check| !check.holds() && !check.cpu_bound;
    let off = report.checks.iter().find(is_off).map(Check::summary);
    Some(format!("{}: {}", report.scenario.name, off.or_else(|| report.disturbance())?))
}

fn page(findings: &[Finding], reports: &[Report]) -> String {
    let details: String = reports
        .iter()
        .map(|report| format!("\n## {}\n\n{}", report.scenario.name, report.to_markdown()))
        .collect();
    let machine =
        reports.first().map_or_else(|| Machine::this().summary(), |report| report.machine.summary());
    format!("# Targets\n\n{machine}\n\n{ABOUT}\n{}{details}", finding::table(findings))
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
        let names = FILES.map(|text| {
            let scenario = Scenario::parse(text, Path::new("lab/bench"));
            let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
            assert!(scenario.bare_chain.is_some(), "{}: nothing to hold its CPU time against", scenario.name);
            scenario.name
        });
        assert_eq!(names[..4], ["gigabit", "client", "node", "four"]);
        assert_eq!(names[4..], ["flat", "small", "formulas", "unshaped", "cold-reads"]);
    }
}
