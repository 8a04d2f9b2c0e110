use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use store_api::StoreChange;
use tokio::time::Instant;

use super::*;
use crate::address::ListedAddress;
use crate::blocks::{EncodedVolume, Ratio};
use crate::listing::{Holding, Listing, Server};
use crate::storage::AttachedCatalog;
use crate::storage::doubles::{LIST_EVERY, Paper, start, start_without};
use crate::storage::encoding_files::Known;
use crate::storage::judging::{returned, unjudged};
use crate::volumes::Standing;

/// Returns a listing of two servers, `a` with the first shard of volume 5 and `b` with the second.
fn listing() -> Listing {
    listing_of([("a", 0, 1), ("b", 1, 1)])
}

/// Returns a listing of servers, each with one shard of volume 5: its number and its encoding.
fn listing_of<const N: usize>(servers: [(&str, u8, i64); N]) -> Listing {
    let mut listing = Listing::default();
    for (name, shard, encoding) in servers {
        let (server, address) = (ServerId(name.to_owned()), format!("{name}:8080"));
        let (data_center, rack) = ("d".to_owned(), "r".to_owned());
        listing.volumes.entry(5).or_default().push(Holding {
            server: server.clone(),
            disk: 0,
            collection: "c".to_owned(),
            encoding: Encoding(encoding),
            shards: [(shard, 100)].into(),
        });
        let address = ListedAddress::of(&address, 0);
        let (disks, plain_volumes) = (BTreeMap::new(), BTreeSet::new());
        let connected = Server { address, data_center, rack, disks, free_volumes: 5, plain_volumes };
        listing.servers.insert(server, connected);
    }
    listing
}

/// Returns the recorded volumes that no server has listed.
fn out_of_sight(catalog: &AttachedCatalog) -> Vec<u32> {
    catalog.system().known.state().view.volumes().out_of_sight().map(|(id, ..)| id).collect()
}

#[test]
fn locations_that_were_refused_are_recorded_with_the_next_listing() {
    let paper = Arc::new(Mutex::new(Paper { refuses: true, ..Paper::default() }));
    let refuse = |refuses| paper.lock().expect("not poisoned").refuses = refuses;
    let recorded = || {
        let kept = paper.lock().expect("not poisoned").kept.clone().into_keys();
        kept.filter(|key| key.starts_with(PREFIX)).collect::<Vec<_>>()
    };
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

/// Applies a listing, and reads the files of these encodings of volume 5, which has two data shards and one parity
/// shard.
fn list(catalog: &AttachedCatalog, listing: Listing, encodings: &[i64]) {
    list_with(catalog, listing, encodings.iter().map(|&encoding| (encoding, (2, 1))));
}

/// Like [`list`], with the numbers of data and parity shards of each encoding.
fn list_with(
    catalog: &AttachedCatalog,
    listing: Listing,
    encodings: impl IntoIterator<Item = (i64, (u32, u32))>,
) {
    let known = &catalog.system().known;
    known.take_all(listing, Instant::now(), LIST_EVERY).expect("recorded");
    let mut state = known.state();
    for (encoding, (data, parity)) in encodings {
        let ratio = Ratio::new(data, parity).expect("possible");
        state.view.learn(5, Encoding(encoding), Known { ratio, shard_bytes: 100, digests: Vec::new() });
    }
    state.keep_homes([5]);
}

/// Starts a coordinator over the records of the one before.
fn restart(paper: &Arc<Mutex<Paper>>, abandoned: &[&str]) -> AttachedCatalog {
    let abandoned =
        abandoned.iter().map(|text| text.parse::<EncodedVolume>().expect("an encoding")).collect();
    let catalog = start_without(paper, abandoned);
    catalog.system().known.recall_homes().expect("readable");
    catalog
}

fn is_mixed(catalog: &AttachedCatalog) -> bool {
    let state = catalog.system().known.state();
    matches!(state.view.volumes().get(5).expect("it is known").standing(), Standing::Mixed(_))
}

#[test]
fn a_volume_that_only_some_servers_deny_stays_recorded() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    list(&start(&paper), listing(), &[1]);
    for _ in 0..2 {
        let catalog = restart(&paper, &[]);
        list(&catalog, Listing { volumes: BTreeMap::new(), ..listing() }, &[]);
        let mut state = catalog.system().known.state();
        state.view.confirm([(5, Encoding(1), 0)]);
        state.keep_homes([5]);
        drop(state);
        assert_eq!(out_of_sight(&catalog), [5], "the other server may still have its shard");
    }
}

/// Two encodings were readable, and the servers of one are down.
#[test]
fn a_restart_does_not_decide_which_encoding_is_current() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let catalog = start(&paper);
    list(&catalog, listing(), &[1]);
    list(&catalog, listing_of([("a", 0, 1), ("b", 1, 1), ("x", 0, 2), ("y", 1, 2)]), &[1, 2]);
    list(&catalog, listing(), &[]);
    assert!(is_mixed(&catalog));
    drop(catalog);
    let catalog = restart(&paper, &[]);
    list(&catalog, listing(), &[1]);
    assert!(is_mixed(&catalog), "encoding 2 may be the current one");
}

/// The encoding whose servers are down has a single data shard, and one shard was left of it.
#[test]
fn a_restart_does_not_forget_the_ratios_of_encodings() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    let catalog = start(&paper);
    list(&catalog, listing(), &[1]);
    let both = listing_of([("a", 0, 1), ("b", 1, 1), ("x", 0, 2)]);
    list_with(&catalog, both, [(1, (2, 1)), (2, (1, 1))]);
    list(&catalog, listing(), &[]);
    assert!(is_mixed(&catalog));
    drop(catalog);
    let is_mixed_after_restart = |ratio: Option<Ratio>| {
        let catalog = restart(&paper, &[]);
        list(&catalog, listing(), &[1]);
        let found = {
            let state = catalog.system().known.state();
            state.view.volumes().get(5).expect("it is listed").generations[&Encoding(2)].ratio
        };
        assert_eq!(found, ratio);
        is_mixed(&catalog)
    };
    assert!(is_mixed_after_restart(Ratio::new(1, 1)), "encoding 2 may be the current one");
    let forget = |record: &mut serde_json::Value| record.as_object_mut()?.remove("ratios");
    let found: Vec<_> = paper.lock().expect("not poisoned").kept.values_mut().filter_map(forget).collect();
    assert_eq!(found, [serde_json::json!({"1": [2, 1], "2": [1, 1]})]);
    assert!(is_mixed_after_restart(None), "an earlier version recorded no ratios");
}

/// The servers of the recorded encoding have died, and servers with another one have returned.
#[test]
fn the_operator_decides_that_an_encoding_is_not_waited_for() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    list(&start(&paper), listing_of([("x", 0, 2), ("y", 1, 2)]), &[2]);
    let stripe = |catalog: &AttachedCatalog| catalog.system().known.state().view.stripe(5);
    let puzzles = |catalog: &AttachedCatalog| {
        let state = catalog.system().known.state();
        unjudged(state.view.volumes(), state.view.files())
    };
    let catalog = restart(&paper, &[]);
    list(&catalog, listing(), &[1]);
    assert!(is_mixed(&catalog) && stripe(&catalog).is_none());
    let next = puzzles(&catalog).remove(0).next_step;
    assert!(next.starts_with("start the volume servers that are down (x, y); "), "{next}");
    assert!(next.contains("(\"c_5@2\") to abandoned_encodings"), "{next}");
    drop(catalog);
    let catalog = restart(&paper, &["d_5@2", "c_6@2", "c_5@3"]);
    list(&catalog, listing(), &[1]);
    assert!(is_mixed(&catalog), "none of these is the encoding");
    drop(catalog);

    let catalog = restart(&paper, &["c_5@2"]);
    list(&catalog, listing(), &[1]);
    assert!(stripe(&catalog).is_some() && puzzles(&catalog).is_empty());
    let told = catalog.system().known.state().view.everything();
    let gone = told.iter().position(|change| matches!(change, StoreChange::StripeGone(_)));
    let listed = told.iter().position(|change| matches!(change, StoreChange::Stripe(..)));
    assert!(
        gone.is_some() && gone < listed,
        "what is known of the stripe is of the abandoned encoding: {told:?}"
    );
    // The abandoned shards return. Shards that are listed always count.
    list(&catalog, listing_of([("a", 0, 1), ("b", 1, 1), ("x", 0, 2), ("y", 1, 2)]), &[2]);
    assert!(is_mixed(&catalog) && stripe(&catalog).is_none());
    let state = catalog.system().known.state();
    let abandoned = ["c_5@2", "c_6@2"].map(|text| text.parse::<EncodedVolume>().expect("an encoding"));
    let lines = returned(state.view.volumes(), &abandoned.into());
    assert!(lines.len() == 1 && lines[0].contains("servers list shards 0 on x, shards 1 on y"), "{lines:?}");
    assert!(lines[0].contains("find out which encoding has the current data"), "{lines:?}");
}

/// All servers of a volume have died.
#[test]
fn an_abandoned_volume_is_not_missed() {
    let paper = Arc::new(Mutex::new(Paper::default()));
    list(&start(&paper), listing(), &[1]);
    let catalog = restart(&paper, &[]);
    list(&catalog, Listing::default(), &[]);
    let found = {
        let state = catalog.system().known.state();
        unjudged(state.view.volumes(), state.view.files())
    };
    assert!(found.len() == 1 && found[0].next_step.contains("\"c_5@1\""), "{found:?}");
    drop(catalog);
    let catalog = restart(&paper, &["c_5@1"]);
    list(&catalog, Listing::default(), &[]);
    assert_eq!(out_of_sight(&catalog), [0; 0]);
    drop(catalog);
    // Without the entry, the volume is missed again: the record is kept.
    let catalog = restart(&paper, &[]);
    list(&catalog, Listing::default(), &[]);
    assert_eq!(out_of_sight(&catalog), [5]);
    // The servers return although their encoding is abandoned, and have the only data.
    list(&catalog, listing(), &[1]);
    let abandoned: BTreeSet<EncodedVolume> = ["c_5@1".parse().expect("an encoding")].into();
    let lines = returned(catalog.system().known.state().view.volumes(), &abandoned);
    assert!(lines.len() == 1 && lines[0].ends_with("keep them, and remove the entry"), "{lines:?}");
}

/// A coordinator whose port is in use drops its storage on a thread of its runtime.
#[tokio::test]
async fn a_catalog_can_be_dropped_within_another_runtime() {
    drop(start(&Arc::default()));
}
