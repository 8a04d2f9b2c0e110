//! Faults of the storage, and the writes that wait for the recovery.
//!
//! Control asks the storage at intervals whether it works, so that a fault is noticed even when nothing is
//! written. While the storage fails, control asks every second whether it works again and sends no other
//! requests. API requests are refused with the reason. Writes that must not be lost, such as the states of
//! bad blocks, wait here and are stored in order after the recovery.

use std::collections::BTreeMap;
use std::time::Duration;

use store_api::{CatalogError, OpenError, StoreError, Write};

use crate::error::StorageError;

/// How often control asks a failing storage whether it works again.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Interval of checks while the storage works.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The current fault, and the writes that must survive it.
#[derive(Default)]
pub(crate) struct WritePath {
    failing: Option<Failing>,
    /// Time of the next check while the storage works.
    check_at: Duration,
    /// Writes in flight that must not be lost, by number.
    in_flight: BTreeMap<u64, Write>,
    /// Writes that failed because of the fault and wait for the recovery.
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

    /// Returns the fault of the storage, if there is one.
    pub(crate) fn fault(&self) -> Option<&StoreError> {
        self.failing.as_ref().map(|failing| &failing.why)
    }

    /// Remembers a write that must not be lost, because it is now sent to the storage.
    pub(crate) fn sent(&mut self, number: u64, write: Write) {
        self.in_flight.insert(number, write);
    }

    /// Forgets a write that the storage has answered without a fault.
    pub(crate) fn answered(&mut self, number: u64) {
        self.in_flight.remove(&number);
    }

    /// Records that the storage failed to carry out a write. Returns whether the write is kept.
    fn failed(&mut self, number: u64, why: &StoreError, now: Duration) -> bool {
        self.begin(why, now);
        let held = self.in_flight.remove(&number).map(|write| self.held.insert(number, write));
        held.is_some()
    }

    /// Whether it is time to ask the storage whether it works.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        let Some(failing) = &mut self.failing else {
            let due = now >= self.check_at;
            self.check_at = if due { now + CHECK_EVERY } else { self.check_at };
            return due;
        };
        let due = !failing.asked && now >= failing.retry_at;
        failing.asked |= due;
        due
    }

    /// Handles a failed check of the storage: begins a fault or, during a fault, schedules the next check.
    pub(crate) fn fails(&mut self, error: OpenError, now: Duration) {
        match &mut self.failing {
            Some(failing) => {
                tracing::debug!(%error, "still cannot write the catalog");
                (failing.asked, failing.retry_at) = (false, now + RETRY_EVERY);
            }
            None => self.begin(&error.into_fault().into(), now),
        }
    }

    /// Handles a check that succeeded: ends the fault, if there is one. Returns the writes that were kept.
    pub(crate) fn works(&mut self) -> BTreeMap<u64, Write> {
        if self.failing.take().is_some() {
            tracing::warn!("the catalog can be written again; check its disk");
        }
        std::mem::take(&mut self.held)
    }

    fn begin(&mut self, error: &StoreError, now: Duration) {
        if self.failing.is_none() {
            tracing::error!(
                %error,
                "cannot write the catalog; nothing is stored, repaired or removed until writing works again"
            );
        }
        self.failing.get_or_insert_with(|| Failing { why: error.clone(), retry_at: now, asked: false });
    }

    /// Handles an error of a write. Returns whether the write is kept until the recovery.
    pub(crate) fn hold(&mut self, number: u64, error: &StoreError, now: Duration) -> bool {
        let is_fault = matches!(
            error,
            StoreError::Catalog(CatalogError::Storage { .. } | CatalogError::Moved { .. })
                | StoreError::Fenced { .. }
        );
        if !is_fault {
            self.answered(number);
            return false;
        }
        self.failed(number, error, now)
    }

    /// Returns an error while the storage fails.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        match self.fault() {
            None => Ok(()),
            Some(why) => Err(StorageError::StorageFails(why.clone())),
        }
    }
}
