use std::sync::{Arc, Mutex};
use std::time::Duration;

use repair::NodeId;
use serde_json::Value;
use store_api::{
    Done, NodeRecord, OpenError, Records, SharedRecords, Snapshot, StoreChange, StoreError, Term,
};
use tokio::time::Instant;

use super::*;
use crate::listing::{Holding, Listing, Server};
use crate::master::MasterClient;
use crate::security::Security;
use crate::storage::AttachedCatalog;
use crate::storage::open::Attachment;
use crate::storage::state::Shared;

/// Records in memory that may refuse writes, as a full disk does.
#[derive(Default)]
struct Paper {
    kept: BTreeMap<String, Value>,
    nodes: Vec<String>,
    refuses: bool,
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
fn start(paper: &Arc<Mutex<Paper>>) -> AttachedCatalog {
    let attachment = Attachment {
        masters: Vec::new(),
        security: Security::plain(),
        helpers: BTreeMap::new(),
        list_every: Duration::from_secs(3),
    };
    let master = MasterClient::new(Vec::new(), Security::plain());
    let records: SharedRecords = paper.clone();
    let shared = |ledger, teller| Shared::new(master, attachment, ledger, teller);
    let catalog = AttachedCatalog::start(records, shared).expect("threads");
    catalog.system().known.recall_homes().expect("readable");
    catalog
}

/// Returns a listing of two servers, `a` with the first shard of volume 5 and `b` with the second.
fn listing() -> Listing {
    let mut listing = Listing::default();
    for (name, shard) in [("a", 0), ("b", 1)] {
        let (server, address) = (ServerId(name.to_owned()), format!("{name}:8080"));
        let (data_center, rack) = ("d".to_owned(), "r".to_owned());
        listing.volumes.entry(5).or_default().push(Holding {
            server: server.clone(),
            disk: 0,
            collection: "c".to_owned(),
            encoding: Encoding(1),
            shards: [(shard, 100)].into(),
        });
        let address = address.parse().expect("an address");
        let (disks, plain_volumes) = (BTreeMap::new(), BTreeSet::new());
        let connected = Server { address, data_center, rack, disks, free_volumes: 5, plain_volumes };
        listing.servers.insert(server, connected);
    }
    listing
}

/// Returns the recorded volumes that no server has listed.
fn out_of_sight(catalog: &AttachedCatalog) -> Vec<u32> {
    catalog.system().known.state().view.volumes().out_of_sight().map(|(id, _)| id).collect()
}

#[test]
fn locations_that_were_refused_are_recorded_with_the_next_listing() {
    let paper = Arc::new(Mutex::new(Paper { refuses: true, ..Paper::default() }));
    let refuse = |refuses| paper.lock().expect("not poisoned").refuses = refuses;
    let recorded = || paper.lock().expect("not poisoned").kept.keys().cloned().collect::<Vec<_>>();
    let list = |catalog: &AttachedCatalog, listing| {
        assert!(catalog.system().known.take_all(listing, Instant::now()).expect("numbered"));
    };
    let catalog = start(&paper);
    list(&catalog, listing());
    list(&catalog, listing());
    assert_eq!(recorded(), [""; 0]);
    refuse(false);
    // The volume has not changed since its locations were refused.
    list(&catalog, listing());
    assert_eq!(recorded(), ["seaweedfs/homes/5"]);
    drop(catalog);
    // Meanwhile all servers have gone down.
    let catalog = start(&paper);
    list(&catalog, Listing::default());
    assert_eq!(out_of_sight(&catalog), [5], "a restarted coordinator misses the volume");
    // The volume was deleted, and the removal of its record is refused.
    refuse(true);
    let gone = Listing { volumes: BTreeMap::new(), ..listing() };
    list(&catalog, gone.clone());
    {
        let mut state = catalog.system().known.state();
        state.view.confirm([(5, Encoding(1), 0), (5, Encoding(1), 1)]);
        state.keep_homes([5]);
    }
    assert_eq!(recorded(), ["seaweedfs/homes/5"]);
    refuse(false);
    list(&catalog, gone);
    assert_eq!(recorded(), [""; 0]);
}
