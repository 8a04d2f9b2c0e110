//! The database of the catalog, and its recovery after an I/O error.
//!
//! After an I/O error, redb refuses all requests until the file is reopened, and the transaction in flight
//! may or may not be durable. Each transaction therefore carries a mark, which increases by one. After a
//! reopen, the file must contain the mark of the last successful commit or of a commit that failed since.
//! With any other mark, the file is not what this coordinator wrote, and the coordinator must stop.

use std::collections::BTreeMap;

use redb::Database;
use store_api::{CatalogError, Done, OpenError, StoreChange, StoreError, Term};

use super::group::TERM;
use super::tables::{META, guard};
use super::{DirCatalog, remedy};

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
    /// mark also contains the group of writes whose answers are in `DirCatalog::in_doubt`.
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
pub(super) enum Engine {
    Open(Database),
    Failed(CatalogError),
}

impl Engine {
    pub(super) fn database(&self) -> Result<&Database, CatalogError> {
        match self {
            Self::Open(database) => Ok(database),
            Self::Failed(error) => Err(error.clone()),
        }
    }
}

impl DirCatalog {
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
    pub(super) fn writable(&self) -> Result<&Database, CatalogError> {
        self.check_in_place()?;
        self.engine.database()
    }

    /// Checks that the path still leads to the open file.
    pub(super) fn check_in_place(&self) -> Result<(), CatalogError> {
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
        let newest: Term = self.look(|view| view.get(META, TERM))?.unwrap_or(Term(0));
        match newest > ours {
            true => Err(OpenError::TakenOver { path: self.path.clone() }),
            false => Ok(()),
        }
    }
}
