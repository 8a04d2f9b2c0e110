//! The client library of a Mend cluster: put, read (whole or in part, degraded or not), repair, watch.
//!
//! [`Client`] talks to the coordinator in two ways, both over mutual TLS: requests as HTTP/JSON, and reads
//! and puts through a control session, in which the client takes part in plans like any node. Data flows
//! directly between the client and the helpers.
//!
//! Invariants: memory use does not grow with the size of files or blocks. Both local and stored files appear
//! under their names only when they are complete.
//!
//! Planning and retries with other helpers are the coordinator's job, so this crate has neither.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use client::{ByteRange, Client, GetOptions, GetTarget, PutOptions, no_progress};
//! use cluster::{Cluster, Role};
//!
//! let cluster = Cluster::open("mend-cluster".as_ref())?;
//! let client = Client::connect(&cluster, &Role::default_client())?;
//! client.put("photo.jpg".as_ref(), "photo", &PutOptions::default(), no_progress()).await?;
//! let target = GetTarget::File("copy.jpg".into());
//! let photo = client.find("photo", ByteRange::ALL).await?;
//! client.get(&photo, &GetOptions::default(), target, no_progress()).await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod blocking;
mod certificate;
mod client;
mod destination;
mod draft;
mod error;
mod events;
mod get;
mod http;
mod layout;
mod nodes;
mod pieces;
mod put;
mod requests;
mod rooms;
mod session;
mod target;
mod timeline;
mod whole;

pub use client::{Client, ClientOptions};
pub use error::{ClientError, FileChange, LocalFileError};
pub use events::Events;
pub use get::{Found, FoundBlock, GetOptions, GetTarget, Got};
pub use helper::ConnectError;
pub use pieces::{ByteRange, ParseRangeError, Piece, RangePastEnd, StripeSpan, pieces_of};
pub use put::PutOptions;
pub use repair::wire::RequestFailure;
pub use repair::wire::control::ExpectedBlock;
pub use rooms::{Memory, MemorySink, Room, delivery_to};
pub use session::ReadRequest;
pub use store_api::Sinks;
pub use timeline::Timeline;
pub use views::*;

use std::sync::Arc;

/// Entry points for the fuzz targets in `crates/fuzz`.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Returns the total size in bytes of the reads of a get; `None` if the layout or the range is rejected.
    ///
    /// # Panics
    /// If the total differs from the size of the range.
    pub fn plan_reads(layout: &crate::FileLayout, range: crate::ByteRange) -> Option<u64> {
        crate::get::plan_reads(layout, range)
    }
}

/// A callback for progress: called on any thread with the number of bytes moved since the last call.
pub type Progress = Arc<dyn Fn(u64) + Send + Sync>;

/// Returns a callback that ignores progress.
pub fn no_progress() -> Progress {
    Arc::new(|_| {})
}
