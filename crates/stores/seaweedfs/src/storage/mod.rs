//! A SeaweedFS cluster as a coordinator's catalog.
//!
//! Each EC volume is a stripe. The masters list the volumes and push changes that others make. Mend records
//! only facts that SeaweedFS does not store, such as missing or corrupt copies. SeaweedFS owns the files.
//!
//! **Invariants:** everything reported about a volume belongs to one encoding. A repaired shard is reported
//! as healthy only when the master lists it on the server where Mend rebuilt it. Mend mounts and unmounts
//! only while holding the cluster's lock.

mod asking;
mod claims;
mod deletions;
mod deletions_by_disk;
#[cfg(test)]
mod doubles;
mod doubts;
mod encoding_files;
mod freshness;
mod homes;
mod inspection;
mod judging;
mod marks;
mod moved_shards;
mod needles;
mod open;
mod parity_verdicts;
mod publishing;
mod refreshes;
mod remounts;
mod server_folders;
mod server_ids;
mod server_nodes;
mod side_files;
mod small_files;
mod state;
mod turn;
mod unlisted_shards;
mod unwritten;
mod view;
mod watching;
mod withdrawals;

use std::sync::Arc;

use attached::{CopyId, CopyState, Ledger, System};
use repair::StripeId;
use store_api::{
    Checksums, Done, Lists, Ownership, RecordWrite, Service, Spread, StoreError, StorePolicy, StripeRecord,
    Term, Write, Writers,
};

pub use open::{AttachError, Attachment, open};
use state::Shared;

/// The policy for SeaweedFS. Several shards of a volume may share a server if there are fewer servers than
/// shards.
pub const POLICY: StorePolicy = StorePolicy {
    ownership: Ownership::Attached,
    service: Service::ReportedByStore,
    writers: Writers::Others,
    spread: Spread::Even,
    lists: Lists::Complete,
    checksums: Checksums::OfDigests,
};

type AttachedCatalog = attached::AttachedCatalog<Shared>;

impl System for Shared {
    const NAME: &'static str = "SeaweedFS";

    fn with_ledger<T>(&self, work: impl FnOnce(&mut Ledger) -> T) -> T {
        work(&mut self.known.state().ledger)
    }

    fn stripes(&self) -> Vec<StripeRecord> {
        self.known.state().view.stripes().collect()
    }

    fn tell_everything(&self) {
        let mut state = self.known.state();
        let mut changes = state.view.everything();
        changes.extend(state.told());
        changes.push(state.doubted());
        changes.push(state.troubles());
        state.tell(changes);
    }

    fn set_states(&self, term: Term, states: &[CopyState]) -> Result<Vec<CopyId>, StoreError> {
        self.known.note_states(term, states)
    }

    fn asks_about(&self, write: &Write) -> Option<StripeId> {
        asking::stripe_of(write)
    }

    async fn ask(self: Arc<Self>, term: Term, write: Write) -> Result<Done, StoreError> {
        asking::carry_out(&self, term, &write).await
    }

    fn prepare(&self, term: Term, write: &RecordWrite) -> Result<(), StoreError> {
        match write {
            RecordWrite::Discarded(node, block) => self.known.forget_bad(term, *node, block),
            _ => Ok(()),
        }
    }

    fn heed(&self, write: &RecordWrite, _: &Done) {
        if let RecordWrite::ForgetNode(node) = write {
            server_ids::forget_node(&mut self.known.state(), *node);
        }
    }

    fn policy(&self) -> StorePolicy {
        POLICY
    }

    async fn let_go(&self) {
        self.lock.close().await;
    }
}
