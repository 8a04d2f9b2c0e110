//! The measurements as a JSON file, so that an interrupted run can be continued.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::codes::RaidCode;
use crate::command::write_json;
use crate::error::LabError;
use crate::experiment::Repaired;
use crate::machine::Machine;
use crate::report::median;

/// The quantity that a cell measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The read of a whole block.
    Read,
    /// The encoding of a file.
    Encoding,
    /// The recovery of a DataNode.
    Recovery,
}

/// Identifies a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) kind: Kind,
    /// The code, as `N-K`.
    pub(super) code: String,
    pub(super) block_mib: usize,
    /// The rate of the links.
    pub(super) rate: String,
    /// The program and the scheme that read, encode or recover.
    pub(super) by: String,
}

/// All repetitions of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cell {
    #[serde(flatten)]
    pub(super) key: Key,
    pub(super) runs: Vec<Run>,
}

/// One repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// The time of a read or a recovery; for an encoding, of making the parity and of checking it.
    pub(super) seconds: f64,
    /// Bytes received over the links of the DataNodes' machines and of the client's machine together.
    pub(super) received: u64,
    /// Bytes received over the link of the machine that received most.
    pub(super) received_most: u64,
    /// Whether other programs disturbed the measurement.
    pub(super) disturbed: bool,
    /// Whether the processors, not the links, may have limited the speed.
    pub(super) cpu_bound: bool,
    pub(super) detail: Detail,
}

/// Further results of a repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Detail {
    /// A block was read.
    Read,
    /// The read of a lost block failed after the time.
    Failed,
    /// A file was encoded.
    Encoding {
        stripes: usize,
        /// The part of the time in which the parity was read back and checked.
        check_s: f64,
        /// The time of the whole command, most of which may be waiting for HDFS to remove replicas.
        command_s: f64,
    },
    /// A DataNode was recovered.
    Recovery {
        blocks: usize,
        /// The number of DataNodes that were left.
        survivors: usize,
        /// The table and the drawing of the time of each step.
        timeline: String,
    },
}

/// The time to send one block over one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Direct {
    pub(super) block_mib: usize,
    pub(super) rate: String,
    pub(super) seconds: f64,
}

/// All measurements of one commit on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) directs: Vec<Direct>,
    pub(super) cells: Vec<Cell>,
}

impl Key {
    /// Returns the code.
    pub(super) fn raid_code(&self) -> Option<RaidCode> {
        self.code.parse().ok()
    }

    /// Whether another cell measures the same thing, by whomever.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        let place = |key: &Self| (key.kind, key.code.clone(), key.block_mib, key.rate.clone());
        place(self) == place(other)
    }
}

impl Run {
    /// Returns the result of a measurement that has ended.
    pub(super) fn of(repaired: &Repaired, detail: Detail) -> Self {
        let usage = &repaired.usage;
        Self {
            seconds: repaired.time.as_secs_f64(),
            received: usage.received,
            received_most: usage.received_most,
            disturbed: usage.metered.disturbed,
            cpu_bound: usage.metered.cpu_bound,
            detail,
        }
    }
}

impl Cell {
    fn times(&self) -> impl Iterator<Item = f64> + '_ {
        self.runs.iter().map(|run| run.seconds)
    }

    /// Returns the median time, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        median(&self.times().collect::<Vec<_>>())
    }

    /// Returns the shortest and the longest time, in seconds.
    pub(super) fn extremes(&self) -> [f64; 2] {
        [self.times().fold(f64::NAN, f64::min), self.times().fold(f64::NAN, f64::max)]
    }

    /// Returns the longest minus the shortest time, relative to the median.
    pub(super) fn spread(&self) -> f64 {
        let [shortest, longest] = self.extremes();
        (longest - shortest) / self.seconds()
    }

    /// Returns the repetition whose time is nearest to the median.
    pub(super) fn middle(&self) -> Option<&Run> {
        let seconds = self.seconds();
        let far = |run: &Run| (run.seconds - seconds).abs();
        self.runs.iter().min_by(|one, other| far(one).total_cmp(&far(other)))
    }

    /// Returns the names of doubts about the repetitions, each with their number.
    pub(super) fn marks(&self) -> String {
        let count = |is: fn(&Run) -> bool| self.runs.iter().filter(|run| is(run)).count();
        let doubts = [("disturbed", count(|run| run.disturbed)), ("processors", count(|run| run.cpu_bound))];
        let marks = doubts.into_iter().filter(|(_, count)| *count > 0);
        marks
            .map(|(name, count)| format!("{name} {count}/{}", self.runs.len()))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl Report {
    fn new(machine: Machine) -> Self {
        Self { machine, directs: Vec::new(), cells: Vec::new() }
    }

    /// Reads the report in a file, if the same commit made it on this machine; otherwise begins a report. A commit with
    /// local changes is not the same as itself.
    pub(super) fn resume(file: &Path, machine: Machine) -> Self {
        let text = fs::read(file).unwrap_or_default();
        let found = serde_json::from_slice::<Self>(&text).ok();
        let is_known = !machine.commit.ends_with('+') && machine.commit != "unknown";
        let same = found.filter(|report| is_known && report.machine == machine);
        same.unwrap_or_else(|| Self::new(machine))
    }

    /// Writes the report.
    ///
    /// # Errors
    /// [`LabError::File`].
    pub(super) fn save(&self, file: &Path) -> Result<(), LabError> {
        write_json(file, self)
    }

    /// Returns how many of `repetitions` are missing.
    pub(super) fn lacks(&self, key: &Key, repetitions: usize) -> usize {
        let found = self.cells.iter().find(|cell| cell.key == *key);
        repetitions.saturating_sub(found.map_or(0, |cell| cell.runs.len()))
    }

    /// Adds a repetition.
    pub(super) fn add(&mut self, key: &Key, run: Run) {
        match self.cells.iter_mut().find(|cell| cell.key == *key) {
            Some(cell) => cell.runs.push(run),
            None => self.cells.push(Cell { key: key.clone(), runs: vec![run] }),
        }
    }

    /// Returns the cells of a kind.
    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.key.kind == kind)
    }

    /// Returns the cell with the same measurement by `by`.
    pub(super) fn beside(&self, key: &Key, by: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.key.by == by && cell.key.is_beside(key))
    }

    /// Returns the time to send a block of the cell's size over one of its links, in seconds; NaN if it was not
    /// measured.
    pub(super) fn direct(&self, key: &Key) -> f64 {
        self.direct_of(key.block_mib, &key.rate).unwrap_or(f64::NAN)
    }

    /// Returns the time to send a block over one link, in seconds.
    pub(super) fn direct_of(&self, block_mib: usize, rate: &str) -> Option<f64> {
        let found = self.directs.iter().find(|direct| direct.block_mib == block_mib && direct.rate == rate);
        found.map(|direct| direct.seconds)
    }

    /// Returns the block sizes that were read with a code.
    pub(super) fn sizes_of(&self, code: RaidCode) -> BTreeSet<usize> {
        let cells = self.of(Kind::Read).filter(|cell| cell.key.raid_code() == Some(code));
        cells.map(|cell| cell.key.block_mib).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A cell of reads with these times. The busiest machine received 128 MB, and all together 512 MB.
    pub(in super::super) fn cell(code: &str, block_mib: usize, by: &str, times: &[f64]) -> Cell {
        Cell {
            key: Key { code: code.to_owned(), block_mib, ..key(by) },
            runs: times.iter().copied().map(run).collect(),
        }
    }

    /// A report of these cells, in which sending a MiB takes 2.7 s / 64.
    pub(in super::super) fn report(cells: impl Into<Vec<Cell>>) -> Report {
        let cells = cells.into();
        let direct = |cell: &Cell| Direct {
            block_mib: cell.key.block_mib,
            rate: cell.key.rate.clone(),
            seconds: 2.7 * cell.key.block_mib as f64 / 64.0,
        };
        Report { machine: machine("0123456789ab"), directs: cells.iter().map(direct).collect(), cells }
    }

    fn key(by: &str) -> Key {
        Key {
            kind: Kind::Read,
            code: "14-10".to_owned(),
            block_mib: 64,
            rate: "200Mbit".to_owned(),
            by: by.to_owned(),
        }
    }

    fn run(seconds: f64) -> Run {
        Run {
            seconds,
            received: 512_000_000,
            received_most: 128_000_000,
            disturbed: false,
            cpu_bound: seconds > 1000.0,
            detail: Detail::Read,
        }
    }

    fn machine(commit: &str) -> Machine {
        Machine { commit: commit.to_owned(), ..Machine::this() }
    }

    #[test]
    fn repetitions_are_summed_up() {
        let cell = Cell { key: key("x"), runs: [4000.0, 1000.0, 2000.0].map(run).into() };
        assert_eq!((cell.seconds(), cell.extremes(), cell.spread()), (2000.0, [1000.0, 4000.0], 1.5));
        assert_eq!(cell.middle().map(|run| run.seconds), Some(2000.0));
        assert_eq!(cell.marks(), "processors 2/3");
    }

    #[test]
    fn an_interrupted_run_is_continued_on_the_same_commit_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reports/hdfs-raid.json");
        let mut report = Report::resume(&file, machine("0123456789ab"));
        assert_eq!(report.lacks(&key("x"), 3), 3);
        report.add(&key("x"), run(1.0));
        report.add(&key("y"), run(2.0));
        report.add(&key("x"), run(3.0));
        report.directs.push(Direct { block_mib: 64, rate: "200Mbit".to_owned(), seconds: 2.7 });
        report.save(&file).unwrap();
        let again = Report::resume(&file, machine("0123456789ab"));
        assert_eq!(again, report);
        let lacking = ["x", "y", "z"].map(|by| again.lacks(&key(by), 3));
        assert_eq!(lacking, [1, 2, 3]);
        assert_eq!(again.direct(&key("x")), 2.7);
        assert!(Report::resume(&file, machine("ba9876543210")).cells.is_empty(), "another commit");
        report.machine = machine("0123456789ab+");
        report.save(&file).unwrap();
        assert!(Report::resume(&file, machine("0123456789ab+")).cells.is_empty(), "local changes");
    }

    #[test]
    fn the_same_measurement_by_another_is_found() {
        let mut report = Report::new(machine("0123456789ab"));
        report.add(&key("x"), run(1.0));
        report.add(&Key { block_mib: 32, ..key("y") }, run(2.0));
        report.add(&key("y"), run(3.0));
        assert_eq!(report.beside(&key("x"), "y").map(Cell::seconds), Some(3.0));
        assert!(report.beside(&key("x"), "z").is_none());
    }
}
