//! What a coordinator keeps of a store that others own: its own records, and which copies were found bad.

use codes::BlockIndex;
use repair::{NodeId, StripeId};

use crate::dir::DirCatalog;
use crate::{BlockState, CatalogError, Done, RecordWrite, Records, Storage, StoreError, Term, Write};

/// How a copy was found.
pub type CopyState = (StripeId, BlockIndex, NodeId, BlockState);

/// See the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    records: DirCatalog,
    term: Term,
    /// What the keys of bad copies begin with.
    prefix: String,
}

impl Ledger {
    /// The ledger of a store of this name.
    pub(super) fn new(records: DirCatalog, name: &str) -> Self {
        Self { records, term: Term(0), prefix: format!("{}/bad/", name.to_lowercase()) }
    }

    /// The records themselves.
    pub fn records(&mut self) -> &mut DirCatalog {
        &mut self.records
    }

    /// The term of the coordinator that writes now.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Fences earlier coordinators out.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub(super) fn begin_term(&mut self) -> Result<Term, CatalogError> {
        self.term = self.records.begin_term()?;
        Ok(self.term)
    }

    /// Carries out one write.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn write(&mut self, term: Term, write: &Write) -> Result<Done, StoreError> {
        let mut done = self.records.carry_out(term, std::slice::from_ref(write));
        done.pop().expect("one is answered by one")
    }

    /// What earlier coordinators found bad.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn bad_copies(&self) -> Result<Vec<CopyState>, CatalogError> {
        let listed = Records::list(&self.records, &self.prefix)?.into_iter();
        let parsed = listed.filter_map(|(key, value)| {
            let (stripe, index, node) = self.parse_key(&key)?;
            Some((stripe, index, node, serde_json::from_value(value).ok()?))
        });
        Ok(parsed.collect())
    }

    /// Keeps how copies were found; of those that are healthy nothing is kept.
    ///
    /// # Errors
    /// [`StoreError`] of the first that cannot be kept.
    pub fn note(&mut self, term: Term, states: &[CopyState]) -> Result<(), StoreError> {
        let write = |(stripe, index, node, state): &CopyState| {
            let key = self.key(stripe, *index, *node);
            Write::Records(match state {
                BlockState::Healthy => RecordWrite::Remove(key),
                bad => RecordWrite::Put(key, serde_json::to_value(bad).expect("a name")),
            })
        };
        let writes: Vec<Write> = states.iter().map(write).collect();
        self.records.carry_out(term, &writes).into_iter().try_for_each(|done| done.map(drop))
    }

    /// Forgets how copies were that are not there any more.
    ///
    /// # Errors
    /// [`CatalogError`].
    pub fn forget(
        &mut self,
        copies: impl IntoIterator<Item = (StripeId, BlockIndex, NodeId)>,
    ) -> Result<(), CatalogError> {
        let healthy = |(stripe, index, node)| (stripe, index, node, BlockState::Healthy);
        let states: Vec<CopyState> = copies.into_iter().map(healthy).collect();
        if states.is_empty() {
            return Ok(());
        }
        match self.note(self.term, &states) {
            Ok(()) | Err(StoreError::Fenced { .. }) => Ok(()), // Whoever took over forgets it.
            Err(StoreError::Catalog(error)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "how a copy was is not forgotten");
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
    use super::*;

    #[test]
    fn what_was_found_bad_is_known_to_the_next_coordinator_until_it_is_healthy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        drop(DirCatalog::create(&path, "a-cluster").unwrap());
        let open = || Ledger::new(DirCatalog::open(&path, "a-cluster").unwrap(), "HDFS");
        // A stripe may have slashes in its name.
        let (stripe, index, node) = (StripeId("a/b".to_owned()), BlockIndex(3), NodeId(7));
        let corrupt = (stripe.clone(), index, node, BlockState::Corrupt);
        {
            let mut ledger = open();
            let term = ledger.begin_term().unwrap();
            ledger.note(term, std::slice::from_ref(&corrupt)).unwrap();
        }
        let mut ledger = open();
        assert_eq!(ledger.bad_copies().unwrap(), [corrupt]);
        ledger.begin_term().unwrap();
        ledger.forget([(stripe, index, node)]).unwrap();
        assert_eq!(ledger.bad_copies().unwrap(), []);
    }
}
