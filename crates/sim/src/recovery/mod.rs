//! The recovery of whole nodes: many jobs at once on the same machines, started by [`recovery::Scheduler`].
//!
//! Every job has processes of its own, one on each machine, and the machines' links are shared by all of them, so that
//! jobs that start together are slower. A node's death ends its processes and asks for the recovery of every stripe
//! that it has a block of; when it comes back, what is still its is counted again.
//!
//! **Always true**, and checked whenever something starts or ends: a stripe has at most one job; no node has more under
//! way than its budget; nothing starts while something more urgent could; what is published is what was lost. **At the
//! end** every repair is over, no item has failed, and every stripe that can be read is whole.
//!
//! Large clusters are played without bytes ([`Cluster`]), on the same scheduler, and so are clients that read ([`Reads`]).
//!
//! Deliberately absent: any idea of what to start next. Disks are not shared between jobs: here they are faster than
//! the links.

mod fabric;
mod flows;
mod large;
mod reads;
mod scenario;
mod sharing;
mod world;

pub use large::{Cluster, Finish, Loss, Shape, Share};
pub use reads::{ReadTimes, Reads};
pub use scenario::{Scenario, Turn};
pub use world::{Ended, World};

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Violation;

/// Plays the recovery of a seed.
///
/// # Errors
/// [`Violation`] if something happened that must not; assertions in the code under test count too.
pub fn check(seed: u64) -> Result<Ended, Violation> {
    let violation = |what| Violation { seed, what };
    let play = || World::new(&Scenario::random(seed)).run();
    let ended =
        catch_unwind(AssertUnwindSafe(play)).map_err(|panic| violation(vec![crate::text_of(&*panic)]))?;
    if ended.violations.is_empty() { Ok(ended) } else { Err(violation(ended.violations)) }
}
