//! The coordinator's records about an attached store: nodes, records that the store's crate adds, copies of
//! blocks that were found missing or corrupt, and nodes that have other data.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use serde_json::{Value, json};
use store_api::{
    BlockState, CatalogError, Done, NodeRecord, OtherData, RecordWrite, Records, SharedRecords, StoreChange,
    StoreError, Term,
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
    /// The key prefix of the records of nodes with other data.
    needed_prefix: String,
    /// The nodes with other data, as recorded.
    needed: BTreeMap<NodeId, OtherData>,
    /// Copies that no longer exist, and whose records are still to be removed. A later copy in the same place
    /// would count as bad because of such a record.
    gone: BTreeSet<CopyId>,
}

impl Ledger {
    /// Creates the ledger of the store with this name.
    pub(super) fn new(records: SharedRecords, name: &str) -> Self {
        let name = name.to_lowercase();
        Self {
            records,
            term: Term(0),
            prefix: format!("{name}/bad/"),
            needed_prefix: format!("{name}/needed/"),
            needed: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Returns the current coordinator's term.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Returns whether this coordinator's term has begun, and checks that no other coordinator has begun a higher one.
    ///
    /// # Errors
    /// [`StoreError`] if another coordinator has taken over, or the records cannot be read.
    pub fn check_term(&self) -> Result<bool, StoreError> {
        Records::check_term(&self.records, self.term)?;
        Ok(self.term > Term(0))
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
        let done = self.write_all(term, &writes);
        for ((stripe, index, node, _), _) in states.iter().zip(&done).filter(|(_, done)| done.is_ok()) {
            self.gone.remove(&(stripe.clone(), *index, *node));
        }
        done.into_iter().try_for_each(|done| done.map(drop))
    }

    /// Removes the records of copies that no longer exist, also of those whose removal has failed before.
    ///
    /// # Errors
    /// [`CatalogError`]. The next call removes the records.
    pub fn forget(&mut self, copies: impl IntoIterator<Item = CopyId>) -> Result<(), CatalogError> {
        self.gone.extend(copies);
        let healthy = |(stripe, index, node): &CopyId| (stripe.clone(), *index, *node, BlockState::Healthy);
        let states: Vec<CopyState> = self.gone.iter().map(healthy).collect();
        if states.is_empty() {
            return Ok(());
        }
        match self.note(self.term, &states) {
            // The coordinator's term has not begun yet, or another coordinator has taken over, which removes the
            // records itself.
            Ok(()) | Err(StoreError::Fenced { .. }) => Ok(()),
            Err(StoreError::Catalog(error)) => Err(error),
            Err(error) => {
                tracing::error!(%error, "cannot remove the records of bad copies that are gone; trying again");
                Ok(())
            }
        }
    }

    /// Loads the registered nodes that have other data, as the last coordinator recorded them.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn recall_needed(&mut self) -> Result<BTreeMap<NodeId, OtherData>, CatalogError> {
        let nodes = self.nodes()?;
        let parse = |(key, value): (String, Value)| {
            let node = NodeId(key.strip_prefix(&self.needed_prefix)?.parse().ok()?);
            let text = |field: &str| Some(value.get(field)?.as_str()?.to_owned());
            let data = OtherData { what: text("what")?, next_step: text("next_step")? };
            nodes.iter().any(|it| it.id == node).then_some((node, data))
        };
        self.needed = self.list(&self.needed_prefix)?.into_iter().filter_map(parse).collect();
        Ok(self.needed.clone())
    }

    /// Records the nodes that have other data. A node that is down after a restart of the coordinator may be
    /// unknown to the store, and its data must not be forgotten.
    pub fn note_needed(&mut self, now: &BTreeMap<NodeId, OtherData>) {
        let key = |node: NodeId| format!("{}{}", self.needed_prefix, node.0);
        let gone = self.needed.keys().filter(|node| !now.contains_key(*node)).map(|&node| (node, None));
        let new = now.iter().filter(|(node, data)| self.needed.get(*node) != Some(*data));
        let changes: Vec<(NodeId, Option<OtherData>)> =
            gone.chain(new.map(|(&node, data)| (node, Some(data.clone())))).collect();
        let write = |(node, data): &(NodeId, Option<OtherData>)| match data {
            Some(OtherData { what, next_step }) => {
                RecordWrite::Put(key(*node), json!({ "what": what, "next_step": next_step }))
            }
            None => RecordWrite::Remove(key(*node)),
        };
        let writes: Vec<RecordWrite> = changes.iter().map(write).collect();
        if writes.is_empty() {
            return;
        }
        for ((node, data), done) in changes.into_iter().zip(self.write_all(self.term, &writes)) {
            match (done, data) {
                (Ok(_), Some(data)) => drop(self.needed.insert(node, data)),
                (Ok(_), None) => drop(self.needed.remove(&node)),
                // Written after the next listing, or by the next coordinator.
                (Err(StoreError::Fenced { .. }), _) => {}
                (Err(error), _) => tracing::error!(%error, "cannot record the nodes that have other data"),
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
    fn nodes_with_other_data_are_recorded_until_they_have_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        drop(DirCatalog::create(&path, "a-cluster").unwrap());
        let open = || {
            let records = DirCatalog::open(&path, "a-cluster").unwrap();
            Ledger::new(Arc::new(Mutex::new(records)), "HDFS")
        };
        let begin = |ledger: &mut Ledger| {
            let term = ledger.records.begin_term().unwrap();
            ledger.enter_term(term);
        };
        let data = |what: &str| OtherData { what: what.to_owned(), next_step: "move it".to_owned() };
        let mut ledger = open();
        assert_eq!(ledger.check_term(), Ok(false), "no term has begun");
        begin(&mut ledger);
        assert_eq!(ledger.check_term(), Ok(true));
        let (one, other) = ("dn1", "dn2");
        let (one, other) = (ledger.number_node(one).unwrap().id, ledger.number_node(other).unwrap().id);
        ledger.note_needed(&BTreeMap::from([(one, data("1 volume")), (other, data("2 volumes"))]));
        ledger.note_needed(&BTreeMap::from([(one, data("3 volumes"))]));
        drop(ledger);
        let mut ledger = open();
        let kept = BTreeMap::from([(one, data("3 volumes"))]);
        assert_eq!(ledger.recall_needed().unwrap(), kept);
        // A store is listed before the coordinator's term begins. The change is recorded later.
        ledger.note_needed(&BTreeMap::new());
        begin(&mut ledger);
        assert_eq!(ledger.recall_needed().unwrap(), kept);
        ledger.note_needed(&BTreeMap::new());
        assert_eq!(ledger.recall_needed().unwrap(), BTreeMap::new());
    }

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

    #[test]
    fn a_record_that_could_not_be_removed_is_removed_later_unless_the_copy_is_bad_again() {
        let folder = tempfile::tempdir().unwrap();
        let records = DirCatalog::create(folder.path().join("records"), "a-cluster").unwrap();
        let mut ledger = Ledger::new(Arc::new(Mutex::new(records)), "HDFS");
        let copies = [0, 1].map(|index| (StripeId("s".to_owned()), BlockIndex(index), NodeId(7)));
        let corrupt = copies.clone().map(|(stripe, index, node)| (stripe, index, node, BlockState::Corrupt));
        let first = ledger.records.begin_term().unwrap();
        ledger.enter_term(first);
        ledger.note(first, &corrupt).unwrap();
        // The removals are refused, because a later term has begun.
        let second = ledger.records.begin_term().unwrap();
        assert!(matches!(ledger.check_term(), Err(StoreError::Fenced { .. })));
        ledger.forget(copies).unwrap();
        assert_eq!(ledger.bad_copies().unwrap(), corrupt);
        ledger.enter_term(second);
        ledger.note(second, &corrupt[1..]).unwrap();
        ledger.forget([]).unwrap();
        assert_eq!(ledger.bad_copies().unwrap(), corrupt[1..]);
    }
}
