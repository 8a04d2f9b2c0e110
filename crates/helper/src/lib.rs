//! Carries out a node's half of repair jobs ([`repair::Part`]) with real disks and sockets. The helper daemon
//! does this for the blocks on its disks. Clients embed this crate to receive the blocks that they request.
//!
//! [`Engine`] carries out jobs: each job has one task, on one of the engine's [`Workers`], which drives this
//! node's part of the job and polls its sockets and disk. [`Session`] is the standing connection to the
//! coordinator. [`Daemon`] combines both with the [`Blocks`](store_api::Blocks) of any store. A client embeds an
//! engine and a session, and its [`Requests`] provide the blocks to read and the destinations of deliveries;
//! see [`Local`].

#![forbid(unsafe_code)]

mod activity;
mod background_pacing;
mod block_checks;
mod block_io;
mod buffers;
mod cap_gate;
mod daemon;
mod disk;
mod engine;
mod error_reports;
mod gate;
mod job;
mod local;
mod memory;
mod motion;
mod opening;
mod outbox;
mod port_rates;
mod probe_blocks;
mod publishing;
mod queries;
mod recent_blocks;
mod removals;
mod rendezvous;
mod renewal;
mod secure;
mod session;
mod socket;
mod stream;
mod throttle;
mod traffic;
mod unauthenticated;
mod user_load;
mod workers;
mod write_checks;

pub use activity::Activity;
pub use daemon::{Daemon, DaemonError, DaemonOptions};
pub use engine::{Engine, ForgetOnDrop};
pub use local::{Ends, Local, Requests};
pub use outbox::{MAX_WAITING, Outgoing, Reports, Unsent, outbox};
pub use rendezvous::Rendezvous;
pub use renewal::{keep_fresh, load_renewed};
pub use session::{CONNECT_LIMIT, ConnectError, Incoming, Session};
pub use traffic::{Moved, Purpose, Traffic};
pub use workers::Workers;
