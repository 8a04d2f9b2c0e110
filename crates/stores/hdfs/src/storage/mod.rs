//! An HDFS cluster as a coordinator's catalog.
//!
//! The stripes are the block groups that the NameNode lists, and the stripes of raided files: k blocks of a
//! replicated file, and m blocks of its parity file. Mend records only additional facts, such as missing or
//! corrupt copies. HDFS owns the files, and removes surplus copies itself. Without a NameNode, the only
//! stripes are those that plug-ins describe to the coordinator.
//!
//! **Invariants:** everything reported about a group has the same generation stamp. The group is queried
//! again before one of its blocks is rebuilt. A block is reported as repaired only once the NameNode lists
//! it.

mod coded;
mod contact;
mod corrupt;
mod datanodes;
mod encoding;
mod encoding_state;
mod following;
mod group_watch;
mod groups;
mod loss_contact;
mod losses;
mod lost_files;
mod members;
mod names;
mod open;
mod pages;
mod plain;
mod plain_raid;
mod plain_stripes;
mod publishing;
mod raiding;
mod recounts;
mod replay;
mod reports;
mod state;
mod terms;
mod touched;
mod view;
mod watching;

use std::sync::Arc;

use attached::{CopyId, CopyState, Ledger, System};
use repair::StripeId;
use store_api::{
    Answer, Checksums, Done, Lists, Ownership, Rebuilder, RecordWrite, Service, Spread, StoreChange,
    StoreError, StorePolicy, StripeRecord, StripeWrite, Term, Write, Writers,
};

pub use encoding::EncodingSettings;
pub use open::{AttachError, Attachment, open};
use state::HdfsSystem;

/// The policy for HDFS: DataNodes create and remove replicas at any time, so helpers' lists of blocks are
/// stale.
pub const POLICY: StorePolicy = StorePolicy {
    ownership: Ownership::Attached,
    service: Service::ReportedByStore,
    writers: Writers::Others,
    spread: Spread::OnePerNodeInPlace,
    lists: Lists::Stale,
    checksums: Checksums::OfAllBlocks,
};

/// The policy for HDFS without NameNode queries: the only stripes are those that plug-ins describe.
pub const POLICY_WITHOUT_NAMENODE: StorePolicy =
    StorePolicy { service: Service::FollowsHelper, writers: Writers::MendAlone, ..POLICY };

type AttachedCatalog = attached::AttachedCatalog<HdfsSystem>;

impl System for HdfsSystem {
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
        let nodes = state.view.nodes();
        let mut changes =
            vec![StoreChange::Maintained(nodes.maintained()), StoreChange::Needed(nodes.needed().clone())];
        changes.extend(state.view.everything(now));
        changes.extend([state.troubles(), state.remarks(), state.corrupt.told()]);
        changes.extend(state.encoding.told());
        changes.push(state.contact.told()); // Reported after the stripes.
        state.tell(changes);
    }

    fn set_states(&self, term: Term, states: &[CopyState]) -> Result<Vec<CopyId>, StoreError> {
        self.note_states(term, states).map(|()| Vec::new())
    }

    fn asks_about(&self, write: &Write) -> Option<StripeId> {
        match write {
            Write::Stripes(write) => write.stripe().cloned(),
            _ => None,
        }
    }

    async fn ask(self: Arc<Self>, term: Term, write: Write) -> Result<Done, StoreError> {
        match &write {
            Write::Stripes(StripeWrite::Claim { stripe, nodes, blocks }) => {
                let permits = self.claim(stripe, nodes, blocks).await?;
                self.state().encoding.note_claim(stripe.clone());
                return Ok(Done::with(Answer::Claimed(permits), []));
            }
            Write::Stripes(StripeWrite::Publish { stripe, blocks, .. }) => {
                for &(index, node, _) in blocks {
                    self.publish(term, stripe, index, node).await?;
                }
            }
            // The NameNode has no lock to release.
            Write::Stripes(StripeWrite::Release(stripe)) => self.state().encoding.note_release(stripe),
            _ => {}
        }
        Ok(Done::default())
    }

    /// Refuses to remove replicas: the NameNode removes surplus replicas itself.
    fn prepare(&self, _: Term, write: &RecordWrite) -> Result<(), StoreError> {
        match write {
            RecordWrite::Discard(..) => Err(StoreError::OwnFiles(Self::NAME)),
            _ => Ok(()),
        }
    }

    fn heed(&self, write: &RecordWrite, done: &Done) {
        self.state().encoding.heed(write);
        match (write, &done.value) {
            (RecordWrite::ForgetNode(node), _) => self.state().forget_node(*node),
            (RecordWrite::Node { name, .. }, Answer::Node(node)) => self.note_registered(name, *node),
            _ => {}
        }
    }

    fn unlisted(&self) -> Option<String> {
        Self::unlisted(self)
    }

    fn rebuild_through(&self, rebuilder: Arc<dyn Rebuilder>) {
        // The coordinator gives only one.
        drop(self.rebuilder.set(rebuilder));
    }

    fn policy(&self) -> StorePolicy {
        if self.namenode.is_some() { POLICY } else { POLICY_WITHOUT_NAMENODE }
    }
}
