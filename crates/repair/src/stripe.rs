//! A stripe as the planner sees it.

use std::sync::Arc;

use codes::{BlockIndex, Code};

use crate::{BlockId, Chunking, Digest, LocalBlock, NodeId, StripeId, StripeLabel};

/// A stripe: its code, its blocks, and their current holders.
#[derive(Clone, Debug)]
pub struct Stripe {
    /// The store's name for the stripe.
    pub id: StripeId,
    /// The code that relates the stripe's blocks.
    pub code: Arc<dyn Code>,
    /// The length of the stripe's blocks as encoded, and the layout of sub-blocks in them. A shorter block is
    /// encoded as if it were padded with zeros.
    pub chunking: Chunking,
    /// All n blocks, by index.
    pub blocks: Vec<StripeBlock>,
    /// The label to write into rebuilt blocks, if the store keeps labels.
    pub label: Option<StripeLabel>,
}

/// One block of a [`Stripe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeBlock {
    /// The store's name for the block.
    pub id: BlockId,
    /// The block's actual length in bytes, without padding; at most [`Stripe::block_bytes`].
    pub bytes: u64,
    /// The node that stores the block; `None` if the block is lost.
    pub holder: Option<NodeId>,
    /// The block's digest as recorded by the store. Every reader and writer of the block checks it. `None` if
    /// no digest is recorded.
    pub digest: Option<Digest>,
}

impl Stripe {
    /// Length of a block as encoded, in bytes. A shorter block is padded with zeros to this length.
    pub fn block_bytes(&self) -> u64 {
        self.chunking.block_bytes()
    }

    /// Bytes of each of the code's α sub-blocks.
    pub fn sub_block_bytes(&self) -> u64 {
        self.chunking.sub_block_bytes()
    }

    /// The block of index `index`.
    ///
    /// # Panics
    /// If the stripe has no such block.
    pub fn block(&self, index: BlockIndex) -> &StripeBlock {
        &self.blocks[usize::from(index.0)]
    }

    /// Returns the id, length and digest of the block of index `index`, which a node checks before it reads
    /// the block.
    ///
    /// # Panics
    /// If the stripe has no such block.
    pub fn local(&self, index: BlockIndex) -> LocalBlock {
        let StripeBlock { id, bytes, digest, .. } = self.block(index).clone();
        LocalBlock { index, id, bytes, digest }
    }

    /// All block indices, ascending.
    pub fn indices(&self) -> impl Iterator<Item = BlockIndex> + use<> {
        (0..self.blocks.len() as u16).map(BlockIndex)
    }

    /// The blocks that have a holder, ascending.
    pub fn held(&self) -> impl Iterator<Item = (BlockIndex, NodeId)> + '_ {
        self.indices().filter_map(|index| Some((index, self.block(index).holder?)))
    }
}
