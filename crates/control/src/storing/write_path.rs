//! Whether the storage takes writes, and what waits while it does not.
//!
//! A storage that failed is asked every second whether it works again, and nothing else is asked of it meanwhile.
//! Requests are refused with the reason. What the coordinator has to keep whoever asks, such as blocks found lost, waits
//! here and is stored in its order once that is possible.

use std::collections::BTreeMap;
use std::time::Duration;

use store_api::{CatalogError, RecordWrite, StoreError, Write};

use crate::base::Base;
use crate::error::RequestError;
use crate::storing::Storing;
use crate::storing::Then;

/// How often a storage that failed is tried again.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct WritePath {
    failing: Option<Failing>,
    /// Writes that must not be lost, by number: those that the storage is carrying out.
    in_flight: BTreeMap<u64, Write>,
    /// Those that it failed to carry out.
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

    /// Why nothing can be stored.
    pub(crate) fn fault(&self) -> Option<&StoreError> {
        self.failing.as_ref().map(|failing| &failing.why)
    }

    /// A write is handed to the storage that must not be lost.
    pub(crate) fn sent(&mut self, number: u64, write: Write) {
        self.in_flight.insert(number, write);
    }

    /// The storage has answered a write otherwise than by a fault of its own.
    pub(crate) fn answered(&mut self, number: u64) {
        self.in_flight.remove(&number);
    }

    /// The storage failed to carry out a write; whether that is held here.
    fn failed(&mut self, number: u64, why: &StoreError, now: Duration) -> bool {
        self.failing.get_or_insert_with(|| Failing { why: why.clone(), retry_at: now, asked: false });
        let held = self.in_flight.remove(&number).map(|write| self.held.insert(number, write));
        held.is_some()
    }

    /// Whether the storage is to be asked now whether it works again.
    pub(crate) fn is_due(&mut self, now: Duration) -> bool {
        let Some(failing) = &mut self.failing else { return false };
        let due = !failing.asked && now >= failing.retry_at;
        failing.asked |= due;
        due
    }

    /// It does not.
    pub(crate) fn still_fails(&mut self, now: Duration) {
        if let Some(failing) = &mut self.failing {
            (failing.asked, failing.retry_at) = (false, now + RETRY_EVERY);
        }
    }

    /// It does; the writes that were held.
    pub(crate) fn works(&mut self) -> BTreeMap<u64, Write> {
        self.failing = None;
        std::mem::take(&mut self.held)
    }
}

/// Whether a write is kept until it is stored, rather than given up with whoever waits for it.
pub(crate) fn outlasts_faults(write: &Write, then: &Then) -> bool {
    match then {
        Then::Known { .. } | Then::Numbers => true,
        // A late removal may hit what has become the last copy; surplus is found again.
        Then::Nothing => {
            matches!(write, Write::Records(record) if !matches!(record, RecordWrite::Discard(..)))
        }
        _ => false,
    }
}

impl Storing {
    /// Notes a fault of the storage; whether the write waits here for its end.
    pub(crate) fn hold_write(&mut self, base: &Base, number: u64, error: &StoreError) -> bool {
        let is_fault =
            matches!(error, StoreError::Catalog(CatalogError::Storage { .. }) | StoreError::Fenced { .. });
        if !is_fault {
            self.write_path.answered(number);
            return false;
        }
        if !self.write_path.is_failing() {
            tracing::error!(%error, "the catalog cannot be written; nothing is stored, repaired or removed until it can");
        }
        self.write_path.failed(number, error, base.now)
    }
}

impl Storing {
    /// That the storage takes writes, as far as is known.
    pub(crate) fn check_writes(&self) -> Result<(), RequestError> {
        match self.write_path.fault() {
            None => Ok(()),
            Some(why) => Err(RequestError::StorageFails(why.clone())),
        }
    }
}
