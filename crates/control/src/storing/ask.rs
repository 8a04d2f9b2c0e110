//! Requests to the storage.

use store_api::Snapshot;
use store_api::Write;

use crate::effect::Reply;

/// A request to the storage. The storage's thread carries it out.
#[derive(Debug)]
pub enum Ask {
    /// Carry out this write. The answer carries the same number.
    #[allow(missing_docs, reason = "the field names are self-explanatory")]
    Write { number: u64, write: Write },
    /// Make a snapshot for a request.
    Snapshot(Reply<Box<dyn Snapshot>>),
    /// Keep a backup copy of the catalog.
    KeepCopy,
    /// Check whether the storage works again after a fault.
    Recover,
}
