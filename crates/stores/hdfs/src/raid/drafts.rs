//! The files into which helpers deliver parity: reserved before the delivery, and completed or deleted after it.

use hdfs_raid::{NewBlock, Trouble};

use super::changes::trouble;
use crate::NameNode;
use crate::listing::{Range, Reservation, encoded};
use crate::namenode::{LOOK_LIMIT, SILENCE_LIMIT};

/// A block that DataNodes hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub number: i64,
    pub stamp: u64,
    pub bytes: u64,
    /// The addresses of the DataNodes.
    pub at: Vec<String>,
}

/// HDFS as far as parity is concerned that helpers make.
pub(super) trait Drafts {
    /// Returns the blocks in these ranges of files, range by range, with their DataNodes.
    async fn holders(&self, ranges: &[Range]) -> Result<Vec<Held>, Trouble>;

    /// Creates a file for each block, and has the block allocated at its DataNode. The files have no bytes yet.
    async fn reserve(&self, block_bytes: u64, blocks: &[NewBlock]) -> Result<Vec<Reservation>, Trouble>;

    /// Completes reserved files, once DataNodes have reported the blocks.
    async fn complete(&self, block_bytes: u64, reserved: &[Reservation]) -> Result<(), Trouble>;

    /// Deletes the files of blocks, complete or not. Missing ones are a success.
    async fn discard(&self, blocks: &[NewBlock]) -> Result<(), Trouble>;
}

impl Drafts for NameNode {
    async fn holders(&self, ranges: &[Range]) -> Result<Vec<Held>, Trouble> {
        let listing = self.blocks(ranges).await.map_err(trouble)?;
        let address =
            |node: &hdfs_raid::NodeIndex| listing.nodes.get(node.0).map(|node| node.address.clone());
        let held = |block: &hdfs_raid::Block| Held {
            number: block.number,
            stamp: block.stamp,
            bytes: block.bytes,
            at: block.replicas.iter().filter_map(address).collect(),
        };
        Ok(listing.raid.files.iter().flat_map(|file| &file.blocks).map(held).collect())
    }

    async fn reserve(&self, block_bytes: u64, blocks: &[NewBlock]) -> Result<Vec<Reservation>, Trouble> {
        let answer = self.change(&reserve(block_bytes, blocks), LOOK_LIMIT).await.map_err(trouble)?;
        Ok(answer.changed.reserved)
    }

    async fn complete(&self, block_bytes: u64, reserved: &[Reservation]) -> Result<(), Trouble> {
        self.change(&complete(block_bytes, reserved), SILENCE_LIMIT).await.map_err(trouble).map(drop)
    }

    async fn discard(&self, blocks: &[NewBlock]) -> Result<(), Trouble> {
        for block in blocks {
            let call = format!("delete {}", encoded(&block.path));
            self.change(&call, LOOK_LIMIT).await.map_err(trouble)?;
        }
        Ok(())
    }
}

fn reserve(block_bytes: u64, blocks: &[NewBlock]) -> String {
    let words = blocks.iter().flat_map(|block| [encoded(&block.path), block.datanode.clone()]);
    let first = format!("reserve {block_bytes}");
    [first].into_iter().chain(words).collect::<Vec<_>>().join("\t")
}

fn complete(block_bytes: u64, reserved: &[Reservation]) -> String {
    let words = |it: &Reservation| [encoded(&it.path), it.number.to_string(), it.stamp.to_string()];
    let first = format!("complete {block_bytes}");
    [first].into_iter().chain(reserved.iter().flat_map(words)).collect::<Vec<_>>().join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calls_name_each_block_with_its_file() {
        let block = |parity: usize| NewBlock {
            path: format!("/t/0-{parity}"),
            parity,
            datanode: format!("10.0.0.{parity}:9866"),
        };
        assert_eq!(
            reserve(512, &[block(0), block(3)]).replace('\t', " | "),
            "reserve 512 | %2Ft%2F0%2D0 | 10.0.0.0:9866 | %2Ft%2F0%2D3 | 10.0.0.3:9866"
        );
        let reserved =
            Reservation { path: "/t/0-3".to_owned(), number: 1_073_741_900, stamp: 1076, needs_token: false };
        assert_eq!(
            complete(512, &[reserved]).replace('\t', " | "),
            "complete 512 | %2Ft%2F0%2D3 | 1073741900 | 1076"
        );
    }
}
