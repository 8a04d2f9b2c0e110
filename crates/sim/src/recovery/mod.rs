//! The recovery of whole nodes: many jobs at once on the same machines, started by [`recovery::Scheduler`].
//!
//! Recoveries with bytes, faults and the whole coordinator are played by [`system`](crate::system).

mod fabric;
mod flows;
mod large;
mod reads;
mod sharing;

pub use large::{Bottlenecks, Cluster, Concurrency, Finish, Loss, Shape, Share};
pub use reads::{ReadTimes, Reads};
