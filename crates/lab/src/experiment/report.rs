//! The repetitions of an experiment, as a JSON file to which partial and interrupted runs add.
//!
//! A cell holds all repetitions of one measurement, and is identified by its [`Key`]. A run measures only
//! repetitions that the [kept](crate::kept) report lacks.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::spread::Spread;
use super::{Repaired, Session, Used};
use crate::kept::Kept;
use crate::machine::Machine;

/// The operation that a cell measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The repair of lost blocks of one stripe.
    Loss,
    /// The same, with no block in the page cache.
    ColdLoss,
    /// The recovery of a whole node.
    Node,
    /// The recovery of a whole node onto a single other one.
    NodeToOne,
    /// The encoding of a file.
    Encoding,
    /// The read of a whole block.
    Read,
    /// Small reads of a lost block.
    SmallReads,
    /// Small reads during another activity.
    ReadsDuring,
}

/// Identifies a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    /// The code or the policy.
    pub(crate) code: String,
    /// The nominal size of a block.
    pub(crate) block_bytes: u64,
    /// The rate of the links.
    pub(crate) rate: String,
    /// The program, with its settings, that repairs, encodes or reads.
    pub(crate) by: String,
}

/// All repetitions of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell<D> {
    #[serde(flatten)]
    pub(crate) key: Key,
    pub(crate) runs: Vec<Run<D>>,
}

/// One repetition, with further results `D`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run<D> {
    /// The measured time.
    pub(crate) seconds: f64,
    pub(crate) used: Used,
    pub(crate) doubts: Doubts,
    /// The table and the drawing of the time of each step; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) timeline: String,
    pub(crate) detail: D,
}

/// Reasons to doubt a repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doubts {
    /// Other programs used the processors.
    pub(crate) disturbed: bool,
    /// The processors, not the links, may have limited the speed.
    pub(crate) processors: bool,
    /// The lab's processes were still busy when the measurement began.
    pub(crate) unsettled: bool,
}

/// The time to send bytes over one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Direct {
    bytes: u64,
    rate: String,
    seconds: f64,
}

/// All measurements of an experiment on one commit and one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report<D> {
    pub(crate) machine: Machine,
    /// The runs that contributed.
    pub(crate) sessions: Vec<Session>,
    directs: Vec<Direct>,
    cells: Vec<Cell<D>>,
}

/// Formats a block size: in MiB if it is a whole number of them, otherwise in MB.
pub(crate) fn size(bytes: u64) -> String {
    match bytes % (1 << 20) {
        0 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.0} MB", bytes as f64 / 1e6),
    }
}

impl Key {
    /// Whether another cell measures the same operation in the same place, by another program.
    fn is_beside(&self, other: &Self) -> bool {
        let place = |key: &Self| (key.kind, key.code.clone(), key.block_bytes, key.rate.clone());
        place(self) == place(other)
    }

    /// Returns table cells: code, block size, rate, and program.
    pub(crate) fn place(&self) -> [String; 4] {
        [self.code.clone(), size(self.block_bytes), self.rate.clone(), self.by.clone()]
    }

    /// Returns code, block size and rate as one text.
    pub(crate) fn tick(&self) -> String {
        format!("{}, {}, {}", self.code, size(self.block_bytes), self.rate)
    }
}

impl Doubts {
    fn names(self) -> impl Iterator<Item = &'static str> {
        let doubts =
            [("disturbed", self.disturbed), ("processors", self.processors), ("unsettled", self.unsettled)];
        doubts.into_iter().filter(|(_, is_so)| *is_so).map(|(name, _)| name)
    }
}

impl<D> Run<D> {
    /// Returns the result of a measurement that has ended.
    pub(crate) fn of(repaired: Repaired, detail: D) -> Self {
        let Repaired { time, usage, timeline, is_unsettled: unsettled, .. } = repaired;
        let (disturbed, processors) = (usage.metered.disturbed, usage.metered.cpu_bound);
        let doubts = Doubts { disturbed, processors, unsettled };
        Self { seconds: time.as_secs_f64(), used: usage.used, doubts, timeline, detail }
    }
}

impl<D> Cell<D> {
    /// Returns median and extremes of a value.
    pub(crate) fn over(&self, of: impl Fn(&Run<D>) -> f64) -> Spread {
        Spread::of(self.runs.iter().map(of))
    }

    /// Returns median and extremes of the time, in seconds.
    pub(crate) fn time(&self) -> Spread {
        self.over(|run| run.seconds)
    }

    /// Returns the median time, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.time().median
    }

    /// Returns the repetition whose time is nearest to the median.
    pub(crate) fn middle(&self) -> Option<&Run<D>> {
        let seconds = self.seconds();
        let far = |run: &Run<D>| (run.seconds - seconds).abs();
        self.runs.iter().min_by(|one, other| far(one).total_cmp(&far(other)))
    }

    /// Returns the names of doubts about the repetitions, each with their number.
    pub(crate) fn marks(&self) -> String {
        let mut names: Vec<&str> = self.runs.iter().flat_map(|run| run.doubts.names()).collect();
        names.sort_unstable();
        let counted = names.chunk_by(|one, other| one == other);
        let marks = counted.map(|same| format!("{} {}/{}", same[0], same.len(), self.runs.len()));
        marks.collect::<Vec<_>>().join(", ")
    }

    /// Returns the timeline of the middle repetition; `None` if it has none.
    pub(crate) fn timeline(&self) -> Option<&str> {
        self.middle().map(|run| run.timeline.as_str()).filter(|timeline| !timeline.is_empty())
    }
}

impl<D> Report<D> {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, sessions: Vec::new(), directs: Vec::new(), cells: Vec::new() }
    }

    /// Returns how many of `repetitions` are missing.
    pub(crate) fn lacks(&self, key: &Key, repetitions: usize) -> usize {
        repetitions.saturating_sub(self.find(key).map_or(0, |cell| cell.runs.len()))
    }

    /// Returns the cell with this key.
    pub(crate) fn find(&self, key: &Key) -> Option<&Cell<D>> {
        self.cells.iter().find(|cell| cell.key == *key)
    }

    /// Adds a repetition. A new cell comes after those beside it.
    pub(crate) fn add(&mut self, key: &Key, run: Run<D>) {
        if let Some(cell) = self.cells.iter_mut().find(|cell| cell.key == *key) {
            return cell.runs.push(run);
        }
        let last = self.cells.iter().rposition(|cell| cell.key.is_beside(key));
        let at = last.map_or(self.cells.len(), |at| at + 1);
        self.cells.insert(at, Cell { key: key.clone(), runs: vec![run] });
    }

    /// Records a run that contributed, once for each command.
    pub(crate) fn add_session(&mut self, session: &Session) {
        if self.sessions.iter().all(|known| known.command != session.command) {
            self.sessions.push(session.clone());
        }
    }

    /// Returns a reason to distrust the measurements, if there is one: other programs disturbed all repetitions of a cell.
    pub(crate) fn doubt(&self) -> Option<String> {
        let is_disturbed = |cell: &&Cell<D>| cell.runs.iter().all(|run| run.doubts.disturbed);
        let cell = self.cells.iter().find(is_disturbed)?;
        let (by, tick) = (&cell.key.by, cell.key.tick());
        Some(format!("other programs disturbed all repetitions of {by}, {tick}"))
    }

    /// Returns the cells of a kind.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = &Cell<D>> {
        self.cells.iter().filter(move |cell| cell.key.kind == kind)
    }

    /// Returns the cell with the same measurement by `by`.
    pub(crate) fn beside(&self, key: &Key, by: &str) -> Option<&Cell<D>> {
        self.cells.iter().find(|cell| cell.key.by == by && cell.key.is_beside(key))
    }

    /// Records the time to send bytes over one link.
    pub(crate) fn add_direct(&mut self, bytes: u64, rate: &str, seconds: f64) {
        self.directs.push(Direct { bytes, rate: rate.to_owned(), seconds });
    }

    /// Returns the measured time to send exactly these bytes over one link, in seconds.
    pub(crate) fn direct(&self, bytes: u64, rate: &str) -> Option<f64> {
        let found = self.directs.iter().find(|direct| direct.bytes == bytes && direct.rate == rate);
        found.map(|direct| direct.seconds)
    }

    /// Returns the time in which a link carries these bytes among many others, in seconds: scaled from the largest send,
    /// because each small one passes the shaper's burst at once. NaN if nothing was sent at this rate.
    pub(crate) fn over_link(&self, bytes: f64, rate: &str) -> f64 {
        let sends = self.directs.iter().filter(|direct| direct.rate == rate);
        let largest = sends.max_by_key(|direct| direct.bytes);
        largest.map_or(f64::NAN, |direct| direct.seconds * bytes / direct.bytes as f64)
    }

    #[cfg(test)]
    pub(crate) fn cells_mut(&mut self) -> &mut Vec<Cell<D>> {
        &mut self.cells
    }
}

impl<D: Serialize + DeserializeOwned> Kept for Report<D> {
    fn begin(machine: Machine) -> Self {
        Self::new(machine)
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::kept::{resume, save};

    /// A run of this time. The busiest machine received 128 MB, and all together 512 MB.
    pub(crate) fn run<D>(seconds: f64, detail: D) -> Run<D> {
        let used = Used { received: 512_000_000, received_most: 128_000_000, ..Used::default() };
        let doubts = Doubts { processors: seconds > 1000.0, ..Doubts::default() };
        Run { seconds, used, doubts, timeline: String::new(), detail }
    }

    /// A report with these cells, at whose rate sending 64 MiB takes 2.7 s.
    pub(crate) fn report<D>(cells: impl IntoIterator<Item = Cell<D>>) -> Report<D> {
        let mut report = Report::new(machine("0123456789ab"));
        report.cells = cells.into_iter().collect();
        let rates: Vec<String> = report.cells.iter().map(|cell| cell.key.rate.clone()).collect();
        rates.iter().for_each(|rate| report.add_direct(64 << 20, rate, 2.7));
        report
    }

    pub(crate) fn machine(commit: &str) -> Machine {
        Machine { commit: commit.to_owned(), ..Machine::this() }
    }

    fn key(by: &str) -> Key {
        Key {
            kind: Kind::Read,
            code: "14-10".to_owned(),
            block_bytes: 64 << 20,
            rate: "200Mbit".to_owned(),
            by: by.to_owned(),
        }
    }

    #[test]
    fn repetitions_are_summed_up() {
        let mut runs = [4000.0, 1000.0, 2000.0].map(|seconds| run(seconds, ()));
        runs[1].doubts = Doubts { disturbed: true, processors: true, unsettled: true };
        let cell = Cell { key: key("x"), runs: runs.into() };
        assert_eq!(cell.time(), Spread { median: 2000.0, low: 1000.0, high: 4000.0 });
        assert_eq!(cell.middle().map(|run| run.seconds), Some(2000.0));
        assert_eq!(cell.marks(), "disturbed 1/3, processors 3/3, unsettled 1/3");
    }

    #[test]
    fn an_interrupted_run_is_continued_on_the_same_commit_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reports/hdfs-raid.json");
        let mut report = resume::<Report<i32>>(&file, machine("0123456789ab")).unwrap();
        assert_eq!(report.lacks(&key("x"), 3), 3);
        report.add(&key("x"), run(1.0, 1));
        report.add(&key("y"), run(2.0, 2));
        report.add(&key("x"), run(3.0, 3));
        report.add_direct(64 << 20, "200Mbit", 2.7);
        save(&report, &file).unwrap();
        let again = resume::<Report<i32>>(&file, machine("0123456789ab")).unwrap();
        assert_eq!(again, report);
        let lacking = ["x", "y", "z"].map(|by| again.lacks(&key(by), 3));
        assert_eq!(lacking, [1, 2, 3]);
        let is_empty = |commit: &str| resume::<Report<i32>>(&file, machine(commit)).unwrap().cells.is_empty();
        assert!(is_empty("ba9876543210"), "another commit");
        report.machine = machine("0123456789ab+");
        save(&report, &file).unwrap();
        assert!(is_empty("0123456789ab+"), "local changes");
    }

    #[test]
    fn a_command_that_continues_is_named_once() {
        let session =
            |command: &str, load: &str| Session { command: command.to_owned(), load: load.to_owned() };
        let mut report = Report::<()>::new(machine("0123456789ab"));
        for (command, load) in
            [("make bench-hdfs", "1"), ("mend lab hdfs bench", "2"), ("make bench-hdfs", "3")]
        {
            report.add_session(&session(command, load));
        }
        assert_eq!(report.sessions, [session("make bench-hdfs", "1"), session("mend lab hdfs bench", "2")]);
    }

    #[test]
    fn cells_of_a_place_are_neighbours() {
        let mut report = Report::new(machine("0123456789ab"));
        report.add(&key("x"), run(1.0, ()));
        report.add(&Key { block_bytes: 8 << 20, ..key("y") }, run(2.0, ()));
        report.add(&key("y"), run(3.0, ()));
        assert_eq!(report.beside(&key("x"), "y").map(Cell::seconds), Some(3.0));
        assert!(report.beside(&key("x"), "z").is_none());
        let order: Vec<f64> = report.of(Kind::Read).map(Cell::seconds).collect();
        assert_eq!(order, [1.0, 3.0, 2.0]);
    }

    #[test]
    fn bytes_among_many_others_enjoy_no_burst() {
        let mut report = Report::<()>::new(machine("0123456789ab"));
        assert!(report.over_link(1.0, "200Mbit").is_nan());
        report.add_direct(8 << 20, "200Mbit", 0.32);
        report.add_direct(64 << 20, "200Mbit", 2.72);
        report.add_direct(64 << 20, "100Mbit", 5.44);
        assert_eq!(report.direct(8 << 20, "200Mbit"), Some(0.32));
        assert!((report.over_link(f64::from(8 << 20), "200Mbit") - 0.34).abs() < 1e-9);
        assert_eq!(report.direct(8 << 20, "100Mbit"), None);
    }

    #[test]
    fn sizes_are_named_in_their_unit() {
        assert_eq!(key("x").place(), ["14-10", "64 MiB", "200Mbit", "x"]);
        assert_eq!(size(66_000_000), "66 MB");
    }
}
