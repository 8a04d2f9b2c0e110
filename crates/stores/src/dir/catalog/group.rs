//! Many changes in one transaction: one fsync for all that wait.
//!
//! redb cannot take back a part of a transaction. So when one of the changes is refused, the transaction is given up and
//! made again without it: those before it come out as they did, and what it was refused for still holds. After an I/O
//! error the database is reopened and the transaction, unless it turns out to be durable, is made once more.

use serde_json::Value;

use super::engine::MARK;
use super::eras::{ERAS, begin_era};
use super::stripes::NEXT_STRIPE;
use super::tables::{self, Change, META, NODES, PUTS};
use super::tables::{DISCARDS, FILES};
use super::{DirCatalog, FileRecord, NodeRecord, OpenError, PutRecord, Snapshot};
use crate::{
    Answer, Catalog, CatalogError, Done, FileWrite, Files, RecordWrite, Records, Storage, StoreChange,
    StoreError, Term, Write,
};
use repair::{BlockId, NodeId};

/// The newest term.
pub(super) const TERM: &str = "term";

/// A batch that was tried.
enum Tried {
    /// All of it is durable.
    Done(Vec<Done>),
    /// The write of this rank, among those that were tried, is refused; nothing has changed.
    Refused(usize, StoreError),
    /// The storage fails; nothing has changed.
    Failed(StoreError),
}

impl Storage for DirCatalog {
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
                    Tried::Failed(error) if !self.close_after(&error) || reopened => {
                        vec![Err(error); open.len()]
                    }
                    Tried::Failed(error) => {
                        reopened = true;
                        match self.reopen_after(&error, term) {
                            Ok(None) => continue,
                            Ok(Some(done)) => done.into_iter().map(Ok).collect(),
                            Err(_) => vec![Err(error); open.len()],
                        }
                    }
                };
            let mut result = result.into_iter();
            let mut next = || result.next().expect("one for each that was tried");
            return refused.into_iter().map(|error| error.map_or_else(&mut next, Err)).collect();
        }
    }

    fn recover(&mut self, term: Term) -> Result<Vec<StoreChange>, OpenError> {
        Self::recover(self, term)
    }

    fn snapshot(&self) -> Result<Snapshot, CatalogError> {
        Self::snapshot(self)
    }
}

impl DirCatalog {
    fn attempt<'w>(&mut self, term: Term, writes: impl Iterator<Item = &'w Write>) -> Tried {
        match tables::guard(&self.path, || tables::begin(self.engine.database()?, &self.path)) {
            Ok(group) => self.group = Some(group),
            Err(error) => return Tried::Failed(error.into()),
        }
        let tried = self.write_all(term, writes);
        self.told.clear();
        let group = self.group.take().expect("it was opened");
        let Tried::Done(done) = tried else { return tried };
        if done.iter().all(|done| done.changes.is_empty() && done.value == Answer::Nothing) {
            return Tried::Done(done); // Nothing new is nothing to write: dropping the transaction does.
        }
        let (path, mark) = (&self.path, self.marks.next());
        let committed = tables::guard(path, || {
            Change::shared(&group, path).put(META, MARK, &mark)?;
            group.commit().map_err(|error| tables::fault(path, error))
        });
        match committed {
            Ok(()) => {
                self.marks.committed(mark);
                Tried::Done(done)
            }
            Err(error) => {
                self.marks.failed(mark, true);
                self.in_doubt = Some(done);
                Tried::Failed(error.into())
            }
        }
    }

    fn write_all<'w>(&mut self, term: Term, writes: impl Iterator<Item = &'w Write>) -> Tried {
        let mut done = Vec::new();
        if let Err(error) = self.check_term(term) {
            return Tried::Failed(error);
        }
        for (rank, write) in writes.enumerate() {
            self.told.clear();
            let written = match write {
                Write::Stripes(write) => {
                    self.write_stripes(write).map(|()| Answer::Nothing).map_err(StoreError::from)
                }
                Write::Files(write) => self.write_files(write),
                Write::Records(write) => self.write_records(term, write),
            };
            match written {
                Ok(value) => done.push(Done { value, changes: std::mem::take(&mut self.told) }),
                Err(error) if error.is_fault() => return Tried::Failed(error),
                Err(error) => return Tried::Refused(rank, error),
            }
        }
        Tried::Done(done)
    }

    fn check_term(&self, ours: Term) -> Result<(), StoreError> {
        let newest: Term = self.look(|view| view.get(META, TERM))?.unwrap_or(Term(0));
        if ours < newest { Err(StoreError::Fenced { ours, newest }) } else { Ok(()) }
    }
}

impl Files for DirCatalog {
    fn each_file(&self, visit: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        self.look(|view| {
            view.each(FILES, "".., |_, file: FileRecord| visit(StoreChange::File(file)))?;
            view.each(PUTS, 0.., |_, put: PutRecord| visit(StoreChange::Put(put)))?;
            view.each(DISCARDS, (0, "").., |(node, block), ()| {
                visit(StoreChange::Discard(NodeId(node), BlockId(block.to_owned())));
            })?;
            visit(StoreChange::Counted(view.get(META, NEXT_STRIPE)?.unwrap_or(1)));
            visit(StoreChange::Eras(view.get(META, ERAS)?.unwrap_or_default()));
            Ok(())
        })
    }

    fn write_files(&mut self, write: &FileWrite) -> Result<Answer, StoreError> {
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
            FileWrite::RemoveFile(name) => {
                let file = self.remove_file(name)?;
                Answer::File(file.ok_or_else(|| StoreError::NoSuchFile(name.clone()))?)
            }
            FileWrite::Discard(node, block) => {
                self.discard(*node, block)?;
                Answer::Nothing
            }
            FileWrite::Discarded(node, block) => {
                self.discarded(*node, block)?;
                Answer::Nothing
            }
            FileWrite::Disclaim(blocks) => {
                self.disclaim(blocks)?;
                Answer::Nothing
            }
        })
    }
}

impl Records for DirCatalog {
    fn begin_term(&mut self) -> Result<Term, CatalogError> {
        let era = self.era;
        self.change(|change| {
            let last: Term = change.get(META, TERM)?.unwrap_or(Term(0));
            let term = Term(last.0 + 1);
            change.put(META, TERM, &term)?;
            begin_era(change, era)?;
            Ok(term)
        })
    }

    fn each_node(&self, visit: &mut dyn FnMut(NodeRecord)) -> Result<(), CatalogError> {
        self.look(|view| view.each(NODES, 0.., |_, node| visit(node)))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError> {
        self.queue_list(prefix)
    }

    fn write_records(&mut self, term: Term, write: &RecordWrite) -> Result<Answer, StoreError> {
        self.check_term(term)?;
        Ok(match write {
            RecordWrite::Node { name, address } => {
                let node = self.node_id(name)?;
                self.set_node_address(node, address)?;
                Answer::Node(node)
            }
            RecordWrite::ForgetNode(node) => {
                self.forget_node(*node)?;
                Answer::Nothing
            }
            RecordWrite::Put(key, value) => {
                self.queue_put(key, value)?;
                Answer::Recorded
            }
            RecordWrite::Remove(key) => {
                self.queue_remove(key)?;
                Answer::Recorded
            }
            RecordWrite::Numbers(count) => Answer::First(self.take_numbers(*count)?),
        })
    }
}
