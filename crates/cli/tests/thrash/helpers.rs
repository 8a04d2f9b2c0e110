//! How the helpers are, as far as the run knows, and how many of them may be bad at a time.

use std::collections::BTreeMap;
use std::time::Instant;

/// What a helper's process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Process {
    #[default]
    Up,
    Down,
    Stopped,
}

/// How one helper is.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub process: Process,
    /// Blocks on its disk may be bad.
    pub damaged: bool,
    /// Bytes of blocks on its disk may be such that no checksum shows that they are wrong.
    pub forged: bool,
    /// A filler takes all room on its disk.
    pub full: bool,
    /// There is a copy of its disk of some earlier moment.
    pub has_snapshot: bool,
    /// It runs again since then, and the coordinator may not know it yet.
    pub returning: Option<Instant>,
    /// Since when it has been dead or stopped, as far as the run has looked.
    pub gone_since: Option<Instant>,
}

impl Health {
    /// Whether blocks on it may be bad or out of reach.
    pub fn is_bad(&self) -> bool {
        self.process != Process::Up || self.damaged || self.returning.is_some()
    }
}

/// All helpers. A helper holds at most one block of a stripe, so while no more than `budget` of them are bad, no stripe
/// has more than `budget` bad blocks, whatever happened to each of them.
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

    /// Names of those that are so.
    pub fn which(&self, is: impl Fn(&Health) -> bool) -> Vec<String> {
        self.health.iter().filter(|(_, health)| is(health)).map(|(name, _)| name.clone()).collect()
    }

    pub fn bad(&self) -> usize {
        self.which(Health::is_bad).len()
    }

    /// Whether stripes may have lost more than their codes bear.
    pub fn exceed(&self) -> bool {
        self.bad() > self.budget
    }

    /// Those that something may be done to: bad ones, and others as long as not too many are bad.
    pub fn targets(&self, is: impl Fn(&Health) -> bool) -> Vec<String> {
        let room = self.bad() < self.budget;
        self.which(|health| is(health) && (room || health.is_bad()))
    }

    /// The process runs, or will in a moment.
    pub fn returns(&mut self, helper: &str) {
        let health = self.of(helper);
        health.process = Process::Up;
        health.returning = Some(Instant::now());
        health.gone_since = None;
    }

    /// Takes note of who is dead or stopped by now.
    pub fn note_gone(&mut self) {
        for health in self.health.values_mut().filter(|health| health.process != Process::Up) {
            health.gone_since.get_or_insert_with(Instant::now);
        }
    }

    /// In one line, for the log.
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
