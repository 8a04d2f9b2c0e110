use std::sync::Mutex;

use super::*;
use crate::blocks::{Encoding, Ratio};
use crate::storage::AttachedCatalog;
use crate::storage::doubles::{Paper, listing, start};
use crate::storage::encoding_files::Known;

/// Returns a storage with a volume of 2 + 1 shards without checksums. These servers have the first shards.
fn volume<const N: usize>(servers: [&str; N]) -> AttachedCatalog {
    let catalog = start(&Arc::new(Mutex::new(Paper::default())));
    {
        let known = &catalog.system().known;
        known.take_all(listing(servers), Instant::now()).expect("recorded");
        let ratio = Ratio::new(2, 1).expect("possible");
        let description = Known { ratio, shard_bytes: 100, digests: Vec::new() };
        known.state().view.learn(5, Encoding(1), description);
    }
    catalog
}

/// The file may be of an earlier encoding whose shards were equally long.
#[test]
fn a_found_shard_without_a_checksum_is_used_only_if_it_cannot_be_rebuilt() {
    let stripe = StripeId("c_5".to_owned());
    let catalog = volume(["a", "b"]);
    let blocks = [(BlockIndex(2), NodeId(7), None)];
    let published = catalog.system().publish(Term(1), &stripe, &blocks, Origin::Found);
    let refused = catalog.runtime().block_on(published).expect_err("two shards are enough");
    assert!(matches!(&refused, StoreError::NotServed { block, .. } if block.0 == "c_5.ec02"), "{refused}");
    assert!(refused.to_string().contains("earlier encoding"), "{refused}");
    let catalog = volume(["a"]);
    catalog.system().check_need(&stripe, BlockIndex(2), NodeId(7)).expect("it is needed");
}
