//! The coordinator's records about an attached store: nodes, records that the store's crate adds, and
//! copies of blocks that were found missing or corrupt.

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use serde_json::Value;
use store_api::{
    BlockState, CatalogError, Done, NodeRecord, RecordWrite, Records, SharedRecords, StoreChange, StoreError,
    Term,
};

use crate::CopyId;

/// A copy of a block and the state in which it was found.
pub type CopyState = (StripeId, BlockIndex, NodeId, BlockState);

/// Access to the records; see the module's documentation. The records are shared with the
/// [`Storage`](store_api::Storage).
pub struct Ledger {
    records: SharedRecords,
    term: Term,
    /// The key prefix of the records of missing or corrupt copies.
    prefix: String,
}

impl Ledger {
    /// Creates the ledger of the store with this name.
    pub(super) fn new(records: SharedRecords, name: &str) -> Self {
        Self { records, term: Term(0), prefix: format!("{}/bad/", name.to_lowercase()) }
    }

    /// Returns the current coordinator's term.
    pub fn term(&self) -> Term {
        self.term
    }

    pub(super) fn enter_term(&mut self, term: Term) {
        self.term = term;
    }

    /// Returns the records whose keys begin with `prefix`.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError> {
        Records::list(&self.records, prefix)
    }

    /// Returns all registered nodes.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn nodes(&self) -> Result<Vec<NodeRecord>, CatalogError> {
        let mut nodes = Vec::new();
        self.records.each_record(&mut |change| {
            if let StoreChange::Node(node) = change {
                nodes.push(node);
            }
        })?;
        Ok(nodes)
    }

    /// See [`Records::number_node`].
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn number_node(&mut self, name: &str) -> Result<NodeRecord, CatalogError> {
        self.records.number_node(name)
    }

    /// See [`Records::write_records`].
    pub fn write_all(&mut self, term: Term, writes: &[RecordWrite]) -> Vec<Result<Done, StoreError>> {
        self.records.write_records(term, writes)
    }

    /// Carries out one write.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn write(&mut self, term: Term, write: RecordWrite) -> Result<Done, StoreError> {
        self.write_all(term, &[write]).pop().expect("one write has one answer")
    }

    /// Returns the copies that were found missing or corrupt, including those found by earlier coordinators.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn bad_copies(&self) -> Result<Vec<CopyState>, CatalogError> {
        let listed = self.list(&self.prefix)?.into_iter();
        let parsed = listed.filter_map(|(key, value)| {
            let (stripe, index, node) = self.parse_key(&key)?;
            Some((stripe, index, node, serde_json::from_value(value).ok()?))
        });
        Ok(parsed.collect())
    }

    /// Records the states of copies. A healthy copy needs no record.
    ///
    /// # Errors
    /// [`StoreError`] of the first record that fails.
    pub fn note(&mut self, term: Term, states: &[CopyState]) -> Result<(), StoreError> {
        let write = |(stripe, index, node, state): &CopyState| {
            let key = self.key(stripe, *index, *node);
            match state {
                BlockState::Healthy => RecordWrite::Remove(key),
                bad => RecordWrite::Put(key, serde_json::to_value(bad).expect("a name")),
            }
        };
        let writes: Vec<RecordWrite> = states.iter().map(write).collect();
        self.write_all(term, &writes).into_iter().try_for_each(|done| done.map(drop))
    }

    /// Removes the records of copies that no longer exist.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn forget(&mut self, copies: impl IntoIterator<Item = CopyId>) -> Result<(), CatalogError> {
        let healthy = |(stripe, index, node)| (stripe, index, node, BlockState::Healthy);
        let states: Vec<CopyState> = copies.into_iter().map(healthy).collect();
        if states.is_empty() {
            return Ok(());
        }
        match self.note(self.term, &states) {
            Ok(()) | Err(StoreError::Fenced { .. }) => Ok(()), // The next coordinator drops the record.
            Err(StoreError::Catalog(error)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "the record of a copy that is gone stays");
                Ok(())
            }
        }
    }

    fn key(&self, stripe: &StripeId, index: BlockIndex, node: NodeId) -> String {
        format!("{}{stripe}/{}/{}", self.prefix, index.0, node.0)
    }

    fn parse_key(&self, key: &str) -> Option<(StripeId, BlockIndex, NodeId)> {
        let mut parts = key.strip_prefix(&self.prefix)?.rsplitn(3, '/');
        let node = NodeId(parts.next()?.parse().ok()?);
        let index = BlockIndex(parts.next()?.parse().ok()?);
        Some((StripeId(parts.next()?.to_owned()), index, node))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use dir::DirCatalog;

    use super::*;

    #[test]
    fn bad_copies_are_recorded_until_they_are_healthy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        drop(DirCatalog::create(&path, "a-cluster").unwrap());
        let open = || {
            let records = DirCatalog::open(&path, "a-cluster").unwrap();
            let mut ledger = Ledger::new(Arc::new(Mutex::new(records)), "HDFS");
            let term = ledger.records.begin_term().unwrap();
            ledger.enter_term(term);
            ledger
        };
        // A stripe's name may contain slashes.
        let (stripe, index, node) = (StripeId("a/b".to_owned()), BlockIndex(3), NodeId(7));
        let corrupt = (stripe.clone(), index, node, BlockState::Corrupt);
        {
            let mut ledger = open();
            let term = ledger.term();
            ledger.note(term, std::slice::from_ref(&corrupt)).unwrap();
        }
        let mut ledger = open();
        assert_eq!(ledger.bad_copies().unwrap(), [corrupt]);
        ledger.forget([(stripe, index, node)]).unwrap();
        assert_eq!(ledger.bad_copies().unwrap(), []);
    }
}
