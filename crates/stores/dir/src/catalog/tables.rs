//! The tables of the catalog, and transactions that read and write records as JSON.
//!
//! Each value is preceded by the CRC32C of the table's name, the key and the value. redb verifies page
//! checksums only on request, not on reads, and a record with flipped bits may still be valid JSON.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::RangeBounds;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use redb::{
    Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError,
    TableHandle, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store_api::{CatalogError, Fault, StoreChange};

use super::remedy;
use crate::checksums::crc32c;

pub(super) type Json = &'static [u8];

/// Format version, cluster, and counters.
pub(super) const META: TableDefinition<&str, Json> = TableDefinition::new("meta");
/// `NodeRecord` by the node's number.
pub(super) const NODES: TableDefinition<u32, Json> = TableDefinition::new("nodes");
/// The node's number by the node's name.
pub(super) const NODE_NAMES: TableDefinition<&str, Json> = TableDefinition::new("node-names");
/// `FileRecord` by the file's name.
pub(super) const FILES: TableDefinition<&str, Json> = TableDefinition::new("files");
/// `PutRecord` by the put's number.
pub(super) const PUTS: TableDefinition<u64, Json> = TableDefinition::new("puts");
/// The stripe's key by put and position in the file; only for open puts.
pub(super) const PUT_STRIPES: TableDefinition<(u64, u32), Json> = TableDefinition::new("put-stripes");
/// `StripeRecord` by the stripe's key: the count in the high bits, the era in the low bits.
pub(super) const STRIPES: TableDefinition<u64, Json> = TableDefinition::new("stripes");
/// The blocks that a node must remove: `null` by the node's number and the block's name.
pub(super) const DISCARDS: TableDefinition<(u32, &str), Json> = TableDefinition::new("discards");
/// The coordinator's own records, by keys that the coordinator chooses.
pub(super) const QUEUE: TableDefinition<&str, Json> = TableDefinition::new("queue");

/// Converts a database error into a catalog error that names the file and the operator's next step.
pub(super) fn fault(path: &Path, error: impl Into<redb::Error>) -> CatalogError {
    match error.into() {
        redb::Error::Corrupted(detail) => damaged(path, &detail),
        redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => damaged(path, &error),
        error => {
            let fault = match &error {
                redb::Error::Io(error) => Fault::Io(error.kind()),
                redb::Error::PreviousIo | redb::Error::DatabaseClosed => Fault::Stopped,
                _ => Fault::Engine,
            };
            CatalogError::Storage { place: path.display().to_string(), fault, detail: error.to_string() }
        }
    }
}

/// Returns the error for a catalog whose bytes differ from those written.
fn damaged(path: &Path, detail: &dyn fmt::Display) -> CatalogError {
    let (place, detail) = (path.display().to_string(), detail.to_string());
    CatalogError::Damaged { place, detail, remedy: remedy(path) }
}

/// Runs `work` and converts panics into errors, since redb may panic on damaged pages.
pub(super) fn guard<T, E: From<CatalogError>>(
    path: &Path,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    // A panic aborts the transaction, and an aborted transaction changes nothing, so no state is left
    // half-changed.
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("its storage gave up");
        Err(damaged(path, &text).into())
    })
}

fn checksum<K: Key + 'static>(table: &str, key: &K::SelfType<'_>, json: &[u8]) -> [u8; 4] {
    let key = K::as_bytes(key);
    crc32c(&[table.as_bytes(), &[0], key.as_ref(), json].concat()).to_be_bytes()
}

/// Compares a record with its checksum, and returns the record without it.
pub(super) fn check_record<'b, K: Key + 'static>(
    path: &Path,
    table: &str,
    key: &K::SelfType<'_>,
    bytes: &'b [u8],
) -> Result<&'b [u8], CatalogError> {
    let json = bytes.split_first_chunk().filter(|(sum, json)| **sum == checksum::<K>(table, key, json));
    json.map(|(_, json)| json).ok_or_else(|| {
        damaged(path, &format_args!("a record in table `{table}` does not match its checksum"))
    })
}

fn decode<K: Key + 'static, T: DeserializeOwned>(
    path: &Path,
    table: &str,
    key: &K::SelfType<'_>,
    bytes: &[u8],
) -> Result<T, CatalogError> {
    let json = check_record::<K>(path, table, key, bytes)?;
    serde_json::from_slice(json)
        .map_err(|error| damaged(path, &format_args!("a record in table `{table}` cannot be read: {error}")))
}

fn encode<K: Key + 'static>(table: &str, key: &K::SelfType<'_>, value: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, value).expect("records have string keys and go to memory");
    let sum = checksum::<K>(table, key, &bytes[4..]);
    bytes[..4].copy_from_slice(&sum);
    bytes
}

fn get<K: Key + 'static, T: DeserializeOwned>(
    path: &Path,
    name: &str,
    table: &impl ReadableTable<K, Json>,
    key: K::SelfType<'_>,
) -> Result<Option<T>, CatalogError> {
    let found = table.get(&key).map_err(|error| fault(path, error))?;
    found.map(|bytes| decode::<K, T>(path, name, &key, bytes.value())).transpose()
}

fn each<'k, K: Key + 'static, T: DeserializeOwned, Q: std::borrow::Borrow<K::SelfType<'k>> + 'k>(
    path: &Path,
    name: &str,
    table: &impl ReadableTable<K, Json>,
    keys: impl RangeBounds<Q> + 'k,
    visit: &mut dyn FnMut(K::SelfType<'_>, T),
) -> Result<(), CatalogError> {
    for entry in table.range(keys).map_err(|error| fault(path, error))? {
        let (key, bytes) = entry.map_err(|error| fault(path, error))?;
        let key = key.value();
        let value = decode::<K, T>(path, name, &key, bytes.value())?;
        visit(key, value);
    }
    Ok(())
}

/// Opens a table in any kind of transaction and evaluates an expression with it. A table that does not exist
/// is treated as empty.
macro_rules! with_table {
    ($view:expr, $table:expr, $opened:ident => $work:expr) => {{
        let read = match &$view.transaction {
            Held::Own(transaction) => transaction.open_table($table),
            Held::Lent(transaction) => transaction.open_table($table),
            Held::Changing(transaction) => {
                let $opened = transaction.open_table($table).map_err(|error| fault($view.path, error))?;
                return $work;
            }
        };
        match read {
            Ok($opened) => $work,
            Err(TableError::TableDoesNotExist(_)) => Ok(Default::default()),
            Err(error) => Err(fault($view.path, error)),
        }
    }};
}

/// A consistent view of the catalog.
pub(super) struct View<'c> {
    transaction: Held<'c>,
    path: &'c Path,
}

/// A transaction that the view owns, or a borrowed one, which may already contain changes.
enum Held<'c> {
    Own(Box<ReadTransaction>),
    Lent(&'c ReadTransaction),
    Changing(&'c WriteTransaction),
}

impl<'c> View<'c> {
    pub(super) fn of(database: &Database, path: &'c Path) -> Result<Self, CatalogError> {
        let transaction = database.begin_read().map_err(|error| fault(path, error))?;
        Ok(Self { transaction: Held::Own(Box::new(transaction)), path })
    }

    pub(super) fn over(transaction: &'c ReadTransaction, path: &'c Path) -> Self {
        Self { transaction: Held::Lent(transaction), path }
    }

    /// Returns a view inside a write transaction, which includes the transaction's changes so far.
    pub(super) fn changing(transaction: &'c WriteTransaction, path: &'c Path) -> Self {
        Self { transaction: Held::Changing(transaction), path }
    }

    /// Returns the raw bytes of a key's value.
    pub(super) fn bytes<K: Key + 'static>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
    ) -> Result<Option<Vec<u8>>, CatalogError> {
        with_table!(self, table, opened => {
            let found = opened.get(key).map_err(|error| fault(self.path, error))?;
            Ok(found.map(|bytes| bytes.value().to_vec()))
        })
    }

    /// Returns the value of a key; `None` if the key or the table does not exist.
    pub(super) fn get<K: Key + 'static, T: DeserializeOwned>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
    ) -> Result<Option<T>, CatalogError> {
        with_table!(self, table, opened => get(self.path, table.name(), &opened, key))
    }

    /// Visits the values of a range of keys, sorted by key.
    pub(super) fn each<
        'k,
        K: Key + 'static,
        T: DeserializeOwned,
        Q: std::borrow::Borrow<K::SelfType<'k>> + 'k,
    >(
        &self,
        table: TableDefinition<'_, K, Json>,
        keys: impl RangeBounds<Q> + 'k,
        mut visit: impl FnMut(K::SelfType<'_>, T),
    ) -> Result<(), CatalogError> {
        with_table!(self, table, opened => each(self.path, table.name(), &opened, keys, &mut visit))
    }

    /// Visits the values of the keys that begin with `prefix`, sorted by key.
    pub(super) fn each_with_prefix<T: DeserializeOwned>(
        &self,
        table: TableDefinition<'_, &'static str, Json>,
        prefix: &str,
        mut visit: impl FnMut(&str, T),
    ) -> Result<(), CatalogError> {
        with_table!(self, table, opened => each_with_prefix(self.path, table.name(), &opened, prefix, &mut visit))
    }
}

fn each_with_prefix<T: DeserializeOwned>(
    path: &Path,
    name: &str,
    table: &impl ReadableTable<&'static str, Json>,
    prefix: &str,
    visit: &mut dyn FnMut(&str, T),
) -> Result<(), CatalogError> {
    for entry in table.range(prefix..).map_err(|error| fault(path, error))? {
        let (key, bytes) = entry.map_err(|error| fault(path, error))?;
        if !key.value().starts_with(prefix) {
            break;
        }
        visit(key.value(), decode::<&str, T>(path, name, &key.value(), bytes.value())?);
    }
    Ok(())
}

/// A write to the catalog, in a transaction of its own or in a shared one. Dropping this value without a
/// commit aborts its own transaction; a shared transaction is committed or aborted by the caller.
pub(super) struct Change<'c> {
    transaction: Open<'c>,
    path: &'c Path,
    /// The changes so far, in order.
    told: RefCell<Vec<StoreChange>>,
    /// Whether any record was set or removed. Not every record is reported as a change.
    wrote: Cell<bool>,
}

/// The effects of a [`Change`].
pub(super) struct Changed {
    /// The reported changes, in order.
    pub(super) told: Vec<StoreChange>,
    /// Whether any record was set or removed.
    pub(super) wrote: bool,
}

/// A transaction for one change, or one that many changes share.
enum Open<'c> {
    Own(Box<WriteTransaction>),
    Shared(&'c WriteTransaction),
}

/// Begins a write transaction.
pub(super) fn begin(database: &Database, path: &Path) -> Result<WriteTransaction, CatalogError> {
    let mut transaction = database.begin_write().map_err(|error| fault(path, error))?;
    // Two-phase commit is needed to detect damage. With one phase, redb treats an unreadable newest state
    // after a crash as an unfinished commit, and silently returns to the previous state.
    transaction.set_two_phase_commit(true);
    Ok(transaction)
}

impl<'c> Change<'c> {
    pub(super) fn of(database: &Database, path: &'c Path) -> Result<Self, CatalogError> {
        let transaction = Open::Own(Box::new(begin(database, path)?));
        Ok(Self { transaction, path, told: RefCell::default(), wrote: Cell::default() })
    }

    /// Returns a change in a transaction that the caller commits.
    pub(super) fn shared(transaction: &'c WriteTransaction, path: &'c Path) -> Self {
        Self {
            transaction: Open::Shared(transaction),
            path,
            told: RefCell::default(),
            wrote: Cell::default(),
        }
    }

    /// Adds a change to those that [`commit`](Self::commit) reports.
    pub(super) fn tell(&self, change: StoreChange) {
        self.told.borrow_mut().push(change);
    }

    /// Commits the transaction; a shared transaction is left to the caller.
    pub(super) fn commit(self) -> Result<Changed, CatalogError> {
        if let Open::Own(transaction) = self.transaction {
            transaction.commit().map_err(|error| fault(self.path, error))?;
        }
        Ok(Changed { told: self.told.into_inner(), wrote: self.wrote.get() })
    }

    pub(super) fn get<K: Key + 'static, T: DeserializeOwned>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
    ) -> Result<Option<T>, CatalogError> {
        let opened = self.open(table)?;
        get(self.path, table.name(), &opened, key)
    }

    /// Visits the values of a range of keys, sorted by key.
    pub(super) fn each<
        'k,
        K: Key + 'static,
        T: DeserializeOwned,
        Q: std::borrow::Borrow<K::SelfType<'k>> + 'k,
    >(
        &self,
        table: TableDefinition<'_, K, Json>,
        keys: impl RangeBounds<Q> + 'k,
        mut visit: impl FnMut(K::SelfType<'_>, T),
    ) -> Result<(), CatalogError> {
        let opened = self.open(table)?;
        each(self.path, table.name(), &opened, keys, &mut visit)
    }

    pub(super) fn put<K: Key + 'static>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
        value: &impl Serialize,
    ) -> Result<(), CatalogError> {
        let bytes = encode::<K>(table.name(), &key, value);
        self.open(table)?.insert(key, bytes.as_slice()).map_err(|error| fault(self.path, error))?;
        self.wrote.set(true);
        Ok(())
    }

    /// Removes a key. Returns `false` if it did not exist.
    pub(super) fn remove<K: Key + 'static>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
    ) -> Result<bool, CatalogError> {
        let removed = self.open(table)?.remove(key).map_err(|error| fault(self.path, error))?.is_some();
        self.wrote.set(self.wrote.get() || removed);
        Ok(removed)
    }

    /// Takes `step` values from a counter in the table `meta`; the counter starts at 1. Returns the first of
    /// these values.
    pub(super) fn count(&self, counter: &str, step: u64) -> Result<u64, CatalogError> {
        let next = self.get(META, counter)?.unwrap_or(1);
        self.put(META, counter, &(next + step))?;
        Ok(next)
    }

    /// Returns a number that is at least `least` and higher than all earlier numbers under this name, and
    /// stores it.
    pub(super) fn later(&self, name: &str, least: u64) -> Result<u64, CatalogError> {
        let last: u64 = self.get(META, name)?.unwrap_or(0);
        let next = least.max(last.saturating_add(1));
        self.put(META, name, &next)?;
        Ok(next)
    }

    fn open<K: Key + 'static>(
        &self,
        table: TableDefinition<'_, K, Json>,
    ) -> Result<redb::Table<'_, K, Json>, CatalogError> {
        let transaction = match &self.transaction {
            Open::Own(transaction) => &**transaction,
            Open::Shared(transaction) => transaction,
        };
        transaction.open_table(table).map_err(|error| fault(self.path, error))
    }
}
