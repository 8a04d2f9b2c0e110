//! The results of each part, as they are kept in `nodes-RATE.json`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{LATER, TOTAL_CAPS};
use crate::finding::Verdict;
use crate::meter::{LinkBytes, Metered};
use crate::parts::Parts;
use crate::report::median;

/// The names of the parts.
pub(super) const SIXTEEN: &str = "sixteen";
pub(super) const POLICIES: &str = "policies";
pub(super) const REQUESTORS: &str = "requestors";
pub(super) const DRAINS: &str = "drains";
pub(super) const CAPS: &str = "caps";
pub(super) const READS: &str = "reads";
pub(super) const SMALL: &str = "small";
pub(super) const MANY: &str = "many";

/// The results of a part. Each part fills some of the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) whole: Vec<WholeRow>,
    pub(super) caps: Vec<CapRow>,
    pub(super) reads: Vec<ReadsRow>,
    /// The times of repairs of single stripes, while nothing else is repaired, in seconds.
    pub(super) single_s: Vec<f64>,
}

/// The repetitions of a recovery or a drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WholeRow {
    pub(super) what: String,
    /// Whether this is Mend's default way, which is repeated, judged if there is a target, and shown with its
    /// timeline.
    pub(super) is_default: bool,
    pub(super) runs: Vec<WholeRun>,
}

/// A recovered or drained node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WholeRun {
    pub(super) blocks: usize,
    pub(super) took_s: f64,
    /// The links' bound in seconds; absent if Mend printed none.
    pub(super) bound_s: Option<f64>,
    /// The most frequent bottleneck according to Mend.
    pub(super) limit: String,
    /// The time in seconds that the traffic of the busiest link direction takes at the link's rate.
    pub(super) busiest_s: f64,
    /// The reasons why plans were dropped and replaced.
    pub(super) replanned: Vec<String>,
    /// A table of the time that each step took.
    pub(super) timeline: String,
    pub(super) metered: Metered,
}

/// A cap and the measured rate, in bits per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CapRow {
    pub(super) what: String,
    pub(super) cap: f64,
    pub(super) measured: f64,
}

/// The state of the cluster during reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Meanwhile {
    AllUp,
    OneDown,
    Recovered,
    RecoveredLater,
    RecoveredCapped,
}

/// The repetitions of reads in a state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ReadsRow {
    pub(super) meanwhile: Meanwhile,
    pub(super) runs: Vec<ReadsRun>,
}

/// The reads of a window of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ReadsRun {
    pub(super) per_second: f64,
    pub(super) median_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) failed: usize,
    /// The rate at which all helpers together sent, in bits per second.
    pub(super) sent: f64,
    /// The recovery that ran at the same time.
    pub(super) recovery: Option<RecoveryRun>,
    pub(super) metered: Metered,
}

/// A recovery during reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RecoveryRun {
    /// Whether the recovery was still running at the end of the window.
    pub(super) outlasts: bool,
    pub(super) took_s: f64,
    pub(super) bound_s: Option<f64>,
}

/// The circumstances of a row's repetitions that make its figures doubtful.
pub(super) struct Doubts {
    runs: usize,
    disturbed: usize,
    cpu_bound: usize,
}

impl Doubts {
    fn of<'a>(runs: impl Iterator<Item = &'a Metered> + Clone) -> Self {
        let count = |is: fn(&Metered) -> bool| runs.clone().filter(|metered| is(metered)).count();
        Self {
            runs: runs.clone().count(),
            disturbed: count(|metered| metered.disturbed),
            cpu_bound: count(|metered| metered.cpu_bound),
        }
    }

    /// Returns the reason not to judge the row, if there is one.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        match self {
            _ if self.is_worthless() => Some(Verdict::Disturbed),
            Self { runs, cpu_bound, .. } if cpu_bound * 2 > *runs => Some(Verdict::NotCarried),
            _ => None,
        }
    }

    /// Whether other programs disturbed every repetition.
    pub(super) fn is_worthless(&self) -> bool {
        self.runs > 0 && self.disturbed == self.runs
    }

    fn marks(&self) -> Vec<String> {
        let counts = [("disturbed", self.disturbed), ("processors", self.cpu_bound)];
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        counts.map(|(name, count)| format!("{name} {count}/{}", self.runs)).collect()
    }
}

/// Returns the repetition for which `value` is nearest to the median.
fn middle<T>(runs: &[T], value: impl Fn(&T) -> f64) -> Option<&T> {
    let median = median(&runs.iter().map(&value).collect::<Vec<_>>());
    let far = |run: &T| (value(run) - median).abs();
    runs.iter().min_by(|one, other| far(one).total_cmp(&far(other)))
}

impl WholeRun {
    /// Returns the bound as a part of the time; NaN without a bound.
    pub(super) fn of_bound(&self) -> f64 {
        self.bound_s.unwrap_or(f64::NAN) / self.took_s
    }

    /// Returns the bytes that all helpers sent.
    pub(super) fn sent_bytes(&self) -> u64 {
        helpers(&self.metered).map(|link| link.sent_bytes).sum()
    }
}

impl WholeRow {
    /// Returns a row without repetitions.
    pub(super) fn new(what: &str, is_default: bool) -> Self {
        Self { what: what.to_owned(), is_default, runs: Vec::new() }
    }

    /// The median of a value of the repetitions.
    pub(super) fn median(&self, value: impl Fn(&WholeRun) -> f64) -> f64 {
        median(&self.runs.iter().map(value).collect::<Vec<_>>())
    }

    /// The median time, in seconds.
    pub(super) fn took_s(&self) -> f64 {
        self.median(|run| run.took_s)
    }

    /// The median of the bound as a part of the time.
    pub(super) fn of_bound(&self) -> f64 {
        self.median(WholeRun::of_bound)
    }

    /// Returns the longest minus the shortest time, relative to the median.
    pub(super) fn spread(&self) -> f64 {
        let times = || self.runs.iter().map(|run| run.took_s);
        let (longest, shortest) = (times().fold(f64::NAN, f64::max), times().fold(f64::NAN, f64::min));
        (longest - shortest) / self.took_s()
    }

    /// The repetition with the median time.
    pub(super) fn middle(&self) -> Option<&WholeRun> {
        middle(&self.runs, |run| run.took_s)
    }

    pub(super) fn doubts(&self) -> Doubts {
        Doubts::of(self.runs.iter().map(|run| &run.metered))
    }

    pub(super) fn marks(&self) -> String {
        let mut marks = self.doubts().marks();
        let replanned: usize = self.runs.iter().map(|run| run.replanned.len()).sum();
        if replanned > 0 {
            marks.push(format!("replanned {replanned}×"));
        }
        marks.join(", ")
    }
}

impl Meanwhile {
    pub(super) const ALL: [Self; 5] =
        [Self::AllUp, Self::OneDown, Self::Recovered, Self::RecoveredLater, Self::RecoveredCapped];

    /// Whether a recovery without caps runs at the same time.
    pub(super) fn is_uncapped_recovery(self) -> bool {
        matches!(self, Self::Recovered | Self::RecoveredLater)
    }
}

impl fmt::Display for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllUp => f.write_str("all helpers are up"),
            Self::OneDown => f.write_str("a helper is down"),
            Self::Recovered => f.write_str("it is being recovered, uncapped"),
            Self::RecoveredLater => {
                write!(f, "its recovery begins after {} s of reads, uncapped", LATER.as_secs())
            }
            Self::RecoveredCapped => write!(f, "it is being recovered, {}/s in all", TOTAL_CAPS[0].0),
        }
    }
}

impl ReadsRow {
    /// Returns a row without repetitions.
    pub(super) fn new(meanwhile: Meanwhile) -> Self {
        Self { meanwhile, runs: Vec::new() }
    }

    /// The median of a value of the repetitions.
    pub(super) fn median(&self, value: impl Fn(&ReadsRun) -> f64) -> f64 {
        median(&self.runs.iter().map(value).collect::<Vec<_>>())
    }

    /// The recovery of the repetition with the median rate of reads.
    pub(super) fn recovery(&self) -> Option<&RecoveryRun> {
        middle(&self.runs, |run| run.per_second)?.recovery.as_ref()
    }

    /// Whether the recovery ended before a window did.
    pub(super) fn has_short_recovery(&self) -> bool {
        self.runs.iter().any(|run| run.recovery.as_ref().is_some_and(|recovery| !recovery.outlasts))
    }

    pub(super) fn doubts(&self) -> Doubts {
        Doubts::of(self.runs.iter().map(|run| &run.metered))
    }

    pub(super) fn marks(&self) -> String {
        let mut marks = self.doubts().marks();
        if self.has_short_recovery() {
            marks.push("the recovery ended before the reads".to_owned());
        }
        marks.join(", ")
    }
}

impl Part {
    pub(super) fn reads_while(&self, meanwhile: Meanwhile) -> Option<&ReadsRow> {
        self.reads.iter().find(|row| row.meanwhile == meanwhile)
    }

    /// Returns how much of the bandwidth that reads leave a recovery without caps uses, as a part. `links` is
    /// the bandwidth of the uplinks of all helpers that are up, in bits per second; unshaped links have no
    /// rest. Reads are assumed to need as many bytes as without a recovery.
    pub(super) fn of_the_rest(&self, row: &ReadsRow, links: f64) -> Option<f64> {
        let alone = self.reads_while(Meanwhile::OneDown)?;
        let bits_per_read = alone.median(|run| run.sent / run.per_second);
        let used = |run: &ReadsRun| {
            let by_reads = bits_per_read * run.per_second;
            (run.sent - by_reads) / (links - by_reads)
        };
        (row.meanwhile.is_uncapped_recovery() && links.is_finite()).then(|| row.median(used))
    }

    /// Whether other programs disturbed every repetition of a row.
    fn has_worthless_rows(&self) -> bool {
        self.whole.iter().any(|row| row.doubts().is_worthless())
            || self.reads.iter().any(|row| row.doubts().is_worthless())
    }
}

/// Why measurements are not reliable if [`is_disturbed`].
pub(super) const DISTURBED: &str = "other programs disturbed all repetitions of a row";

/// Whether other programs disturbed every repetition of a row in any of these parts.
pub(super) fn is_disturbed(parts: &Parts<Part>, names: &[&str]) -> bool {
    names.iter().filter_map(|name| parts.of(name)).any(Part::has_worthless_rows)
}

/// Returns the link traffic of each helper.
pub(super) fn helpers(metered: &Metered) -> impl Iterator<Item = LinkBytes> {
    let is_helper = |name: &str| name.strip_prefix('h').is_some_and(|number| number.parse::<u16>().is_ok());
    metered.traffic.iter().filter(move |(name, _)| is_helper(name)).map(|(_, traffic)| *traffic)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    pub(in super::super) fn metered(disturbed: bool) -> Metered {
        Metered {
            cpu_s: 1.0,
            busy: 0.5,
            foreign_s: 0.0,
            disturbed,
            cpu_bound: false,
            traffic: BTreeMap::new(),
            disk: BTreeMap::new(),
        }
    }

    /// A row with repetitions of these times, and a bound of 2 s.
    pub(in super::super) fn whole(what: &str, is_default: bool, times: &[f64]) -> WholeRow {
        let run = |&took_s: &f64| WholeRun {
            blocks: 10,
            took_s,
            bound_s: Some(2.0),
            limit: String::new(),
            busiest_s: 1.0,
            replanned: Vec::new(),
            timeline: format!("timeline of {took_s} s\n"),
            metered: metered(false),
        };
        WholeRow { runs: times.iter().map(run).collect(), ..WholeRow::new(what, is_default) }
    }

    /// A row with one repetition: reads per second, p99, and Mb/s that helpers sent.
    pub(in super::super) fn reads(
        meanwhile: Meanwhile,
        per_second: f64,
        p99_ms: f64,
        sent_mbit: f64,
    ) -> ReadsRow {
        let recovery = RecoveryRun { outlasts: true, took_s: 20.0, bound_s: Some(10.0) };
        let run = ReadsRun {
            per_second,
            median_ms: p99_ms / 2.0,
            p99_ms,
            failed: 0,
            sent: sent_mbit * 1e6,
            recovery: meanwhile.is_uncapped_recovery().then_some(recovery),
            metered: metered(false),
        };
        ReadsRow { runs: vec![run], ..ReadsRow::new(meanwhile) }
    }

    #[test]
    fn repetitions_are_summed_up() {
        let mut row = whole("even", true, &[2.5, 4.0, 2.0]);
        assert_eq!((row.took_s(), row.of_bound(), row.spread()), (2.5, 0.8, 0.8));
        assert_eq!(row.middle().map(|run| run.took_s), Some(2.5));
        assert_eq!((row.marks(), row.doubts().verdict()), (String::new(), None));
        row.runs[0].metered = metered(true);
        row.runs[1].replanned.push("h3 left".to_owned());
        assert_eq!(row.marks(), "disturbed 1/3, replanned 1×");
        row.runs.iter_mut().for_each(|run| run.metered.cpu_bound = true);
        assert_eq!(row.doubts().verdict(), Some(Verdict::NotCarried));
        row.runs.iter_mut().for_each(|run| run.metered.disturbed = true);
        assert_eq!(row.doubts().verdict(), Some(Verdict::Disturbed));
        assert!(Part { whole: vec![row], ..Part::default() }.has_worthless_rows());
    }

    #[test]
    fn a_recovery_is_compared_with_the_bandwidth_that_reads_leave() {
        let rows = [
            reads(Meanwhile::OneDown, 200.0, 20.0, 200.0),
            reads(Meanwhile::Recovered, 100.0, 40.0, 800.0),
            reads(Meanwhile::RecoveredCapped, 100.0, 40.0, 300.0),
        ];
        let part = Part { reads: rows.into(), ..Part::default() };
        let used = |index: usize| part.of_the_rest(&part.reads[index], 1500e6);
        assert_eq!((used(0), used(1), used(2)), (None, Some(0.5), None));
        assert_eq!(part.of_the_rest(&part.reads[1], f64::INFINITY), None);
    }

    #[test]
    fn results_survive_in_json() {
        let part = Part {
            whole: vec![whole("even", true, &[2.5])],
            reads: vec![reads(Meanwhile::RecoveredLater, 1.0, 2.0, 3.0)],
            ..Part::default()
        };
        let text = serde_json::to_string(&part).unwrap();
        assert_eq!(serde_json::from_str::<Part>(&text).unwrap(), part);
    }
}
