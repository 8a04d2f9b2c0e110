//! The coordinator's decisions: one pure state machine, composed of smaller ones.
//!
//! Input is an [`Event`] with its time. Output is an [`Effect`] for the driver or an [`Ask`] for the storage.
//! A driver is one loop: wait for an event or the next tick, pass it in, and carry out the effects. This
//! crate has no locks, sockets or awaits.
//!
//! **Invariants:** a node is alive in `topology` if and only if it has a connection; a stripe has at most one
//! job that publishes blocks; the picture (the catalog in memory) shows only writes that the storage has
//! acknowledged.

#![forbid(unsafe_code)]

mod answers;
mod audit;
mod base;
mod commands;
mod conditions;
mod control;
mod counts;
mod dispatch;
mod durations;
mod effect;
mod error;
mod event;
mod facts;
mod finding;
mod helper_queries;
mod history;
mod jobs;
mod nodes;
mod out;
mod pace;
mod records;
mod repairs;
mod routes;
mod scrub;
mod settings;
mod signal;
mod start;
mod storing;
mod stripes;
#[cfg(test)]
mod tests;
mod totals;

pub use answers::metrics::{CatalogMetrics, DataMetrics, HelperMetrics, LossMetrics, Metrics, RepairMetrics};
pub use commands::{
    CatalogCommand, ClusterCommand, Command, FileCommand, NetworkCommand, NodeCommand, RepairCommand,
    ScrubCommand, StripeCommand,
};
pub use control::Control;
pub use effect::{Answer, ConnectionId, Effect, Reply, RequestId};
pub use error::{
    CatalogAgeError, ConditionError, DescriptionError, ErrorKind, FileError, LayoutError, NetworkError,
    NodeError, Omitted, PlanningError, RepairError, RequestError, ScrubError, SessionError, StorageError,
};
pub use event::{Event, Now};
pub use jobs::in_flight::InFlight;
pub use repairs::ItemPage;
pub use settings::{HealPolicy, Settings};
pub use storing::ask::Ask;
pub use storing::storage_thread::{Opened, carry_out};
pub use totals::{Amount, DURATION_BOUNDS, Durations, FileWorks, Totals};
