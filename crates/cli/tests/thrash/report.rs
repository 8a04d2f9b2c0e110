//! The output of a run: a log of its operations, and counts at the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

/// Prints a line even if the test harness captures output.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The maximum number of example errors in the summary.
const EXAMPLES: usize = 10;

/// The counts, the log and the errors of a run.
pub struct Report {
    start: Instant,
    log: Mutex<File>,
    counts: Mutex<BTreeMap<(Section, String), u64>>,
    complaints: Mutex<Vec<String>>,
    tolerated: Mutex<Vec<String>>,
}

/// The categories of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    Operations,
    Faults,
    /// Errors with an acceptable reason.
    Excused,
}

impl Report {
    pub fn new(log: &Path) -> Self {
        let log = File::create(log).expect("the run's folder takes a file");
        Self {
            start: Instant::now(),
            log: Mutex::new(log),
            counts: Mutex::default(),
            complaints: Mutex::default(),
            tolerated: Mutex::default(),
        }
    }

    pub fn log(&self, line: &str) {
        let at = self.start.elapsed().as_secs_f64();
        let _ = writeln!(self.log.lock().expect("nobody panics with it"), "{at:9.3} {line}");
    }

    pub fn count(&self, section: Section, what: &str) {
        *self.counts.lock().expect("nobody panics with it").entry((section, what.to_owned())).or_default() +=
            1;
    }

    /// Records an error after which the run can continue.
    pub fn complain(&self, complaint: &str) {
        self.log(&format!("WRONG: {complaint}"));
        say(&format!("thrash: WRONG: {complaint}"));
        self.complaints.lock().expect("nobody panics with it").push(complaint.to_owned());
    }

    /// Records an error that has no excuse but may disappear when the operation is repeated.
    pub fn tolerate(&self, what: &str) {
        self.log(&format!("  must succeed before long: {what}"));
        self.tolerated.lock().expect("nobody panics with it").push(what.to_owned());
    }

    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().expect("nobody panics with it").clone()
    }

    /// Returns the counts of each category on one line, and some of the errors that disappeared.
    pub fn summary(&self) -> String {
        let counts = self.counts.lock().expect("nobody panics with it");
        let mut sections: BTreeMap<Section, (u64, Vec<String>)> = BTreeMap::new();
        for ((section, what), count) in counts.iter() {
            let (sum, words) = sections.entry(*section).or_default();
            *sum += count;
            words.push(format!("{what} {count}"));
        }
        let line = |(section, (sum, words)): (Section, (u64, Vec<String>))| {
            format!("thrash: {:<10} {sum:>5}: {}\n", format!("{section:?}").to_lowercase(), words.join(", "))
        };
        let tolerated = self.tolerated.lock().expect("nobody panics with it");
        let example = |what: &String| format!("thrash: at first {what}\n");
        sections.into_iter().map(line).chain(tolerated.iter().take(EXAMPLES).map(example)).collect()
    }
}
