//! Asks to the storage.

use store_api::Snapshot;
use store_api::Write;

use crate::effect::Reply;

/// A task of the storage.
#[derive(Debug)]
pub enum Ask {
    /// Carry out this write, and answer with this number.
    #[allow(missing_docs, reason = "the fields say no more than their names")]
    Write { number: u64, write: Write },
    /// Copy everything for a request.
    Snapshot(Reply<Box<dyn Snapshot>>),
    /// Keep a copy beside the original.
    KeepCopy,
    /// Check whether it works again after a fault.
    Recover,
}
