//! A listing for tests.

use hdfs_raid::{Block, File, Listing, Node, NodeIndex, Owner, Storing};

/// Returns a listing with a file of two blocks on the first two of four DataNodes, of which the first `lost` blocks are
/// lost, and its parity by the codec `xor` on the third DataNode.
pub fn encoded(lost: usize) -> Listing {
    let node = |at| Node { address: format!("10.0.0.{at}:9866"), rack: "/r".into(), is_usable: true };
    let block = |number: usize, node: usize, is_lost: bool| {
        let replicas = if is_lost { Vec::new() } else { vec![NodeIndex(node)] };
        Block { number: number as i64, stamp: 1, bytes: 1 << 20, replicas }
    };
    let file = |inode, path: &str, blocks: Vec<Block>| File {
        inode,
        path: path.to_owned(),
        bytes: (blocks.len() as u64) << 20,
        block_bytes: 1 << 20,
        replication: 1,
        modified_ms: 0,
        owner: Owner::Superuser,
        storing: Storing::Replicated,
        is_open: false,
        blocks,
    };
    let data = (0..2).map(|at| block(at, at, at < lost)).collect();
    let files = vec![file(1, "/data/f", data), file(2, "/raid/data/f", vec![block(0, 2, false)])];
    Listing { nodes: (0..4).map(node).collect(), files, root: "/".to_owned(), ..Listing::default() }
}
