//! The helper: disk and TCP around [`repair::Part`]; also the requestor that a client embeds.
//!
//! [`Engine`] carries out jobs: each has one task that drives this node's part of it and polls its sockets and its disk,
//! on one of its [`Workers`]. [`Session`] is the standing connection to the coordinator.
//! [`Daemon`] is both around a store's [`Blocks`](store_api::Blocks), whichever store that is. A client embeds an engine and a
//! session, and its [`Requests`] bring along what is read and where it goes: see [`Local`].

#![forbid(unsafe_code)]

mod block_io;
mod buffers;
mod cap_gate;
mod chores;
mod daemon;
mod disk;
mod ending;
mod engine;
mod errands;
mod gate;
mod job;
mod local;
mod memory;
mod motion;
mod nowhere;
mod opening;
mod outbox;
mod problems;
mod rendezvous;
mod secure;
mod seen;
mod session;
mod socket;
mod strangers;
mod stream;
mod throttle;
mod traffic;
mod workers;

pub use daemon::{Daemon, DaemonError, DaemonOptions};
pub use engine::Engine;
pub use local::{Ends, Local, Requests};
pub use outbox::{MAX_WAITING, Outgoing, Reports, Unsent, outbox};
pub use rendezvous::Rendezvous;
pub use session::{CONNECT_LIMIT, ConnectError, Incoming, Session};
pub use traffic::{Moved, Traffic};
pub use workers::Workers;
