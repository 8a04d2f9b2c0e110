//! [`Report`]: the results, as JSON for programs and as a table for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use repair::{Pacing, Scheme};
use serde::{Deserialize, Serialize};

use crate::baseline::{Baseline, is_cpu_bound};
use crate::check::Check;
use crate::figure::Constants;
use crate::machine::Machine;
use crate::medium::DeviceReads;
use crate::meter::{LinkBytes, Metered};
use crate::plan_cost::PlanCost;
use crate::run::Placement;
use crate::scenario::Scenario;

/// The results of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The scenario.
    pub scenario: Scenario,
    /// The machine and version.
    pub machine: Machine,
    /// The start time, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The self-checks, one per network.
    pub checks: Vec<Check>,
    /// The machine's constants, if the measurement is compared with a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constants: Option<Constants>,
    /// One row per combination of parameters.
    pub rows: Vec<Row>,
}

/// The figures of one combination of parameters. In JSON, the fields of `case`, `time`, `load` and `moved`
/// are fields of the row itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The combination of parameters.
    #[serde(flatten)]
    pub case: Case,
    /// The scheme that the planner chose.
    pub used: Option<Scheme>,
    /// The number of timeslots according to the scheme's formula, if there is a formula and the network is
    /// uniform.
    pub formula: Option<f64>,
    /// The plan's predicted cost.
    #[serde(default)]
    pub account: Option<PlanCost>,
    /// The reasons why plans were dropped and replaced, over all repetitions.
    pub replanned: Vec<String>,
    /// The times.
    #[serde(flatten)]
    pub time: Times,
    /// The load of the processors.
    #[serde(flatten)]
    pub load: Load,
    /// The bytes moved in the median repetition.
    #[serde(flatten)]
    pub moved: Moved,
}

/// The combination of parameters that a row belongs to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The network's description.
    pub network: String,
    /// The rate of every node's link.
    pub rate: String,
    /// The rate from each helper to the client, if specified.
    pub edge: Option<String>,
    /// The code.
    pub code: String,
    /// The number of data blocks in a stripe.
    pub data_blocks: usize,
    /// The block size in bytes.
    pub block_bytes: u64,
    /// The slice size in bytes, or `auto`.
    pub slice: String,
    /// The requested scheme. `ppr in rounds` means whole blocks in rounds; `bare chain` means relays that
    /// only receive, XOR and send.
    pub scheme: String,
    /// How nodes forwarded slices, if not in the scheme's default way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pacing: Option<Pacing>,
    /// The lost blocks; none for a bare chain.
    pub lost: Vec<u16>,
    /// The placement of the blocks, if the scenario measures several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// The times of a row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The time of every repetition in seconds, in the order measured.
    pub times_s: Vec<f64>,
    /// The median time in seconds.
    pub median_s: f64,
    /// The longest time minus the shortest, relative to the median.
    pub spread: f64,
    /// Median time to the first byte, in seconds; absent for repairs to a node.
    pub first_byte_s: Option<f64>,
    /// Median time of a direct send of one block, in seconds, measured between the repetitions.
    pub direct_s: f64,
    /// The median time relative to the direct send.
    pub ratio: f64,
}

/// The load of the processors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Median processor seconds of all the lab's processes.
    pub cpu_s: f64,
    /// Processor seconds of the cheapest bare chain in the same run. The chain sends one block, even if the
    /// row's repairs rebuild several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bare_cpu_s: Option<f64>,
    /// The median busy fraction of the machine's processors.
    pub busy: f64,
    /// The number of repetitions that remained disturbed by other programs despite retries.
    pub disturbed: u32,
    /// Whether the processors may have been the bottleneck instead of the links.
    pub cpu_bound: bool,
    /// Whether the processors already limit the direct send or the bare chain; the times then say nothing
    /// about Mend.
    #[serde(default)]
    pub saturated: bool,
}

/// The bytes moved in the median repetition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// Bytes per node, including headers.
    pub traffic: BTreeMap<String, LinkBytes>,
    /// Bytes that each helper read from its disk or the page cache.
    #[serde(default)]
    pub disk: BTreeMap<String, u64>,
    /// Reads by the block device that stores the blocks, including those of other programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceReads>,
}

/// One measurement.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) time_s: f64,
    pub(crate) first_byte_s: Option<f64>,
    pub(crate) used: Option<Scheme>,
    pub(crate) replanned: Vec<String>,
    pub(crate) metered: Metered,
    pub(crate) device: Option<DeviceReads>,
}

/// Returns the median: the mean of the two middle values if their number is even, and NaN if there are no
/// values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => (sorted[even / 2 - 1] + sorted[even / 2]) / 2.0,
    }
}

/// Returns the standard deviation of a sample; `None` if there are fewer than two values.
pub(crate) fn standard_deviation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt())
}

/// Returns the 95th percentile by nearest rank: of fewer than 20 values, the largest. NaN if there are no values.
pub(crate) fn percentile_95(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * 95).div_ceil(100);
    rank.checked_sub(1).map_or(f64::NAN, |at| sorted[at])
}

impl Times {
    /// Returns the shortest and the longest time in seconds; `None` if there are fewer than two.
    pub(crate) fn extremes(&self) -> Option<[f64; 2]> {
        let times = || self.times_s.iter().copied();
        let extremes = [times().fold(f64::NAN, f64::min), times().fold(f64::NAN, f64::max)];
        (self.times_s.len() > 1).then_some(extremes)
    }

    fn of(samples: &[Sample], direct_s: f64) -> Self {
        let times_s: Vec<f64> = samples.iter().map(|sample| sample.time_s).collect();
        let median_s = median(&times_s);
        let longest = times_s.iter().copied().fold(f64::NAN, f64::max);
        let shortest = times_s.iter().copied().fold(f64::NAN, f64::min);
        let first: Vec<f64> = samples.iter().filter_map(|sample| sample.first_byte_s).collect();
        Self {
            times_s,
            median_s,
            spread: (longest - shortest) / median_s,
            first_byte_s: (!first.is_empty()).then(|| median(&first)),
            direct_s,
            ratio: median_s / direct_s,
        }
    }
}

impl Load {
    fn of(samples: &[Sample], baseline: &Baseline) -> Self {
        let median_of = |value: fn(&Metered) -> f64| {
            median(&samples.iter().map(|sample| value(&sample.metered)).collect::<Vec<_>>())
        };
        Self {
            cpu_s: median_of(|metered| metered.cpu_s),
            bare_cpu_s: baseline.bare_cpu_s(),
            busy: median_of(|metered| metered.busy),
            disturbed: samples.iter().filter(|sample| sample.metered.disturbed).count() as u32,
            cpu_bound: is_cpu_bound(samples),
            saturated: baseline.is_saturated(),
        }
    }
}

impl Moved {
    fn of(sample: &Sample) -> Self {
        let Metered { traffic, disk, .. } = sample.metered.clone();
        Self { traffic, disk, device: sample.device }
    }
}

impl Row {
    /// Computes the figures from the samples; the case and the plan's cost stay unchanged.
    pub(crate) fn fill(&mut self, samples: &[Sample], baseline: &Baseline) {
        self.time = Times::of(samples, baseline.direct_s());
        self.load = Load::of(samples, baseline);
        self.replanned = samples.iter().flat_map(|sample| sample.replanned.clone()).collect();
        let distance = |sample: &&Sample| (sample.time_s - self.time.median_s).abs();
        let middle = samples.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        self.used = middle.and_then(|sample| sample.used);
        self.moved = middle.map(Moved::of).unwrap_or_default();
    }

    /// Returns caveats about the figures.
    pub fn marks(&self) -> String {
        let mut marks = Vec::new();
        if self.load.saturated {
            marks.push("saturated".to_owned());
        } else if self.load.cpu_bound {
            marks.push("CPU-bound".to_owned());
        }
        if self.load.disturbed > 0 {
            marks.push(format!("disturbed {}/{}", self.load.disturbed, self.time.times_s.len()));
        }
        if !self.replanned.is_empty() {
            marks.push(format!("replanned {}×", self.replanned.len()));
        }
        marks.join(", ")
    }

    /// Whether every repetition was disturbed by other programs, despite retries.
    pub fn is_worthless(&self) -> bool {
        !self.time.times_s.is_empty() && self.load.disturbed as usize == self.time.times_s.len()
    }

    /// Processor seconds relative to the bare chain.
    pub fn cpu_ratio(&self) -> Option<f64> {
        Some(self.load.cpu_s / self.load.bare_cpu_s?)
    }

    /// A one-line summary.
    pub fn summary(&self) -> String {
        let block = cluster::ByteSize::from_bytes(self.case.block_bytes);
        let over_bare = self.cpu_ratio().map_or(String::new(), |ratio| format!(" ({ratio:.2} of bare)"));
        format!(
            "{} {} {block} slice {} {}: {:.4} s, {:.3} of a direct send, CPU {:.2} s{over_bare} {}",
            self.case.rate,
            self.case.code,
            self.case.slice,
            self.case.scheme,
            self.time.median_s,
            self.time.ratio,
            self.load.cpu_s,
            self.marks(),
        )
    }

    /// Bytes read from disk by all helpers.
    pub fn disk_bytes(&self) -> u64 {
        self.moved.disk.values().sum()
    }

    /// Bytes sent by all helpers, including headers.
    pub fn network_bytes(&self) -> u64 {
        let is_helper = |name: &str| name.starts_with('h');
        self.moved
            .traffic
            .iter()
            .filter(|(name, _)| is_helper(name))
            .map(|(_, traffic)| traffic.sent_bytes)
            .sum()
    }
}

impl Report {
    /// Returns a reason to distrust these figures, if there is one.
    pub fn doubt(&self) -> Option<String> {
        if !self.checks.iter().all(Check::holds) {
            return Some("the self-check failed".to_owned());
        }
        self.disturbance()
    }

    /// Describes rows without any undisturbed repetition.
    pub fn disturbance(&self) -> Option<String> {
        let worthless = self.rows.iter().filter(|row| row.is_worthless()).count();
        let rows = self.rows.len();
        (worthless > 0).then(|| {
            format!(
                "other programs disturbed every repetition of {worthless} of the {rows} rows; stop these \
                 programs, then measure again"
            )
        })
    }

    /// Returns the report in Markdown: the heading, and a table of all rows.
    pub fn to_markdown(&self) -> String {
        let mut text = self.heading();
        let columns = [
            "rate",
            "code",
            "block",
            "slice",
            "scheme",
            "lost",
            "median s",
            "spread",
            "± s",
            "direct s",
            "ratio",
            "formula",
            "first byte s",
            "CPU s",
            "CPU / bare",
            "busy",
            "marks",
        ];
        let rows: Vec<Vec<String>> = self.rows.iter().map(Row::cells).collect();
        text += &markdown_table(&columns, &rows);
        text
    }

    /// Returns a heading with the machine, the commit, the day and the self-checks.
    pub fn heading(&self) -> String {
        // Machines in older reports have no time.
        let machine = Machine { measured_unix_ms: self.started_unix_ms, ..self.machine.clone() };
        let mut text = format!("{}\n", machine.summary());
        for check in &self.checks {
            let _ = writeln!(text, "Self-check: {}.", check.summary());
        }
        text.push('\n');
        text
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let lost: Vec<_> = self.case.lost.iter().map(u16::to_string).collect();
        let rate = match &self.case.edge {
            Some(edge) => format!("{}, edge {edge}", self.case.rate),
            None => self.case.rate.clone(),
        };
        vec![
            rate,
            self.case.code.clone(),
            cluster::ByteSize::from_bytes(self.case.block_bytes).to_string(),
            self.case.slice.clone(),
            match self.used {
                Some(used) if !self.case.scheme.starts_with(used.name()) => {
                    format!("{} ({})", self.case.scheme, used.name())
                }
                _ => self.case.scheme.clone(),
            },
            lost.join("+"),
            format!("{:.4}", self.time.median_s),
            format!("{:.1}%", self.time.spread * 100.0),
            standard_deviation(&self.time.times_s).map_or(String::new(), |seconds| format!("{seconds:.4}")),
            format!("{:.4}", self.time.direct_s),
            format!("{:.3}", self.time.ratio),
            self.formula.map_or(String::new(), |formula| format!("{formula:.3}")),
            self.time.first_byte_s.map_or(String::new(), |first| format!("{first:.4}")),
            format!("{:.2}", self.load.cpu_s),
            self.cpu_ratio().map_or(String::new(), |ratio| format!("{ratio:.2}")),
            format!("{:.0}%", self.load.busy * 100.0),
            self.marks(),
        ]
    }
}

/// Returns a Markdown table that is also aligned as plain text.
pub fn markdown_table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let length = |text: &str| text.chars().count();
    let width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| length(cell));
        cells.chain([length(columns[index]), 3]).max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<_> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("| {} |\n", padded.join(" | "))
    };
    let mut text = line(&mut columns.iter().copied());
    let rule: Vec<_> = widths.iter().map(|&width| "-".repeat(width)).collect();
    text += &format!("| {} |\n", rule.join(" | "));
    rows.iter().for_each(|row| text += &line(&mut row.iter().map(String::as_str)));
    text
}

#[cfg(test)]
impl Sample {
    /// An undisturbed sample without link traffic.
    pub(crate) fn of_test(time_s: f64, cpu_s: f64, cpu_bound: bool) -> Self {
        let metered = Metered {
            cpu_s,
            busy: 0.5,
            foreign_s: 0.0,
            disturbed: false,
            cpu_bound,
            traffic: BTreeMap::new(),
            disk: BTreeMap::new(),
        };
        Self { time_s, first_byte_s: None, used: None, replanned: Vec::new(), metered, device: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(disturbed: [u32; 2]) -> Report {
        let text = "name = \"x\"\nschemes = \"auto\"\ncode = \"rs-3-2\"\nblock_bytes = \"1MiB\"\n\
                    [topology]\nnodes = 3\nrate = \"1gbit\"";
        let row = |disturbed| Row {
            time: Times { times_s: vec![1.0; 3], ..Times::default() },
            load: Load { disturbed, ..Load::default() },
            ..Row::default()
        };
        Report {
            scenario: Scenario::parse(text, "x".as_ref()).unwrap(),
            machine: Machine::this(),
            started_unix_ms: 0,
            checks: Vec::new(),
            constants: None,
            rows: disturbed.map(row).into(),
        }
    }

    #[test]
    fn a_row_of_disturbed_repetitions_alone_spoils_a_report() {
        assert_eq!(report([0, 2]).doubt(), None);
        let doubt = report([0, 3]).doubt().unwrap();
        assert!(doubt.contains("every repetition of 1 of the 2 rows"), "{doubt}");
        let empty = Report { rows: Vec::new(), ..report([0, 0]) };
        assert_eq!(empty.doubt(), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn deviations_and_percentiles() {
        assert_eq!(standard_deviation(&[1.0, 3.0]), Some(2.0_f64.sqrt()));
        assert_eq!(standard_deviation(&[1.0]), None);
        let values: Vec<f64> = (1..=40).rev().map(f64::from).collect();
        assert_eq!(percentile_95(&values), 38.0);
        assert_eq!(percentile_95(&[1.0, 3.0, 2.0]), 3.0);
        assert!(percentile_95(&[]).is_nan());
        let times = Times { times_s: vec![2.0, 1.0, 3.0], ..Times::default() };
        assert_eq!(times.extremes(), Some([1.0, 3.0]));
    }

    #[test]
    fn tables_line_up() {
        let table = markdown_table(&["a", "rate"], &[vec!["longer".to_owned(), "1".to_owned()]]);
        assert_eq!(table, "| a      | rate |\n| ------ | ---- |\n| longer | 1    |\n");
    }
}
