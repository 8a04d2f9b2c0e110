use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::*;
use crate::listing::{Holding, Listing, Server};
use crate::storage::AttachedCatalog;
use crate::storage::doubles::{LIST_EVERY, Paper, start};

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
        catalog.system().known.take_all(listing, Instant::now(), LIST_EVERY).expect("numbered");
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
    catalog.system().known.recall_homes().expect("readable");
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
