//! A stripe as the planner sees it.

use std::sync::Arc;

use codes::{BlockIndex, Code};

use crate::{BlockId, Chunking, Digest, LocalBlock, NodeId, StripeId, StripeLabel};

/// A stripe: its code, its blocks, and who holds them now.
#[derive(Clone, Debug)]
pub struct Stripe {
    /// The store's name for it.
    pub id: StripeId,
    /// How its blocks depend on each other.
    pub code: Arc<dyn Code>,
    /// How long its blocks are for the purpose of coding, and where their sub-blocks lie: shorter blocks count as
    /// followed by zeros.
    pub chunking: Chunking,
    /// All n blocks, by index.
    pub blocks: Vec<StripeBlock>,
    /// What a block that is made anew says of itself, if the store wants it to.
    pub label: Option<StripeLabel>,
}

/// One block of a [`Stripe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeBlock {
    /// The store's name for it.
    pub id: BlockId,
    /// Bytes it really has, at most the stripe's.
    pub bytes: u64,
    /// The node that holds it; `None` if it is lost.
    pub holder: Option<NodeId>,
    /// The store's recorded digest of it, which whoever reads or makes the block must find; `None` if there is none.
    pub digest: Option<Digest>,
}

impl Stripe {
    /// Bytes of a block for the purpose of coding.
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

    /// The block of index `index` as whoever reads it must find it.
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

    /// The blocks that some node holds, ascending.
    pub fn held(&self) -> impl Iterator<Item = (BlockIndex, NodeId)> + '_ {
        self.indices().filter_map(|index| Some((index, self.block(index).holder?)))
    }
}
