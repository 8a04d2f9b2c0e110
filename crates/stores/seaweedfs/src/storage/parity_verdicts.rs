//! Copies of shards that a parity check has shown to be wrong, according to the coordinator's records. They
//! match their checksums, so they are no evidence against these.

use std::collections::BTreeSet;

use attached::Ledger;
use codes::BlockIndex;
use repair::NodeId;
use store_api::CatalogError;

use crate::blocks::ShardName;

/// The prefix of the record keys; the node's number and the block's name follow.
const PREFIX: &str = "condemned/";

/// Copies, by volume, shard and node.
pub(super) type Copies = BTreeSet<(u32, BlockIndex, NodeId)>;

/// Returns the copies that parity has shown to be wrong.
///
/// # Errors
/// [`CatalogError`] if the records cannot be read.
pub(super) fn wrong_by_parity(ledger: &Ledger) -> Result<Copies, CatalogError> {
    Ok(ledger.list(PREFIX)?.iter().filter_map(|(key, _)| parse(key)).collect())
}

fn parse(key: &str) -> Option<(u32, BlockIndex, NodeId)> {
    let (node, block) = key.strip_prefix(PREFIX)?.split_once('/')?;
    let shard: ShardName = block.parse().ok()?;
    Some((shard.volume.id(), BlockIndex(shard.shard.into()), NodeId(node.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coordinators_keys_are_parsed() {
        assert_eq!(parse("condemned/7/c_5.ec03"), Some((5, BlockIndex(3), NodeId(7))));
        assert_eq!(parse("condemned/7/blk_1"), None);
        assert_eq!(parse("seaweedfs/bad/c_5@1"), None);
    }
}
