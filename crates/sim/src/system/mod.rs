//! Whole systems on virtual time: the very coordinator ([`control::Control`]) over the very catalog
//! ([`stores::dir::DirCatalog`]), helpers around the very [`repair::Part`], clients, an operator, and faults, all decided by
//! one seed.
//!
//! [`check`] plays the [`Script`] of a seed and holds what happens against what must hold (see `judge.rs`). A violation
//! says how to replay it and which part of its script suffices.
//!
//! Deliberately absent: any idea of what the coordinator should do. What is around it is what its driver, its helpers and
//! its clients do: connections that break and fall silent, a storage that takes its time and fails, disks, and people who
//! ask for things.

mod api;
mod assembly;
mod client;
mod coordinator;
mod event;
mod faults;
mod judge;
mod operator;
mod platter;
mod process;
mod script;
mod shrink;
mod truth;
mod wires;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub(crate) use event::Happening;
pub use event::ProcessId;
pub use script::{Fault, Operation, Script, Trigger, Weather, When};
pub use shrink::shrink;

use crate::Tracing;
use world::World;

/// What came of a run, for statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// Files that were read.
    pub reads: u64,
    /// Files that were stored.
    pub puts: u64,
    /// How often helpers were told to make deliveries blocks of the store.
    pub commits: u64,
    /// The most jobs that published blocks at the same time.
    pub at_once: usize,
    /// Starts of the coordinator.
    pub starts: u32,
    /// When everything was over, in virtual time.
    pub after: Duration,
    /// Events that happened.
    pub events: u64,
    /// What happened as text, if it was kept.
    pub trace: Vec<String>,
}

/// A run in which something happened that must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The script.
    pub script: Box<Script>,
    /// What happened.
    pub what: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seed = self.script.seed;
        writeln!(f, "seed {seed}: {}", self.what.join("; "))?;
        write!(
            f,
            "replay with: MEND_SIM_SEED={seed} cargo test -p mend-sim --test systems replay -- --nocapture"
        )
    }
}

/// Plays the script of a seed.
///
/// # Errors
/// [`Violation`] if something happened that must not; assertions in the code under test count too.
pub fn check(seed: u64) -> Result<Summary, Violation> {
    play(&Script::random(seed), Tracing::Off)
}

/// Plays a script.
///
/// # Errors
/// [`Violation`] if something happened that must not; assertions in the code under test count too.
pub fn play(script: &Script, tracing: Tracing) -> Result<Summary, Violation> {
    let violation = |what| Violation { script: Box::new(script.clone()), what };
    let ended = catch_unwind(AssertUnwindSafe(|| World::new(script, tracing).run()));
    let world = ended.map_err(|panic| violation(vec![crate::text_of(&*panic)]))?;
    let World { system, clients, judge, commits, events, .. } = world;
    if !system.scene.violations.is_empty() {
        return Err(violation(system.scene.violations));
    }
    Ok(Summary {
        seed: script.seed,
        reads: clients.reads,
        puts: clients.puts,
        commits,
        at_once: judge.at_once,
        starts: system.coordinator.run,
        after: system.scene.now,
        events,
        trace: system.scene.trace.lines,
    })
}
