//! What is done to the cluster: drawn for a round in advance, carried out while operations run.

use std::time::Duration;

use fastrand::Rng;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::cluster::{COORDINATOR, Cluster};
use crate::disk::{self, Damage};
use crate::helpers::{Health, Helpers, Process};
use crate::report::{Report, Section};
use crate::switches::Switches;

/// Something that is done to the cluster. `who` is a helper or the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Kill { who: String },
    Start { who: String },
    Stop { who: String },
    Continue { who: String },
    Damage { helper: String, damage: Damage, seed: u64 },
    Wipe { helper: String },
    Snapshot { helper: String },
    RollBack { helper: String },
    Fill { helper: String, leave: u64 },
    Unfill { helper: String },
    Starve { helper: String },
    Feed { helper: String },
    SetClock { who: String, offset: &'static str },
}

/// An action and when in its round it comes.
#[derive(Clone, Debug)]
pub struct Event {
    pub at: Duration,
    pub action: Action,
}

/// What a round's faults excuse.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbed {
    pub coordinator: bool,
    pub helpers: bool,
    pub disks: bool,
}

/// What is done in one round.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    pub events: Vec<Event>,
    pub disturbed: Disturbed,
    /// Faults that consist of many actions.
    pub names: Vec<&'static str>,
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
}

const WEIGHTS: [(Kind, u32); 16] = [
    (Kind::KillHelper, 14),
    (Kind::StartHelper, 8),
    (Kind::StopHelper, 8),
    (Kind::ContinueHelper, 8),
    (Kind::Damage, 20),
    (Kind::Wipe, 2),
    (Kind::Snapshot, 5),
    (Kind::RollBack, 3),
    (Kind::Fill, 8),
    (Kind::Unfill, 8),
    (Kind::Starve, 3),
    (Kind::KillCoordinator, 6),
    (Kind::StopCoordinator, 4),
    (Kind::SetClock, 5),
    (Kind::Excess, 2),
    (Kind::PowerCut, 1),
];

/// Offsets of a clock. A certificate of the cluster is valid from a day before it was made, and for years.
const OFFSETS: [&str; 6] = ["+0", "-20h", "-3600", "+1", "+40d", "+3y"];

/// Draws what is done in one round, and takes note of it in `helpers`. `begins` is when the round's operations begin.
pub fn draw(rng: &mut Rng, helpers: &mut Helpers, switches: &Switches, begins: Vec<Duration>) -> Schedule {
    let mut draw = Draw { rng, helpers, switches, begins, schedule: Schedule::default() };
    // Many rounds have nothing new, so that what was done before is met alone as well.
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
    schedule: Schedule,
}

impl Draw<'_> {
    fn kind(&mut self) -> Kind {
        let mut at = self.rng.u32(..WEIGHTS.iter().map(|(_, weight)| weight).sum::<u32>());
        let found = WEIGHTS.iter().find(|(_, weight)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        found.expect("below the sum").0
    }

    fn milliseconds(&mut self, below: u64) -> Duration {
        Duration::from_millis(self.rng.u64(..below))
    }

    /// How long somebody is stopped: a moment, or longer than anybody waits for an answer.
    fn pause(&mut self) -> Duration {
        if self.rng.u32(..3) == 0 { self.milliseconds(8000) } else { self.milliseconds(1000) }
    }

    fn event(&mut self, at: Duration, action: Action) {
        self.schedule.events.push(Event { at, action });
    }

    /// One of those that are so and may be touched.
    fn target(&mut self, is: impl Fn(&Health) -> bool) -> Option<String> {
        let targets = self.helpers.targets(is);
        self.rng.choice(&targets).cloned()
    }

    fn one_of(&mut self, is: impl Fn(&Health) -> bool) -> Option<String> {
        let which = self.helpers.which(is);
        self.rng.choice(&which).cloned()
    }

    /// Mostly soon after an operation began.
    fn moment(&mut self) -> Duration {
        let begin = self.rng.choice(&self.begins).copied().unwrap_or_default();
        if self.rng.u32(..10) < 7 { begin + self.milliseconds(200) } else { self.milliseconds(900) }
    }

    /// Adds a fault of this kind, if there is somebody for it.
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
        }
        Some(())
    }

    fn is_damaged(&mut self, helper: &str) {
        self.schedule.disturbed.helpers = true;
        self.helpers.of(helper).damaged = true;
    }

    /// Each helper's process is touched once in a round, so that events do not depend on each other's order.
    fn is_touched(&self, who: &str) -> bool {
        self.schedule.events.iter().any(|event| match &event.action {
            Action::Kill { who: other }
            | Action::Start { who: other }
            | Action::Stop { who: other }
            | Action::Continue { who: other }
            | Action::RollBack { helper: other }
            | Action::Starve { helper: other } => who == other,
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

    /// Nothing is lost by it, so it counts as no damage; what is written goes elsewhere or fails.
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

    /// Nobody's data may depend on what time it is.
    fn set_clock(&mut self, at: Duration) -> Option<()> {
        self.switches.clocks.as_ref()?;
        let helper = self.one_of(|_| true)?;
        let who = if self.rng.u32(..4) == 0 { COORDINATOR.to_owned() } else { helper };
        let offset = *self.rng.choice(&OFFSETS).expect("not empty");
        self.event(at, Action::SetClock { who, offset });
        Some(())
    }

    /// Kills or stops the coordinator, and lets it run again in the same round.
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

    /// Stops or kills more helpers than any code bears, for a few seconds.
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

    /// Everything ends at once, and starts again.
    fn power_cut(&mut self, at: Duration) {
        let pause = self.milliseconds(2000);
        self.schedule.names.push("everything killed");
        self.cycle_coordinator(at, pause, true);
        for who in self.helpers.which(|health| health.process == Process::Up) {
            self.away_for(at, pause, &who, true);
        }
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

/// Carries an action out.
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
            let _ = std::fs::remove_dir_all(&to); // There may be none yet.
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

/// Limits how many descriptors a helper may open from now on.
fn limit_descriptors(cluster: &Cluster, helper: &str, descriptors: u64) {
    let Some(pid) = cluster.pid(helper) else { return };
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(descriptors), maximum }); // It may have ended.
}

/// Under what name an action is counted; `None` if it is the end of one.
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
        Action::Unfill { .. } | Action::Feed { .. } => return None,
    })
}
