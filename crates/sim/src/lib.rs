//! Repairs on virtual time: the very [`repair::Job`], [`repair::plan`] and [`repair::Part`] of the daemons, over
//! modelled disks, links and control connections, with faults, all decided by one seed.
//!
//! [`run`] makes a random [`Scenario`], plays it in a [`World`] and holds the end against what must be true
//! (see `invariants.rs`). A violation prints the line that replays it. [`recovery`] plays the recovery of whole nodes:
//! many such jobs on the same machines, started by the very scheduler that the coordinator drives. [`durability`] makes of their times
//! how long data lasts.
//!
//! Deliberately absent: any idea of how a repair is done. Around a part and a job there is only what the
//! daemons have around them: sockets with bounded buffers, a disk that answers in any order, messages that
//! take their time, processes that stop.

#![forbid(unsafe_code)]

mod coordinator;
mod dice;
mod disk;
pub mod durability;
mod edge;
mod event;
pub mod fastpr;
mod faults;
mod invariants;
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
pub use scenario::{CLIENT, Kind, Scenario};
pub use scene::Tracing;
pub use world::{Ended, World};

/// What came of a run, for statistics.
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

/// A run in which something happened that must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed.
    pub seed: u64,
    /// What happened.
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
/// [`Violation`] if something happened that must not; assertions in the code under test count too.
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
/// If something happened that must not; the message says how to replay it.
pub fn run(seed: u64) -> Summary {
    check(seed).unwrap_or_else(|violation| panic!("{violation}"))
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    format!("panicked: {}", text.unwrap_or_default())
}
