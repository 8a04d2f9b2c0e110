//! Our targets for the scenarios in `lab/bench`.
//!
//! Times are compared with a direct send of one block, and processor seconds with a bare chain of relays.
//! Measurements of these two baselines alternate with the repairs, so a slow machine affects the baselines as
//! well.

use repair::Scheme;

use super::cold_reads;
use crate::finding::{Finding, Verdict};
use crate::report::{Report, Row};
use crate::run::BARE_CHAIN;

/// The target for a client's read: the highest acceptable ratio of its processor seconds to those of the bare
/// chain.
const CLIENT_CPU: f64 = 1.6;
/// The same target for a repair to a node. It is higher, because the node also writes, hashes, syncs and
/// reads back.
const NODE_CPU: f64 = 2.0;
/// The target for four lost blocks of RS(14,10): the highest acceptable ratio of the time to that of a direct
/// send.
const FOUR_LOST: f64 = 1.35;
/// The rate of the links for which that target is set. Two processors are too slow for faster ones.
const FOUR_LOST_RATE: &str = "200mbit";

/// Returns the findings on a scenario's targets. The scenario's name determines the targets.
pub(super) fn findings_of(report: &Report) -> Vec<Finding> {
    let repairs = || report.rows.iter().filter(|row| row.case.scheme != BARE_CHAIN);
    match report.scenario.name.as_str() {
        "gigabit" => gigabit(report),
        "client" => repairs().flat_map(|row| [over_direct(row, 1.02), over_bare(row, CLIENT_CPU)]).collect(),
        "node" => {
            repairs().flat_map(|row| [over_direct(row, node_target(row)), over_bare(row, NODE_CPU)]).collect()
        }
        "four" => repairs().map(four_lost).collect(),
        "flat" => repairs().map(|row| over_direct(row, 1.02)).collect(),
        "small" => repairs().map(|row| over_direct(row, small_target(row.case.block_bytes))).collect(),
        "formulas" => repairs().filter_map(beside_formula).collect(),
        "unshaped" => beside_bare_chain(report).into_iter().collect(),
        "cold-reads" => repairs().flat_map(cold_reads::findings).collect(),
        _ => Vec::new(),
    }
}

/// Returns the target for a read of a small block: the highest acceptable ratio of its time to that of a
/// direct send. The targets for 1 MiB and 8 MiB both leave about 3.5 ms for the start at 500 Mb/s, and so
/// does the one for 4 MiB.
fn small_target(block_bytes: u64) -> f64 {
    match block_bytes >> 20 {
        0..=1 => 1.25,
        2..=4 => 1.06,
        _ => 1.03,
    }
}

/// Returns the target for a repair to a node: the highest acceptable ratio of its time to that of a direct
/// send. Publishing takes a fixed time after the last slice, so the target is higher on faster links.
fn node_target(row: &Row) -> f64 {
    if row.case.rate == "200mbit" { 1.03 } else { 1.06 }
}

fn about(row: &Row) -> String {
    let block = cluster::ByteSize::from_bytes(row.case.block_bytes);
    format!("{} {}, {block}, {}", row.case.scheme, row.case.code, row.case.rate)
}

/// Describes a repair to nodes.
fn onto_nodes(row: &Row) -> String {
    match row.case.lost.len() {
        1 => format!("{}, to a node", about(row)),
        lost => format!("{}, {lost} lost blocks to {lost} nodes", about(row)),
    }
}

fn name(row: &Row) -> String {
    // The time to the first byte is measured for all repairs except those to nodes.
    if row.time.first_byte_s.is_some() { about(row) } else { onto_nodes(row) }
}

fn over_direct(row: &Row, most: f64) -> Finding {
    let what = format!("{} / direct send", name(row));
    Finding::of(row, what, format!("≤ {most}"), format!("{:.4}", row.time.ratio), row.time.ratio <= most)
}

fn over_bare(row: &Row, most: f64) -> Finding {
    let what = format!("{}, CPU / bare chain", name(row));
    let ratio = row.cpu_ratio().unwrap_or(f64::NAN);
    let measured =
        format!("{ratio:.2} ({:.2} s / {:.2} s)", row.load.cpu_s, row.load.bare_cpu_s.unwrap_or(f64::NAN));
    Finding::of(row, what, format!("≤ {most}"), measured, ratio <= most)
}

fn four_lost(row: &Row) -> Finding {
    let cpu = row.cpu_ratio().unwrap_or(f64::NAN);
    let what = format!("{} / direct send", onto_nodes(row));
    let measured = format!("{:.2} (CPU / bare chain: {cpu:.2})", row.time.ratio);
    match row.case.scheme == Scheme::Auto.name() && row.case.rate == FOUR_LOST_RATE {
        true => Finding::of(row, what, format!("≤ {FOUR_LOST}"), measured, row.time.ratio <= FOUR_LOST),
        false => Finding::told(row, what, measured),
    }
}

fn gigabit(report: &Report) -> Vec<Finding> {
    let of = |scheme: Scheme| report.rows.iter().find(|row| row.case.scheme == scheme.name());
    let (Some(pipelined), Some(conventional)) = (of(Scheme::Pipelined), of(Scheme::Conventional)) else {
        return Vec::new();
    };
    let gain = conventional.time.median_s / pipelined.time.median_s;
    let first_ms = pipelined.time.first_byte_s.unwrap_or(f64::NAN) * 1e3;
    let judged = |what: &str, target: &str, measured: String, holds: bool| {
        let what = format!("{what}, {}", about(pipelined));
        Finding::of(pipelined, what, target.to_owned(), measured, holds)
    };
    vec![
        over_direct(pipelined, 1.02),
        judged("conventional / pipelined", "≥ 9.7", format!("{gain:.2}"), gain >= 9.7),
        over_bare(pipelined, CLIENT_CPU),
        judged("first byte of a degraded read, ms", "≤ 10", format!("{first_ms:.1}"), first_ms <= 10.0),
    ]
}

fn beside_formula(row: &Row) -> Option<Finding> {
    let formula = row.formula?;
    let off = row.time.ratio / formula - 1.0;
    let what = format!("{}, timeslots by the formula", about(row));
    let measured = format!("{:.3} ({:+.1}%)", row.time.ratio, off * 100.0);
    Some(Finding::of(row, what, format!("{formula:.3} ± 3%"), measured, off.abs() <= 0.03))
}

/// Compares pipelined repair with the bare chain over unshaped links, where the processors are the
/// bottleneck.
fn beside_bare_chain(report: &Report) -> Option<Finding> {
    let row = report.rows.iter().find(|row| row.case.scheme == Scheme::Pipelined.name())?;
    let bare = report.rows.iter().find(|row| row.case.scheme == BARE_CHAIN)?;
    let ratio = row.time.median_s / bare.time.median_s;
    let relays = row.case.data_blocks;
    let what = format!("{} / bare chain of {relays} relays ({:.3} s)", about(row), bare.time.median_s);
    let verdict = if row.is_worthless() { Verdict::Disturbed } else { Verdict::of(ratio <= 1.6) };
    let (target, measured) = ("≤ 1.6".to_owned(), format!("{ratio:.2}"));
    Some(Finding { what, target, measured, verdict, marks: row.marks() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Case, Load, Times};

    fn row() -> Row {
        let case = Case {
            scheme: Scheme::Pipelined.name().to_owned(),
            rate: "500mbit".to_owned(),
            block_bytes: 64 << 20,
            lost: vec![0],
            ..Case::default()
        };
        let time = Times { times_s: vec![1.05; 3], ratio: 1.05, ..Times::default() };
        Row { case, time, load: load(), ..Row::default() }
    }

    fn load() -> Load {
        Load { cpu_s: 1.5, bare_cpu_s: Some(1.0), ..Load::default() }
    }

    #[test]
    fn small_blocks_have_looser_targets() {
        let targets: Vec<_> = [1, 4, 8, 32].map(|mib| small_target(mib << 20)).into();
        assert_eq!(targets, [1.25, 1.06, 1.03, 1.03]);
    }

    #[test]
    fn four_lost_blocks_are_judged_with_the_default_scheme_on_slow_links() {
        let finding = |scheme: &str, rate: &str, ratio| {
            let case = Case {
                scheme: scheme.to_owned(),
                rate: rate.to_owned(),
                lost: vec![0, 1, 2, 3],
                ..row().case
            };
            four_lost(&Row { case, time: Times { ratio, ..row().time }, ..row() })
        };
        let verdict = |scheme, rate, ratio| finding(scheme, rate, ratio).verdict;
        assert_eq!(verdict("auto", "200mbit", 1.3), Verdict::Holds);
        assert_eq!(verdict("auto", "200mbit", 1.38), Verdict::Fails);
        assert_eq!(verdict("auto", "500mbit", 1.38), Verdict::Told);
        assert_eq!(verdict("pipelined", "200mbit", 4.1), Verdict::Told);
        assert_eq!(finding("auto", "200mbit", 1.3).measured, "1.30 (CPU / bare chain: 1.50)");
    }

    #[test]
    fn targets_beyond_the_machines_capacity_are_not_judged() {
        let verdict = |row: &Row, most| over_direct(row, most).verdict;
        assert_eq!(verdict(&row(), 1.06), Verdict::Holds);
        assert_eq!(verdict(&row(), 1.02), Verdict::Fails);
        let saturated = Row { load: Load { saturated: true, ..load() }, ..row() };
        assert_eq!(verdict(&saturated, 1.02), Verdict::NotCarried);
        let disturbed = Row { load: Load { disturbed: 3, saturated: true, ..load() }, ..row() };
        assert_eq!(verdict(&disturbed, 1.02), Verdict::Disturbed);
    }

    #[test]
    fn processor_time_is_held_against_the_bare_chain() {
        let finding = over_bare(&row(), 1.6);
        assert_eq!((finding.verdict, &finding.measured[..]), (Verdict::Holds, "1.50 (1.50 s / 1.00 s)"));
        let failing = [Load { cpu_s: 1.7, ..load() }, Load { bare_cpu_s: None, ..load() }];
        for load in failing {
            assert_eq!(over_bare(&Row { load, ..row() }, 1.6).verdict, Verdict::Fails);
        }
    }
}
