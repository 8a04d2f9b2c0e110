use std::sync::Mutex;

use super::*;
use crate::blocks::{Encoding, Ratio};
use crate::storage::AttachedCatalog;
use crate::storage::doubles::{LIST_EVERY, Paper, listing, start};
use crate::storage::encoding_files::Known;

/// Returns a storage with a volume of 2 + 1 shards without checksums. These servers have the first shards.
fn volume<const N: usize>(servers: [&str; N]) -> AttachedCatalog {
    let catalog = start(&Arc::new(Mutex::new(Paper::default())));
    {
        let known = &catalog.system().known;
        known.take_all(listing(servers), Instant::now(), LIST_EVERY).expect("recorded");
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

/// A good shard must not be deleted because its server was slow.
#[test]
fn a_server_that_does_not_answer_says_nothing_about_its_shard() {
    let address = || "a:8080".parse().expect("an address");
    let silent = AskError::TimedOut { address: address(), call: "VolumeEcShardRead" };
    assert!(matches!(Unserved::unread(&silent), Unserved::Unknown(_)));
    let why = "ec shard is of another generation".to_owned();
    let refused = AskError::Refused { address: address(), call: "VolumeEcShardRead", why };
    assert!(matches!(Unserved::unread(&refused), Unserved::Badly(_)));
    // The master lists the shard, but nothing listens on the server's port.
    let catalog = volume(["127.0.0.1", "b"]);
    let shard = ShardName { volume: VolumeName::new("c", 5).expect("a name"), shard: 0 };
    let (system, server) = (catalog.system(), ServerId("127.0.0.1".to_owned()));
    let served = catalog.runtime().block_on(system.serves_well(&shard, &server));
    served.expect_err("it is unknown");
    let other = ShardName { shard: 1, ..shard };
    let served = catalog.runtime().block_on(system.serves_well(&other, &server));
    assert_eq!(served, Ok(false), "the master does not list it there");
}
