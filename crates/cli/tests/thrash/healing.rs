//! Removes all faults, repairs everything, and checks all files.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::clients::{self, Fate, Ran};
use crate::cluster::{COORDINATOR, within};
use crate::content::difference;
use crate::disk;
use crate::helpers::{Health, Process};
use crate::report::Section;
use crate::rounds::{SETTLED, Thrash};

/// The time limit for healing after the end of all faults.
const HEALED: Duration = Duration::from_secs(240);

impl Thrash {
    /// Ends all faults, repairs everything, and reads back at most `reads` files.
    pub(crate) fn heal(&mut self, reads: usize) {
        self.report.log(&format!("healing [{}]", self.helpers.words()));
        self.report.count(Section::Operations, "heal");
        self.take_faults_away();
        self.await_helpers();
        self.repair_until_whole();
        self.look_for_false_alarms();
        for name in self.cluster.helpers() {
            *self.helpers.of(&name) =
                Health { has_snapshot: self.helpers.of(&name).has_snapshot, ..Health::default() };
        }
        self.look_for_panics();
        self.check_status_of_all();
        // Files with several possible contents come first.
        let mut names = self.model.names();
        names.sort_by_key(|name| self.model.possible(name).len() == 1);
        names.iter().take(reads).for_each(|name| self.read_back(name));
    }

    fn take_faults_away(&mut self) {
        for name in self.cluster.helpers() {
            disk::unfill(&self.cluster.blocks(&name));
            disk::make_readable(&self.cluster.blocks(&name));
            self.cluster.signal(&name, Signal::CONT);
            if self.helpers.of(&name).process == Process::Down {
                self.cluster.start(&name);
            }
            self.helpers.returns(&name);
        }
        self.restart_who_ended();
    }

    pub(crate) fn await_helpers(&mut self) {
        let start = Instant::now();
        while !self.helpers.which(|health| health.returning.is_some()).is_empty() {
            if start.elapsed() > SETTLED * 2 {
                self.fail(&format!("not all helpers came back: {}", self.helpers.words()));
            }
            self.see_who_is_back();
            self.restart_who_ended();
            std::thread::sleep(Duration::from_millis(100));
        }
        let settled = || {
            let status = self.verb(&["status", "--output", "json"]).json();
            status.is_some_and(|status| status["settling"] == false)
        };
        if !within(SETTLED, settled) {
            self.fail("the coordinator still settles, with all helpers there");
        }
    }

    pub(crate) fn repair_until_whole(&self) {
        let start = Instant::now();
        loop {
            let scrub = self.verb(&["scrub"]);
            let repair = self.verb(&["repair", "--all"]);
            let status = self.verb(&["status", "--output", "json"]);
            let whole = status.json().is_some_and(|status| status["healthy"] == true);
            if scrub.code == Some(0) && whole {
                self.count_leftovers(&status);
                return;
            }
            if start.elapsed() > HEALED {
                self.fail(&format!(
                    "not whole {HEALED:?} after all faults were gone:\nscrub: {}\n{}\nrepair: {}\n{}\nstatus: {}",
                    scrub.words(),
                    scrub.out_text(),
                    repair.words(),
                    repair.out_text(),
                    status.out_text()
                ));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn count_leftovers(&self, status: &Ran) {
        let orphans = status.json().and_then(|status| Some(status["orphans"].as_array()?.len())).unwrap_or(0);
        self.report.log(&format!("  whole; {orphans} blocks belong to no stripe"));
    }

    pub(crate) fn verb(&self, arguments: &[&str]) -> Ran {
        let ran = clients::run(&self.cluster, &format!("heal-{}", arguments[0]), arguments, Fate::Spared);
        self.report.log(&format!("  healing: mend {}: {}", arguments.join(" "), ran.words()));
        if ran.hung {
            self.fail(&format!("`mend {}` hangs while all is well", arguments.join(" ")));
        }
        ran
    }

    /// Checks that bad blocks were reported only on helpers with damaged disks.
    pub(crate) fn look_for_false_alarms(&mut self) {
        let damaged = self.helpers.which(|health| health.damaged);
        let status = self.verb(&["status", "--output", "json"]).json().unwrap_or_default();
        for loss in status["lost_lately"].as_array().into_iter().flatten() {
            let is_new = self.losses.insert(loss.to_string());
            if is_new && !damaged.iter().any(|helper| loss["node"] == **helper) {
                self.report.complain(&format!("an intact block was called bad: {loss}"));
            }
        }
    }

    fn look_for_panics(&self) {
        let daemons = self.cluster.helpers().into_iter().chain([COORDINATOR.to_owned()]);
        for daemon in daemons {
            let log = std::fs::read(self.cluster.log(&daemon)).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            if let Some(line) = log.lines().find(|line| line.contains("panicked")) {
                self.fail(&format!("{daemon}: {line}"));
            }
        }
    }

    /// Reads a file, checks that it has one of its possible contents, and records which one.
    pub(crate) fn read_back(&mut self, name: &str) {
        let possible = self.model.possible(name);
        let ran = self.verb(&["get", name, "-o", "-"]);
        self.report.count(Section::Operations, "read back");
        if ran.code != Some(0) {
            if ran.err.contains("there is no file") && possible.contains(&None) {
                return self.model.settle(name, None);
            }
            self.fail(&format!("`{name}` cannot be read although all is well: {}", ran.words()));
        }
        let found = std::fs::read(&ran.out).unwrap_or_default();
        let version = possible.iter().flatten().find(|content| content.make() == found);
        match version {
            Some(content) => self.model.settle(name, Some(*content)),
            None => {
                let differs = |content: &crate::content::Content| difference(&found, &content.make());
                let text: Vec<String> = possible.iter().flatten().map(differs).collect();
                self.fail(&format!(
                    "WRONG BYTES: `{name}` read back: {} bytes, {}",
                    found.len(),
                    text.join("; or ")
                ));
            }
        }
    }
}
