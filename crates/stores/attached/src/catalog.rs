//! [`AttachedCatalog`]: a coordinator's catalog on top of an attached store, that is, a running storage
//! system that Mend does not own.
//!
//! Files and stripes belong to the store. A [`Ledger`] keeps Mend's own records about them. Calls to the
//! store's servers run off the coordinator's storage thread.

use std::fmt;
use std::io;
use std::sync::Arc;

use repair::StripeId;
use store_api::{
    Answer, Catalog, CatalogError, Done, Listener, Rebuilder, RecordWrite, Reply, SharedRecords, Storage,
    StoreError, StorePolicy, StripeRecord, StripeWrite, Term, Write,
};
use tokio::runtime::Runtime;

use super::{Aside, CopyId, CopyState, Ledger, Teller};

/// One thread follows the store's changes, the other serves requests.
const THREADS: usize = 2;

/// An attached store: the operations that [`AttachedCatalog`] needs.
pub trait System: Send + Sync + 'static {
    /// The store's name in messages.
    const NAME: &'static str;

    /// Runs `work` on the ledger.
    fn with_ledger<T>(&self, work: impl FnOnce(&mut Ledger) -> T) -> T;

    /// Returns all known stripes.
    fn stripes(&self) -> Vec<StripeRecord>;

    /// Reports the complete current state to a new listener.
    fn tell_everything(&self);

    /// Records the states of copies. Returns the copies whose bad states, found now or earlier, the store does not
    /// record because it has better evidence; see [`Answer::Overruled`].
    ///
    /// # Errors
    /// [`StoreError`] if they cannot be recorded; nothing has changed then.
    fn set_states(&self, term: Term, states: &[CopyState]) -> Result<Vec<CopyId>, StoreError>;

    /// Returns the stripe that a write concerns, if the write requires calls to the store's servers;
    /// otherwise `None`.
    fn asks_about(&self, write: &Write) -> Option<StripeId>;

    /// Makes the calls to the store's servers that a write requires. The caller stores the coordinator's own
    /// records afterwards.
    ///
    /// # Errors
    /// [`StoreError`].
    fn ask(
        self: Arc<Self>,
        term: Term,
        write: Write,
    ) -> impl Future<Output = Result<Done, StoreError>> + Send;

    /// See [`Catalog::prepare`].
    ///
    /// # Errors
    /// [`StoreError`]; the record is not written then.
    fn prepare(&self, term: Term, write: &RecordWrite) -> Result<(), StoreError> {
        let _ = (term, write);
        Ok(())
    }

    /// See [`Catalog::heed`].
    fn heed(&self, write: &RecordWrite, done: &Done);

    /// Returns how this kind of store differs from others.
    fn policy(&self) -> StorePolicy;

    /// See [`Catalog::unlisted`].
    fn unlisted(&self) -> Option<String> {
        None
    }

    /// See [`Catalog::rebuild_through`].
    fn rebuild_through(&self, rebuilder: Arc<dyn Rebuilder>) {
        drop(rebuilder);
    }

    /// Called when the coordinator shuts down: releases all locks and reservations in the store.
    fn let_go(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The system cannot start another thread.
#[derive(Debug, thiserror::Error)]
#[error("cannot start threads: {0}")]
pub struct StartError(#[source] io::Error);

/// A catalog over an attached store; see the module's documentation.
pub struct AttachedCatalog<S: System> {
    system: Arc<S>,
    teller: Teller,
    aside: Aside,
    /// Always present until the drop, which takes the runtime out and shuts it down in the background. So a
    /// call that hangs cannot block the drop.
    runtime: Option<Runtime>,
}

impl<S: System> fmt::Debug for AttachedCatalog<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedCatalog").field("store", &S::NAME).finish_non_exhaustive()
    }
}

impl<S: System> Drop for AttachedCatalog<S> {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let (aside, system) = (&mut self.aside, &self.system);
        // On another thread: a coordinator that cannot start drops the catalog on a thread of its own runtime, which
        // must not wait for another runtime.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                if !runtime.block_on(aside.end()) {
                    tracing::warn!(
                        "{} has not answered a request; shutting down without the answer",
                        S::NAME
                    );
                }
                runtime.block_on(system.let_go());
            });
        });
        runtime.shutdown_background();
    }
}

impl<S: System> AttachedCatalog<S> {
    /// Starts the catalog's threads.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        records: SharedRecords,
        system: impl FnOnce(Ledger, Teller) -> S,
    ) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name(S::NAME.to_lowercase())
            .enable_all()
            .build()
            .map_err(StartError)?;
        let teller = Teller::start().map_err(StartError)?;
        let system = Arc::new(system(Ledger::new(records, S::NAME), teller.clone()));
        Ok(Self { system, teller, aside: Aside::default(), runtime: Some(runtime) })
    }

    /// Returns the store's system.
    pub fn system(&self) -> &Arc<S> {
        &self.system
    }

    /// Returns the runtime for background work. Do not block on it from inside another runtime.
    pub fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime exists until the catalog is dropped")
    }

    /// Creates a storage from this catalog and `records`, which must be the records that were passed to
    /// [`start`](Self::start).
    pub fn over(self, records: SharedRecords) -> Storage {
        Storage::new(S::NAME, self.system.policy(), self, records)
    }

    /// Makes the calls to the store's servers that a write requires, and waits for the result.
    fn ask_now(&self, term: Term, write: Write) -> Result<Done, StoreError> {
        self.runtime().block_on(Arc::clone(&self.system).ask(term, write))
    }
}

/// Makes the calls to the store's servers that a write requires. If the write changes a record, writes the
/// record afterwards.
async fn ask_and_keep<S: System>(system: Arc<S>, term: Term, write: Write) -> Result<Done, StoreError> {
    let done = Arc::clone(&system).ask(term, write.clone()).await?;
    match write {
        Write::Records(record) => system.with_ledger(|ledger| ledger.write(term, record)),
        Write::Stripes(_) | Write::Files(_) => Ok(done),
    }
}

impl<S: System> Catalog for AttachedCatalog<S> {
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError> {
        self.system.stripes().into_iter().for_each(|stripe| visit(stripe, false));
        Ok(())
    }

    fn write_stripes(&mut self, term: Term, write: &StripeWrite) -> Result<Done, StoreError> {
        if let StripeWrite::SetStates(states) = write {
            let overruled = self.system.set_states(term, states)?;
            if !overruled.is_empty() {
                return Ok(Done::with(Answer::Overruled(overruled), []));
            }
        } else {
            let write = Write::Stripes(write.clone());
            if self.system.asks_about(&write).is_some() {
                return self.ask_now(term, write);
            }
        }
        Ok(Done::default())
    }

    fn begin(&mut self, term: Term, write: &Write, done: Reply) -> Option<Reply> {
        let Some(stripe) = self.system.asks_about(write) else { return Some(done) };
        let runtime = self.runtime.as_ref().expect("the runtime exists until the catalog is dropped");
        let work = ask_and_keep(Arc::clone(&self.system), term, write.clone());
        self.aside.begin(runtime.handle(), &self.teller, stripe, work, done);
        None
    }

    fn enter_term(&mut self, term: Term) {
        self.system.with_ledger(|ledger| ledger.enter_term(term));
    }

    fn prepare(&mut self, term: Term, write: &RecordWrite) -> Result<(), StoreError> {
        let asked = Write::Records(write.clone());
        match self.system.asks_about(&asked) {
            Some(_) => self.ask_now(term, asked).map(drop),
            None => self.system.prepare(term, write),
        }
    }

    fn heed(&mut self, write: &RecordWrite, done: &Done) {
        self.system.heed(write, done);
    }

    fn unlisted(&self) -> Option<String> {
        self.system.unlisted()
    }

    fn listen(&mut self, listener: Listener) {
        self.teller.listen(listener);
        self.system.tell_everything();
    }

    fn flush(&self) {
        self.teller.flush();
    }

    fn rebuild_through(&mut self, rebuilder: Arc<dyn Rebuilder>) {
        self.system.rebuild_through(rebuilder);
    }
}
