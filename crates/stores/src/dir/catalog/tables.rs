//! The tables, and transactions that know them by their JSON values.
//!
//! Before each value stands the CRC32C of its table's name, its key and itself: redb checks its pages when it is
//! asked to and not when it reads them, and a record whose digits have changed can still be JSON.

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

use super::remedy;
use crate::CatalogError;
use crate::dir::checksums::crc32c;

pub(super) type Json = &'static [u8];

/// Format version, cluster, and the counters.
pub(super) const META: TableDefinition<&str, Json> = TableDefinition::new("meta");
/// `NodeRecord` by the node's number.
pub(super) const NODES: TableDefinition<u32, Json> = TableDefinition::new("nodes");
/// The node's number by its name.
pub(super) const NODE_NAMES: TableDefinition<&str, Json> = TableDefinition::new("node-names");
/// `FileRecord` by the file's name.
pub(super) const FILES: TableDefinition<&str, Json> = TableDefinition::new("files");
/// `PutRecord` by the put's number.
pub(super) const PUTS: TableDefinition<u64, Json> = TableDefinition::new("puts");
/// The stripe's key by put and position in the file; empty for stripes of files.
pub(super) const PUT_STRIPES: TableDefinition<(u64, u32), Json> = TableDefinition::new("put-stripes");
/// `StripeRecord` by the stripe's key, which has its count above and its era below.
pub(super) const STRIPES: TableDefinition<u64, Json> = TableDefinition::new("stripes");
/// `null` by node and block: what shall be removed from a node.
pub(super) const DISCARDS: TableDefinition<(u32, &str), Json> = TableDefinition::new("discards");
/// The coordinator's own records by its own keys.
pub(super) const QUEUE: TableDefinition<&str, Json> = TableDefinition::new("queue");

/// Names the file of a fault, and says what to do.
pub(super) fn fault(path: &Path, error: impl Into<redb::Error>) -> CatalogError {
    match error.into() {
        redb::Error::Corrupted(detail) => damaged(path, &detail),
        redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => damaged(path, &error),
        error => CatalogError::Storage(format!(
            "the catalog {} cannot be used: {error}; check its disk, then restart the coordinator",
            path.display()
        )),
    }
}

/// The catalog is not what was written.
fn damaged(path: &Path, detail: &dyn fmt::Display) -> CatalogError {
    CatalogError::Damaged(format!("the catalog {} is damaged: {detail}; {}", path.display(), remedy(path)))
}

/// Runs `work`, in which redb may panic over pages that are damaged.
pub(super) fn guard<T, E: From<CatalogError>>(
    path: &Path,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    // A transaction that is given up in the middle changes nothing, so there is no state to be left half-done.
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

fn decode<K: Key + 'static, T: DeserializeOwned>(
    path: &Path,
    table: &str,
    key: &K::SelfType<'_>,
    bytes: &[u8],
) -> Result<T, CatalogError> {
    let json = bytes.split_first_chunk().filter(|(sum, json)| **sum == checksum::<K>(table, key, json));
    let Some((_, json)) = json else {
        return Err(damaged(path, &format_args!("a record in table `{table}` differs from its checksum")));
    };
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

/// The catalog as it is at one moment.
pub(super) struct View<'c> {
    transaction: Held<'c>,
    path: &'c Path,
}

/// A transaction of the view's own, or somebody else's.
enum Held<'c> {
    Own(Box<ReadTransaction>),
    Lent(&'c ReadTransaction),
}

impl<'c> View<'c> {
    pub(super) fn of(database: &Database, path: &'c Path) -> Result<Self, CatalogError> {
        let transaction = database.begin_read().map_err(|error| fault(path, error))?;
        Ok(Self { transaction: Held::Own(Box::new(transaction)), path })
    }

    pub(super) fn over(transaction: &'c ReadTransaction, path: &'c Path) -> Self {
        Self { transaction: Held::Lent(transaction), path }
    }

    fn transaction(&self) -> &ReadTransaction {
        match &self.transaction {
            Held::Own(transaction) => transaction,
            Held::Lent(transaction) => transaction,
        }
    }

    /// The bytes of a key's value, whatever they are.
    pub(super) fn bytes<K: Key + 'static>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
    ) -> Result<Option<Vec<u8>>, CatalogError> {
        match self.transaction().open_table(table) {
            Ok(opened) => {
                let found = opened.get(key).map_err(|error| fault(self.path, error))?;
                Ok(found.map(|bytes| bytes.value().to_vec()))
            }
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(fault(self.path, error)),
        }
    }

    /// The value of a key; `None` also if the table was never made.
    pub(super) fn get<K: Key + 'static, T: DeserializeOwned>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
    ) -> Result<Option<T>, CatalogError> {
        match self.transaction().open_table(table) {
            Ok(opened) => get(self.path, table.name(), &opened, key),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(fault(self.path, error)),
        }
    }

    /// Visits the values of a range of keys, in the keys' order.
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
        match self.transaction().open_table(table) {
            Ok(opened) => each(self.path, table.name(), &opened, keys, &mut visit),
            Err(TableError::TableDoesNotExist(_)) => Ok(()),
            Err(error) => Err(fault(self.path, error)),
        }
    }

    /// Visits the values of the keys that begin with `prefix`, in the keys' order.
    pub(super) fn each_with_prefix<T: DeserializeOwned>(
        &self,
        table: TableDefinition<'_, &'static str, Json>,
        prefix: &str,
        mut visit: impl FnMut(&str, T),
    ) -> Result<(), CatalogError> {
        let opened = match self.transaction().open_table(table) {
            Ok(opened) => opened,
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            Err(error) => return Err(fault(self.path, error)),
        };
        for entry in opened.range(prefix..).map_err(|error| fault(self.path, error))? {
            let (key, bytes) = entry.map_err(|error| fault(self.path, error))?;
            if !key.value().starts_with(prefix) {
                break;
            }
            let value = decode::<&str, T>(self.path, table.name(), &key.value(), bytes.value())?;
            visit(key.value(), value);
        }
        Ok(())
    }
}

/// A transaction that changes the catalog; dropping it changes nothing.
pub(super) struct Change<'c> {
    transaction: WriteTransaction,
    path: &'c Path,
}

impl<'c> Change<'c> {
    pub(super) fn of(database: &Database, path: &'c Path) -> Result<Self, CatalogError> {
        let mut transaction = database.begin_write().map_err(|error| fault(path, error))?;
        // In one phase, a newest state that cannot be read after a crash is taken for one whose commit never
        // returned, and the state before comes back without a word.
        transaction.set_two_phase_commit(true);
        Ok(Self { transaction, path })
    }

    pub(super) fn commit(self) -> Result<(), CatalogError> {
        self.transaction.commit().map_err(|error| fault(self.path, error))
    }

    pub(super) fn get<K: Key + 'static, T: DeserializeOwned>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
    ) -> Result<Option<T>, CatalogError> {
        let opened = self.open(table)?;
        get(self.path, table.name(), &opened, key)
    }

    /// Visits the values of a range of keys, in the keys' order.
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
        Ok(())
    }

    /// `false` if there was no such key.
    pub(super) fn remove<K: Key + 'static>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
    ) -> Result<bool, CatalogError> {
        let removed = self.open(table)?.remove(key).map_err(|error| fault(self.path, error))?.is_some();
        Ok(removed)
    }

    /// The next value of a counter in `meta`, from 1; `step` values are used up.
    pub(super) fn count(&self, counter: &str, step: u64) -> Result<u64, CatalogError> {
        let next = self.get(META, counter)?.unwrap_or(1);
        self.put(META, counter, &(next + step))?;
        Ok(next)
    }

    /// A number that is at least `least` and higher than all that were given under this name.
    pub(super) fn later(&self, name: &str, least: u64) -> Result<u64, CatalogError> {
        let last: u64 = self.get(META, name)?.unwrap_or(0);
        let next = least.max(last + 1);
        self.put(META, name, &next)?;
        Ok(next)
    }

    fn open<K: Key + 'static>(
        &self,
        table: TableDefinition<'_, K, Json>,
    ) -> Result<redb::Table<'_, K, Json>, CatalogError> {
        self.transaction.open_table(table).map_err(|error| fault(self.path, error))
    }
}
