//! Carries out many changes in one transaction, so that all pending writes share one fsync.
//!
//! redb cannot roll back a part of a transaction. If a change is refused, the transaction is dropped and
//! repeated without that change. In the repetition, the changes before it have the same results as in the
//! first attempt, so the reason for the refusal still applies. After an I/O error, the database is reopened,
//! and the transaction is repeated unless it turned out to be durable.

use std::sync::{Arc, Mutex};

use store_api::{
    Answer, Done, FileWrite, RecordWrite, Storage, StoreError, StorePolicy, Term, Transaction, Write,
};

use super::DirCatalog;
use super::puts::begin_after;

/// The key of the newest term.
pub(super) const TERM: &str = "term";

/// The outcome of one attempt to carry out a batch.
enum Tried {
    /// All writes are durable.
    Done(Vec<Done>),
    /// The write at this position of the attempt was refused; nothing has changed.
    Refused(usize, StoreError),
    /// The storage failed; nothing has changed.
    Failed(StoreError),
}

impl Transaction for DirCatalog {
    fn carry_out(&mut self, term: Term, writes: &[Write]) -> Vec<Result<Done, StoreError>> {
        let mut refused: Vec<Option<StoreError>> = vec![None; writes.len()];
        let mut reopened = false;
        loop {
            let open: Vec<usize> = (0..writes.len()).filter(|&at| refused[at].is_none()).collect();
            let result: Vec<Result<Done, StoreError>> =
                match self.attempt(term, open.iter().map(|&at| &writes[at])) {
                    Tried::Refused(rank, error) => {
                        refused[open[rank]] = Some(error);
                        continue;
                    }
                    Tried::Done(done) => done.into_iter().map(Ok).collect(),
                    Tried::Failed(error) if !self.database.close_after(&error) || reopened => {
                        vec![Err(error); open.len()]
                    }
                    Tried::Failed(error) => {
                        reopened = true;
                        match self.database.reopen_after(&error, term) {
                            Ok(None) => continue,
                            Ok(Some(done)) => done.into_iter().map(Ok).collect(),
                            Err(_) => vec![Err(error); open.len()],
                        }
                    }
                };
            let mut result = result.into_iter();
            let mut next = || result.next().expect("each write that was tried has a result");
            return refused.into_iter().map(|error| error.map_or_else(&mut next, Err)).collect();
        }
    }
}

impl DirCatalog {
    /// Makes this catalog, with its files and records, the storage of a coordinator.
    pub fn into_storage(self) -> Storage {
        Self::share(Arc::new(Mutex::new(self)))
    }

    /// Like [`into_storage`](Self::into_storage), but the caller can keep a handle to the catalog.
    pub fn share(shared: Arc<Mutex<Self>>) -> Storage {
        Storage::of_one_medium("dir", StorePolicy::OWN, shared)
    }

    /// Carries out a single write.
    pub(super) fn carry_out_one(&mut self, term: Term, write: Write) -> Result<Done, StoreError> {
        self.carry_out(term, &[write]).pop().expect("one write has one answer")
    }

    fn attempt<'w>(&mut self, term: Term, writes: impl Iterator<Item = &'w Write>) -> Tried {
        if let Err(error) = self.database.begin_group() {
            return Tried::Failed(error.into());
        }
        let tried = self.write_all(term, writes);
        let Tried::Done(done) = tried else {
            self.database.drop_group();
            return tried;
        };
        match self.database.commit_group(done) {
            Ok(done) => Tried::Done(done),
            Err(error) => Tried::Failed(error.into()),
        }
    }

    fn write_all<'w>(&mut self, term: Term, writes: impl Iterator<Item = &'w Write>) -> Tried {
        let mut done = Vec::new();
        if let Err(error) = self.database.check_term(term) {
            return Tried::Failed(error);
        }
        for (rank, write) in writes.enumerate() {
            self.database.take_told();
            let written = match write {
                Write::Stripes(write) => {
                    self.change_stripes(write).map(|()| Answer::Nothing).map_err(StoreError::from)
                }
                Write::Files(write) => self.change_files(write),
                Write::Records(write) => self.change_records(write),
            };
            match written {
                Ok(value) => done.push(Done { value, changes: self.database.take_told() }),
                Err(error) if error.is_fault() => return Tried::Failed(error),
                Err(error) => return Tried::Refused(rank, error),
            }
        }
        Tried::Done(done)
    }
}

impl DirCatalog {
    fn change_files(&mut self, write: &FileWrite) -> Result<Answer, StoreError> {
        Ok(match write {
            FileWrite::BeginPut { name, bytes, code, size, replace } => {
                Answer::Put(self.begin_put(name, *bytes, code.clone(), *size, *replace)?)
            }
            FileWrite::Allocate { put, position, size, nodes } => {
                Answer::Stripe(self.allocate_stripe(*put, *position, *size, nodes)?)
            }
            FileWrite::CommitPut(put) => Answer::File(self.commit_put(*put)?),
            FileWrite::AbortPut(put) => {
                self.abort_put(*put)?;
                Answer::Nothing
            }
            FileWrite::LeavePut(put) => {
                self.leave_put(*put)?;
                Answer::Nothing
            }
            FileWrite::RemoveFile(name) => {
                let file = self.remove_file(name)?;
                Answer::File(file.ok_or_else(|| StoreError::NoSuchFile(name.clone()))?)
            }
            FileWrite::BeginAfter(begun_unix_ms) => {
                begin_after(self, *begun_unix_ms)?;
                Answer::Nothing
            }
        })
    }

    fn change_records(&mut self, write: &RecordWrite) -> Result<Answer, StoreError> {
        match write {
            RecordWrite::Node { name, address } => {
                let node = self.node_id(name)?;
                self.set_node_address(node, address)?;
                return Ok(Answer::Node(node));
            }
            RecordWrite::Numbers(count) => return Ok(Answer::First(self.take_numbers(*count)?)),
            RecordWrite::Put(key, value) => self.queue_put(key, value)?,
            RecordWrite::Remove(key) => drop(self.queue_remove(key)?),
            RecordWrite::ForgetNode(node) => self.forget_node(*node)?,
            RecordWrite::Discard(node, block) => self.discard(*node, block)?,
            RecordWrite::Discarded(node, block) => self.discarded(*node, block)?,
            RecordWrite::Disclaim(blocks) => self.disclaim(blocks)?,
        }
        Ok(Answer::Nothing)
    }
}
