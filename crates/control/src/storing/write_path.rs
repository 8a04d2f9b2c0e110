//! Faults of the storage, and the writes that wait for their end.
//!
//! A failed storage is asked every second whether it works again, and gets no other ask meanwhile. Requests
//! are refused with the reason. Writes that must not be lost, such as states of blocks found lost, wait here
//! and are stored in order after the recovery.

use std::collections::BTreeMap;
use std::time::Duration;

use store_api::{CatalogError, StoreError, Write};

use crate::error::StorageError;

/// How often a storage that failed is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct WritePath {
    failing: Option<Failing>,
    /// Writes that must not be lost and that the storage is carrying out, by number.
    in_flight: BTreeMap<u64, Write>,
    /// Writes that the storage failed to carry out.
    held: BTreeMap<u64, Write>,
}

struct Failing {
    why: StoreError,
    retry_at: Duration,
    asked: bool,
}

impl WritePath {
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// The fault of the storage, if there is one.
    pub(crate) fn fault(&self) -> Option<&StoreError> {
        self.failing.as_ref().map(|failing| &failing.why)
    }

    /// A write that must not be lost goes to the storage.
    pub(crate) fn sent(&mut self, number: u64, write: Write) {
        self.in_flight.insert(number, write);
    }

    /// The storage has answered a write without a fault of its own.
    pub(crate) fn answered(&mut self, number: u64) {
        self.in_flight.remove(&number);
    }

    /// The storage failed to carry out a write. Returns whether the write is held here.
    fn failed(&mut self, number: u64, why: &StoreError, now: Duration) -> bool {
        self.failing.get_or_insert_with(|| Failing { why: why.clone(), retry_at: now, asked: false });
        let held = self.in_flight.remove(&number).map(|write| self.held.insert(number, write));
        held.is_some()
    }

    /// Whether it is time to ask the storage whether it works again.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        let Some(failing) = &mut self.failing else { return false };
        let due = !failing.asked && now >= failing.retry_at;
        failing.asked |= due;
        due
    }

    /// The storage still fails.
    pub(crate) fn still_fails(&mut self, now: Duration) {
        if let Some(failing) = &mut self.failing {
            (failing.asked, failing.retry_at) = (false, now + RETRY_EVERY);
        }
    }

    /// The storage works again. Returns the writes that were held.
    pub(crate) fn works(&mut self) -> BTreeMap<u64, Write> {
        self.failing = None;
        std::mem::take(&mut self.held)
    }

    /// Notes a fault of the storage. Returns whether the write waits here for its end.
    pub(crate) fn hold(&mut self, number: u64, error: &StoreError, now: Duration) -> bool {
        let is_fault =
            matches!(error, StoreError::Catalog(CatalogError::Storage { .. }) | StoreError::Fenced { .. });
        if !is_fault {
            self.answered(number);
            return false;
        }
        if !self.is_failing() {
            tracing::error!(%error, "the catalog cannot be written; nothing is stored, repaired or removed until it can");
        }
        self.failed(number, error, now)
    }

    /// Refuses requests while the storage fails.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        match self.fault() {
            None => Ok(()),
            Some(why) => Err(StorageError::StorageFails(why.clone())),
        }
    }
}
