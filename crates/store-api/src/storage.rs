//! [`Storage`]: a catalog, files and records combined.

use std::fmt;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::{
    Catalog, CatalogError, Done, FileWrite, Files, Listener, OpenError, Rebuilder, RecordWrite, Records,
    Reply, Snapshot, StoreChange, StoreError, StorePolicy, StripeRecord, Term, Transaction, Write,
};

/// Records that the storage shares with a catalog, which adds records of its own.
pub type SharedRecords = Arc<Mutex<dyn Records>>;

/// All storage of a coordinator: any catalog, with or without files, over any records.
///
/// If one medium stores all three, each batch of writes is one transaction (see
/// [`of_one_medium`](Self::of_one_medium)). Otherwise each write goes to the catalog, the files or the
/// records, in the order of the batch, after the records have confirmed that the term is current.
pub struct Storage {
    name: &'static str,
    policy: StorePolicy,
    catalog: Box<dyn Catalog>,
    files: Option<Box<dyn Files>>,
    records: Box<dyn Records>,
    transaction: Option<Box<dyn Transaction>>,
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Storage")
            .field("name", &self.name)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Storage {
    /// Creates the storage of a store that does not own files. `name` is the store's name in messages.
    pub fn new(
        name: &'static str,
        policy: StorePolicy,
        catalog: impl Catalog + 'static,
        records: impl Records + 'static,
    ) -> Self {
        let (catalog, records) = (Box::new(catalog), Box::new(records));
        Self { name, policy, catalog, files: None, records, transaction: None }
    }

    /// Adds files that the store owns.
    #[must_use]
    pub fn with_files(self, files: impl Files + 'static) -> Self {
        Self { files: Some(Box::new(files)), ..self }
    }

    /// Adds transactions, for a medium that stores catalog, files and records: each batch of writes becomes
    /// one transaction.
    #[must_use]
    pub fn with_transaction(self, transaction: impl Transaction + 'static) -> Self {
        Self { transaction: Some(Box::new(transaction)), ..self }
    }

    /// Creates a storage whose catalog, files and records share one medium.
    pub fn of_one_medium<M>(name: &'static str, policy: StorePolicy, medium: Arc<Mutex<M>>) -> Self
    where
        M: Catalog + Files + Records + Transaction + 'static,
    {
        let combined = Self::new(name, policy, Arc::clone(&medium), Arc::clone(&medium));
        combined.with_files(Arc::clone(&medium)).with_transaction(medium)
    }

    /// Returns how this kind of store differs from others.
    pub fn policy(&self) -> StorePolicy {
        self.policy
    }

    /// See [`Records::begin_term`].
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn begin_term(&mut self) -> Result<Term, CatalogError> {
        let term = self.records.begin_term()?;
        self.catalog.enter_term(term);
        Ok(term)
    }

    /// See [`Records::each_record`].
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn each_record(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        self.records.each_record(visit)
    }

    /// See [`Catalog::each_stripe`].
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError> {
        self.catalog.each_stripe(visit)
    }

    /// See [`Files::each_file`]. Visits nothing in a store that does not own files.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        self.files.as_ref().map_or(Ok(()), |files| files.each_file(visit))
    }

    /// See [`Records::list`].
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError> {
        self.records.list(prefix)
    }

    /// Carries out writes in order, each completely or not at all, preferably in one commit. All are durable
    /// on return. Returns the results in the same order.
    pub fn carry_out(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>> {
        if let Some(transaction) = &mut self.transaction {
            return transaction.carry_out(term, writes);
        }
        let are_records = |a: &Write, b: &Write| matches!((a, b), (Write::Records(_), Write::Records(_)));
        let groups = writes.chunk_by(are_records);
        let results = groups.flat_map(|group| self.carry_out_group(term, group)).collect();
        // Wait until the listener has received the changes that the writes reported; only then return the
        // results.
        self.catalog.flush();
        results
    }

    /// Carries out a single write, or a group of consecutive writes to records.
    fn carry_out_group(&mut self, term: Term, group: &[Write]) -> Vec<Result<Done, StoreError>> {
        match group {
            [Write::Stripes(write)] => {
                let allowed = self.records.check_term(term);
                vec![allowed.and_then(|()| self.catalog.write_stripes(term, write))]
            }
            [Write::Files(write)] => vec![self.write_files(term, write)],
            records => self.write_records(term, records),
        }
    }

    fn write_files(&mut self, term: Term, write: &FileWrite) -> Result<Done, StoreError> {
        let Some(files) = &mut self.files else { return Err(StoreError::OwnFiles(self.name)) };
        self.records.check_term(term)?;
        let done = files.write_files(term, write)?;
        let to_remove = |change: &StoreChange| match change {
            StoreChange::Discard(node, block) => Some(RecordWrite::Discard(*node, block.clone())),
            _ => None,
        };
        let discards: Vec<RecordWrite> = done.changes.iter().filter_map(to_remove).collect();
        if !discards.is_empty() {
            // The files were already changed. If these records are lost, the blocks are found as orphans when
            // their helpers list them.
            drop(self.records.write_records(term, &discards));
        }
        Ok(done)
    }

    fn write_records(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>> {
        let mut prepared = Vec::with_capacity(writes.len());
        let mut allowed = Vec::with_capacity(writes.len());
        for write in writes {
            let Write::Records(write) = write else { unreachable!("a group of several is of records") };
            let result = self.catalog.prepare(term, write);
            if result.is_ok() {
                allowed.push(write.clone());
            }
            prepared.push(result);
        }
        let results = self.records.write_records(term, &allowed);
        for (write, result) in allowed.iter().zip(&results) {
            if let Ok(done) = result {
                self.catalog.heed(write, done);
            }
        }
        let mut results = results.into_iter();
        let mut next = || results.next().expect("each record write is answered");
        prepared.into_iter().map(|allowed| allowed.and_then(|()| next())).collect()
    }

    /// See [`Catalog::begin`].
    pub fn begin(&mut self, term: Term, write: &Write, done: Reply) -> Option<Reply> {
        self.catalog.begin(term, write, done)
    }

    /// See [`Records::recover`].
    ///
    /// # Errors
    /// [`OpenError`]. If the error [is not temporary](OpenError::is_passing), this coordinator must not write
    /// to these records again.
    pub fn recover(&mut self, term: Term) -> Result<Vec<StoreChange>, OpenError> {
        self.records.recover(term)
    }

    /// See [`Catalog::unlisted`].
    pub fn unlisted(&self) -> Option<String> {
        self.catalog.unlisted()
    }

    /// See [`Catalog::listen`].
    pub fn listen(&mut self, listener: Listener) {
        self.catalog.listen(listener);
    }

    /// See [`Catalog::rebuild_through`].
    pub fn rebuild_through(&mut self, rebuilder: Arc<dyn Rebuilder>) {
        self.catalog.rebuild_through(rebuilder);
    }

    /// See [`Records::snapshot`].
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        self.records.snapshot()
    }
}
