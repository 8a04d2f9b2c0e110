//! The findings on the targets of whole nodes.

use super::report::{Meanwhile, POLICIES, Part, READS, REQUESTORS, ReadsRow, SIXTEEN, WholeRow};
use crate::finding::{Finding, Verdict};
use crate::parts::Parts;
use crate::topology::Rate;

/// The least acceptable part of the links' bound that a recovery reaches.
const OF_BOUND: f64 = 0.95;
/// The least acceptable rate of reads during a recovery, as a part of that without one.
const OF_RATE: f64 = 0.8;
/// The highest acceptable 99th percentile of their latency, as a multiple of that without a recovery.
const OF_LATENCY: f64 = 2.0;

/// The parts whose recoveries have a target, with a description.
const RECOVERIES: [(&str, &str); 3] = [
    (SIXTEEN, "16 blocks of 16 MiB onto 13 survivors"),
    (POLICIES, "36 blocks of 8 MiB onto 15 survivors"),
    (REQUESTORS, "36 blocks of 8 MiB"),
];

/// Returns the findings on these parts.
pub(super) fn findings(parts: &Parts<Part>, names: &[&str], rate: Rate) -> Vec<Finding> {
    let recoveries = RECOVERIES.iter().filter(|(name, _)| names.contains(name)).flat_map(|(name, about)| {
        let rows = parts.of(name).map(|part| &part.whole[..]).unwrap_or_default();
        rows.iter().filter(|row| row.is_default).map(move |row| over_bound(about, row))
    });
    let reads = parts.of(READS).filter(|_| names.contains(&READS));
    recoveries.chain(reads.into_iter().flat_map(|part| during_recoveries(part, rate))).collect()
}

fn over_bound(about: &str, row: &WholeRow) -> Finding {
    let ratio = row.of_bound();
    let unbounded = ratio.is_nan().then_some(Verdict::NotMeasured);
    let doubt = row.doubts().verdict().or(unbounded);
    Finding {
        what: format!("recovery, {}: {about}, links' bound / time", row.what),
        target: format!("≥ {OF_BOUND}"),
        measured: format!("{ratio:.3} (spread {:.1}%)", row.spread() * 100.0),
        verdict: doubt.unwrap_or_else(|| Verdict::of(ratio >= OF_BOUND)),
        marks: row.marks(),
    }
}

/// Returns the findings on reads during recoveries without caps.
fn during_recoveries(part: &Part, rate: Rate) -> Vec<Finding> {
    let Some(idle) = part.reads_while(Meanwhile::AllUp) else { return Vec::new() };
    let rows = part.reads.iter().filter(|row| row.meanwhile.is_uncapped_recovery());
    rows.flat_map(|row| {
        let rest = part.of_the_rest(row, links(rate));
        beside_idle(row, idle).into_iter().chain(rest.map(|rest| of_the_rest(row, rest)))
    })
    .collect()
}

fn beside_idle(row: &ReadsRow, idle: &ReadsRow) -> [Finding; 2] {
    let rate = row.median(|run| run.per_second) / idle.median(|run| run.per_second);
    let latency = row.median(|run| run.p99_ms) / idle.median(|run| run.p99_ms);
    let finding = |quantity: &str, target: String, ratio: f64, holds: bool| Finding {
        what: format!("reads, {}: {quantity} / all helpers up", row.meanwhile),
        target,
        measured: format!("{ratio:.2}"),
        verdict: doubt(row).unwrap_or_else(|| Verdict::of(holds)),
        marks: row.marks(),
    };
    [
        finding("rate", format!("≥ {OF_RATE}"), rate, rate >= OF_RATE),
        finding("99th percentile", format!("≤ {OF_LATENCY}"), latency, latency <= OF_LATENCY),
    ]
}

fn of_the_rest(row: &ReadsRow, rest: f64) -> Finding {
    Finding {
        what: format!("recovery, {}: bandwidth used / left by reads", row.meanwhile),
        target: String::new(),
        measured: format!("{rest:.2}"),
        verdict: Verdict::Told,
        marks: row.marks(),
    }
}

fn doubt(row: &ReadsRow) -> Option<Verdict> {
    let short = row.has_short_recovery().then_some(Verdict::NotMeasured);
    row.doubts().verdict().or(short)
}

/// Returns the bandwidth of the uplinks of all helpers but the lost one during reads, in bits per second.
pub(super) fn links(rate: Rate) -> f64 {
    let one = rate.bandwidth().map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
    f64::from(super::WIDE.helpers - 1) * one
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{metered, reads, whole};
    use super::*;
    use crate::machine::Machine;

    fn parts() -> Parts<Part> {
        let mut parts = Parts::new(Machine::this());
        let recoveries = vec![whole("even", true, &[2.1, 2.0, 2.3]), whole("conventional", false, &[9.0])];
        parts.replace(SIXTEEN, Part { whole: recoveries, ..Part::default() });
        let recoveries = vec![whole("even, 1 requestor", true, &[2.2])];
        parts.replace(REQUESTORS, Part { whole: recoveries, ..Part::default() });
        let rows = vec![
            reads(Meanwhile::AllUp, 200.0, 20.0, 100.0),
            reads(Meanwhile::OneDown, 200.0, 25.0, 150.0),
            reads(Meanwhile::Recovered, 150.0, 41.0, 787.5),
            reads(Meanwhile::RecoveredLater, 160.0, 40.0, 120.0),
        ];
        parts.replace(READS, Part { reads: rows, ..Part::default() });
        parts
    }

    fn verdicts(parts: &Parts<Part>, names: &[&str]) -> Vec<Verdict> {
        findings(parts, names, "100mbit".parse().unwrap()).iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn recoveries_are_judged_by_their_median() {
        assert_eq!(verdicts(&parts(), &[SIXTEEN, REQUESTORS]), [Verdict::Holds, Verdict::Fails]);
        let rate: Rate = "100mbit".parse().unwrap();
        let first = &findings(&parts(), &[SIXTEEN], rate)[0];
        assert_eq!(first.what, "recovery, even: 16 blocks of 16 MiB onto 13 survivors, links' bound / time");
        assert_eq!((&first.target[..], &first.measured[..]), ("≥ 0.95", "0.952 (spread 14.3%)"));
    }

    #[test]
    fn reads_are_judged_by_their_rate_and_latency_without_a_recovery() {
        use Verdict::{Fails, Holds, Told};
        assert_eq!(verdicts(&parts(), &[READS]), [Fails, Fails, Told, Holds, Holds, Told]);
        let findings = findings(&parts(), &[READS], "100mbit".parse().unwrap());
        let measured: Vec<&str> = findings.iter().map(|finding| &finding.measured[..]).collect();
        assert_eq!(measured, ["0.75", "2.05", "0.49", "0.80", "2.00", "0.00"]);
    }

    #[test]
    fn doubtful_measurements_are_not_judged() {
        let mut parts = parts();
        let mut sixteen = parts.of(SIXTEEN).unwrap().clone();
        sixteen.whole[0].runs.iter_mut().for_each(|run| run.bound_s = None);
        parts.replace(SIXTEEN, sixteen);
        let mut during = parts.of(READS).unwrap().clone();
        during.reads[2].runs[0].recovery.as_mut().unwrap().outlasts = false;
        during.reads[3].runs[0].metered = metered(true);
        parts.replace(READS, during);
        use Verdict::{Disturbed, NotMeasured, Told};
        let expected = [NotMeasured, NotMeasured, NotMeasured, Told, Disturbed, Disturbed, Told];
        assert_eq!(verdicts(&parts, &[SIXTEEN, READS]), expected);
    }
}
