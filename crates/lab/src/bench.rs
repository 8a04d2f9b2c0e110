//! Our targets: each measured on the network, in one run, and whether it holds.

use std::path::Path;
use std::process::ExitCode;

use repair::Scheme;

use crate::command::{Folders, write_json, write_page};
use crate::error::LabError;
use crate::fleet::{Fleet, Programs};
use crate::machine::Machine;
use crate::meter::Meter;
use crate::network::{Names, Network, Place};
use crate::order::{Answer, Expected, Order};
use crate::report::{Report, Row, markdown_table, median};
use crate::run::{Say, write_noise};
use crate::scenario::Scenario;
use crate::topology::{Rate, Topology};

const FILES: [(&str, &str); 5] = [
    ("1 Gb/s", include_str!("../../../lab/bench/gigabit.toml")),
    ("flat in k", include_str!("../../../lab/bench/flat.toml")),
    ("small blocks", include_str!("../../../lab/bench/small.toml")),
    ("formulas", include_str!("../../../lab/bench/formulas.toml")),
    ("unshaped", include_str!("../../../lab/bench/unshaped.toml")),
];
const BLOCK: u64 = 64 << 20;
const SMALL_READS: u32 = 1000;
const SMALL_BYTES: u64 = 4096;
/// What a coordinator and a helper may need for so many small reads.
const MEMORY_LIMIT: u64 = 256 << 20;

/// A target and what was measured of it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Finding {
    /// What is measured.
    pub what: String,
    /// What it shall be.
    pub target: String,
    /// What it is.
    pub measured: String,
    /// Whether it is.
    pub holds: bool,
    /// What to know before it is believed.
    pub marks: String,
}

/// Measures all targets and writes `bench.md`, and `bench.json` beside the other reports.
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
    for (name, text) in FILES.iter().filter(|(name, _)| wanted(name)) {
        say(&format!("== {name}"));
        let scenario = Scenario::parse(text, Path::new("lab/bench"))?;
        let report = crate::run(names, programs, &scenario, say)?;
        findings.extend(findings_of(name, &report));
        reports.push(report);
    }
    if wanted("unshaped chain") && !reports.is_empty()
        || only.is_some_and(|only| "unshaped chain".contains(only))
    {
        say("== bare chain");
        findings.extend(beside_bare_chain(names, programs, reports.last())?);
    }
    if wanted("many small reads") {
        say("== many small reads");
        findings.extend(many_small_reads(names, programs)?);
    }
    let page = page(&findings, &reports);
    write_page(&folders.page("bench", "md"), &page)?;
    write_json(&folders.report("bench"), &(&findings, &reports))?;
    println!("{}", table(&findings));
    let all_hold = findings.iter().all(|finding| finding.holds) && reports.iter().all(Report::is_trusted);
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn page(findings: &[Finding], reports: &[Report]) -> String {
    let heading = match reports.first() {
        Some(report) => report.heading(),
        None => format!("Commit {}.\n\n", Machine::this().commit),
    };
    let details: String = reports
        .iter()
        .map(|report| format!("\n## {}\n\n{}", report.scenario.name, report.to_markdown()))
        .collect();
    format!("# Targets\n\n{heading}{}{details}", table(findings))
}

fn table(findings: &[Finding]) -> String {
    let cells = |finding: &Finding| {
        let Finding { what, target, measured, holds, marks } = finding.clone();
        vec![what, target, measured, if holds { "holds" } else { "DOES NOT HOLD" }.to_owned(), marks]
    };
    markdown_table(
        &["what", "target", "measured", "verdict", "marks"],
        &findings.iter().map(cells).collect::<Vec<_>>(),
    )
}

fn findings_of(name: &str, report: &Report) -> Vec<Finding> {
    let rows = report.rows.iter();
    match name {
        "1 Gb/s" => gigabit(report),
        "flat in k" => rows.map(|row| over_direct(row, 1.02)).collect(),
        "small blocks" => rows.map(|row| over_direct(row, small_target(row.block_bytes))).collect(),
        "formulas" => rows.filter_map(beside_formula).collect(),
        _ => Vec::new(),
    }
}

fn small_target(block_bytes: u64) -> f64 {
    match block_bytes >> 20 {
        0..=1 => 1.5,
        2..=4 => 1.15,
        _ => 1.04,
    }
}

fn about(row: &Row) -> String {
    let block = cluster::ByteSize::from_bytes(row.block_bytes);
    format!("{} {}, {block}, {}", row.scheme, row.code, row.rate)
}

fn finding(row: &Row, what: String, target: String, measured: String, holds: bool) -> Finding {
    Finding { what, target, measured, holds, marks: row.marks() }
}

fn over_direct(row: &Row, most: f64) -> Finding {
    let what = format!("{} / direct send", about(row));
    finding(row, what, format!("≤ {most}"), format!("{:.4}", row.ratio), row.ratio <= most)
}

fn gigabit(report: &Report) -> Vec<Finding> {
    let of = |scheme: Scheme| report.rows.iter().find(|row| row.scheme == scheme.name());
    let (Some(pipelined), Some(conventional)) = (of(Scheme::Pipelined), of(Scheme::Conventional)) else {
        return Vec::new();
    };
    let gain = conventional.median_s / pipelined.median_s;
    let first_ms = pipelined.first_byte_s.unwrap_or(f64::NAN) * 1e3;
    let named = |what: &str| format!("{what}, {}", about(pipelined));
    vec![
        over_direct(pipelined, 1.02),
        finding(
            pipelined,
            named("conventional / pipelined"),
            "≥ 9.7".to_owned(),
            format!("{gain:.2}"),
            gain >= 9.7,
        ),
        finding(
            pipelined,
            named("CPU seconds of all nodes"),
            "≤ 1.0".to_owned(),
            format!("{:.2}", pipelined.cpu_s),
            pipelined.cpu_s <= 1.0,
        ),
        finding(
            pipelined,
            named("first byte of a degraded read, ms"),
            "≤ 10".to_owned(),
            format!("{first_ms:.1}"),
            first_ms <= 10.0,
        ),
    ]
}

fn beside_formula(row: &Row) -> Option<Finding> {
    let formula = row.formula?;
    let off = row.ratio / formula - 1.0;
    let what = format!("{}, timeslots by the formula", about(row));
    let measured = format!("{:.3} ({:+.1}%)", row.ratio, off * 100.0);
    Some(finding(row, what, format!("{formula:.3} ± 3%"), measured, off.abs() <= 0.03))
}

/// The engine beside a chain of the same length that does nothing but receive, XOR and send, both unshaped.
fn beside_bare_chain(
    names: &Names,
    programs: &Programs,
    unshaped: Option<&Report>,
) -> Result<Vec<Finding>, LabError> {
    let row = unshaped.and_then(|report| {
        report.rows.iter().find(|row| row.rate == Rate::Unshaped.to_string() && row.scheme == "pipelined")
    });
    let Some(row) = row else { return Ok(Vec::new()) };
    let mut network = Network::up(names, &Topology::flat(row.data_blocks as u16, Rate::Unshaped))?;
    let mut fleet = Fleet::start(&mut network, programs)?;
    let address = fleet.chain(&network, row.data_blocks as u16, 32 << 10)?;
    let mut times = Vec::new();
    for _ in 0..7 {
        if let Answer::Took(took) = fleet.ask(&network, &Order::Direct { address, bytes: BLOCK })? {
            times.push(took.ns as f64 / 1e9);
        }
    }
    let bare = median(&times);
    let ratio = row.median_s / bare;
    let what = format!("{} / bare chain of {} relays ({bare:.3} s)", about(row), row.data_blocks);
    Ok(vec![finding(row, what, "≤ 1.6".to_owned(), format!("{ratio:.2}"), ratio <= 1.6)])
}

fn many_small_reads(names: &Names, programs: &Programs) -> Result<Vec<Finding>, LabError> {
    let gigabit: Rate = "1gbit".parse()?;
    let mut network = Network::up(names, &Topology::flat(14, gigabit))?;
    let mut fleet = Fleet::start(&mut network, programs)?;
    let block_bytes = 16 << 20;
    let source = fleet.work().join("many.source");
    write_noise(&source, 10 * block_bytes, 1).map_err(LabError::file("write", &source))?;
    let (name, code) = ("many".to_owned(), "rs-14-10".to_owned());
    let put = Order::Put { path: source.clone(), name: name.clone(), code, block_bytes };
    fleet.ask_loader(&network, &put)?;
    let Answer::Layout { stripe, .. } = fleet.ask_loader(&network, &Order::Layout { name })? else {
        return Ok(Vec::new());
    };
    let order = Order::Many {
        stripe,
        block: 3,
        block_bytes,
        reads: SMALL_READS,
        bytes: SMALL_BYTES,
        scheme: Scheme::Auto,
        expected: Expected { block: 3, path: source, offset: 3 * block_bytes },
    };
    let members: Vec<String> =
        (0..14).map(|index| Place::Helper(index).to_string()).chain(["coordinator".to_owned()]).collect();
    let peak =
        |fleet: &Fleet| members.iter().filter_map(|member| fleet.peak_memory(member)).max().unwrap_or(0);
    let before = peak(&fleet);
    let meter = Meter::start(&network)?;
    let answer = fleet.ask(&network, &order)?;
    let metered = meter.stop()?;
    let Answer::Many { latencies_ns, failures } = answer else { return Ok(Vec::new()) };
    let grown = peak(&fleet).saturating_sub(before);
    let at = |part: f64| {
        let index = (latencies_ns.len() as f64 * part) as usize;
        latencies_ns
            .get(index.min(latencies_ns.len().saturating_sub(1)))
            .map_or(f64::NAN, |&ns| ns as f64 / 1e6)
    };
    let marks = match (failures.first(), metered.disturbed) {
        (Some(first), _) => format!("first: {first}"),
        (None, true) => "disturbed".to_owned(),
        (None, false) => String::new(),
    };
    let what = format!("{SMALL_READS} concurrent degraded reads of 4 KiB by one client, rs-14-10, 1gbit");
    let times = format!("{} failed; p50 {:.0} ms, p99 {:.0} ms", failures.len(), at(0.5), at(0.99));
    let memory = format!("{:.1} MiB above idle at most in one process", grown as f64 / f64::from(1 << 20));
    Ok(vec![
        Finding {
            what: what.clone(),
            target: "no failure".to_owned(),
            measured: times,
            holds: failures.is_empty(),
            marks: marks.clone(),
        },
        Finding {
            what,
            target: "≤ 256 MiB".to_owned(),
            measured: memory,
            holds: grown <= MEMORY_LIMIT,
            marks,
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_scenarios_are_well_formed() {
        for (name, text) in FILES {
            Scenario::parse(text, Path::new(name)).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn small_blocks_have_looser_targets() {
        let targets: Vec<_> = [1, 4, 8, 32].map(|mib| small_target(mib << 20)).into();
        assert_eq!(targets, [1.5, 1.15, 1.04, 1.04]);
    }
}
