//! Handlers of events that concern several state machines. They define which state machines handle an event,
//! and in which order.

pub(crate) mod blocks;
mod catalog_requests;
mod client_requests;
pub(crate) mod connections;
mod file_requests;
pub(crate) mod jobs;
mod network_requests;
mod node_requests;
mod repair_requests;
mod repairs;
pub(crate) mod requests;
mod returned;
mod storage;
mod store_changes;
mod stored;
mod stripe_requests;
mod usage;
