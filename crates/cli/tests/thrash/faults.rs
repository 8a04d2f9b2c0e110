//! Faults of the cluster: drawn in advance for a round, and injected while operations run.

use std::time::Duration;

use fastrand::Rng;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::catalog_probes;
use crate::clients::Fate;
use crate::cluster::{COORDINATOR, Cluster};
use crate::disk::{self, Damage};
use crate::helpers::{Health, Helpers, Process};
use crate::limits;
use crate::operations::{Operation, Verb};
use crate::report::{Report, Section};
use crate::switches::Switches;

/// A fault or the end of one. `who` is a helper or the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Kill {
        who: String,
    },
    Start {
        who: String,
    },
    Stop {
        who: String,
    },
    Continue {
        who: String,
    },
    Damage {
        helper: String,
        damage: Damage,
        seed: u64,
    },
    Wipe {
        helper: String,
    },
    Snapshot {
        helper: String,
    },
    RollBack {
        helper: String,
    },
    Fill {
        helper: String,
        leave: u64,
    },
    Unfill {
        helper: String,
    },
    Starve {
        helper: String,
    },
    Feed {
        helper: String,
    },
    SetClock {
        who: String,
        offset: &'static str,
    },
    /// Copies blocks of other dead helpers to the disk of a dead helper.
    Hoard {
        helper: String,
        from: Vec<String>,
        seed: u64,
    },
    /// Starts or stops dropping packets from one helper to another.
    Links {
        from: String,
        to: String,
        drops: bool,
    },
    /// Sets or removes a limit on the size of the coordinator's files.
    LimitFiles {
        bytes: Option<u64>,
    },
    FillRecords {
        leave: u64,
    },
    UnfillRecords,
    /// Runs the probes of the schedule.
    Probe,
    /// Compares the status with the disks of the running helpers.
    LookAtStatus,
    /// Pauses all repairs that are open.
    PauseRepairs,
    /// Resumes all paused repairs.
    ResumeRepairs,
}

/// An action, and the delay from the start of the round until the action is carried out.
#[derive(Clone, Debug)]
pub struct Event {
    pub at: Duration,
    pub action: Action,
}

/// Parts of the cluster that the faults of a round disturb. A failure that such a disturbance can cause is
/// excused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbed {
    pub coordinator: bool,
    pub helpers: bool,
    pub disks: bool,
    pub catalog: bool,
}

/// The events of one round.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    pub events: Vec<Event>,
    pub disturbed: Disturbed,
    /// The names of faults that consist of several actions, for the report.
    pub names: Vec<&'static str>,
    /// Repairs that users request because of the faults.
    pub operations: Vec<Operation>,
    /// Puts to try while the catalog refuses writes.
    pub probes: Vec<Operation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    KillHelper,
    StartHelper,
    StopHelper,
    ContinueHelper,
    Damage,
    Wipe,
    Snapshot,
    RollBack,
    Fill,
    Unfill,
    Starve,
    KillCoordinator,
    StopCoordinator,
    SetClock,
    Excess,
    PowerCut,
    Hoard,
    Links,
    Catalog,
    Pause,
}

const WEIGHTS: [(Kind, &str, u32); 20] = [
    (Kind::KillHelper, "kill-helper", 14),
    (Kind::StartHelper, "start-helper", 8),
    (Kind::StopHelper, "stop-helper", 8),
    (Kind::ContinueHelper, "continue-helper", 8),
    (Kind::Damage, "damage", 20),
    (Kind::Wipe, "wipe", 2),
    (Kind::Snapshot, "snapshot", 5),
    (Kind::RollBack, "roll-back", 3),
    (Kind::Fill, "fill", 8),
    (Kind::Unfill, "unfill", 8),
    (Kind::Starve, "starve", 3),
    (Kind::KillCoordinator, "kill-coordinator", 6),
    (Kind::StopCoordinator, "stop-coordinator", 4),
    (Kind::SetClock, "set-clock", 5),
    (Kind::Excess, "excess", 2),
    (Kind::PowerCut, "power-cut", 1),
    (Kind::Hoard, "hoard", 4),
    (Kind::Links, "links", 6),
    (Kind::Catalog, "catalog", 5),
    (Kind::Pause, "pause", 6),
];

/// The name of a fault that is never drawn in a round. The fault is injected when everything is healthy.
pub const PARITY: &str = "parity";

/// Returns the names of all kinds of faults.
pub fn names() -> impl Iterator<Item = &'static str> {
    WEIGHTS.iter().map(|(_, name, _)| *name).chain([PARITY])
}

/// Clock offsets. The cluster's certificates are valid at all of them: from one day before their creation
/// until years after it.
const OFFSETS: [&str; 6] = ["+0", "-20h", "-3600", "+1", "+40d", "+3y"];

/// The delay after which helpers that are killed are certainly dead.
const HOARDED: Duration = Duration::from_millis(300);
/// The delay after which a coordinator that was killed has certainly been restarted.
const LOOKED: Duration = Duration::from_millis(1200);

/// Draws the faults of one round and records them in `helpers`. `begins` lists the start times of the round's
/// operations, relative to the start of the round.
pub fn draw(
    rng: &mut Rng,
    helpers: &mut Helpers,
    switches: &Switches,
    begins: Vec<Duration>,
    round: u64,
    code: &str,
) -> Schedule {
    let mut draw = Draw { rng, helpers, switches, begins, round, code, schedule: Schedule::default() };
    // Many rounds add no fault, so that the effects of earlier faults are also tested without new ones.
    let faults = *draw.rng.choice(&[0, 0, 0, 1, 1, 1, 2, 2, 3]).expect("not empty");
    for _ in 0..faults {
        let kind = draw.kind();
        draw.add(kind);
    }
    draw.schedule.events.sort_by_key(|event| event.at);
    draw.schedule
}

struct Draw<'a> {
    rng: &'a mut Rng,
    helpers: &'a mut Helpers,
    switches: &'a Switches,
    begins: Vec<Duration>,
    round: u64,
    code: &'a str,
    schedule: Schedule,
}

impl Draw<'_> {
    fn kind(&mut self) -> Kind {
        let weight = |name: &str, weight: u32| if self.switches.has(name) { weight } else { 0 };
        let weights = WEIGHTS.map(|(kind, name, of)| (kind, weight(name, of)));
        let sum = weights.iter().map(|(_, weight)| weight).sum::<u32>();
        let mut at = self.rng.u32(..sum.max(1));
        let found = weights.into_iter().find(|(_, weight)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        found.unwrap_or((Kind::StartHelper, 0)).0
    }

    fn milliseconds(&mut self, below: u64) -> Duration {
        Duration::from_millis(self.rng.u64(..below))
    }

    /// Draws the duration of a pause: less than a second, or up to eight seconds, longer than most timeouts.
    fn pause(&mut self) -> Duration {
        if self.rng.u32(..3) == 0 { self.milliseconds(8000) } else { self.milliseconds(1000) }
    }

    fn event(&mut self, at: Duration, action: Action) {
        self.schedule.events.push(Event { at, action });
    }

    /// Draws a helper that satisfies `is` and may be disturbed.
    fn target(&mut self, is: impl Fn(&Health) -> bool) -> Option<String> {
        let targets = self.helpers.targets(is);
        self.rng.choice(&targets).cloned()
    }

    fn one_of(&mut self, is: impl Fn(&Health) -> bool) -> Option<String> {
        let which = self.helpers.which(is);
        self.rng.choice(&which).cloned()
    }

    /// Draws a time in the round, mostly soon after the start of an operation.
    fn moment(&mut self) -> Duration {
        let begin = self.rng.choice(&self.begins).copied().unwrap_or_default();
        if self.rng.u32(..10) < 7 { begin + self.milliseconds(200) } else { self.milliseconds(900) }
    }

    /// Adds a fault of this kind. Returns `None` if the fault is not possible now.
    fn add(&mut self, kind: Kind) -> Option<()> {
        let at = self.moment();
        match kind {
            Kind::KillHelper => self.kill_helper(at)?,
            Kind::StartHelper => {
                let who = self.one_of(|health| health.process == Process::Down)?;
                self.is_untouched(&who)?;
                self.helpers.returns(&who);
                self.event(at, Action::Start { who });
            }
            Kind::StopHelper => self.stop_helper(at)?,
            Kind::ContinueHelper => {
                let who = self.one_of(|health| health.process == Process::Stopped)?;
                self.is_untouched(&who)?;
                self.helpers.returns(&who);
                self.event(at, Action::Continue { who });
            }
            Kind::Damage => self.damage(at)?,
            Kind::Wipe => {
                let helper = self.target(|_| true)?;
                self.is_damaged(&helper);
                self.event(at, Action::Wipe { helper });
            }
            Kind::Snapshot => {
                let helper = self.one_of(|health| !health.damaged && !health.full)?;
                self.helpers.of(&helper).has_snapshot = true;
                self.event(at, Action::Snapshot { helper });
            }
            Kind::RollBack => self.roll_back(at)?,
            Kind::Fill if self.switches.full_disks => self.fill(at)?,
            Kind::Unfill => {
                let helper = self.one_of(|health| health.full)?;
                self.helpers.of(&helper).full = false;
                self.event(at, Action::Unfill { helper });
            }
            Kind::Starve => self.starve(at)?,
            Kind::Fill => {}
            Kind::KillCoordinator => {
                let pause = self.milliseconds(2500);
                self.cycle_coordinator(at, pause, true);
            }
            Kind::StopCoordinator => {
                let pause = self.pause();
                self.cycle_coordinator(at, pause, false);
            }
            Kind::SetClock => self.set_clock(at)?,
            Kind::Excess => self.excess(at),
            Kind::PowerCut => self.power_cut(at),
            Kind::Hoard => self.hoard(at)?,
            Kind::Links if self.switches.links => self.links(at),
            Kind::Catalog => self.catalog(at),
            Kind::Pause => self.pause_repairs(at),
            Kind::Links => {}
        }
        Some(())
    }

    fn is_damaged(&mut self, helper: &str) {
        self.schedule.disturbed.helpers = true;
        self.helpers.of(helper).damaged = true;
    }

    /// Whether the round already disturbs a process. A round disturbs each process at most once, so that the
    /// order of its events does not matter.
    fn is_touched(&self, who: &str) -> bool {
        self.schedule.events.iter().any(|event| match &event.action {
            Action::Kill { who: other }
            | Action::Start { who: other }
            | Action::Stop { who: other }
            | Action::Continue { who: other }
            | Action::RollBack { helper: other }
            | Action::Starve { helper: other } => who == other,
            Action::Probe | Action::LookAtStatus => who == COORDINATOR,
            _ => false,
        })
    }

    fn is_untouched(&self, who: &str) -> Option<()> {
        (!self.is_touched(who)).then_some(())
    }

    fn untouched(&mut self, is: impl Fn(&Health) -> bool) -> Option<String> {
        self.target(is).filter(|who| !self.is_touched(who))
    }

    fn kill_helper(&mut self, at: Duration) -> Option<()> {
        let who = self.untouched(|health| health.process == Process::Up)?;
        self.schedule.disturbed.helpers = true;
        self.event(at, Action::Kill { who: who.clone() });
        if self.rng.u32(..10) < 6 {
            let pause = self.milliseconds(1500);
            self.helpers.returns(&who);
            self.event(at + pause, Action::Start { who });
        } else {
            self.helpers.of(&who).process = Process::Down;
        }
        Some(())
    }

    fn stop_helper(&mut self, at: Duration) -> Option<()> {
        let who = self.untouched(|health| health.process == Process::Up)?;
        self.schedule.disturbed.helpers = true;
        self.event(at, Action::Stop { who: who.clone() });
        if self.rng.u32(..10) < 7 {
            let pause = self.pause();
            self.helpers.returns(&who);
            self.event(at + pause, Action::Continue { who });
        } else {
            self.helpers.of(&who).process = Process::Stopped;
        }
        Some(())
    }

    fn damage(&mut self, at: Duration) -> Option<()> {
        let helper = self.target(|_| true)?;
        self.is_damaged(&helper);
        for _ in 0..self.rng.u32(1..=4) {
            let consistent = self.rng.u32(..10) < 3;
            let kinds: &[Damage] = if consistent { &Damage::CONSISTENT } else { &Damage::PLAIN };
            let damage = *self.rng.choice(kinds).expect("not empty");
            self.helpers.of(&helper).forged |= damage == Damage::Forge;
            let seed = self.rng.u64(..);
            self.event(at, Action::Damage { helper: helper.clone(), damage, seed });
        }
        Some(())
    }

    fn roll_back(&mut self, at: Duration) -> Option<()> {
        let helper = self.untouched(|health| health.has_snapshot && health.process != Process::Stopped)?;
        self.is_damaged(&helper);
        self.helpers.returns(&helper);
        self.event(at, Action::RollBack { helper });
        Some(())
    }

    /// Fills a helper's disk. The helper does not count as bad: no block is lost, and writes go to other
    /// helpers or fail.
    fn fill(&mut self, at: Duration) -> Option<()> {
        if self.helpers.which(|health| health.full).len() == 3 {
            return None;
        }
        let helper = self.one_of(|health| !health.full)?;
        self.helpers.of(&helper).full = true;
        self.schedule.disturbed.disks = true;
        let leave = *self.rng.choice(&[0, 4096, 50_000, 300_000]).expect("not empty");
        self.event(at, Action::Fill { helper, leave });
        Some(())
    }

    fn starve(&mut self, at: Duration) -> Option<()> {
        let helper = self.untouched(|health| health.process == Process::Up)?;
        self.schedule.disturbed.helpers = true;
        self.helpers.returns(&helper);
        let pause = self.milliseconds(4000);
        self.event(at, Action::Starve { helper: helper.clone() });
        self.event(at + pause, Action::Feed { helper });
        Some(())
    }

    /// Sets the clock of a daemon. Stored data must never depend on the time.
    fn set_clock(&mut self, at: Duration) -> Option<()> {
        self.switches.clocks.as_ref()?;
        let helper = self.one_of(|_| true)?;
        let who = if self.rng.u32(..4) == 0 { COORDINATOR.to_owned() } else { helper };
        let offset = *self.rng.choice(&OFFSETS).expect("not empty");
        self.event(at, Action::SetClock { who, offset });
        Some(())
    }

    /// Kills or stops the coordinator and restarts or continues it within the round.
    fn cycle_coordinator(&mut self, at: Duration, pause: Duration, kill: bool) {
        let who = COORDINATOR.to_owned();
        if self.is_touched(&who) {
            return;
        }
        self.schedule.disturbed.coordinator = true;
        let [begin, end] = if kill {
            [Action::Kill { who: who.clone() }, Action::Start { who }]
        } else {
            [Action::Stop { who: who.clone() }, Action::Continue { who }]
        };
        self.event(at, begin);
        self.event(at + pause, end);
    }

    /// Stops or kills more helpers than any code tolerates, for up to 8.5 seconds.
    fn excess(&mut self, at: Duration) {
        let pause = Duration::from_millis(500) + self.pause();
        let kill = self.rng.bool();
        self.schedule.names.push("more than codes bear");
        let mut healthy = self.helpers.which(|health| !health.is_bad());
        self.rng.shuffle(&mut healthy);
        let more = (self.helpers.budget + 1 + self.rng.usize(..3)).saturating_sub(self.helpers.bad());
        for who in healthy.into_iter().take(more) {
            self.away_for(at, pause, &who, kill);
        }
    }

    /// Kills and restarts everything at once.
    fn power_cut(&mut self, at: Duration) {
        let pause = self.milliseconds(2000);
        self.schedule.names.push("everything killed");
        self.cycle_coordinator(at, pause, true);
        for who in self.helpers.which(|health| health.process == Process::Up) {
            self.away_for(at, pause, &who, true);
        }
    }

    /// Kills a helper and holders of other blocks, copies blocks of these holders to the helper's disk, and
    /// restarts the helper. The helper then holds several blocks of the same stripes.
    fn hoard(&mut self, at: Duration) -> Option<()> {
        let is_good = |health: &Health| !health.is_bad() && !health.full;
        let hoarder = self.untouched(is_good)?;
        self.schedule.disturbed.helpers = true;
        self.schedule.names.push("copies adopted");
        self.event(at, Action::Kill { who: hoarder.clone() });
        self.helpers.returns(&hoarder);
        let mut holders = Vec::new();
        while let Some(who) = self.untouched(is_good) {
            self.event(at, Action::Kill { who: who.clone() });
            self.helpers.of(&who).process = Process::Down;
            holders.push(who);
        }
        // Some holders return in this round. Sometimes one to three more helpers are killed, so that more are
        // dead than the codes tolerate. These additional helpers all return in this round.
        let mut back: Vec<String> = holders.iter().filter(|_| self.rng.bool()).cloned().collect();
        if self.rng.bool() {
            let mut others = self.helpers.which(is_good);
            others.retain(|who| !self.is_touched(who));
            self.rng.shuffle(&mut others);
            others.truncate(self.rng.usize(1..=3));
            for who in others {
                self.event(at, Action::Kill { who: who.clone() });
                holders.push(who.clone());
                back.push(who);
            }
        }
        let coordinator_runs = self.events_of_coordinator().max().unwrap_or_default();
        let look_at = (at + HOARDED + LOOKED).max(coordinator_runs);
        for who in back {
            self.helpers.returns(&who);
            let pause = self.milliseconds(3000);
            self.event(look_at + pause, Action::Start { who });
        }
        if self.rng.bool() {
            let pause = self.milliseconds(1000);
            self.cycle_coordinator(at, pause, true);
        }
        self.repair(at + HOARDED);
        let seed = self.rng.u64(..);
        self.event(at + HOARDED, Action::Hoard { helper: hoarder.clone(), from: holders, seed });
        self.event(at + HOARDED, Action::Start { who: hoarder });
        self.event(look_at, Action::LookAtStatus);
        Some(())
    }

    /// Returns the times of the events that affect the coordinator or its catalog.
    fn events_of_coordinator(&self) -> impl Iterator<Item = Duration> {
        let of_coordinator = |event: &&Event| match &event.action {
            Action::Kill { who }
            | Action::Start { who }
            | Action::Stop { who }
            | Action::Continue { who } => who == COORDINATOR,
            Action::LimitFiles { .. } | Action::FillRecords { .. } | Action::UnfillRecords => true,
            _ => false,
        };
        self.schedule.events.iter().filter(of_coordinator).map(|event| event.at)
    }

    /// Drops packets from some helpers to others for some seconds, while a repair runs. Connections to the
    /// coordinator are unaffected.
    fn links(&mut self, at: Duration) {
        if let Some(helper) = self.target(|health| health.process == Process::Up) {
            self.is_damaged(&helper);
            for _ in 0..4 {
                let (helper, seed) = (helper.clone(), self.rng.u64(..));
                self.event(at, Action::Damage { helper, damage: Damage::DeleteBoth, seed });
            }
        }
        let later = self.milliseconds(1000);
        self.repair(at + later);
        let all = self.helpers.which(|_| true);
        let pause = Duration::from_millis(500) + self.milliseconds(8000);
        self.schedule.disturbed.helpers = true;
        for _ in 0..self.rng.u32(1..=4) {
            let mut pair = all.clone();
            self.rng.shuffle(&mut pair);
            let [from, to] = [pair[0].clone(), pair[1].clone()];
            let is_taken = |event: &Event| matches!(&event.action, Action::Links { from: a, to: b, .. } if (a, b) == (&from, &to));
            if !self.schedule.events.iter().any(is_taken) {
                self.event(at, Action::Links { from: from.clone(), to: to.clone(), drops: true });
                self.event(at + pause, Action::Links { from, to, drops: false });
            }
        }
    }

    /// Makes the catalog unwritable for a while. Sometimes also kills the coordinator in that time.
    fn catalog(&mut self, at: Duration) {
        if self.is_touched(COORDINATOR) {
            return;
        }
        self.schedule.disturbed.catalog = true;
        let number = self.rng.u64(..);
        self.schedule.probes = catalog_probes::probes(self.round, self.code, number);
        let is_full = self.switches.full_disks && self.rng.bool();
        let [begin, end] = if is_full {
            let leave = *self.rng.choice(&[0, 4096, 50_000]).expect("not empty");
            [Action::FillRecords { leave }, Action::UnfillRecords]
        } else {
            let bytes = self.rng.choice(&[0, 4096]).copied();
            [Action::LimitFiles { bytes }, Action::LimitFiles { bytes: None }]
        };
        let (before, after) = (self.milliseconds(500), self.milliseconds(1500));
        self.event(at, begin);
        self.event(at + before, Action::Probe);
        if self.rng.u32(..3) == 0 {
            self.schedule.disturbed.coordinator = true;
            let who = COORDINATOR.to_owned();
            self.event(at + before + after, Action::Kill { who: who.clone() });
            self.event(at + before + after, end);
            self.event(at + before + after, Action::Start { who });
        } else {
            self.event(at + before + after, end);
        }
    }

    /// Pauses the repairs for a while, shortly after a user has requested one.
    fn pause_repairs(&mut self, at: Duration) {
        self.repair(at);
        let (before, pause) = (self.milliseconds(400), self.pause());
        self.event(at + before, Action::PauseRepairs);
        self.event(at + before + pause, Action::ResumeRepairs);
    }

    /// Schedules `mend repair --all`, requested by a user.
    fn repair(&mut self, at: Duration) {
        let label = format!("{}-repair-{}", self.round, self.schedule.operations.len());
        self.schedule.operations.push(Operation { label, at, verb: Verb::Repair, fate: Fate::Spared });
    }

    fn away_for(&mut self, at: Duration, pause: Duration, who: &str, kill: bool) {
        if self.is_touched(who) {
            return;
        }
        self.schedule.disturbed.helpers = true;
        self.helpers.returns(who);
        let who = who.to_owned();
        let [begin, end] = if kill {
            [Action::Kill { who: who.clone() }, Action::Start { who }]
        } else {
            [Action::Stop { who: who.clone() }, Action::Continue { who }]
        };
        self.event(at, begin);
        self.event(at + pause, end);
    }
}

/// Carries out an action.
pub fn carry_out(cluster: &Cluster, action: &Action, report: &Report) {
    report.log(&format!("  fault: {action:?}"));
    if let Some(name) = counted(action) {
        report.count(Section::Faults, name);
    }
    match action {
        Action::Kill { who } => cluster.kill(who),
        Action::Start { who } => {
            if !cluster.is_started(who) {
                cluster.start(who);
            }
        }
        Action::Stop { who } => cluster.signal(who, Signal::STOP),
        Action::Continue { who } => cluster.signal(who, Signal::CONT),
        Action::Damage { helper, damage, seed } => {
            let (folder, snapshot) = (cluster.blocks(helper), cluster.path("snapshots").join(helper));
            match disk::damage(&folder, &snapshot, *damage, &mut Rng::with_seed(*seed)) {
                Ok(which) => report.log(&format!("    {which}")),
                Err(error) => report.log(&format!("    not done: {error}")),
            }
        }
        Action::Wipe { helper } => note(report, disk::empty(&cluster.blocks(helper))),
        Action::Snapshot { helper } => {
            let to = cluster.path("snapshots").join(helper);
            let _ = std::fs::remove_dir_all(&to); // The copy may not exist yet.
            note(report, disk::copy(&cluster.blocks(helper), &to));
        }
        Action::RollBack { helper } => {
            cluster.kill(helper);
            let folder = cluster.blocks(helper);
            note(report, disk::empty(&folder));
            note(report, disk::copy(&cluster.path("snapshots").join(helper), &folder));
            cluster.start(helper);
        }
        Action::Fill { helper, leave } => note(report, disk::fill(&cluster.blocks(helper), *leave)),
        Action::Unfill { helper } => disk::unfill(&cluster.blocks(helper)),
        Action::SetClock { who, offset } => cluster.set_clock(who, offset),
        Action::Hoard { helper, from, seed } => {
            let mut rng = Rng::with_seed(*seed);
            for holder in from {
                match disk::hoard(&cluster.blocks(holder), &cluster.blocks(helper), &mut rng) {
                    Ok(blocks) => report.log(&format!("    {blocks} blocks of {holder}")),
                    Err(error) => report.log(&format!("    not all of {holder}: {error}")),
                }
            }
        }
        Action::Links { from, to, drops } => {
            let network = cluster.network().expect("it is drawn only with a network");
            if let Err(why) = network.drop_packets(from, to, *drops) {
                report.complain(&format!("links cannot be changed: {why}"));
            }
        }
        Action::LimitFiles { bytes } => {
            let pid = cluster.pid(COORDINATOR);
            _ = pid.map(|pid| limits::limit_files(Some(pid), *bytes)); // The process may have ended.
        }
        Action::FillRecords { leave } => note(report, disk::fill(&cluster.records(), *leave)),
        Action::UnfillRecords => disk::unfill(&cluster.records()),
        // The caller executes these actions.
        Action::Probe | Action::LookAtStatus | Action::PauseRepairs | Action::ResumeRepairs => {}
        Action::Starve { helper } => limit_descriptors(cluster, helper, 24),
        Action::Feed { helper } => {
            limit_descriptors(cluster, helper, getrlimit(Resource::Nofile).current.unwrap_or(1024));
        }
    }
}

fn note(report: &Report, done: std::io::Result<()>) {
    if let Err(error) = done {
        report.log(&format!("    not all of it: {error}"));
    }
}

/// Limits the number of descriptors that a running helper may have open.
fn limit_descriptors(cluster: &Cluster, helper: &str, descriptors: u64) {
    let Some(pid) = cluster.pid(helper) else { return };
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Ignore the error: the helper may have exited already.
    let _ = prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(descriptors), maximum });
}

/// Returns the name under which the report counts an action, or `None` for the end of a fault.
fn counted(action: &Action) -> Option<&'static str> {
    let is_coordinator = |who: &str| who == COORDINATOR;
    Some(match action {
        Action::Kill { who } if is_coordinator(who) => "coordinator killed",
        Action::Kill { .. } => "helper killed",
        Action::Stop { who } if is_coordinator(who) => "coordinator stopped",
        Action::Stop { .. } => "helper stopped",
        Action::Damage { damage, .. } => damage.name(),
        Action::Wipe { .. } => "disk wiped",
        Action::RollBack { .. } => "disk rolled back",
        Action::Fill { .. } => "disk full",
        Action::Starve { .. } => "no descriptors",
        Action::SetClock { .. } => "clock set",
        Action::Start { .. } | Action::Continue { .. } | Action::Snapshot { .. } => return None,
        Action::Links { drops: true, .. } => "one-way link broken",
        Action::LimitFiles { bytes: Some(_) } => "catalog refuses writes",
        Action::FillRecords { .. } => "catalog's disk full",
        Action::PauseRepairs => "repairs paused",
        Action::Unfill { .. } | Action::Feed { .. } | Action::Hoard { .. } | Action::Links { .. } => {
            return None;
        }
        Action::LimitFiles { .. } | Action::UnfillRecords | Action::Probe | Action::LookAtStatus => {
            return None;
        }
        Action::ResumeRepairs => return None,
    })
}
