//! The coordinator: it knows the stripes, plans repairs and reads, hands out tasks and keeps the repair
//! queue.
//!
//! One plain thread owns all state (`core`): everything that happens comes in as an event over one bounded
//! channel, and everything it wants done goes out as a message to a connection, or to a second thread that owns the
//! catalog (`storage`) and answers by events. Around it are two listeners
//! over mutual TLS: `connections` for helpers and clients that take part in moving slices, and `api` for
//! HTTP/JSON. Neither knows any state.
//!
//! Deliberately absent: moving bytes of blocks. They go between helpers and clients directly.

#![forbid(unsafe_code)]

mod api;
mod config;
mod connections;
mod door;
mod driver;
mod http;
mod inbox;
mod incoming;
mod inventories;
mod server;
mod storage;

pub use config::CoordinatorConfig;
pub use inventories::{Inventories, gather_inventories};
pub use server::{Handle, RunError, start};
pub use views::endpoints::openapi;
