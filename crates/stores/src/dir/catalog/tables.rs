//! The tables, and transactions that know them by their JSON values.

use std::ops::RangeBounds;
use std::path::Path;

use redb::{
    Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError,
    TableHandle, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::CatalogError;

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
/// The stripe's number by put and position in the file; empty for stripes of files.
pub(super) const PUT_STRIPES: TableDefinition<(u64, u32), Json> = TableDefinition::new("put-stripes");
/// `StripeRecord` by the stripe's number.
pub(super) const STRIPES: TableDefinition<u64, Json> = TableDefinition::new("stripes");
/// `null` by node and block: what shall be removed from a node.
pub(super) const DISCARDS: TableDefinition<(u32, &str), Json> = TableDefinition::new("discards");
/// The coordinator's own records by its own keys.
pub(super) const QUEUE: TableDefinition<&str, Json> = TableDefinition::new("queue");

/// Names the file of a fault, and says what to do.
pub(super) fn fault(path: &Path, error: impl Into<redb::Error>) -> CatalogError {
    let path = path.display();
    let error = error.into();
    CatalogError::Storage(format!(
        "the catalog {path} cannot be used: {error}; check its disk, then restart the coordinator or restore the catalog from a backup"
    ))
}

fn damaged(path: &Path, table: &str, error: &serde_json::Error) -> CatalogError {
    let path = path.display();
    CatalogError::Storage(format!(
        "a record in table `{table}` of the catalog {path} cannot be read: {error}; restore the catalog from a backup"
    ))
}

fn decode<T: DeserializeOwned>(path: &Path, table: &str, bytes: &[u8]) -> Result<T, CatalogError> {
    serde_json::from_slice(bytes).map_err(|error| damaged(path, table, &error))
}

fn get<K: Key + 'static, T: DeserializeOwned>(
    path: &Path,
    name: &str,
    table: &impl ReadableTable<K, Json>,
    key: K::SelfType<'_>,
) -> Result<Option<T>, CatalogError> {
    let found = table.get(key).map_err(|error| fault(path, error))?;
    found.map(|bytes| decode(path, name, bytes.value())).transpose()
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
        visit(key.value(), decode(path, name, bytes.value())?);
    }
    Ok(())
}

/// The catalog as it is at one moment.
pub(super) struct View<'c> {
    transaction: ReadTransaction,
    path: &'c Path,
}

impl<'c> View<'c> {
    pub(super) fn of(database: &Database, path: &'c Path) -> Result<Self, CatalogError> {
        let transaction = database.begin_read().map_err(|error| fault(path, error))?;
        Ok(Self { transaction, path })
    }

    /// The value of a key; `None` also if the table was never made.
    pub(super) fn get<K: Key + 'static, T: DeserializeOwned>(
        &self,
        table: TableDefinition<'_, K, Json>,
        key: K::SelfType<'_>,
    ) -> Result<Option<T>, CatalogError> {
        match self.transaction.open_table(table) {
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
        match self.transaction.open_table(table) {
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
        let opened = match self.transaction.open_table(table) {
            Ok(opened) => opened,
            Err(TableError::TableDoesNotExist(_)) => return Ok(()),
            Err(error) => return Err(fault(self.path, error)),
        };
        for entry in opened.range(prefix..).map_err(|error| fault(self.path, error))? {
            let (key, bytes) = entry.map_err(|error| fault(self.path, error))?;
            if !key.value().starts_with(prefix) {
                break;
            }
            visit(key.value(), decode(self.path, table.name(), bytes.value())?);
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
        let transaction = database.begin_write().map_err(|error| fault(path, error))?;
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
        let bytes = serde_json::to_vec(value).expect("records have string keys and go to memory");
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

    fn open<K: Key + 'static>(
        &self,
        table: TableDefinition<'_, K, Json>,
    ) -> Result<redb::Table<'_, K, Json>, CatalogError> {
        self.transaction.open_table(table).map_err(|error| fault(self.path, error))
    }
}
