//! The helpers' states, as far as the run knows, and the maximum number of bad helpers.

use std::collections::BTreeMap;
use std::time::Instant;

/// The state of a helper's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Process {
    #[default]
    Up,
    Down,
    Stopped,
}

/// The state of one helper.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub process: Process,
    /// Whether blocks on the helper's disk may be bad.
    pub damaged: bool,
    /// Whether the helper's disk may hold wrong bytes with matching checksums.
    pub forged: bool,
    /// Whether a large file occupies the helper's disk.
    pub full: bool,
    /// Whether an earlier copy of the helper's disk exists.
    pub has_snapshot: bool,
    /// When the helper was restarted; `None` once the coordinator reports it up again.
    pub returning: Option<Instant>,
    /// When the run first noticed that the helper was dead or stopped.
    pub gone_since: Option<Instant>,
}

impl Health {
    /// Whether blocks on the helper may be bad or unreachable.
    pub fn is_bad(&self) -> bool {
        self.process != Process::Up || self.damaged || self.returning.is_some()
    }
}

/// All helpers. A helper normally holds at most one block of a stripe. While at most `budget` helpers are
/// bad, no stripe has more than `budget` bad blocks, whatever happened to each helper.
pub struct Helpers {
    health: BTreeMap<String, Health>,
    pub budget: usize,
}

impl Helpers {
    pub fn new(names: Vec<String>, budget: usize) -> Self {
        Self { health: names.into_iter().map(|name| (name, Health::default())).collect(), budget }
    }

    pub fn of(&mut self, helper: &str) -> &mut Health {
        self.health.get_mut(helper).expect("all helpers are known from the start")
    }

    /// Returns the names of helpers that satisfy `is`.
    pub fn which(&self, is: impl Fn(&Health) -> bool) -> Vec<String> {
        self.health.iter().filter(|(_, health)| is(health)).map(|(name, _)| name.clone()).collect()
    }

    pub fn bad(&self) -> usize {
        self.which(Health::is_bad).len()
    }

    /// Whether more helpers are bad than the codes tolerate.
    pub fn exceed(&self) -> bool {
        self.bad() > self.budget
    }

    /// Returns the helpers that satisfy `is` and may be disturbed: helpers that are already bad and, if the
    /// budget allows one more bad helper, also good helpers.
    pub fn targets(&self, is: impl Fn(&Health) -> bool) -> Vec<String> {
        let room = self.bad() < self.budget;
        self.which(|health| is(health) && (room || health.is_bad()))
    }

    /// Records that the helper's process runs or is about to be started.
    pub fn returns(&mut self, helper: &str) {
        let health = self.of(helper);
        health.process = Process::Up;
        health.returning = Some(Instant::now());
        health.gone_since = None;
    }

    /// Records when helpers were first seen dead or stopped.
    pub fn note_gone(&mut self) {
        for health in self.health.values_mut().filter(|health| health.process != Process::Up) {
            health.gone_since.get_or_insert_with(Instant::now);
        }
    }

    /// Returns a one-line summary for the log.
    pub fn words(&self) -> String {
        let word = |(name, health): (&String, &Health)| {
            let mut word = format!("{name} {:?}", health.process).to_lowercase();
            let flags = [
                (health.damaged, "damaged"),
                (health.full, "full"),
                (health.returning.is_some(), "returning"),
            ];
            flags.iter().filter(|(is, _)| *is).for_each(|(_, flag)| word += &format!("+{flag}"));
            word
        };
        let unwell = self.health.iter().filter(|(_, health)| health.is_bad() || health.full);
        unwell.map(word).collect::<Vec<_>>().join(", ")
    }
}
