//! The coordinator: tracks the stripes, plans repairs and reads, dispatches tasks and keeps the repair queue.
//!
//! The thread of `driver` owns all state. Everything that happens reaches it as an event over one bounded
//! channel. The thread's effects go out as messages to connections, or as requests to a second thread,
//! `storage`, which owns the catalog and answers by events. There are two listeners over mutual TLS:
//! `connections` for helpers and clients that take part in moving slices, and `api` for HTTP/JSON. Neither
//! listener keeps any state of the cluster.
//!
//! Deliberately absent: the bytes of blocks, which helpers and clients send to each other directly.

#![forbid(unsafe_code)]

mod api;
mod config;
mod configuration;
mod connections;
mod driver;
mod inbox;
mod incoming;
mod inventories;
mod metrics;
pub mod rebuilding;
mod server;
mod shares;
mod storage;

pub use config::CoordinatorConfig;
pub use inventories::{Inventories, gather_inventories};
pub use server::{Handle, RunError, start};
pub use views::endpoints::openapi;
