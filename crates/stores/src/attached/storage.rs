//! [`AttachedStorage`]: a store that others own as a coordinator's storage.
//!
//! The files are the store's own, and so are the stripes; what is kept here is in a [`Ledger`]. What the store's servers have
//! to be asked for takes long, and is done aside.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use repair::StripeId;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::{Aside, CopyState, Ledger, Listener, Teller};
use crate::dir::{DirCatalog, NodeRecord, OpenError, Snapshot};
use crate::{
    Answer, Catalog, CatalogError, Done, Fault, FileWrite, Files, Nature, RecordWrite, Records, Reply,
    Storage, StoreChange, StoreError, StripeRecord, StripeWrite, Term, Write,
};

/// One keeps up with the store, the other does what was asked for.
const THREADS: usize = 2;

/// A store that others own, as [`AttachedStorage`] drives it.
pub trait System: Send + Sync + 'static {
    /// What its files are said to be in.
    const NAME: &'static str;

    /// Does something with what is kept of it.
    fn with_ledger<T>(&self, work: impl FnOnce(&mut Ledger) -> T) -> T;

    /// All stripes, as they are known now.
    fn stripes(&self) -> Vec<StripeRecord>;

    /// Tells all that is known, for somebody who has heard nothing.
    fn tell_everything(&self);

    /// Notes how copies were found.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be kept; then nothing has changed.
    fn set_states(&self, term: Term, states: &[CopyState]) -> Result<(), StoreError>;

    /// The stripe that a write is for about which servers have to be asked; `None` if nobody has to.
    fn asks_about(&self, write: &Write) -> Option<StripeId>;

    /// Carries out a write about which servers have to be asked.
    ///
    /// # Errors
    /// [`StoreError`].
    fn ask(
        self: Arc<Self>,
        term: Term,
        write: Write,
    ) -> impl Future<Output = Result<Done, StoreError>> + Send;

    /// Whether a write of files is one of what is kept here; all else is the store's own business.
    fn keeps(&self, write: &FileWrite) -> bool;

    /// A write is to be kept: what it makes untrue is forgotten before, so that a coordinator which dies in between does not
    /// come back to it.
    ///
    /// # Errors
    /// [`StoreError`]; then it is not kept.
    fn prepare(&self, term: Term, write: &Write) -> Result<(), StoreError> {
        let _ = (term, write);
        Ok(())
    }

    /// A write has been kept.
    fn heed(&self, write: &Write, done: &Done);

    /// See [`Storage::nature`].
    fn nature(&self) -> Nature;

    /// See [`Storage::unlisted`].
    fn unlisted(&self) -> Option<String> {
        None
    }

    /// The coordinator ends: what it holds of the store is let go.
    fn let_go(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Why the storage cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The coordinator's own records cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system gives no thread.
    #[error("cannot start threads: {0}")]
    Threads(#[source] io::Error),
}

/// See the module's documentation.
pub struct AttachedStorage<S: System> {
    system: Arc<S>,
    teller: Teller,
    aside: Aside,
    /// Taken when it is dropped, so that what is under way does not hold that up.
    runtime: Option<Runtime>,
}

impl<S: System> fmt::Debug for AttachedStorage<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedStorage").field("store", &S::NAME).finish_non_exhaustive()
    }
}

impl<S: System> Drop for AttachedStorage<S> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            if !runtime.block_on(self.aside.end()) {
                tracing::warn!("{} was asked for something and does not answer", S::NAME);
            }
            runtime.block_on(self.system.let_go());
            runtime.shutdown_background();
        }
    }
}

impl<S: System> AttachedStorage<S> {
    /// Opens the records and starts the threads.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        records: PathBuf,
        cluster_id: &str,
        system: impl FnOnce(Ledger, Teller) -> S,
    ) -> Result<Self, StartError> {
        let ledger = Ledger::new(DirCatalog::open(records, cluster_id)?, S::NAME);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name(S::NAME.to_lowercase())
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let teller = Teller::start().map_err(StartError::Threads)?;
        let system = Arc::new(system(ledger, teller.clone()));
        Ok(Self { system, teller, aside: Aside::default(), runtime: Some(runtime) })
    }

    /// The store.
    pub fn system(&self) -> &Arc<S> {
        &self.system
    }

    /// Where what goes on by itself runs. It is not to be waited for where another runtime would be blocked by that.
    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is there until the storage is dropped")
    }

    fn carry_out_one(&self, term: Term, write: &Write) -> Result<Done, StoreError> {
        if self.system.asks_about(write).is_some() {
            return self.runtime().block_on(Arc::clone(&self.system).ask(term, write.clone()));
        }
        match write {
            Write::Stripes(StripeWrite::SetStates(states)) => {
                self.system.set_states(term, states)?;
                Ok(Done { value: Answer::Nothing, changes: Vec::new() })
            }
            Write::Files(file) if !self.system.keeps(file) => Err(StoreError::OwnFiles(S::NAME)),
            write => {
                self.system.prepare(term, write)?;
                let done = self.system.with_ledger(|ledger| ledger.write(term, write))?;
                self.system.heed(write, &done);
                Ok(done)
            }
        }
    }

    fn term(&self) -> Term {
        self.system.with_ledger(|ledger| ledger.term())
    }
}

/// Whether nothing follows from a write but that it is kept.
fn is_plain(write: &Write) -> bool {
    match write {
        Write::Records(RecordWrite::ForgetNode(_) | RecordWrite::Node { .. }) => false,
        Write::Records(_) => true,
        Write::Stripes(_) | Write::Files(_) => false,
    }
}

impl<S: System> Catalog for AttachedStorage<S> {
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError> {
        self.system.stripes().into_iter().for_each(|stripe| visit(stripe, false));
        Ok(())
    }

    fn write_stripes(&mut self, write: &StripeWrite) -> Result<(), CatalogError> {
        match self.carry_out_one(self.term(), &Write::Stripes(write.clone())) {
            Ok(_) => Ok(()),
            Err(StoreError::Catalog(error)) => Err(error),
            Err(other) => Err(CatalogError::Storage {
                place: S::NAME.to_owned(),
                fault: Fault::Stopped,
                detail: other.to_string(),
            }),
        }
    }
}

impl<S: System> Files for AttachedStorage<S> {
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        // What nodes shall remove; there are no files in it.
        self.system.with_ledger(|ledger| ledger.records().each_file(visit))
    }

    fn write_files(&mut self, write: &FileWrite) -> Result<Answer, StoreError> {
        self.carry_out_one(self.term(), &Write::Files(write.clone())).map(|done| done.value)
    }
}

impl<S: System> Records for AttachedStorage<S> {
    fn begin_term(&mut self) -> Result<Term, CatalogError> {
        self.system.with_ledger(Ledger::begin_term)
    }

    fn each_node(&self, visit: &mut dyn FnMut(NodeRecord)) -> Result<(), CatalogError> {
        self.system.with_ledger(|ledger| ledger.records().each_node(visit))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError> {
        self.system.with_ledger(|ledger| Records::list(ledger.records(), prefix))
    }

    fn write_records(&mut self, term: Term, write: &RecordWrite) -> Result<Answer, StoreError> {
        self.carry_out_one(term, &Write::Records(write.clone())).map(|done| done.value)
    }
}

impl<S: System> Storage for AttachedStorage<S> {
    /// Neighbours that are of one kind are carried out together. What takes long is [begun](Storage::begin) instead.
    fn carry_out(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>> {
        let mut results = Vec::with_capacity(writes.len());
        for group in writes.chunk_by(|a, b| is_plain(a) && is_plain(b)) {
            match group {
                [one] if !is_plain(one) => results.push(self.carry_out_one(term, one)),
                many => {
                    results.extend(self.system.with_ledger(|ledger| ledger.records().carry_out(term, many)))
                }
            }
        }
        // Whatever was told on the way is heard before the answers.
        self.teller.flush();
        results
    }

    fn begin(&mut self, term: Term, write: &Write, done: Reply) -> Option<Reply> {
        let Some(stripe) = self.system.asks_about(write) else { return Some(done) };
        let runtime = self.runtime.as_ref().expect("it is there until the storage is dropped");
        let work = Arc::clone(&self.system).ask(term, write.clone());
        self.aside.begin(runtime.handle(), &self.teller, stripe, work, done);
        None
    }

    fn recover(&mut self, term: Term) -> Result<Vec<StoreChange>, OpenError> {
        self.system.with_ledger(|ledger| Storage::recover(ledger.records(), term))
    }

    fn nature(&self) -> Nature {
        self.system.nature()
    }

    fn unlisted(&self) -> Option<String> {
        self.system.unlisted()
    }

    fn listen(&mut self, listener: Listener) {
        self.teller.listen(listener);
        self.system.tell_everything();
    }

    fn snapshot(&self) -> Result<Snapshot, CatalogError> {
        self.system.with_ledger(|ledger| Storage::snapshot(ledger.records()))
    }
}
