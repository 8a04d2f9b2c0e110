//! The database of the catalog, and its recovery after an I/O error.
//!
//! After an I/O error, redb refuses all requests until the file is reopened, and the transaction in flight
//! may or may not be durable. Each transaction therefore carries a mark, which increases by one. After a
//! reopen, the file must contain the mark of the last successful commit or of a commit that failed since.
//! With any other mark, the file is not what this coordinator wrote, and the coordinator must stop.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use redb::{Database, ReadTransaction, ReadableDatabase, WriteTransaction};
use store_api::{CatalogError, Done, OpenError, StoreChange, StoreError, Term};

use super::group::TERM;
use super::medium::{FileId, Medium};
use super::remedy;
use super::tables::{Change, META, View, begin, fault, guard};

/// The key of the transaction counter.
pub(super) const MARK: &str = "mark";

/// The transaction counters ("marks") that the file may contain after a reopen.
#[derive(Default)]
pub(super) struct Marks {
    /// The mark of the last successful commit.
    known: u64,
    /// The highest mark ever used; marks are never reused.
    tried: u64,
    /// The marks of commits that failed since the last success. Each of these commits may be durable
    /// nevertheless, so a reopened file may contain any of these marks. The value is true if a file with that
    /// mark also contains the group of writes whose answers are in `CatalogDatabase::in_doubt`.
    failed: BTreeMap<u64, bool>,
}

impl Marks {
    pub(super) fn from(known: u64) -> Self {
        Self { known, tried: known, failed: BTreeMap::new() }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.tried += 1;
        self.tried
    }

    pub(super) fn committed(&mut self, mark: u64) {
        self.known = mark;
        self.failed.clear();
    }

    pub(super) fn failed(&mut self, mark: u64, has_doubt: bool) {
        self.failed.insert(mark, has_doubt);
    }

    /// Whether a file with this mark contains the transaction in doubt, that is, the group of writes whose
    /// commit failed. Returns `None` if this coordinator never wrote a file with this mark.
    fn judge(&self, found: u64) -> Option<bool> {
        if found == self.known { Some(false) } else { self.failed.get(&found).copied() }
    }
}

/// The database, or the error that closed it.
enum Engine {
    Open(Database),
    Failed(CatalogError),
}

impl Engine {
    fn database(&self) -> Result<&Database, CatalogError> {
        match self {
            Self::Open(database) => Ok(database),
            Self::Failed(error) => Err(error.clone()),
        }
    }
}

/// The database of a catalog on its medium: transactions, groups of writes, and the recovery after an error.
pub(super) struct CatalogDatabase {
    /// The path of the catalog's file, or the name of another medium.
    pub(super) path: PathBuf,
    medium: Medium,
    /// The identity of the open file; `None` for another medium.
    file: Option<FileId>,
    /// The cluster's id.
    pub(super) cluster: String,
    engine: Engine,
    pub(super) marks: Marks,
    /// The answers of a transaction that failed but may be durable.
    pub(super) in_doubt: Option<Vec<Done>>,
    /// The group of writes that is being carried out.
    group: Option<Group>,
    /// Changes that the caller has not collected yet.
    told: Vec<StoreChange>,
}

/// Writes that share a transaction.
struct Group {
    transaction: WriteTransaction,
    /// Whether any of them has set or removed a record.
    wrote: bool,
}

impl CatalogDatabase {
    /// Opens the database of a catalog. The caller must check it before it is used.
    pub(super) fn open(medium: Medium, path: &Path, cluster_id: &str) -> Result<Self, OpenError> {
        Ok(Self {
            path: path.to_owned(),
            cluster: cluster_id.to_owned(),
            engine: Engine::Open(medium.open(path)?),
            file: medium.file_at(path)?,
            medium,
            marks: Marks::default(),
            in_doubt: None,
            group: None,
            told: Vec::new(),
        })
    }

    /// Runs `work` in the open group's transaction, or in a new transaction if no group is open. On an error,
    /// a new transaction is rolled back; the caller must drop the group's transaction.
    pub(super) fn change<T, E: From<CatalogError>>(
        &mut self,
        work: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mark = self.marks.next();
        let (result, changed) = guard(&self.path, || {
            let change = match &self.group {
                Some(group) => Change::shared(&group.transaction, &self.path),
                None => Change::of(self.writable()?, &self.path)?,
            };
            let result = work(&change)?; // An error drops `change`, which aborts a new transaction.
            if self.group.is_none() {
                change.put(META, MARK, &mark)?;
            }
            Ok::<_, E>((result, change.commit()?))
        })?;
        match &mut self.group {
            Some(group) => group.wrote |= changed.wrote,
            None => self.marks.committed(mark),
        }
        self.told.extend(changed.told);
        Ok(result)
    }

    /// Reads the current state of the catalog.
    pub(super) fn look<T>(
        &self,
        work: impl FnOnce(&View<'_>) -> Result<T, CatalogError>,
    ) -> Result<T, CatalogError> {
        guard(&self.path, || match &self.group {
            Some(group) => work(&View::changing(&group.transaction, &self.path)),
            None => work(&View::of(self.engine.database()?, &self.path)?),
        })
    }

    /// Returns a read transaction of the current state.
    pub(super) fn begin_read(&self) -> Result<ReadTransaction, CatalogError> {
        guard(&self.path, || self.engine.database()?.begin_read().map_err(|error| fault(&self.path, error)))
    }

    /// Opens the transaction of a group of writes.
    pub(super) fn begin_group(&mut self) -> Result<(), CatalogError> {
        let transaction = guard(&self.path, || begin(self.writable()?, &self.path))?;
        self.group = Some(Group { transaction, wrote: false });
        Ok(())
    }

    /// Takes the changes since the last call.
    pub(super) fn take_told(&mut self) -> Vec<StoreChange> {
        std::mem::take(&mut self.told)
    }

    /// Drops the transaction of the group, and all of its changes with it.
    pub(super) fn drop_group(&mut self) {
        self.told.clear();
        self.group = None;
    }

    /// Commits the transaction of the group, whose writes have these answers. A transaction that has set or removed no
    /// record is dropped.
    pub(super) fn commit_group(&mut self, done: Vec<Done>) -> Result<Vec<Done>, CatalogError> {
        self.told.clear();
        let Group { transaction, wrote } = self.group.take().expect("the group was opened before");
        if !wrote {
            return Ok(done);
        }
        let (path, mark) = (&self.path, self.marks.next());
        let committed = guard(path, || {
            Change::shared(&transaction, path).put(META, MARK, &mark)?;
            transaction.commit().map_err(|error| fault(path, error))
        });
        match committed {
            Ok(()) => {
                self.marks.committed(mark);
                Ok(done)
            }
            Err(error) => {
                self.marks.failed(mark, true);
                self.in_doubt = Some(done);
                Err(error)
            }
        }
    }

    /// Closes the database after an error that makes it unusable. Returns whether it was closed by this call.
    pub(super) fn close_after(&mut self, error: &StoreError) -> bool {
        let StoreError::Catalog(error @ (CatalogError::Storage { .. } | CatalogError::Damaged { .. })) =
            error
        else {
            return false;
        };
        let was_open = matches!(self.engine, Engine::Open(_));
        if was_open {
            self.close(error.clone());
        }
        was_open
    }

    fn close(&mut self, error: CatalogError) {
        let closed = std::mem::replace(&mut self.engine, Engine::Failed(error));
        // After an I/O error, closing the database writes nothing; with damaged pages, closing may panic.
        let _ = guard(&self.path, || {
            drop(closed);
            Ok::<_, CatalogError>(())
        });
    }

    /// Reopens the database at once and logs the result.
    pub(super) fn reopen_after(
        &mut self,
        error: &StoreError,
        term: Term,
    ) -> Result<Option<Vec<Done>>, OpenError> {
        let reopened = self.reopen(term);
        match &reopened {
            Ok(_) => tracing::warn!(%error, "the catalog failed once and was reopened; check its disk"),
            Err(now) => tracing::error!(%error, %now, "the catalog failed and cannot be reopened"),
        }
        reopened
    }

    /// See [`Records::recover`](store_api::Records::recover).
    pub(super) fn reopen_if_failed(&mut self, term: Term) -> Result<Vec<StoreChange>, OpenError> {
        if matches!(self.engine, Engine::Open(_)) {
            self.check_in_place()?;
            match self.check_taken(term) {
                Err(OpenError::Catalog(error)) if self.close_after(&error.clone().into()) => {}
                checked => return checked.map(|()| Vec::new()),
            }
        }
        let done = self.reopen(term)?.unwrap_or_default();
        Ok(done.into_iter().flat_map(|done| done.changes).collect())
    }

    /// Reopens the database. If the group of writes whose commit failed turns out to be durable, returns the
    /// answers to these writes.
    fn reopen(&mut self, term: Term) -> Result<Option<Vec<Done>>, OpenError> {
        self.medium.forget_cached(&self.path)?;
        self.engine = Engine::Open(self.medium.open(&self.path)?);
        self.file = self.medium.file_at(&self.path)?;
        let settled = self.settle_doubt(term);
        if let Err(error) = &settled {
            let (place, detail) = (self.path.display().to_string(), error.to_string());
            self.close(CatalogError::Storage { place, fault: store_api::Fault::Stopped, detail });
        }
        settled
    }

    fn settle_doubt(&mut self, term: Term) -> Result<Option<Vec<Done>>, OpenError> {
        self.check()?;
        self.check_taken(term)?;
        let found = self.mark_found()?;
        let is_durable = self.marks.judge(found).ok_or_else(|| OpenError::Changed {
            path: self.path.clone(),
            known: self.marks.known,
            found,
            remedy: remedy(&self.path),
        })?;
        // After a failed fsync, the page cache may contain data that is not on the medium. This commit
        // rewrites the root, and shows that writes succeed again.
        if let Err(error) = self.change(|_| Ok::<_, CatalogError>(())) {
            self.marks.failed(self.marks.tried, is_durable);
            return Err(error.into());
        }
        let done = self.in_doubt.take();
        Ok(done.filter(|_| is_durable))
    }

    /// Returns the database for a transaction that writes.
    fn writable(&self) -> Result<&Database, CatalogError> {
        self.check_in_place()?;
        self.engine.database()
    }

    /// Checks that the path still leads to the open file.
    fn check_in_place(&self) -> Result<(), CatalogError> {
        match self.medium.file_at(&self.path) {
            Ok(file) if file == self.file => Ok(()),
            _ => Err(CatalogError::Moved {
                place: self.path.display().to_string(),
                process: std::process::id(),
            }),
        }
    }

    pub(super) fn mark_found(&self) -> Result<u64, CatalogError> {
        Ok(self.look(|view| view.get(META, MARK))?.unwrap_or(0))
    }

    fn check_taken(&self, ours: Term) -> Result<(), OpenError> {
        match self.newest_term()? > ours {
            true => Err(OpenError::TakenOver { path: self.path.clone() }),
            false => Ok(()),
        }
    }

    /// See [`Records::check_term`](store_api::Records::check_term).
    pub(super) fn check_term(&self, ours: Term) -> Result<(), StoreError> {
        let newest = self.newest_term()?;
        if ours < newest { Err(StoreError::Fenced { ours, newest }) } else { Ok(()) }
    }

    fn newest_term(&self) -> Result<Term, CatalogError> {
        Ok(self.look(|view| view.get(META, TERM))?.unwrap_or(Term(0)))
    }
}
