//! [`AttachedStorage`]: a SeaweedFS cluster as a coordinator's storage.
//!
//! The stripes are its EC volumes, as the masters list them; what others change is heard and pushed. Nothing of it is
//! kept here but what Mend alone knows: its own records, and which copies it found bad. The files are SeaweedFS's own.
//!
//! **Always true:** what is told of a volume is of one encoding; a shard counts as repaired when the master lists it where
//! it was made; nothing is mounted or unmounted without the cluster's lock.

mod asking;
mod claims;
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
    Answer, BlockState, Catalog, CatalogError, Done, FileWrite, Files, Nature, RecordWrite, Records, Reply,
    Storage, StoreChange, StoreError, StripeRecord, StripeWrite, Term, Write,
};
use tokio::runtime::Runtime;

pub use open::{AttachError, Attachment};
use state::Shared;

/// What its files are said to be in.
const STORE: &str = "SeaweedFS";

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
                tracing::warn!("a volume server that was asked for something does not answer");
            }
            runtime.block_on(self.shared.let_go_of_all());
            runtime.shutdown_background();
        }
    }
}

impl AttachedStorage {
    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("it is there until the storage is dropped").block_on(work)
    }

    fn write_stripes_done(&mut self, term: Term, write: &StripeWrite) -> Result<Done, StoreError> {
        if let StripeWrite::SetStates(states) = write {
            self.shared.set_states(term, states)?;
            return Ok(Done { value: Answer::Nothing, changes: Vec::new() });
        }
        self.wait(asking::carry_out(&self.shared, term, &Write::Stripes(write.clone())))
    }

    /// What changes files is refused; what is noted of single blocks is ours.
    fn check_file_write(write: &FileWrite) -> Result<(), StoreError> {
        match write {
            FileWrite::Discard(..) | FileWrite::Discarded(..) | FileWrite::CountBeyond(_) => Ok(()),
            FileWrite::BeginPut { .. }
            | FileWrite::Allocate { .. }
            | FileWrite::CommitPut(_)
            | FileWrite::AbortPut(_)
            | FileWrite::RemoveFile(_) => Err(StoreError::OwnFiles(STORE)),
        }
    }

    fn carry_out_one(&mut self, term: Term, write: &Write) -> Result<Done, StoreError> {
        match write {
            Write::Stripes(write) => self.write_stripes_done(term, write),
            Write::Files(FileWrite::Discard(..)) => self.wait(asking::carry_out(&self.shared, term, write)),
            Write::Files(FileWrite::Discarded(node, block)) => {
                self.shared.forget_bad(term, *node, block)?;
                self.shared.record(term, write)
            }
            Write::Files(file) => {
                Self::check_file_write(file)?;
                self.shared.record(term, write)
            }
            Write::Records(RecordWrite::ForgetNode(node)) => {
                let done = self.shared.record(term, write)?;
                self.shared.state().view.forget_node(*node);
                Ok(done)
            }
            Write::Records(_) => self.shared.record(term, write),
        }
    }
}

impl Catalog for AttachedStorage {
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError> {
        self.shared.state().view.stripes().for_each(|stripe| visit(stripe, false));
        Ok(())
    }

    fn write_stripes(&mut self, write: &StripeWrite) -> Result<(), CatalogError> {
        let term = self.shared.state().term;
        match self.write_stripes_done(term, write) {
            Ok(_) => Ok(()),
            Err(StoreError::Catalog(error)) => Err(error),
            Err(other) => Err(CatalogError::Storage {
                place: STORE.to_owned(),
                fault: stores::Fault::Stopped,
                detail: other.to_string(),
            }),
        }
    }
}

impl Files for AttachedStorage {
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        self.shared.state().records.each_file(visit) // What nodes shall remove; there are no files in it.
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
            Write::Records(RecordWrite::ForgetNode(_)) | Write::Stripes(_) => false,
            Write::Records(_) => true,
            Write::Files(_) => false,
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
        let runtime = self.runtime.as_ref().expect("it is there until the storage is dropped");
        let Some(stripe) = asking::stripe_of(write) else { return Some(done) };
        let (shared, write) = (Arc::clone(&self.shared), write.clone());
        let work = async move { asking::carry_out(&shared, term, &write).await };
        self.aside.begin(runtime.handle(), &self.teller, stripe, work, done);
        None
    }

    fn nature(&self) -> Nature {
        Nature { files: false, tells_service: true, claims: true, shares_nodes: true, trusts_lists: true }
    }

    fn listen(&mut self, listener: Box<dyn Fn(Vec<StoreChange>) + Send>) {
        self.teller.listen(listener);
        let mut state = self.shared.state();
        let mut changes = state.view.everything();
        changes.push(state.troubles());
        state.tell(changes);
    }

    fn snapshot(&self) -> Result<Snapshot, CatalogError> {
        Storage::snapshot(&self.shared.state().records)
    }
}

/// Where a bad copy is kept in the records.
fn bad_key(stripe: &StripeId, index: u16, node: NodeId) -> String {
    format!("{BAD_PREFIX}{stripe}/{index}/{}", node.0)
}

const BAD_PREFIX: &str = "seaweedfs/bad/";

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
