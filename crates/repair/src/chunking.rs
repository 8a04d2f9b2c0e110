//! The layout of sub-blocks in a block.
//!
//! A system that encodes a file chunk by chunk writes blocks of many chunks, each cut into the code's α parts
//! (Ceph's shards, for example): sub-block j of the block is part j of every chunk, in order. A block encoded
//! as a whole is a single chunk. Codes, plans and slices do not see chunks: they number the bytes of a
//! sub-block from 0. Readers and writers of blocks use this module to translate those offsets into offsets in
//! the block.
//!
//! **Invariant:** sub-blocks have equal lengths, and every byte of a block belongs to one of them. In a code
//! without sub-blocks (α = 1) the bytes are contiguous whatever the chunks, so its blocks count as one chunk.

use std::ops::Range;

use codes::Code;
use serde::{Deserialize, Serialize};

/// The layout of a block's sub-blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Sizes", into = "Sizes")]
pub struct Chunking {
    sub_blocks: u16,
    /// Bytes of one sub-block in one chunk.
    part_bytes: u64,
    chunks: u64,
}

/// The serialized form of a [`Chunking`].
#[derive(Serialize, Deserialize)]
struct Sizes {
    block_bytes: u64,
    chunk_bytes: u64,
    sub_blocks: u16,
}

/// Why a block cannot be divided into chunks of a given size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkingError {
    /// A chunk cannot be cut into equal parts, one per sub-block.
    #[error(
        "chunks of {chunk_bytes} bytes cannot be divided into {sub_blocks} equal parts; choose a multiple of \
         {sub_blocks}"
    )]
    Parts {
        /// The chunk's size in bytes.
        chunk_bytes: u64,
        /// The code's α.
        sub_blocks: u16,
    },
    /// The block is not a whole number of chunks.
    #[error("a block of {block_bytes} bytes is not a whole number of chunks of {chunk_bytes} bytes")]
    Chunks {
        /// The block's size in bytes.
        block_bytes: u64,
        /// The chunk's size in bytes.
        chunk_bytes: u64,
    },
}

/// A contiguous range of a block's bytes that belongs to one sub-block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the sub-block.
    pub sub: u16,
    /// The offsets of these bytes in the sub-block.
    pub within: Range<u64>,
}

impl Chunking {
    /// Describes blocks of `block_bytes` bytes that a code with `sub_blocks` sub-blocks encodes in chunks of
    /// `chunk_bytes` bytes.
    ///
    /// # Errors
    /// [`ChunkingError`] if the block is not a whole number of chunks, or a chunk cannot be cut into
    /// `sub_blocks` equal parts.
    ///
    /// # Panics
    /// If there are no sub-blocks.
    pub fn new(block_bytes: u64, chunk_bytes: u64, sub_blocks: u16) -> Result<Self, ChunkingError> {
        assert!(sub_blocks > 0, "a block is made of sub-blocks");
        let chunk_bytes = if sub_blocks == 1 { block_bytes } else { chunk_bytes };
        if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(sub_blocks.into()) {
            return Err(ChunkingError::Parts { chunk_bytes, sub_blocks });
        }
        if block_bytes == 0 || !block_bytes.is_multiple_of(chunk_bytes) {
            return Err(ChunkingError::Chunks { block_bytes, chunk_bytes });
        }
        let part_bytes = chunk_bytes / u64::from(sub_blocks);
        Ok(Self { sub_blocks, part_bytes, chunks: block_bytes / chunk_bytes })
    }

    /// Describes the blocks of a stripe by the sizes in its catalog entry. Without `chunk_bytes` a block is a
    /// single chunk.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// If the code has 65,536 sub-blocks or more.
    pub fn of(code: &dyn Code, block_bytes: u64, chunk_bytes: Option<u64>) -> Result<Self, ChunkingError> {
        let sub_blocks = u16::try_from(code.sub_blocks()).expect("sub-blocks have numbers of 16 bits");
        Self::new(block_bytes, chunk_bytes.unwrap_or(block_bytes), sub_blocks)
    }

    /// Describes blocks of a single chunk.
    ///
    /// # Panics
    /// If `block_bytes` is 0 or not a multiple of the code's number of sub-blocks.
    pub fn whole(code: &dyn Code, block_bytes: u64) -> Self {
        Self::of(code, block_bytes, None).expect("a block is cut into equal sub-blocks")
    }

    /// Number of sub-blocks: the code's α.
    pub fn sub_blocks(&self) -> u16 {
        self.sub_blocks
    }

    /// Bytes of a sub-block.
    pub fn sub_block_bytes(&self) -> u64 {
        self.part_bytes * self.chunks
    }

    /// Bytes of a sub-block that lie in one chunk.
    pub fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.sub_block_bytes() * u64::from(self.sub_blocks)
    }

    /// Bytes of a chunk; `None` if the block is a single chunk.
    pub fn chunk_bytes(&self) -> Option<u64> {
        (self.chunks > 1).then_some(self.part_bytes * u64::from(self.sub_blocks))
    }

    /// Returns the ranges of the block that hold the bytes `within` of sub-block `sub`, ascending.
    ///
    /// # Panics
    /// If there is no such sub-block, or `within` reaches beyond its end.
    pub fn ranges(&self, sub: u16, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        assert!(sub < self.sub_blocks, "a sub-block of the block");
        assert!(within.end <= self.sub_block_bytes(), "bytes of the sub-block");
        let layout = *self;
        let mut next = within.start;
        std::iter::from_fn(move || {
            let start = (next < within.end).then_some(next)?;
            next = within.end.min(start - start % layout.part_bytes + layout.part_bytes);
            let first = layout.offset(sub, start);
            Some(first..first + (next - start))
        })
    }

    /// Splits a range of the block into pieces, each of one sub-block, in order.
    ///
    /// # Panics
    /// If the block ends before the range does.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + use<> {
        assert!(range.end <= self.block_bytes(), "bytes of the block");
        let layout = *self;
        let mut next = range.start;
        std::iter::from_fn(move || {
            let start = (next < range.end).then_some(next)?;
            next = range.end.min(start - start % layout.part_bytes + layout.part_bytes);
            let part = start / layout.part_bytes;
            let (chunk, sub) = (part / u64::from(layout.sub_blocks), part % u64::from(layout.sub_blocks));
            let first = chunk * layout.part_bytes + start % layout.part_bytes;
            Some(Piece { sub: sub as u16, within: first..first + (next - start) })
        })
    }

    /// Returns the offset in the block of byte `within` of sub-block `sub`.
    pub(crate) fn offset(&self, sub: u16, within: u64) -> u64 {
        let (chunk, in_part) = (within / self.part_bytes, within % self.part_bytes);
        (chunk * u64::from(self.sub_blocks) + u64::from(sub)) * self.part_bytes + in_part
    }
}

impl From<Chunking> for Sizes {
    fn from(chunking: Chunking) -> Self {
        let block_bytes = chunking.block_bytes();
        let chunk_bytes = chunking.chunk_bytes().unwrap_or(block_bytes);
        Self { block_bytes, chunk_bytes, sub_blocks: chunking.sub_blocks }
    }
}

impl TryFrom<Sizes> for Chunking {
    type Error = ChunkingError;

    fn try_from(Sizes { block_bytes, chunk_bytes, sub_blocks }: Sizes) -> Result<Self, ChunkingError> {
        match sub_blocks {
            0 => Err(ChunkingError::Parts { chunk_bytes, sub_blocks }),
            _ => Self::new(block_bytes, chunk_bytes, sub_blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation: for each byte of a block, its sub-block and its offset in that sub-block.
    fn written(part_bytes: u64, sub_blocks: u16, chunks: u64) -> Vec<(u16, u64)> {
        let mut lengths = vec![0; usize::from(sub_blocks)];
        let mut bytes = Vec::new();
        for _ in 0..chunks {
            for sub in 0..sub_blocks {
                for _ in 0..part_bytes {
                    bytes.push((sub, lengths[usize::from(sub)]));
                    lengths[usize::from(sub)] += 1;
                }
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn every_byte_is_where_a_writer_of_chunks_puts_it(
            (part_bytes, sub_blocks, chunks) in (1u64..9, 1u16..9, 1u64..9),
            (from, to) in (0u64..100, 0u64..100),
        ) {
            let bytes = written(part_bytes, sub_blocks, chunks);
            let chunk_bytes = part_bytes * u64::from(sub_blocks);
            let layout = Chunking::new(bytes.len() as u64, chunk_bytes, sub_blocks).expect("it divides");
            prop_assert_eq!(layout.sub_block_bytes(), part_bytes * chunks);
            let sent = serde_json::to_string(&layout).expect("numbers");
            prop_assert_eq!(serde_json::from_str::<Chunking>(&sent).expect("what was sent"), layout);
            let span = |of: u64| from.min(to) * of / 100..from.max(to) * of / 100;
            for sub in 0..sub_blocks {
                let within = span(layout.sub_block_bytes());
                let ranges: Vec<Range<u64>> = layout.ranges(sub, within.clone()).collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "joined, ascending");
                let found: Vec<_> = ranges.into_iter().flatten().map(|at| bytes[at as usize]).collect();
                prop_assert_eq!(found, within.map(|at| (sub, at)).collect::<Vec<_>>());
            }
            let range = span(bytes.len() as u64);
            let pieces = layout.pieces(range.clone());
            let found: Vec<_> = pieces.flat_map(|piece| piece.within.map(move |at| (piece.sub, at))).collect();
            prop_assert_eq!(&found[..], &bytes[range.start as usize..range.end as usize]);
        }
    }

    #[test]
    fn sizes_that_do_not_divide_are_refused() {
        let parts = ChunkingError::Parts { chunk_bytes: 10, sub_blocks: 4 };
        assert_eq!(Chunking::new(40, 10, 4), Err(parts));
        let chunks = ChunkingError::Chunks { block_bytes: 30, chunk_bytes: 8 };
        assert_eq!(Chunking::new(30, 8, 4), Err(chunks));
        assert!(Chunking::new(8, 0, 4).is_err());
        assert!(Chunking::new(0, 8, 4).is_err());
        for hostile in [
            r#"{"block_bytes":8,"chunk_bytes":8,"sub_blocks":0}"#,
            r#"{"block_bytes":9,"chunk_bytes":8,"sub_blocks":4}"#,
        ] {
            assert!(serde_json::from_str::<Chunking>(hostile).is_err());
        }
    }

    #[test]
    fn a_code_without_sub_blocks_has_one_chunk() {
        let layout = Chunking::new(30, 8, 1).unwrap();
        assert_eq!((layout.chunk_bytes(), layout.sub_block_bytes()), (None, 30));
        assert!(layout.ranges(0, 5..25).eq(std::iter::once(5..25)));
    }
}
