//! One round: concurrent operations and faults, followed by the judgement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::catalog_probes::Probed;
use crate::clients::{self, Fate, Ran};
use crate::cluster::{COORDINATOR, Cluster, within};
use crate::faults::{self, Action, Disturbed, PARITY, Schedule};
use crate::helpers::{Health, Helpers, Process};
use crate::judge::{Circumstances, Verdict, judge, write_of};
use crate::model::Model;
use crate::network::Network;
use crate::operations::{self, Operation, Verb};
use crate::report::{Report, Section, say};
use crate::switches::Switches;

/// How long the cluster may take to work again after a fault.
pub const SETTLED: Duration = Duration::from_secs(60);
/// Each entry: the number of bad blocks per stripe that the codes tolerate, the number of helpers, and the
/// codes.
const SCALES: [(usize, usize, &[&str]); 2] = [
    (2, 11, &["rs-6-4", "rs-6-4", "clay-6-4-5", "hitchhiker-xorplus-6-4"]),
    (3, 12, &["rs-7-4", "rs-7-4", "rs-9-6", "lrc-4-2-2"]),
];

/// A thrash run: the cluster, what the run knows about it, and the report.
pub struct Thrash {
    pub(crate) cluster: Cluster,
    pub(crate) helpers: Helpers,
    pub(crate) model: Model,
    pub(crate) report: Report,
    /// The bad blocks that the coordinator has reported so far.
    pub(crate) losses: BTreeSet<String>,
    codes: &'static [&'static str],
    switches: Switches,
    seed: u64,
    round: u64,
}

impl Thrash {
    /// Starts a cluster whose size, codes and settings depend on the seed.
    pub fn start(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (budget, helpers, codes) = *rng.choice(&SCALES).expect("not empty");
        let mut cluster = Cluster::init(helpers, codes[0], rng.bool(), Network::make);
        let switches = Switches::choose(&cluster);
        cluster.fake_clocks(switches.clocks.clone());
        let report = Report::new(&cluster.path("operations.log"));
        report.log(&format!("MEND_THRASH_SEED={seed}, {helpers} helpers, {codes:?}, {switches:?}"));
        cluster.start(COORDINATOR);
        cluster.helpers().iter().for_each(|helper| cluster.start(helper));
        let helpers = Helpers::new(cluster.helpers(), budget);
        let mut thrash = Self {
            cluster,
            helpers,
            model: Model::default(),
            report,
            losses: BTreeSet::new(),
            codes,
            switches,
            seed,
            round: 0,
        };
        thrash.wait_for_all();
        thrash
    }

    /// Runs one round. The draws of a round depend on the seed and on the outcome of earlier rounds, but not
    /// on timing.
    pub fn round(&mut self) {
        self.round += 1;
        let mut rng = Rng::with_seed(self.seed ^ self.round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // In most rounds, wait for returning helpers first: the faults that may be drawn depend on which
        // helpers are back, and should not depend on timing.
        let patience = Duration::from_secs(if rng.u32(..5) == 0 { 0 } else { 3 });
        self.wait_for_returns(patience);
        let before = self.circumstances(Disturbed::default());
        let mut operations =
            operations::draw(&mut rng, &self.model, self.codes, self.cluster.helpers().len(), self.round);
        let begins = operations.iter().map(|operation| operation.at).collect();
        let schedule =
            faults::draw(&mut rng, &mut self.helpers, &self.switches, begins, self.round, self.codes[0]);
        operations.extend(schedule.operations.iter().cloned());
        schedule.names.iter().for_each(|name| self.report.count(Section::Faults, name));
        let checks_status = rng.u32(..3) == 0;
        let heal = rng.u32(..100) < if self.helpers.bad() >= self.helpers.budget { 25 } else { 4 };
        self.report.log(&format!("round {} [{}]", self.round, self.helpers.words()));
        let writes = [operations.as_slice(), &schedule.probes].concat();
        let around = self.with_writes(self.circumstances(schedule.disturbed), &before, &writes);
        let (ran, probed) = self.run(&operations, &schedule);
        self.restart_who_ended();
        self.await_coordinator(schedule.disturbed.coordinator);
        if schedule.disturbed.catalog {
            self.await_writes();
        }
        self.stop_drains(&operations);
        if schedule.events.iter().any(|event| event.action == Action::PauseRepairs)
            && !within(SETTLED, || self.resume_repairs())
        {
            self.fail("paused repairs cannot be resumed");
        }
        for (operation, ran) in operations.iter().zip(&ran).chain(schedule.probes.iter().zip(&probed.ran)) {
            self.take(operation, ran, &around);
        }
        if let Some(lie) = probed.lie {
            self.fail(&format!("STATUS BETTER THAN THE TRUTH: {lie}"));
        }
        self.helpers.note_gone();
        if heal {
            self.heal(3);
            if self.switches.has(PARITY) && rng.u32(..4) == 0 {
                self.hold_against_parity(&mut rng);
            }
        } else if checks_status {
            self.check_status(&mut rng);
        }
    }

    /// Heals everything, reads back every file, runs the last faults, and prints a summary.
    pub fn finish(mut self) {
        self.heal(usize::MAX);
        let mut rng = Rng::with_seed(!self.seed);
        if self.switches.has(PARITY) {
            self.hold_against_parity(&mut rng);
        }
        let mut rng = Rng::with_seed(self.seed ^ u64::MAX);
        self.rebuild_lost_catalog(&mut rng);
        self.restore_old_catalog(&mut rng);
        let complaints = self.report.complaints();
        self.say_summary();
        let wrong = if complaints.is_empty() { "nothing".to_owned() } else { complaints.join("; ") };
        say(&format!("thrash: wrong: {wrong} (MEND_THRASH_SEED={})", self.seed));
        assert!(complaints.is_empty(), "MEND_THRASH_SEED={}: {wrong}", self.seed);
    }

    fn say_summary(&self) {
        say(&format!("thrash: {} rounds\n{}", self.round, self.report.summary().trim_end()));
    }

    /// Ends the run with an error.
    pub(crate) fn fail(&self, what: &str) -> ! {
        self.report.log(&format!("WRONG: {what}"));
        self.say_summary();
        panic!("{what}\nin round {} of MEND_THRASH_SEED={}", self.round, self.seed);
    }

    fn circumstances(&self, disturbed: Disturbed) -> Circumstances {
        Circumstances {
            disturbed,
            exceeded: self.helpers.exceed(),
            degraded: self.helpers.bad() > 0,
            forged: !self.helpers.which(|health| health.forged).is_empty(),
            full: !self.helpers.which(|health| health.full).is_empty(),
            live: self
                .helpers
                .which(|health| health.process == Process::Up && health.returning.is_none())
                .len(),
            possible: self
                .model
                .names()
                .into_iter()
                .map(|name| (name.clone(), self.model.possible(&name)))
                .collect(),
            ..Circumstances::default()
        }
    }

    /// Adds to the circumstances `now` the conditions before the round, and the writes of these operations.
    fn with_writes(
        &self,
        mut now: Circumstances,
        before: &Circumstances,
        operations: &[Operation],
    ) -> Circumstances {
        now.full |= before.full;
        now.exceeded |= before.exceeded;
        now.degraded |= before.degraded;
        now.forged |= before.forged;
        now.live = now.live.min(before.live);
        now.before = before.possible.clone();
        for operation in operations {
            now.live -= usize::from(matches!(operation.verb, Verb::Drain { .. })).min(now.live);
            if let Some((name, new)) = operation.verb.writes() {
                let states = now.possible.entry(name.to_owned()).or_insert_with(|| BTreeSet::from([None]));
                states.insert(new);
                now.written.insert(name.to_owned());
                let is_replaced = matches!(operation.verb, Verb::Put { replace: true, .. })
                    && !before.possible.get(name).is_none_or(|states| states.contains(&None));
                now.replaced.extend(is_replaced.then(|| name.to_owned()));
            }
        }
        now
    }

    /// Stops the drains that these operations began. The helpers then take blocks again.
    fn stop_drains(&self, operations: &[Operation]) {
        for operation in operations {
            let Verb::Drain { helper } = &operation.verb else { continue };
            // The command exits with 1 if the drain never began.
            let stops = ["node", "drain", helper, "--stop"];
            let stopped =
                || matches!(clients::run(&self.cluster, "stop", &stops, Fate::Spared).code, Some(0 | 1));
            if !within(SETTLED, stopped) {
                self.fail(&format!("the drain of {helper} cannot be stopped"));
            }
        }
    }

    fn run(&self, operations: &[Operation], schedule: &Schedule) -> (Vec<Ran>, Probed) {
        for operation in operations {
            self.write_source(operation);
        }
        let start = Instant::now();
        let ran: Mutex<BTreeMap<usize, Ran>> = Mutex::default();
        let mut probed = Probed::default();
        thread::scope(|scope| {
            for (number, operation) in operations.iter().enumerate() {
                let ran = &ran;
                scope.spawn(move || {
                    sleep_until(start + operation.at);
                    let result = self.run_one(operation);
                    ran.lock().expect("nobody panics with it").insert(number, result);
                });
            }
            for event in &schedule.events {
                sleep_until(start + event.at);
                faults::carry_out(&self.cluster, &event.action, &self.report);
                match event.action {
                    Action::Probe => probed = self.probe_writes(&schedule.probes),
                    Action::LookAtStatus => self.check_status_of_dead(),
                    Action::PauseRepairs => self.pause_repairs(),
                    Action::ResumeRepairs => drop(self.resume_repairs()),
                    _ => {}
                }
            }
        });
        (ran.into_inner().expect("nobody panics with it").into_values().collect(), probed)
    }

    pub(crate) fn run_one(&self, operation: &Operation) -> Ran {
        let arguments = operation.arguments(&self.cluster);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.report.log(&format!("  {}: mend {} {:?}", operation.label, words.join(" "), operation.fate));
        let ran = clients::run(&self.cluster, &operation.label, &words, operation.fate);
        self.report.log(&format!("  {}: {}", operation.label, ran.words()));
        ran
    }

    pub(crate) fn write_source(&self, operation: &Operation) {
        if let Some((_, Some(content))) = operation.verb.writes() {
            std::fs::write(operation.source(&self.cluster), content.make()).unwrap();
        }
    }

    /// Records the outcome of an operation. Repeats the operation if it has failed without an excuse.
    fn take(&mut self, operation: &Operation, ran: &Ran, around: &Circumstances) {
        let word = operation.verb.word();
        self.report.count(Section::Operations, word);
        let mut verdict = self.note(operation, ran, around);
        if verdict == Verdict::Again {
            self.report.tolerate(&format!("{}: {}", operation.label, ran.words()));
            verdict = self.again(operation);
        }
        match verdict {
            Verdict::Fine => {}
            Verdict::Excused(reason) => self.report.count(Section::Excused, &format!("{word}: {reason}")),
            Verdict::Again => self.fail(&format!(
                "`mend {word}` still fails {SETTLED:?} after the last fault: {}\nhelpers: {}",
                ran.words(),
                self.helpers.words()
            )),
            Verdict::Wrong(what) => self.fail(&what),
        }
        self.forget_files(&operation.label);
    }

    fn note(&mut self, operation: &Operation, ran: &Ran, around: &Circumstances) -> Verdict {
        let verdict = judge(operation, ran, &self.cluster, around);
        if let Some((name, new)) = operation.verb.writes() {
            self.model.write(name, new, write_of(ran, around));
        }
        match operation.fate {
            Fate::Killed { .. } if ran.killed => self.report.count(Section::Faults, "client killed"),
            Fate::Stopped { .. } => self.report.count(Section::Faults, "client stopped"),
            _ => {}
        }
        verdict
    }

    fn again(&mut self, operation: &Operation) -> Verdict {
        let start = Instant::now();
        for attempt in 1.. {
            thread::sleep(Duration::from_millis(500));
            self.see_who_is_back();
            let label = format!("{}-again{attempt}", operation.label);
            let again =
                Operation { label, at: Duration::ZERO, fate: Fate::Spared, verb: operation.verb.clone() };
            self.write_source(&again);
            let before = self.circumstances(Disturbed::default());
            let around = self.with_writes(before.clone(), &before, std::slice::from_ref(&again));
            let ran = self.run_one(&again);
            self.restart_who_ended();
            let around = Circumstances { written: BTreeSet::new(), replaced: BTreeSet::new(), ..around };
            let verdict = self.note(&again, &ran, &around);
            self.forget_files(&again.label);
            match verdict {
                Verdict::Fine => return Verdict::Excused("not noticed yet"),
                Verdict::Again if start.elapsed() < SETTLED => {}
                other => return other,
            }
        }
        unreachable!("attempts have no end")
    }

    fn forget_files(&self, label: &str) {
        for end in ["src", "got", "out", "err"] {
            // Ignore errors: not every operation creates all of these files.
            let _ = std::fs::remove_file(self.cluster.path("operations").join(format!("{label}.{end}")));
        }
    }

    /// Clears the state `returning` of helpers that the coordinator reports up again. Reports and restarts
    /// helpers that do not come back in time.
    pub(crate) fn see_who_is_back(&mut self) {
        let returning = self.helpers.which(|health| health.returning.is_some());
        if returning.is_empty() {
            return;
        }
        let ran = clients::run(&self.cluster, "helpers", &["node", "list", "--output", "json"], Fate::Spared);
        let known = ran.json().and_then(|json| json.as_array().cloned()).unwrap_or_default();
        let up = |name: &str| known.iter().any(|helper| helper["name"] == *name && helper["up"] == true);
        for name in returning {
            let since = self.helpers.of(&name).returning;
            if up(&name) {
                self.helpers.of(&name).returning = None;
            } else if since.is_some_and(|since| since.elapsed() > SETTLED) {
                let words = self.cluster.last_words(&name);
                self.report.complain(&format!("{name} runs and is not back after {SETTLED:?}: {words}"));
                self.cluster.kill(&name);
                self.cluster.start(&name);
                self.helpers.returns(&name);
            }
        }
    }

    /// Reports daemons that have exited by themselves, and restarts them.
    pub(crate) fn restart_who_ended(&mut self) {
        for (name, status) in self.cluster.ended() {
            let what = format!("{name} ended by itself ({status}): {}", self.cluster.last_words(&name));
            self.report.complain(&what);
            self.cluster.start(&name);
            if name != COORDINATOR {
                self.helpers.returns(&name);
            }
        }
    }

    fn await_coordinator(&self, was_away: bool) {
        if !was_away {
            return;
        }
        let answers = || {
            let ran = clients::run(&self.cluster, "status", &["status"], Fate::Spared);
            matches!(ran.code, Some(0 | 3))
        };
        if !within(SETTLED, answers) {
            self.fail(&format!("the coordinator is not back: {}", self.cluster.last_words(COORDINATOR)));
        }
    }

    fn wait_for_returns(&mut self, patience: Duration) {
        let start = Instant::now();
        self.see_who_is_back();
        while start.elapsed() < patience
            && !self.helpers.which(|health| health.returning.is_some()).is_empty()
        {
            thread::sleep(Duration::from_millis(100));
            self.see_who_is_back();
        }
    }

    fn wait_for_all(&mut self) {
        let names = self.cluster.helpers();
        names.iter().for_each(|name| self.helpers.returns(name));
        let start = Instant::now();
        while !self.helpers.which(Health::is_bad).is_empty() {
            assert!(start.elapsed() < SETTLED, "the cluster does not start: {}", self.helpers.words());
            thread::sleep(Duration::from_millis(100));
            self.see_who_is_back();
        }
    }
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}
