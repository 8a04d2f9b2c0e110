//! Doubles for tests of the storage: records in memory, and a storage that calls no server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use repair::NodeId;
use serde_json::Value;
use store_api::{
    CatalogError, Done, NodeRecord, OpenError, RecordWrite, Records, SharedRecords, Snapshot, StoreChange,
    StoreError, Term,
};

use super::AttachedCatalog;
use super::open::Attachment;
use super::state::Shared;
use crate::master::MasterClient;
use crate::security::Security;

/// Records in memory that may refuse writes, as a full disk does.
#[derive(Default)]
pub(super) struct Paper {
    pub kept: BTreeMap<String, Value>,
    pub nodes: Vec<String>,
    pub refuses: bool,
    /// Whether only the records of new nodes are refused.
    pub refuses_nodes: bool,
}

impl Records for Paper {
    fn begin_term(&mut self) -> Result<Term, CatalogError> {
        Ok(Term(1))
    }

    fn check_term(&self, _: Term) -> Result<(), StoreError> {
        Ok(())
    }

    fn number_node(&mut self, name: &str) -> Result<NodeRecord, CatalogError> {
        if !self.nodes.iter().any(|node| node == name) {
            if self.refuses_nodes {
                return Err(CatalogError::NumbersUsedUp);
            }
            self.nodes.push(name.to_owned());
        }
        let at = self.nodes.iter().position(|node| node == name).expect("it was added");
        Ok(NodeRecord { id: NodeId(at as u32), name: name.to_owned(), address: None })
    }

    fn each_record(&self, _: &mut dyn FnMut(StoreChange)) -> Result<(), CatalogError> {
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Value)>, CatalogError> {
        let kept = self.kept.iter().filter(|(key, _)| key.starts_with(prefix));
        Ok(kept.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn write_records(&mut self, _: Term, writes: &[RecordWrite]) -> Vec<Result<Done, StoreError>> {
        let mut carry_out = |write: &RecordWrite| {
            if self.refuses {
                return Err(StoreError::Catalog(CatalogError::NumbersUsedUp));
            }
            match write {
                RecordWrite::Put(key, value) => drop(self.kept.insert(key.clone(), value.clone())),
                RecordWrite::Remove(key) => drop(self.kept.remove(key)),
                other => unreachable!("{other:?}"),
            }
            Ok(Done::default())
        };
        writes.iter().map(&mut carry_out).collect()
    }

    fn recover(&mut self, _: Term) -> Result<Vec<StoreChange>, OpenError> {
        Ok(Vec::new())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        unreachable!("nobody saves these records")
    }
}

/// Starts a storage over these records. It calls no server.
pub(super) fn start(paper: &Arc<Mutex<Paper>>) -> AttachedCatalog {
    let attachment = Attachment {
        masters: Vec::new(),
        security: Security::plain(),
        helpers: BTreeMap::new(),
        list_every: Duration::from_secs(3),
    };
    let master = MasterClient::new(Vec::new(), Security::plain());
    let records: SharedRecords = paper.clone();
    let shared = |ledger, teller| Shared::new(master, attachment, ledger, teller);
    AttachedCatalog::start(records, shared).expect("threads")
}
