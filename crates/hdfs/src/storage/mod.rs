//! [`AttachedStorage`]: an HDFS cluster as a coordinator's storage.
//!
//! The stripes are the block groups that its NameNode lists. Nothing of it is kept here but what Mend alone knows: its own
//! records, and which copies it found bad. The files are HDFS's own, and so is the removal of copies that are one too many.
//! Without a NameNode there are no stripes but those that DataNodes describe to the coordinator themselves.
//!
//! **Always true:** what is told of a group is of one generation stamp; before a block of it is made the NameNode is asked for
//! the group anew, and a block counts as repaired when the NameNode lists it.

mod open;
mod publishing;
mod state;
mod view;
mod watching;

use std::sync::Arc;

use repair::StripeId;
use stores::attached::{CopyState, Ledger, System};
use stores::{
    Answer, Done, FileWrite, Nature, RecordWrite, StoreError, StripeRecord, StripeWrite, Term, Write,
};

pub use open::{AttachError, Attachment, open};
use state::Shared;

/// See the module's documentation.
pub type AttachedStorage = stores::attached::AttachedStorage<Shared>;

impl System for Shared {
    const NAME: &'static str = "HDFS";

    fn with_ledger<T>(&self, work: impl FnOnce(&mut Ledger) -> T) -> T {
        work(&mut self.state().ledger)
    }

    fn stripes(&self) -> Vec<StripeRecord> {
        let now = self.now();
        self.state().view.stripes(now)
    }

    fn tell_everything(&self) {
        let now = self.now();
        let mut state = self.state();
        let mut changes = state.view.everything(now);
        changes.extend([state.troubles(), state.remarks()]);
        state.tell(changes);
    }

    fn set_states(&self, term: Term, states: &[CopyState]) -> Result<(), StoreError> {
        self.note_states(term, states)
    }

    fn asks_about(&self, write: &Write) -> Option<StripeId> {
        match write {
            Write::Stripes(
                StripeWrite::Publish { stripe, .. }
                | StripeWrite::Claim { stripe, .. }
                | StripeWrite::Release(stripe),
            ) => Some(stripe.clone()),
            _ => None,
        }
    }

    async fn ask(self: Arc<Self>, term: Term, write: Write) -> Result<Done, StoreError> {
        match &write {
            Write::Stripes(StripeWrite::Claim { stripe, nodes, blocks }) => {
                let permits = self.claim(stripe, nodes, blocks).await?;
                return Ok(Done { value: Answer::Claimed(permits), changes: Vec::new() });
            }
            Write::Stripes(StripeWrite::Publish { stripe, blocks }) => {
                for &(index, node, _) in blocks {
                    self.publish(term, stripe, index, node).await?;
                }
            }
            _ => {} // The NameNode has no lock to give back.
        }
        Ok(Done { value: Answer::Nothing, changes: Vec::new() })
    }

    fn keeps(&self, write: &FileWrite) -> bool {
        matches!(write, FileWrite::Discarded(..) | FileWrite::Disclaim(_))
    }

    fn heed(&self, write: &Write, done: &Done) {
        match (write, &done.value) {
            (Write::Records(RecordWrite::ForgetNode(node)), _) => self.state().view.forget_node(*node),
            (Write::Records(_), Answer::Node(node)) => self.assume_service(*node),
            _ => {}
        }
    }

    fn unlisted(&self) -> Option<String> {
        Self::unlisted(self)
    }

    fn nature(&self) -> Nature {
        let asks = self.namenode.is_some();
        Nature { files: false, tells_service: asks, claims: asks, shares_nodes: false, trusts_lists: false }
    }
}
