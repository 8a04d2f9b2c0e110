//! The coordinator's seams: [`Catalog`], [`Files`] and [`Records`], each implemented by itself.
//!
//! All calls are synchronous, on the thread that owns the storage. A seam that has to ask remote servers does so aside
//! ([`Catalog::begin`]) and answers later.

use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::{
    CatalogError, Done, FileWrite, NodeRecord, OpenError, RecordWrite, StoreChange, StoreError, StripeRecord,
    StripeWrite, Term, Write,
};

/// Receives the outcome of a write that was begun.
pub type Reply = Box<dyn FnOnce(Result<Done, StoreError>) + Send>;

/// Receives changes that others made.
pub type Listener = Box<dyn Fn(Vec<StoreChange>) + Send>;

/// The stripes of a store: which blocks there are, and which nodes hold them.
pub trait Catalog: Send {
    /// Calls `visit` with every stripe, in a stable order, and whether it belongs to a put that is not committed.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError>;

    /// Carries out a change of stripes, durably and whole.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed then.
    fn write_stripes(&mut self, term: Term, write: &StripeWrite) -> Result<Done, StoreError>;

    /// Begins a write that would block the storage thread, such as one that asks remote servers, and returns at once;
    /// `done` is called from another thread. Writes that are begun for one stripe keep their order. A write that blocks
    /// nothing is left to the storage, and `done` is returned.
    fn begin(&mut self, term: Term, write: &Write, done: Reply) -> Option<Reply> {
        let _ = (term, write);
        Some(done)
    }

    /// A coordinator of this term takes over.
    fn enter_term(&mut self, term: Term) {
        let _ = term;
    }

    /// Called before a record is written, so that the catalog can undo what the record will contradict. A coordinator that
    /// dies in between repeats the write.
    ///
    /// # Errors
    /// [`StoreError`]; the record is not written then.
    fn prepare(&mut self, term: Term, write: &RecordWrite) -> Result<(), StoreError> {
        let _ = (term, write);
        Ok(())
    }

    /// Called after a record was written.
    fn heed(&mut self, write: &RecordWrite, done: &Done) {
        let _ = (write, done);
    }

    /// Why an attached store has not been listed yet, for operators; `None` once it has.
    fn unlisted(&self) -> Option<String> {
        None
    }

    /// Sends `listener` what others change from now on. A store without other writers has nothing to send.
    fn listen(&mut self, listener: Listener) {
        drop(listener);
    }

    /// Waits until `listener` has received all changes so far.
    fn flush(&self) {}
}

/// Files that are put, read and removed through Mend. Only stores that own their files have this seam.
pub trait Files: Send {
    /// Calls `visit` with every file, every open put and the number of the next stripe.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError>;

    /// Carries out a change of files, durably and whole.
    ///
    /// # Errors
    /// [`StoreError`]; nothing has changed then.
    fn write_files(&mut self, term: Term, write: &FileWrite) -> Result<Done, StoreError>;
}

/// The coordinator's own records: the registry of nodes, the repair queue, blocks to be removed, eras, numbers, settings.
///
/// Today redb holds them (`dir::DirCatalog`). Nothing here assumes one machine: records in etcd implement this trait, and
/// [`check_term`](Self::check_term) fences off a deposed coordinator.
pub trait Records: Send {
    /// Begins a term higher than all before it.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn begin_term(&mut self) -> Result<Term, CatalogError>;

    /// Checks that no coordinator has begun a higher term.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if one has.
    fn check_term(&self, term: Term) -> Result<(), StoreError>;

    /// The record of the node of this name, which gets a number if it has none. Numbers are never given twice, so no term
    /// is needed.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn number_node(&mut self, name: &str) -> Result<NodeRecord, CatalogError>;

    /// Calls `visit` with every node, every block that a node shall remove, and the eras.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn each_record(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError>;

    /// The records whose keys begin with `prefix`, sorted by key.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError>;

    /// Carries out changes in their order, each whole or not at all, and durably; at best at the cost of one. The answers
    /// have the same order. All fail with [`StoreError::Fenced`] if there is a higher term.
    fn write_records(&mut self, term: Term, writes: &[RecordWrite]) -> Vec<Result<Done, StoreError>>;

    /// Makes records that failed usable again. Returns the changes of a write that was answered with an error although it
    /// is durable. Cheap if nothing failed.
    ///
    /// # Errors
    /// [`OpenError`]; unless it [is passing](OpenError::is_passing), this coordinator must never write there again.
    fn recover(&mut self, term: Term) -> Result<Vec<StoreChange>, OpenError>;

    /// A copy of these records, and of everything else on their medium, as of now.
    ///
    /// # Errors
    /// [`CatalogError`].
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError>;
}

/// Writes of several seams in one transaction, where one medium holds them all.
pub trait Transaction: Send {
    /// Carries these out in their order, each whole or not at all, and durably; at best at the cost of one. The answers
    /// have the same order.
    fn carry_out(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>>;
}

/// A copy of a coordinator's records, taken while they are in use. It may be saved on another thread.
pub trait Snapshot: fmt::Debug + Send {
    /// Saves it where the last good copy is kept; the previous one stays beside it.
    ///
    /// # Errors
    /// [`OpenError`].
    fn keep(&self) -> Result<(), OpenError>;

    /// Writes it to an unnamed file, which vanishes when it is closed, and returns that file at its start.
    ///
    /// # Errors
    /// [`OpenError`].
    fn file(&self) -> Result<File, OpenError>;
}

/// Locks an object that several seams, or a catalog and the storage, share. A panic in between left it as the transaction
/// before it did.
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
