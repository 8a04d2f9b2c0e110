//! Doubles for tests of the storage: records in memory, a storage that calls no server, and a master's
//! listing.

use std::collections::{BTreeMap, BTreeSet};
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
use crate::address::ListedAddress;
use crate::blocks::{EncodedVolume, Encoding};
use crate::listing::{Holding, Listing, Server, ServerId};
use crate::master::MasterClient;
use crate::security::Security;

/// The longest time between two listings.
pub(super) const LIST_EVERY: Duration = Duration::from_secs(3);

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
    start_with(paper, attachment())
}

/// Like [`start`], but the storage may not change servers without being asked.
pub(super) fn start_passive(paper: &Arc<Mutex<Paper>>) -> AttachedCatalog {
    start_with(paper, Attachment { may_change: false, ..attachment() })
}

/// Like [`start`], with encodings that the operator has abandoned.
pub(super) fn start_without(
    paper: &Arc<Mutex<Paper>>,
    abandoned: BTreeSet<EncodedVolume>,
) -> AttachedCatalog {
    start_with(paper, Attachment { abandoned, ..attachment() })
}

/// Returns the description of a cluster without masters and helpers.
pub(super) fn attachment() -> Attachment {
    Attachment {
        masters: Vec::new(),
        security: Security::plain(),
        helpers: BTreeMap::new(),
        folders: BTreeMap::new(),
        list_every: LIST_EVERY,
        abandoned: BTreeSet::new(),
        may_change: true,
    }
}

/// Like [`start`], with this description of the cluster.
pub(super) fn start_with(paper: &Arc<Mutex<Paper>>, attachment: Attachment) -> AttachedCatalog {
    let master = MasterClient::new(Vec::new(), Security::plain());
    let records: SharedRecords = paper.clone();
    let shared = |ledger, teller| Shared::new(master, attachment, ledger, teller);
    AttachedCatalog::start(records, shared).expect("threads")
}

/// Returns a listing in which the server at each position has the shard with this number of volume `c_5`.
pub(super) fn listing<const N: usize>(servers: [&str; N]) -> Listing {
    let mut listing = Listing::default();
    for (name, shard) in servers.into_iter().zip(0..) {
        let server = ServerId(name.to_owned());
        listing.volumes.entry(5).or_default().push(Holding {
            server: server.clone(),
            disk: 0,
            collection: "c".to_owned(),
            encoding: Encoding(1),
            shards: [(shard, 100)].into(),
        });
        let connected = Server {
            address: ListedAddress::of(&format!("{name}:8080"), 0),
            data_center: "d".to_owned(),
            rack: "r".to_owned(),
            disks: BTreeMap::new(),
            free_volumes: 5,
            plain_volumes: BTreeSet::new(),
        };
        listing.servers.insert(server, connected);
    }
    listing
}
