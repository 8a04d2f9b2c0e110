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

use repair::{NodeId, StripeId};
use serde_json::Value;
use stores::attached::{Aside, Teller};
use stores::dir::{NodeRecord, Snapshot};
use stores::{
    Answer, BlockState, Catalog, CatalogError, Done, Fault, FileWrite, Files, Nature, RecordWrite, Records,
    Reply, Storage, StoreChange, StoreError, StripeRecord, StripeWrite, Term, Write,
};
use tokio::runtime::Runtime;

pub use open::{AttachError, Attachment};
use state::Shared;

/// What its files are said to be in.
const STORE: &str = "HDFS";

/// See the module's documentation.
pub struct AttachedStorage {
    shared: Arc<Shared>,
    teller: Teller,
    aside: Aside,
    /// Taken when it is dropped, so that what is under way does not hold that up.
    runtime: Option<Runtime>,
}

impl std::fmt::Debug for AttachedStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachedStorage").finish_non_exhaustive()
    }
}

impl Drop for AttachedStorage {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            if !runtime.block_on(self.aside.end()) {
                tracing::warn!("the NameNode was asked for something and does not answer");
            }
            runtime.shutdown_background();
        }
    }
}

impl AttachedStorage {
    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the storage is dropped")
    }

    fn write_stripes_done(&mut self, term: Term, write: &StripeWrite) -> Result<Done, StoreError> {
        if let StripeWrite::SetStates(states) = write {
            self.shared.set_states(term, states)?;
            return Ok(Done { value: Answer::Nothing, changes: Vec::new() });
        }
        self.runtime().block_on(self.shared.carry_out(term, write))
    }

    fn carry_out_one(&mut self, term: Term, write: &Write) -> Result<Done, StoreError> {
        match write {
            Write::Stripes(write) => self.write_stripes_done(term, write),
            Write::Files(FileWrite::Discarded(..) | FileWrite::CountBeyond(_)) => {
                self.shared.record(term, write)
            }
            Write::Files(_) => Err(StoreError::OwnFiles(STORE)),
            Write::Records(RecordWrite::ForgetNode(node)) => {
                let done = self.shared.record(term, write)?;
                self.shared.state().view.forget_node(*node);
                Ok(done)
            }
            Write::Records(_) => {
                let done = self.shared.record(term, write)?;
                if let Answer::Node(node) = done.value {
                    self.shared.assume_service(node);
                }
                Ok(done)
            }
        }
    }
}

impl Catalog for AttachedStorage {
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError> {
        let now = self.shared.now();
        let stripes = self.shared.state().view.stripes(now);
        stripes.into_iter().for_each(|stripe| visit(stripe, false));
        Ok(())
    }

    fn write_stripes(&mut self, write: &StripeWrite) -> Result<(), CatalogError> {
        let term = self.shared.state().term;
        match self.write_stripes_done(term, write) {
            Ok(_) => Ok(()),
            Err(StoreError::Catalog(error)) => Err(error),
            Err(other) => Err(CatalogError::Storage {
                place: STORE.to_owned(),
                fault: Fault::Stopped,
                detail: other.to_string(),
            }),
        }
    }
}

impl Files for AttachedStorage {
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        self.shared.state().records.each_file(visit) // There are none in it.
    }

    fn write_files(&mut self, write: &FileWrite) -> Result<Answer, StoreError> {
        let term = self.shared.state().term;
        self.carry_out_one(term, &Write::Files(write.clone())).map(|done| done.value)
    }
}

impl Records for AttachedStorage {
    fn begin_term(&mut self) -> Result<Term, CatalogError> {
        let mut state = self.shared.state();
        state.term = state.records.begin_term()?;
        Ok(state.term)
    }

    fn each_node(&self, visit: &mut dyn FnMut(NodeRecord)) -> Result<(), CatalogError> {
        self.shared.state().records.each_node(visit)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError> {
        Records::list(&self.shared.state().records, prefix)
    }

    fn write_records(&mut self, term: Term, write: &RecordWrite) -> Result<Answer, StoreError> {
        self.carry_out_one(term, &Write::Records(write.clone())).map(|done| done.value)
    }
}

impl Storage for AttachedStorage {
    /// Neighbours that are of one kind are carried out together. What takes long is [begun](Storage::begin) instead.
    fn carry_out(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>> {
        let is_plain = |write: &Write| match write {
            Write::Records(RecordWrite::ForgetNode(_) | RecordWrite::Node { .. }) => false,
            Write::Records(_) => true,
            Write::Stripes(_) | Write::Files(_) => false,
        };
        let mut results = Vec::with_capacity(writes.len());
        for group in writes.chunk_by(|a, b| is_plain(a) && is_plain(b)) {
            match group {
                [one] if !is_plain(one) => results.push(self.carry_out_one(term, one)),
                many => results.extend(self.shared.state().records.carry_out(term, many)),
            }
        }
        // Whatever was told on the way is heard before the answers.
        self.teller.flush();
        results
    }

    fn begin(&mut self, term: Term, write: &Write, done: Reply) -> Option<Reply> {
        let Write::Stripes(
            write @ (StripeWrite::Publish { stripe, .. }
            | StripeWrite::Claim { stripe, .. }
            | StripeWrite::Release(stripe)),
        ) = write
        else {
            return Some(done);
        };
        let (shared, stripe, write) = (Arc::clone(&self.shared), stripe.clone(), write.clone());
        let work = async move { shared.carry_out(term, &write).await };
        let runtime = self.runtime.as_ref().expect("it is there until the storage is dropped");
        self.aside.begin(runtime.handle(), &self.teller, stripe, work, done);
        None
    }

    fn nature(&self) -> Nature {
        let asks = self.shared.namenode.is_some();
        Nature { files: false, tells_service: asks, claims: asks, shares_nodes: false, trusts_lists: false }
    }

    fn listen(&mut self, listener: Box<dyn Fn(Vec<StoreChange>) + Send>) {
        self.teller.listen(listener);
        let now = self.shared.now();
        let mut state = self.shared.state();
        let mut changes = state.view.everything(now);
        changes.push(state.troubles());
        state.tell(changes);
    }

    fn snapshot(&self) -> Result<Snapshot, CatalogError> {
        Storage::snapshot(&self.shared.state().records)
    }
}

const BAD_PREFIX: &str = "hdfs/bad/";

/// Where a bad copy is kept in the records.
fn bad_key(stripe: &StripeId, index: u16, node: NodeId) -> String {
    format!("{BAD_PREFIX}{stripe}/{index}/{}", node.0)
}

/// The copy that a key names.
fn parse_bad_key(key: &str) -> Option<(StripeId, u16, NodeId)> {
    let mut parts = key.strip_prefix(BAD_PREFIX)?.rsplitn(3, '/');
    let node = NodeId(parts.next()?.parse().ok()?);
    let index = parts.next()?.parse().ok()?;
    Some((StripeId(parts.next()?.to_owned()), index, node))
}

/// What is kept under it.
fn bad_value(state: BlockState) -> Value {
    serde_json::to_value(state).expect("a name")
}
