//! The time that recoveries take in large clusters, without bytes: [`Cluster`] drives the scheduler and the
//! planner of the coordinator, and [`Reads`] has clients read whole blocks.
//!
//! Recoveries with bytes, faults and the whole coordinator are played by [`system`](crate::system).

mod fabric;
mod flows;
mod large;
mod reads;
mod sharing;

pub use large::{Bottlenecks, Cluster, Concurrency, Finish, Loss, Shape, Share};
pub use reads::{ReadTimes, Reads};
