//! Simulation of repairs on virtual time. It drives the daemons' own [`repair::Job`], [`repair::plan`] and
//! [`repair::Part`] over models of disks, links and control connections, and injects faults. One seed decides
//! every choice.
//!
//! - [`system`] simulates whole systems around the coordinator's [`control::Control`]: with clients, an
//!   operator, node recoveries and faults.
//! - [`run`] simulates a random [`Scenario`] of one job in a [`World`] and checks the invariants of
//!   `invariants.rs`.
//! - [`recovery`] computes the duration of recoveries of large clusters without moving bytes.
//! - [`durability`] computes the mean time to data loss from these durations.
//!
//! A violation prints the command that replays it.
//!
//! Deliberately absent: any knowledge of how a repair works. The models only replace the environment of a
//! daemon: sockets with bounded buffers, disks that complete operations in any order, messages with delays,
//! processes that stop.

#![forbid(unsafe_code)]

mod dice;
mod disk;
pub mod durability;
mod edge;
mod event;
pub mod fastpr;
mod faults;
mod invariants;
mod job_driver;
mod motion;
mod node;
mod random;
pub mod recovery;
mod scenario;
mod shared;
mod stripe;
pub mod system;
mod task;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub use dice::Dice;
pub use faults::{Fault, When};
pub use scenario::{CLIENT, Checks, Kind, Machines, Scenario};
pub use shared::Tracing;
pub use world::{Ended, World};

/// Statistics of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The scenario's seed.
    pub seed: u64,
    /// Whether the job succeeded.
    pub succeeded: bool,
    /// Number of plans that were dropped.
    pub replanned: usize,
    /// Virtual time at which the job ended.
    pub after: Duration,
    /// Number of events that were handled.
    pub events: u64,
}

/// A run that violated invariants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The scenario's seed.
    pub seed: u64,
    /// The violated invariants.
    pub what: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what.join("; "))?;
        write!(f, "replay with: MEND_SIM_SEED={} cargo test -p sim replay -- --nocapture", self.seed)
    }
}

/// Simulates the scenario of a seed.
///
/// # Errors
/// [`Violation`] if an invariant or an assertion in the code under test fails.
pub fn check(seed: u64) -> Result<Summary, Violation> {
    let play = || {
        let scenario = Scenario::random(seed);
        World::new(&scenario, Tracing::Off).run()
    };
    let violation = |what| Violation { seed, what };
    let ended = catch_unwind(AssertUnwindSafe(play)).map_err(|panic| violation(vec![text_of(&*panic)]))?;
    if !ended.violations.is_empty() {
        return Err(violation(ended.violations));
    }
    let replanned = match &ended.result {
        Some(Ok(outcome)) => outcome.replanned.len(),
        _ => 0,
    };
    let succeeded = matches!(ended.result, Some(Ok(_)));
    Ok(Summary { seed, succeeded, replanned, after: ended.after, events: ended.events })
}

/// Simulates the scenario of a seed.
///
/// # Panics
/// If an invariant was violated; the message contains the command that replays the run.
pub fn run(seed: u64) -> Summary {
    check(seed).unwrap_or_else(|violation| panic!("{violation}"))
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    format!("panicked: {}", text.unwrap_or_default())
}
