//! Recovery of whole nodes: many concurrent jobs on the same machines, started by [`recovery::Scheduler`].
//!
//! [`system`](crate::system) simulates recoveries with bytes, faults and the whole coordinator.

mod fabric;
mod flows;
mod large;
mod reads;
mod sharing;

pub use large::{Bottlenecks, Cluster, Concurrency, Finish, Loss, Shape, Share};
pub use reads::{ReadTimes, Reads};
