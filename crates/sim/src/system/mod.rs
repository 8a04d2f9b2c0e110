//! Whole systems on virtual time: the very coordinator ([`control::Control`]) over the very catalog
//! ([`dir::DirCatalog`]), helpers around the very [`repair::Part`], clients, an operator, and faults, all decided by
//! one seed.
//!
//! [`check`] plays the [`Script`] of a seed and checks the invariants of `judge.rs`. A violation prints the
//! command that replays it, and the replay ends with the shortest part of the script that still fails.
//!
//! `world.rs` routes events. The state is split: the system under test with its coordinator, processes and wires
//! (`assembly.rs`), the clients, the operator, and the judge.
//!
//! Deliberately absent: any knowledge of what the coordinator should do. It is surrounded by connections that
//! break and fall silent, a storage that is slow and fails, disks, and people who ask for things.

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

/// Statistics of a run.
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
    /// The trace, if it was kept.
    pub trace: Vec<String>,
}

/// A run that violated an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The script.
    pub script: Box<Script>,
    /// The violations.
    pub what: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seed = self.script.seed;
        writeln!(f, "seed {seed}: {}", self.what.join("; "))?;
        write!(f, "replay with: MEND_SIM_SEED={seed} cargo test -p sim --test systems replay -- --nocapture")
    }
}

/// Plays the script of a seed.
///
/// # Errors
/// [`Violation`] of an invariant, or of an assertion in the code under test.
pub fn check(seed: u64) -> Result<Summary, Violation> {
    play(&Script::random(seed), Tracing::Off)
}

/// Plays a script.
///
/// # Errors
/// [`Violation`] of an invariant, or of an assertion in the code under test.
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
