//! Answers and faults of the storage.

use store_api::OpenError;
use store_api::{CatalogError, Done, StoreChange, StoreError};

use crate::control::{Control, facts};
use crate::error::StorageError;
use crate::storing::ask::Ask;
use crate::storing::then::Then;

impl Control {
    /// Handles the result of a check whether the storage works. The driver stops the coordinator if the error
    /// is permanent.
    pub(crate) fn storage_recovered(&mut self, result: Result<Vec<StoreChange>, OpenError>) {
        match result {
            Ok(changes) => {
                let refused = self.jobs.puts.unknown(&changes);
                self.abort_puts(&refused);
                self.take_changes(changes);
                let held = self.storing.write_path.works();
                self.repairs.scheduler.try_again();
                self.storing.put_back(held.into_iter().map(|(number, write)| Ask::Write { number, write }));
            }
            Err(error) => self.storing.write_path.fails(error, self.base.now),
        }
    }

    /// Refuses the queued writes of requests while the storage fails.
    pub(crate) fn refuse_writes(&mut self) {
        let Some(why) = self.storing.write_path.fault().cloned() else { return };
        for ask in self.storing.take_passing() {
            match ask {
                Ask::Write { number, .. } => self.not_stored(number, why.clone()),
                Ask::Snapshot(reply) => {
                    self.out.answer(reply, Err(StorageError::StorageFails(why.clone()).into()));
                }
                Ask::KeepCopy | Ask::Recover => {}
            }
        }
    }

    /// Returns the next request to the storage.
    pub fn poll_storage(&mut self) -> Option<Ask> {
        self.pass_on();
        self.storing.poll(self.base.now)
    }

    /// Handles a write that the storage has carried out: applies its changes and runs its continuation.
    pub(crate) fn stored(&mut self, number: u64, done: Done) {
        let Some(then) = self.storing.waiting.remove(&number) else { return };
        self.storing.write_path.answered(number);
        self.storing.written_unix_ms = Some(self.base.unix_ms);
        if let Then::Published(published) = &then {
            let (job, stripe, blocks) = (published.job, &published.stripe, &published.blocks);
            self.jobs.note_former_homes(facts!(self), job, stripe, blocks);
        }
        let Done { value, changes } = done;
        self.take_changes(changes);
        self.go_on(then, Ok(value));
    }

    /// Handles a write that the storage has rejected; nothing has changed there. During a fault of the
    /// storage, a write that must not be lost is kept instead.
    pub(crate) fn not_stored(&mut self, number: u64, error: StoreError) {
        if self.storing.write_path.hold(number, &error, self.base.now) {
            return;
        }
        let Some(then) = self.storing.waiting.remove(&number) else { return };
        match &error {
            StoreError::Catalog(CatalogError::Storage { .. } | CatalogError::Damaged { .. })
            | StoreError::Fenced { .. } => tracing::error!(%error, "the catalog"),
            _ => tracing::debug!(%error, "the catalog refused a write"),
        }
        self.go_on(then, Err(error));
    }
}
