//! The helper: disk and TCP around [`repair::Part`]; also the requestor that a client embeds.
//!
//! [`Engine`] carries out jobs: each has one task that drives this node's part of it and polls its sockets and its disk,
//! on one of its [`Workers`]. [`Session`] is the standing connection to the coordinator.
//! [`Daemon`] is both around a store's [`Blocks`](stores::Blocks). A client embeds an engine and a session
//! with its own [`Local`] half: where its blocks come from and go.

#![forbid(unsafe_code)]

mod buffers;
mod chores;
mod daemon;
mod disk;
mod engine;
mod errands;
mod job;
mod memory;
mod motion;
mod problems;
mod rendezvous;
mod secure;
mod session;
mod socket;
mod strangers;
mod stream;
mod throttle;
mod traffic;
mod workers;

pub use daemon::{Daemon, DaemonError, DaemonOptions};
pub use engine::{Engine, Local, Reports};
pub use rendezvous::Rendezvous;
pub use session::{CONNECT_LIMIT, ConnectError, Incoming, Outgoing, Session};
pub use traffic::{Moved, Traffic};
pub use workers::Workers;
