//! The trait that every code implements.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{CodeSpec, Recipe};

/// The position of a block in its stripe, from 0; data blocks come first, in file order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlockIndex(pub u16);

impl fmt::Display for BlockIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

/// One of the α equal, contiguous parts of a block; α = 1 for codes that are not sub-packetized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SubBlock {
    /// The block that contains this sub-block.
    pub block: BlockIndex,
    /// The sub-block's position in the block, `0..α`.
    pub sub: u16,
}

impl SubBlock {
    /// Returns the first sub-block of a block, which is the only one if α = 1.
    pub fn first(block: BlockIndex) -> Self {
        Self { block, sub: 0 }
    }
}

impl fmt::Display for SubBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.block)?;
        if self.sub != 0 { write!(f, ".{}", self.sub) } else { Ok(()) }
    }
}

/// Why a set of blocks cannot be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer blocks are available than any decoding of this code needs.
    #[error("{needed} blocks are needed and only {available} are available")]
    NotEnoughBlocks {
        /// The number of blocks that decoding needs.
        needed: usize,
        /// The number of available blocks.
        available: usize,
    },
    /// Enough blocks are available, but their equations do not determine the wanted ones (non-MDS codes).
    #[error("the {available} available blocks do not determine {block}")]
    Undecodable {
        /// A wanted block that is not determined.
        block: BlockIndex,
        /// The number of available blocks.
        available: usize,
    },
    /// The stripe has no block with this index.
    #[error("there is no block {block} in a stripe of {blocks} blocks")]
    NoSuchBlock {
        /// The requested index.
        block: BlockIndex,
        /// Blocks in a stripe.
        blocks: usize,
    },
}

/// An erasure code over stripes of `n` blocks. The first `k` blocks hold the data.
///
/// Implementations are immutable and cheap to query; a stripe's code is looked up once and shared.
pub trait Code: Send + Sync + fmt::Debug {
    /// Returns the code's name and parameters, as stored in metadata and typed by users.
    fn spec(&self) -> &CodeSpec;

    /// Returns n, the number of blocks in a stripe.
    fn blocks(&self) -> usize;

    /// Returns k, the number of data blocks in a stripe.
    fn data_blocks(&self) -> usize;

    /// Returns α, the number of sub-blocks in a block.
    fn sub_blocks(&self) -> usize;

    /// Returns the recipe for every parity sub-block from the data sub-blocks. Its sources are all k·α data
    /// sub-blocks in order; its outputs are all (n−k)·α parity sub-blocks in order.
    fn encoding(&self) -> &Recipe;

    /// Returns the recipe for all sub-blocks of the `wanted` blocks from `available` ones.
    ///
    /// `available` is in order of preference: if the code leaves a choice, earlier blocks are read. A wanted
    /// block that is available is simply read. The recipe reads as little as the code allows (local groups,
    /// half blocks, sub-chunks) and falls back to any decodable set. Its outputs are the wanted blocks, each
    /// once, in the requested order. Its sources are ordered block by block, with ascending sub-blocks, so
    /// that neighbours can be read together.
    ///
    /// # Errors
    /// [`DecodeError`] if the available blocks do not determine the wanted ones.
    fn repair(&self, wanted: &[BlockIndex], available: &[BlockIndex]) -> Result<Recipe, DecodeError>;
}
