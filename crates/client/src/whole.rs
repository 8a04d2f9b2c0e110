//! Verifies the blocks that a get reads completely, by comparing them with their recorded digests.
//!
//! The checksums that a store keeps for ranges of a block are linear, so bytes on a disk can be altered in a
//! way that leaves all of these checksums valid. A block that is decoded from such altered blocks is wrong,
//! too. The digest of a whole block detects both. A read of only part of a block cannot be checked this way.

use std::io;
use std::ops::Range;

use codes::BlockIndex;
use repair::Digest;
use store_api::{BlockHash, DIGEST_KIND};
use views::{BlockView, FileLayout, FileStripe};

/// The number of bytes to hash at once.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// A block that is read completely, apart from the zeros after the end of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WholeBlock {
    /// The block's name.
    pub(crate) name: String,
    pub(crate) index: BlockIndex,
    /// The block's byte range in the file.
    pub(crate) file: Range<u64>,
    /// The block's size, including padding.
    bytes: u64,
    recorded: Digest,
}

/// Returns the blocks of a stripe that `wanted` covers completely and whose kind of digest this client can
/// compute.
pub(crate) fn whole_blocks(layout: &FileLayout, stripe: &FileStripe, wanted: &Range<u64>) -> Vec<WholeBlock> {
    let block_bytes = stripe.stripe.block_bytes;
    let end = stripe.file_offset + stripe.data_bytes;
    let data = stripe.stripe.blocks.iter().filter(|block| usize::from(block.index) < layout.data_blocks);
    let whole = data.filter_map(|block| {
        let start = stripe.file_offset + u64::from(block.index) * block_bytes;
        WholeBlock::new(block, block_bytes, start..end.min(start.saturating_add(block_bytes)), wanted)
    });
    whole.collect()
}

/// Like [`whole_blocks`], for reads of a single block. All offsets are relative to the start of the block.
pub(crate) fn whole_block(block: &BlockView, block_bytes: u64, wanted: &Range<u64>) -> Option<WholeBlock> {
    WholeBlock::new(block, block_bytes, 0..block_bytes, wanted)
}

impl WholeBlock {
    /// Returns the block if `wanted` covers `file`, the block's range.
    fn new(block: &BlockView, block_bytes: u64, file: Range<u64>, wanted: &Range<u64>) -> Option<Self> {
        let recorded: Digest = block.digest.as_ref()?.parse().ok()?;
        let is_read = file.start < file.end && wanted.start <= file.start && file.end <= wanted.end;
        (is_read && recorded.kind() == DIGEST_KIND && block.bytes == block_bytes).then(|| Self {
            name: block.block.clone(),
            index: BlockIndex(block.index),
            file,
            bytes: block_bytes,
            recorded,
        })
    }

    /// Whether the block's bytes match the recorded digest. `read` fills a buffer from an offset in the file.
    pub(crate) fn agrees(&self, mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>) -> io::Result<bool> {
        let mut hash = BlockHash::default();
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = self.file.start;
        while at < self.file.end {
            let piece = (self.file.end - at).min(PIECE_BYTES as u64) as usize;
            read(at, &mut buffer[..piece])?;
            hash.update(&buffer[..piece]);
            at += piece as u64;
        }
        Ok(self.is_hash(hash))
    }

    /// Whether `hash`, extended by the block's padding, equals the recorded digest.
    fn is_hash(&self, mut hash: BlockHash) -> bool {
        let zeros = vec![0; PIECE_BYTES];
        let mut left = self.bytes - (self.file.end - self.file.start);
        while left > 0 {
            let piece = left.min(PIECE_BYTES as u64);
            hash.update(&zeros[..piece as usize]);
            left -= piece;
        }
        hash.finish() == self.recorded
    }
}

/// Verifies whole blocks whose bytes arrive in order.
pub(crate) struct InOrder<'blocks> {
    blocks: &'blocks [WholeBlock],
    /// The hash of the bytes of `blocks[0]` that have arrived so far.
    hash: BlockHash,
    /// The next expected offset in the file.
    at: u64,
}

impl<'blocks> InOrder<'blocks> {
    /// Creates a verifier of `blocks`, which are in file order, for bytes that start at offset `at` of the
    /// file.
    pub(crate) fn new(blocks: &'blocks [WholeBlock], at: u64) -> Self {
        Self { blocks, hash: BlockHash::default(), at }
    }

    /// Processes the next bytes of the file.
    ///
    /// # Errors
    /// Returns the first block that ends in these bytes and does not match its digest.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), &'blocks WholeBlock> {
        let came = self.at..self.at + bytes.len() as u64;
        self.at = came.end;
        while let Some((block, rest)) = self.blocks.split_first()
            && block.file.start < came.end
        {
            let (from, to) = (block.file.start.max(came.start), block.file.end.min(came.end));
            self.hash.update(&bytes[(from - came.start) as usize..(to - came.start) as usize]);
            if came.end < block.file.end {
                break;
            }
            self.blocks = rest;
            if !block.is_hash(std::mem::take(&mut self.hash)) {
                return Err(block);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use views::{BlockState, FileView, StripeView};

    use super::*;

    fn digest(bytes: &[u8]) -> String {
        let mut hash = BlockHash::default();
        hash.update(bytes);
        hash.finish().to_string()
    }

    /// Returns the layout of a file whose listed stripe starts at byte 1000 and is padded with zeros.
    fn layout(data: &[u8], k: usize, block_bytes: usize) -> FileLayout {
        let mut padded = data.to_vec();
        padded.resize(k * block_bytes, 0);
        let block = |(index, bytes): (usize, &[u8])| BlockView {
            block: format!("17.{index}"),
            index: index as u16,
            bytes: block_bytes as u64,
            node: None,
            state: BlockState::Healthy,
            replicas: Vec::new(),
            digest: Some(digest(bytes)),
        };
        let blocks = padded.chunks(block_bytes).enumerate().map(block).collect();
        let (code, block_bytes) = ("rs-6-4".to_owned(), block_bytes as u64);
        let stripe = StripeView {
            stripe: "17".into(),
            code: code.clone(),
            block_bytes,
            chunk_bytes: None,
            readable: true,
            survives: 2,
            helpers: 2,
            blocks,
        };
        let bytes = 1000 + data.len() as u64;
        let (position, file_offset, data_bytes) = (1, 1000, data.len() as u64);
        FileLayout {
            file: FileView {
                name: "film".into(),
                bytes,
                code,
                block_bytes,
                chunk_bytes: None,
                stripes: 2,
                created_unix_ms: 0,
            },
            data_blocks: k,
            sub_blocks: 1,
            layout: vec![FileStripe { position, file_offset, data_bytes, stripe }],
        }
    }

    proptest! {
        /// Checks that exactly the whole blocks of the range are verified, and that a changed byte in any of
        /// these blocks is detected.
        #[test]
        fn a_changed_byte_of_a_whole_block_is_seen(
            k in 1usize..5, block_bytes in 1usize..60, short in 0usize..200, pieces in 1usize..40,
            ends: (prop::sample::Index, prop::sample::Index), changed: prop::sample::Index,
        ) {
            let length = (k * block_bytes).saturating_sub(short).max(1);
            let mut data: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let layout = layout(&data, k, block_bytes);
            let (a, b) = (ends.0.index(length + 1), ends.1.index(length + 1));
            let wanted = 1000 + a.min(b) as u64..1000 + a.max(b) as u64;
            let blocks = whole_blocks(&layout, &layout.layout[0], &wanted);
            let files = (0..length).step_by(block_bytes).map(|at| 1000 + at as u64..1000 + length.min(at + block_bytes) as u64);
            let expected: Vec<_> = files.filter(|file| wanted.start <= file.start && file.end <= wanted.end).collect();
            prop_assert_eq!(blocks.iter().map(|block| block.file.clone()).collect::<Vec<_>>(), expected);
            for wrong in [None, Some(changed.index(length))] {
                wrong.into_iter().for_each(|at| data[at] ^= 0x10);
                let is_in = |block: &WholeBlock| wrong.is_some_and(|at| block.file.contains(&(1000 + at as u64)));
                for block in &blocks {
                    let agrees = block.agrees(|at, buffer| {
                        buffer.copy_from_slice(&data[(at - 1000) as usize..][..buffer.len()]);
                        Ok(())
                    });
                    prop_assert_eq!(agrees.unwrap(), !is_in(block));
                }
                let mut in_order = InOrder::new(&blocks, wanted.start);
                let bytes = &data[(wanted.start - 1000) as usize..(wanted.end - 1000) as usize];
                let taken = bytes.chunks(pieces).try_for_each(|piece| in_order.take(piece));
                prop_assert_eq!(taken.err(), blocks.iter().find(|block| is_in(block)));
            }
        }
    }
}
