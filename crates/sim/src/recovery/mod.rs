//! Recovery of whole nodes: many concurrent jobs on the same machines, started by [`recovery::Scheduler`].
//!
//! [`SingleRepair`] is the repair of one block over uneven links, such as racks and regions. [`published`] has
//! recoveries in the settings of published figures.
//!
//! [`system`](crate::system) simulates recoveries with bytes, faults and the whole coordinator.

mod fabric;
pub(crate) mod flows;
mod large;
pub mod published;
mod reads;
mod rounds;
mod sharing;
mod single;

pub use large::{Bottlenecks, Cluster, Concurrency, Finish, Homes, Loss, Shape, Share};
pub use reads::{ReadTimes, Reads};
pub use single::SingleRepair;
