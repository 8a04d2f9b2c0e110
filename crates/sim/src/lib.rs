//! Repairs on virtual time: the [`repair::Job`], [`repair::plan`] and [`repair::Part`] of the daemons, over
//! modelled disks, links and control connections, with faults, all decided by one seed.
//!
//! - [`system`] plays whole systems around the coordinator's [`control::Control`]: clients, an operator,
//!   recoveries of nodes, faults.
//! - [`run`] plays a random [`Scenario`] of one job in a [`World`] and checks the invariants of
//!   `invariants.rs`.
//! - [`recovery`] times recoveries of large clusters without moving bytes.
//! - [`durability`] computes from such times how long data lasts.
//!
//! A violation prints the command that replays it.
//!
//! Deliberately absent: any knowledge of how a repair works. Parts and jobs are surrounded by what the
//! daemons have around them: sockets with bounded buffers, disks that answer in any order, messages with
//! delays, processes that stop.

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
mod scene;
mod stripe;
pub mod system;
mod task;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

pub use dice::Dice;
pub use faults::{Fault, When};
pub use scenario::{CLIENT, Checks, Kind, Machines, Scenario};
pub use scene::Tracing;
pub use world::{Ended, World};

/// Statistics of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// Whether the job ended well.
    pub succeeded: bool,
    /// How often a plan was dropped.
    pub replanned: usize,
    /// When the job ended, in virtual time.
    pub after: Duration,
    /// Events that happened.
    pub events: u64,
}

/// A run that violated an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// The violations.
    pub what: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what.join("; "))?;
        write!(f, "replay with: MEND_SIM_SEED={} cargo test -p sim replay -- --nocapture", self.seed)
    }
}

/// Plays the scenario of a seed.
///
/// # Errors
/// [`Violation`] of an invariant, or of an assertion in the code under test.
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

/// Plays the scenario of a seed.
///
/// # Panics
/// If an invariant was violated; the message says how to replay it.
pub fn run(seed: u64) -> Summary {
    check(seed).unwrap_or_else(|violation| panic!("{violation}"))
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    format!("panicked: {}", text.unwrap_or_default())
}
