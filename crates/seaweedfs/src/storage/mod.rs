//! [`AttachedStorage`]: a SeaweedFS cluster as a coordinator's storage.
//!
//! The stripes are its EC volumes, as the masters list them; what others change is heard and pushed. Nothing of it is
//! kept here but what Mend alone knows: its own records, and which copies it found bad. The files are SeaweedFS's own.
//!
//! **Always true:** what is told of a volume is of one encoding; a shard counts as repaired when the master lists it where
//! it was made; nothing is mounted or unmounted without the cluster's lock.

mod asking;
mod claims;
mod homes;
mod inspection;
mod open;
mod publishing;
mod side_files;
mod state;
mod view;
mod watching;
mod withdrawals;

use std::sync::Arc;

use repair::StripeId;
use stores::attached::{CopyState, Ledger, System};
use stores::{Done, FileWrite, Nature, RecordWrite, StoreError, StripeRecord, Term, Write};

pub use open::{AttachError, Attachment, open};
use state::Shared;

/// See the module's documentation.
pub type AttachedStorage = stores::attached::AttachedStorage<Shared>;

impl System for Shared {
    const NAME: &'static str = "SeaweedFS";

    fn with_ledger<T>(&self, work: impl FnOnce(&mut Ledger) -> T) -> T {
        work(&mut self.state().ledger)
    }

    fn stripes(&self) -> Vec<StripeRecord> {
        self.state().view.stripes().collect()
    }

    fn tell_everything(&self) {
        let mut state = self.state();
        let mut changes = state.view.everything();
        changes.push(state.unjudged());
        changes.push(state.troubles());
        state.tell(changes);
    }

    fn set_states(&self, term: Term, states: &[CopyState]) -> Result<(), StoreError> {
        self.note_states(term, states)
    }

    fn asks_about(&self, write: &Write) -> Option<StripeId> {
        asking::stripe_of(write)
    }

    async fn ask(self: Arc<Self>, term: Term, write: Write) -> Result<Done, StoreError> {
        asking::carry_out(&self, term, &write).await
    }

    /// What is noted of single blocks.
    fn keeps(&self, write: &FileWrite) -> bool {
        matches!(write, FileWrite::Discard(..) | FileWrite::Discarded(..) | FileWrite::Disclaim(_))
    }

    fn prepare(&self, term: Term, write: &Write) -> Result<(), StoreError> {
        match write {
            Write::Files(FileWrite::Discarded(node, block)) => self.forget_bad(term, *node, block),
            _ => Ok(()),
        }
    }

    fn heed(&self, write: &Write, _: &Done) {
        if let Write::Records(RecordWrite::ForgetNode(node)) = write {
            self.state().view.forget_node(*node);
        }
    }

    fn nature(&self) -> Nature {
        Nature { files: false, tells_service: true, claims: true, shares_nodes: true, trusts_lists: true }
    }

    async fn let_go(&self) {
        self.let_go_of_all().await;
    }
}
