//! Tests that a store has helpers rebuild blocks through the coordinator in the same process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use repair::{BlockId, StripeId};
use serde_json::json;
use store_api::{
    Catalog, CatalogError, DescribedBlock, DescribedStripe, Done, LateRebuilder, Rebuild, RebuildError,
    Rebuilder, Storage, StoreError, StorePolicy, StripeRecord, StripeWrite, Term,
};

use super::*;

/// A catalog that keeps what the coordinator gives it.
struct Listening {
    catalog: Arc<Mutex<DirCatalog>>,
    rebuilder: LateRebuilder,
}

impl Catalog for Listening {
    fn each_stripe(&self, visit: &mut dyn FnMut(StripeRecord, bool)) -> Result<(), CatalogError> {
        self.catalog.each_stripe(visit)
    }

    fn write_stripes(&mut self, term: Term, write: &StripeWrite) -> Result<Done, StoreError> {
        self.catalog.write_stripes(term, write)
    }

    fn rebuild_through(&mut self, rebuilder: Arc<dyn Rebuilder>) {
        assert!(self.rebuilder.set(rebuilder).is_ok(), "it is given once");
    }
}

/// Returns a stripe whose second data block is on this helper. The first one and the parity are lost.
fn stripe(node: &str) -> DescribedStripe {
    let block = |name: &str, node: Option<&str>| DescribedBlock {
        block: BlockId(name.to_owned()),
        bytes: 512,
        node: node.map(str::to_owned),
    };
    DescribedStripe {
        stripe: StripeId("group".to_owned()),
        code: "xor-3-2".parse().expect("a code"),
        block_bytes: 512,
        blocks: vec![block("foreign-0", None), block("foreign-1", Some(node)), block("foreign-2", None)],
    }
}

#[tokio::test]
async fn a_store_reaches_the_helpers_through_its_coordinator() {
    let (folder, cluster) = new_cluster();
    create_catalog(&cluster);
    let (path, id) = records(&cluster);
    let catalog = Arc::new(Mutex::new(DirCatalog::open(path, &id).unwrap()));
    let late = LateRebuilder::default();
    let listening = Listening { catalog: Arc::clone(&catalog), rebuilder: Arc::clone(&late) };
    let storage = Storage::new("dir", StorePolicy::OWN, listening, Arc::clone(&catalog)).with_files(catalog);
    let handle = coordinator::start(config(&cluster), storage).await.unwrap();
    let running = Running { _folder: folder, cluster, handle };
    let rebuilder = late.get().expect("it is given at the start");
    assert_eq!(rebuilder.helpers_up().await, Ok(BTreeSet::new()));
    let (_stream, answer) = running.say_hello(&helper("h1"), &running.hello()).await;
    assert!(matches!(answer, ToNode::Registered { .. }), "{answer:?}");
    assert_eq!(rebuilder.helpers_up().await, Ok(BTreeSet::from(["h1".to_owned()])));

    let refused = rebuilder.describe(&stripe("h7")).await.expect_err("there is no h7");
    assert!(matches!(&refused, RebuildError::Refused(why) if why.contains("h7")), "{refused}");
    assert_eq!(rebuilder.describe(&stripe("h1")).await, Ok(()));
    let admin = Role::default_client();
    let (code, described) = running.http(&admin, "GET", "/v1/stripes/group", "").await;
    assert_eq!((code, described["code"].as_str()), (200, Some("xor-3-2")), "{described}");
    let homes = serde_json::from_value(json!({ "1": "h1" })).expect("an index with a helper");
    let intact = Rebuild {
        stripe: stripe("h1").stripe,
        homes,
        scheme: None,
        is_background: true,
        lease: Duration::from_secs(60),
        one_first: false,
    };
    let refused = rebuilder.begin(&intact).await.expect_err("this block is not lost");
    assert!(
        matches!(&refused, RebuildError::Refused(why) if why.contains("foreign-1 is not lost")),
        "{refused}"
    );

    running.handle.stop().await;
    let stopped = rebuilder.helpers_up().await.expect_err("the coordinator has stopped");
    assert!(matches!(stopped, RebuildError::Unreachable(_)), "{stopped}");
}
