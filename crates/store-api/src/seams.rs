//! The coordinator's interfaces to storage: [`Catalog`], [`Files`] and [`Records`], which are implemented
//! independently.
//!
//! All calls are synchronous, on the thread that owns the storage. An implementation that must contact remote
//! servers does so on another thread and answers later ([`Catalog::begin`]).

use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::{
    CatalogError, Done, FileWrite, NodeRecord, OpenError, Rebuilder, RecordWrite, StoreChange, StoreError,
    StripeRecord, StripeWrite, Term, Write,
};

/// Callback for the outcome of a write that was begun.
pub type Reply = Box<dyn FnOnce(Result<Done, StoreError>) + Send>;

/// Callback for changes that other writers made.
pub type Listener = Box<dyn Fn(Vec<StoreChange>) + Send>;

/// The stripes of a store: their blocks, and the nodes that hold the blocks.
pub trait Catalog: Send {
    /// Calls `visit` with every stripe, in a stable order. The flag is true if the stripe belongs to an
    /// uncommitted put.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError>;

    /// Carries out a change of stripes durably, completely or not at all.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed then.
    fn write_stripes(&mut self, term: Term, write: &StripeWrite) -> Result<Done, StoreError>;

    /// Begins a write that would block the storage thread, such as a write that contacts remote servers, and
    /// returns at once. Another thread calls `done` with the outcome. Writes that were begun for the same
    /// stripe keep their order. Returns `done` unused if the write does not block; the storage thread then
    /// carries the write out.
    fn begin(&mut self, term: Term, write: &Write, done: Reply) -> Option<Reply> {
        let _ = (term, write);
        Some(done)
    }

    /// Informs the catalog that a coordinator with this term has taken over.
    fn enter_term(&mut self, term: Term) {
        let _ = term;
    }

    /// Called before a record is written. The catalog undoes any state of its own that would contradict the
    /// record. A coordinator that crashes between this call and the write repeats the call and the write.
    ///
    /// # Errors
    /// [`StoreError`]; the record is not written then.
    fn prepare(&mut self, term: Term, write: &RecordWrite) -> Result<(), StoreError> {
        let _ = (term, write);
        Ok(())
    }

    /// Called after a record was written, so that the catalog can update its own state, for example when a
    /// node was removed.
    fn heed(&mut self, write: &RecordWrite, done: &Done) {
        let _ = (write, done);
    }

    /// Returns why an attached store has not been listed yet, as a message for operators; `None` after the
    /// first listing.
    fn unlisted(&self) -> Option<String> {
        None
    }

    /// Sets the receiver of changes that other writers make from now on. A store with other writers first reports its
    /// whole state, and whether it has been [listed](StoreChange::Unlisted); one without them reports nothing.
    fn listen(&mut self, listener: Listener) {
        drop(listener);
    }

    /// Waits until `listener` has received all changes so far.
    fn flush(&self) {}

    /// Gives the store a way to have helpers rebuild blocks of stripes that it
    /// [describes](crate::DescribedStripe). Called once, after the coordinator has read the catalog.
    fn rebuild_through(&mut self, rebuilder: Arc<dyn Rebuilder>) {
        drop(rebuilder);
    }
}

/// Files that are put, read and removed through Mend. Only stores that own their files implement this trait.
pub trait Files: Send {
    /// Calls `visit` with every file and every open put, and with the number of the next stripe.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError>;

    /// Carries out a change of files durably, completely or not at all.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed then.
    fn write_files(&mut self, term: Term, write: &FileWrite) -> Result<Done, StoreError>;
}

/// The coordinator's own records: the registry of nodes, the repair queue, blocks to be removed, the
/// [eras](crate::Eras) of stripe names, counters, settings.
///
/// The implementation today is redb (`dir::DirCatalog`). The trait does not assume a single machine: it could
/// be implemented over etcd, with [`check_term`](Self::check_term) to fence off a deposed coordinator.
pub trait Records: Send {
    /// Begins a term higher than all earlier terms, which fences off earlier coordinators.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn begin_term(&mut self) -> Result<Term, CatalogError>;

    /// Checks that no coordinator has begun a higher term.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if one has.
    fn check_term(&self, term: Term) -> Result<(), StoreError>;

    /// Returns the record of the node with this name; assigns a number to a new node. Numbers are never
    /// reused, so even a deposed coordinator may call this, and no term is needed.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn number_node(&mut self, name: &str) -> Result<NodeRecord, CatalogError>;

    /// Calls `visit` with every node, every block that a node must remove, and the [eras](crate::Eras) of
    /// stripe names.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn each_record(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError>;

    /// Returns the records whose keys begin with `prefix`, sorted by key.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError>;

    /// Carries out writes durably and in order, each completely or not at all, preferably in one commit.
    /// Returns the results in the same order. All writes fail with [`StoreError::Fenced`] if there is a
    /// higher term.
    fn write_records(&mut self, term: Term, writes: &[RecordWrite]) -> Vec<Result<Done, StoreError>>;

    /// Reopens the records after a failure. Returns the changes of a write that became durable although it
    /// was answered with an error. Cheap if nothing failed.
    ///
    /// # Errors
    /// [`OpenError`]. If the error [is not temporary](OpenError::is_passing), this coordinator must not write
    /// to these records again.
    fn recover(&mut self, term: Term) -> Result<Vec<StoreChange>, OpenError>;

    /// Takes a snapshot of these records, and of everything else on their medium, as of now.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError>;
}

/// Writes stripes, files and records in one transaction, if one medium stores them all.
pub trait Transaction: Send {
    /// Carries out writes durably and in order, each completely or not at all, preferably in one commit.
    /// Returns the results in the same order.
    fn carry_out(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>>;
}

/// A copy of a coordinator's records, taken while they are in use. Another thread may save the copy.
pub trait Snapshot: fmt::Debug + Send {
    /// Saves the copy. Before that, renames the previously saved copy to a second file name, and so replaces
    /// the copy before it.
    ///
    /// # Errors
    /// [`OpenError`].
    fn keep(&self) -> Result<(), OpenError>;

    /// Writes the copy to an unnamed temporary file, which vanishes on close. Returns the file, positioned at
    /// its start.
    ///
    /// # Errors
    /// [`OpenError`].
    fn file(&self) -> Result<File, OpenError>;
}

/// Locks an object that implements several of these traits, or that a catalog and the storage share. Ignores
/// poisoning: a transaction that panicked has changed nothing.
fn locked<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Catalog + ?Sized> Catalog for Arc<Mutex<T>> {
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError> {
        locked(self).each_stripe(visit)
    }

    fn write_stripes(&mut self, term: Term, write: &StripeWrite) -> Result<Done, StoreError> {
        locked(self).write_stripes(term, write)
    }

    fn begin(&mut self, term: Term, write: &Write, done: Reply) -> Option<Reply> {
        locked(self).begin(term, write, done)
    }

    fn enter_term(&mut self, term: Term) {
        locked(self).enter_term(term);
    }

    fn prepare(&mut self, term: Term, write: &RecordWrite) -> Result<(), StoreError> {
        locked(self).prepare(term, write)
    }

    fn heed(&mut self, write: &RecordWrite, done: &Done) {
        locked(self).heed(write, done);
    }

    fn unlisted(&self) -> Option<String> {
        locked(self).unlisted()
    }

    fn listen(&mut self, listener: Listener) {
        locked(self).listen(listener);
    }

    fn flush(&self) {
        locked(self).flush();
    }

    fn rebuild_through(&mut self, rebuilder: Arc<dyn Rebuilder>) {
        locked(self).rebuild_through(rebuilder);
    }
}

impl<T: Files + ?Sized> Files for Arc<Mutex<T>> {
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        locked(self).each_file(visit)
    }

    fn write_files(&mut self, term: Term, write: &FileWrite) -> Result<Done, StoreError> {
        locked(self).write_files(term, write)
    }
}

impl<T: Records + ?Sized> Records for Arc<Mutex<T>> {
    fn begin_term(&mut self) -> Result<Term, CatalogError> {
        locked(self).begin_term()
    }

    fn check_term(&self, term: Term) -> Result<(), StoreError> {
        locked(self).check_term(term)
    }

    fn number_node(&mut self, name: &str) -> Result<NodeRecord, CatalogError> {
        locked(self).number_node(name)
    }

    fn each_record(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        locked(self).each_record(visit)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError> {
        locked(self).list(prefix)
    }

    fn write_records(&mut self, term: Term, writes: &[RecordWrite]) -> Vec<Result<Done, StoreError>> {
        locked(self).write_records(term, writes)
    }

    fn recover(&mut self, term: Term) -> Result<Vec<StoreChange>, OpenError> {
        locked(self).recover(term)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        locked(self).snapshot()
    }
}

impl<T: Transaction + ?Sized> Transaction for Arc<Mutex<T>> {
    fn carry_out(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>> {
        locked(self).carry_out(term, writes)
    }
}
