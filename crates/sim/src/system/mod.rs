//! Simulation of whole systems on virtual time: the real coordinator ([`control::Control`]) over the real
//! catalog ([`dir::DirCatalog`]), helpers around the real [`repair::Part`], clients, an operator, and faults.
//! One seed decides every choice.
//!
//! [`check`] simulates the [`Script`] of a seed and checks the invariants of `judge.rs`. A violation prints
//! the command that replays it. The replay also prints the shortest version of the script that still fails.
//!
//! `world.rs` routes events. The state is split into four parts: the system under test with its coordinator,
//! processes and control connections (`assembly.rs`), the clients, the operator, and the judge.
//!
//! Deliberately absent: any knowledge of what the coordinator should do. The simulation only provides the
//! coordinator's environment: connections that break or become silent, storage that is slow or fails, disks,
//! and requests of people.

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
    /// The script's seed.
    pub seed: u64,
    /// Number of files that were read.
    pub reads: u64,
    /// Number of files that were stored.
    pub puts: u64,
    /// Number of commit orders to helpers.
    pub commits: u64,
    /// Maximum number of concurrent jobs that publish blocks.
    pub at_once: usize,
    /// Number of starts of the coordinator.
    pub starts: u32,
    /// Virtual time at the end of the run.
    pub after: Duration,
    /// Number of events that were handled.
    pub events: u64,
    /// The trace, if it was recorded.
    pub trace: Vec<String>,
}

/// A run that violated invariants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The script of the run.
    pub script: Box<Script>,
    /// The violated invariants.
    pub what: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seed = self.script.seed;
        writeln!(f, "seed {seed}: {}", self.what.join("; "))?;
        write!(f, "replay with: MEND_SIM_SEED={seed} cargo test -p sim --test systems replay -- --nocapture")
    }
}

/// Simulates the script of a seed.
///
/// # Errors
/// [`Violation`] if an invariant or an assertion in the code under test fails.
pub fn check(seed: u64) -> Result<Summary, Violation> {
    play(&Script::random(seed), Tracing::Off)
}

/// Simulates a script.
///
/// # Errors
/// [`Violation`] if an invariant or an assertion in the code under test fails.
pub fn play(script: &Script, tracing: Tracing) -> Result<Summary, Violation> {
    let violation = |what| Violation { script: Box::new(script.clone()), what };
    let ended = catch_unwind(AssertUnwindSafe(|| World::new(script, tracing).run()));
    let world = ended.map_err(|panic| violation(vec![crate::text_of(&*panic)]))?;
    let World { system, clients, judge, commits, events, .. } = world;
    if !system.shared.violations.is_empty() {
        return Err(violation(system.shared.violations));
    }
    Ok(Summary {
        seed: script.seed,
        reads: clients.reads,
        puts: clients.puts,
        commits,
        at_once: judge.at_once,
        starts: system.coordinator.run,
        after: system.shared.now,
        events,
        trace: system.shared.trace.lines,
    })
}
