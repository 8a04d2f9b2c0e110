//! One disk job: bytes moved between a block and slice buffers, one buffer per sub-block.
//!
//! Sub-blocks close together are moved together. A read includes gaps smaller than [`GAP_BYTES`]. Such a gap
//! is less than a page, so the disk reads its pages anyway, and a store with a checksum per page checks them
//! anyway. Larger gaps are skipped, because whether reading a gap is faster than a seek depends on the disk.
//!
//! **Invariant:** the buffers hold exactly the bytes of the slice, and a write touches no other bytes of the
//! block.

use std::ops::{Deref, DerefMut, Range};

use codes::{BlockIndex, SubBlock};

use crate::Chunking;

/// Smaller gaps are read instead of skipped. This is the size of a page in the page cache and in the
/// checksums of the store `dir`.
pub(crate) const GAP_BYTES: u64 = 4 << 10;
/// Bytes of the intermediate buffer for a range of the block that several sub-blocks share.
const SHARED_BYTES: u64 = 256 << 10;

/// Moves one slice of several sub-blocks between a block and buffers; see the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    block: BlockIndex,
    /// The numbers of the sub-blocks, ascending.
    subs: Vec<u16>,
    within: Range<u64>,
    chunking: Chunking,
}

impl Transfer {
    /// Describes a move of the bytes `within` of `sub_blocks`, which are in ascending order and belong to one
    /// block.
    ///
    /// # Panics
    /// If there are no sub-blocks, they belong to several blocks, or they are out of order.
    pub(crate) fn new(chunking: Chunking, sub_blocks: &[SubBlock], within: Range<u64>) -> Self {
        let block = sub_blocks.first().expect("a transfer has sub-blocks").block;
        assert!(sub_blocks.iter().all(|sub_block| sub_block.block == block), "of one block");
        let subs: Vec<u16> = sub_blocks.iter().map(|sub_block| sub_block.sub).collect();
        assert!(subs.is_sorted_by(|a, b| a < b), "sub-blocks ascend");
        Self { block, subs, within, chunking }
    }

    /// The block.
    pub fn block(&self) -> BlockIndex {
        self.block
    }

    /// The number of buffers, one per sub-block.
    pub fn buffers(&self) -> usize {
        self.subs.len()
    }

    /// Bytes of each buffer.
    pub fn buffer_bytes(&self) -> usize {
        (self.within.end - self.within.start) as usize
    }

    /// Bytes of all buffers.
    pub fn bytes(&self) -> usize {
        self.buffers() * self.buffer_bytes()
    }

    /// The ranges of the block to read, ascending, small gaps included.
    pub fn reads(&self) -> Vec<Range<u64>> {
        joined(&self.chunking, &self.subs, &self.within, GAP_BYTES)
    }

    /// The ranges of the block to write, ascending.
    pub fn writes(&self) -> Vec<Range<u64>> {
        joined(&self.chunking, &self.subs, &self.within, 1)
    }

    /// Fills the buffers from the block. `read` is called with an offset in the block and the bytes to fill
    /// from there. It returns false if it cannot read without blocking; then this method returns false at
    /// once. Bytes beyond `block_bytes` are set to zero without a read.
    ///
    /// # Errors
    /// The first error of `read`.
    ///
    /// # Panics
    /// If there is not one buffer of the right size per sub-block.
    pub fn read<E>(
        &self,
        block_bytes: u64,
        buffers: &mut [impl DerefMut<Target = [u8]>],
        mut read: impl FnMut(u64, &mut [u8]) -> Result<bool, E>,
    ) -> Result<bool, E> {
        self.check(buffers);
        let mut fill = |at: u64, bytes: &mut [u8]| {
            let in_block = block_bytes.saturating_sub(at).min(bytes.len() as u64) as usize;
            let (bytes, padding) = bytes.split_at_mut(in_block);
            padding.fill(0);
            if bytes.is_empty() { Ok(true) } else { read(at, bytes) }
        };
        let mut shared = Vec::new();
        for range in self.reads().into_iter().flat_map(|range| self.steps(range)) {
            if let Some((buffer, in_buffer)) = self.lies_in_one(&range) {
                if !fill(range.start, &mut buffers[buffer][in_buffer])? {
                    return Ok(false);
                }
                continue;
            }
            shared.resize((range.end - range.start) as usize, 0);
            if !fill(range.start, &mut shared)? {
                return Ok(false);
            }
            for (buffer, in_buffer, at) in self.pieces(range) {
                let bytes = in_buffer.len();
                buffers[buffer][in_buffer].copy_from_slice(&shared[at..at + bytes]);
            }
        }
        Ok(true)
    }

    /// Passes the buffers' contents to `write` with their offsets in the block. Drops bytes beyond
    /// `block_bytes`, which are padding.
    ///
    /// # Errors
    /// The first error of `write`.
    ///
    /// # Panics
    /// If there is not one buffer of the right size per sub-block.
    pub fn write<E>(
        &self,
        block_bytes: u64,
        buffers: &[impl Deref<Target = [u8]>],
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check(buffers);
        let mut store = |at: u64, bytes: &[u8]| {
            let in_block = block_bytes.saturating_sub(at).min(bytes.len() as u64) as usize;
            if in_block == 0 { Ok(()) } else { write(at, &bytes[..in_block]) }
        };
        let mut shared = Vec::new();
        for range in self.writes().into_iter().flat_map(|range| self.steps(range)) {
            if let Some((buffer, in_buffer)) = self.lies_in_one(&range) {
                store(range.start, &buffers[buffer][in_buffer])?;
                continue;
            }
            shared.resize((range.end - range.start) as usize, 0);
            for (buffer, in_buffer, at) in self.pieces(range.clone()) {
                shared[at..at + in_buffer.len()].copy_from_slice(&buffers[buffer][in_buffer]);
            }
            store(range.start, &shared)?;
        }
        Ok(())
    }

    fn check(&self, buffers: &[impl Deref<Target = [u8]>]) {
        assert_eq!(buffers.len(), self.subs.len(), "a buffer for each sub-block");
        assert!(buffers.iter().all(|buffer| buffer.len() == self.buffer_bytes()), "of the slice's size");
    }

    /// Cuts ranges shared by several buffers into steps, to bound memory; a range of a single buffer is not
    /// cut.
    fn steps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let whole = self.lies_in_one(&range).is_some();
        let step = if whole { range.end - range.start } else { SHARED_BYTES };
        let cuts = (range.start..range.end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        cuts.map(move |start| start..range.end.min(start.saturating_add(step)))
    }

    /// The buffer that contains all of a range, with the range's position in that buffer; `None` if several
    /// buffers share the range.
    fn lies_in_one(&self, range: &Range<u64>) -> Option<(usize, Range<usize>)> {
        let first = self.pieces(range.clone()).next()?;
        let (buffer, in_buffer, at) = first;
        (at == 0 && in_buffer.len() as u64 == range.end - range.start).then_some((buffer, in_buffer))
    }

    /// The parts of a range that belong to buffers: the buffer, the position in it, and the position in the
    /// range.
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (usize, Range<usize>, usize)> + '_ {
        let (from, to) = (self.within.start, self.within.end);
        let mut at = 0;
        self.chunking.pieces(range).filter_map(move |piece| {
            let begins = at;
            at += (piece.within.end - piece.within.start) as usize;
            let (start, end) = (piece.within.start.max(from), piece.within.end.min(to));
            if start >= end {
                return None;
            }
            let buffer = self.subs.binary_search(&piece.sub).ok()?;
            let in_buffer = (start - from) as usize..(end - from) as usize;
            Some((buffer, in_buffer, begins + (start - piece.within.start) as usize))
        })
    }
}

/// Groups ascending sub-blocks such that the gaps within a group are small enough to be read instead of
/// skipped.
pub(crate) fn together<'a>(
    chunking: &Chunking,
    sub_blocks: &'a [SubBlock],
    within: &Range<u64>,
) -> impl Iterator<Item = &'a [SubBlock]> + use<'a> {
    let part_bytes = chunking.part_bytes();
    let piece_bytes = part_bytes.min(within.end - within.start);
    sub_blocks.chunk_by(move |a, b| {
        let apart = u64::from(b.sub.saturating_sub(a.sub)) * part_bytes;
        a.block == b.block && apart - piece_bytes < GAP_BYTES
    })
}

/// The ranges of the block that hold the bytes `within` of the sub-blocks `subs`, which ascend. Ranges less
/// than `gap` apart are joined.
pub(crate) fn joined(chunking: &Chunking, subs: &[u16], within: &Range<u64>, gap: u64) -> Vec<Range<u64>> {
    let (Some(&first), Some(&last)) = (subs.first(), subs.last()) else { return Vec::new() };
    let part = chunking.part_bytes();
    // Where whole parts of a chunk are wanted, sub-blocks that are less than `gap` apart are joined into one
    // run.
    let close = |a: &u16, b: &u16| u64::from(b - a - 1) * part < gap;
    let runs: Vec<(u16, u16)> = subs.chunk_by(close).map(|run| (run[0], run[run.len() - 1])).collect();
    let wraps = u64::from(first + (chunking.sub_blocks() - 1 - last)) * part < gap;
    let mut ranges = Vec::new();
    let mut at = within.start;
    while at < within.end {
        let end = within.end.min(at - at % part + part);
        let is_whole = end - at == part;
        if is_whole && wraps && runs.len() == 1 {
            let chunks = (within.end - at) / part;
            let last_chunk = at + (chunks - 1) * part;
            let range = chunking.offset(first, at)..chunking.offset(last, last_chunk) + part;
            at += chunks * part;
            push(&mut ranges, range, gap);
            continue;
        }
        if is_whole {
            for &(first, last) in &runs {
                push(&mut ranges, chunking.offset(first, at)..chunking.offset(last, at) + part, gap);
            }
        } else {
            for &sub in subs {
                let start = chunking.offset(sub, at);
                push(&mut ranges, start..start + (end - at), gap);
            }
        }
        at = end;
    }
    ranges
}

fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>, gap: u64) {
    match ranges.last_mut() {
        Some(last) if range.start - last.end < gap => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// Reference implementation: the offsets in the block of all requested bytes.
    fn asked(chunking: &Chunking, subs: &[u16], within: &Range<u64>) -> BTreeSet<u64> {
        let of = |&sub: &u16| chunking.ranges(sub, within.clone()).flatten().collect::<Vec<_>>();
        subs.iter().flat_map(of).collect()
    }

    /// Reference implementation: the ranges of a set, joined if less than `gap` apart.
    fn joined_slowly(bytes: &BTreeSet<u64>, gap: u64) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for &byte in bytes {
            match ranges.last_mut() {
                Some(last) if byte - last.end < gap => last.end = byte + 1,
                _ => ranges.push(byte..byte + 1),
            }
        }
        ranges
    }

    prop_compose! {
        fn case()(
            sub_blocks in 2u16..9, part in prop::sample::select(vec![1u64, 3, 8, 700, 1500, 4096, 5000]),
            chunks in 1u64..6, picks in any::<u16>(), ends in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        ) -> (Chunking, Vec<u16>, Range<u64>) {
            let chunk_bytes = part * u64::from(sub_blocks);
            let chunking = Chunking::new(chunk_bytes * chunks, chunk_bytes, sub_blocks).expect("it divides");
            let mut subs: Vec<u16> = (0..sub_blocks).filter(|sub| picks >> sub & 1 == 1).collect();
            if subs.is_empty() {
                subs.push(picks % sub_blocks);
            }
            let bytes = chunking.sub_block_bytes() as usize;
            let (a, b) = (ends.0.index(bytes) as u64, ends.1.index(bytes) as u64);
            (chunking, subs, a.min(b)..a.max(b) + 1)
        }
    }

    fn transfer(chunking: Chunking, subs: &[u16], within: Range<u64>) -> Transfer {
        let sub_blocks: Vec<SubBlock> =
            subs.iter().map(|&sub| SubBlock { block: BlockIndex(3), sub }).collect();
        Transfer::new(chunking, &sub_blocks, within)
    }

    proptest! {
        #[test]
        fn ranges_match_the_bytes_requested((chunking, subs, within) in case(), gap in prop::sample::select(vec![1u64, 2, 5, 900, 4096])) {
            let expected = joined_slowly(&asked(&chunking, &subs, &within), gap);
            prop_assert_eq!(joined(&chunking, &subs, &within, gap), expected);
        }

        #[test]
        fn reads_return_written_bytes((chunking, subs, within) in case(), cut in 0u64..20_000) {
            let block_bytes = chunking.block_bytes().saturating_sub(cut);
            let transfer = transfer(chunking, &subs, within.clone());
            let content: Vec<u8> = (0..block_bytes).map(|at| (at * 31 % 251) as u8 + 1).collect();
            let mut buffers = vec![vec![0u8; transfer.buffer_bytes()]; subs.len()];
            let read = |at: u64, bytes: &mut [u8]| -> Result<bool, Infallible> {
                bytes.copy_from_slice(&content[at as usize..][..bytes.len()]);
                Ok(true)
            };
            prop_assert_eq!(transfer.read(block_bytes, &mut buffers, read), Ok(true));
            let byte = |at: u64| content.get(at as usize).copied().unwrap_or(0);
            for (&sub, buffer) in subs.iter().zip(&buffers) {
                let expected: Vec<u8> = chunking.ranges(sub, within.clone()).flatten().map(byte).collect();
                prop_assert_eq!(buffer, &expected);
            }
            let mut written = vec![0u8; content.len()];
            transfer.write(block_bytes, &buffers, |at, bytes| -> Result<(), Infallible> {
                let target = &mut written[at as usize..][..bytes.len()];
                assert!(target.iter().all(|&byte| byte == 0), "nothing is written twice");
                target.copy_from_slice(bytes);
                Ok(())
            }).expect("it cannot fail");
            let asked = asked(&chunking, &subs, &within);
            for (at, &found) in written.iter().enumerate() {
                let expected = if asked.contains(&(at as u64)) { content[at] } else { 0 };
                prop_assert_eq!(found, expected, "byte {}", at);
            }
        }

        #[test]
        fn separate_reads_are_far_apart((chunking, subs, within) in case()) {
            let sub_blocks: Vec<SubBlock> = subs.iter().map(|&sub| SubBlock { block: BlockIndex(0), sub }).collect();
            let groups: Vec<&[SubBlock]> = together(&chunking, &sub_blocks, &within).collect();
            prop_assert_eq!(groups.concat(), sub_blocks.clone());
            let all: Vec<Range<u64>> = joined(&chunking, &subs, &within, GAP_BYTES);
            for group in groups {
                for range in Transfer::new(chunking, group, within.clone()).reads() {
                    prop_assert!(all.iter().any(|all| all.start <= range.start && range.end <= all.end));
                }
            }
        }
    }

    #[test]
    fn a_read_that_would_block_returns_false() {
        let chunking = Chunking::new(64, 16, 4).unwrap();
        let mut buffers = vec![vec![0u8; 16]; 2];
        let read = transfer(chunking, &[0, 2], 0..16).read(64, &mut buffers, |_, _| Ok::<_, ()>(false));
        assert_eq!(read, Ok(false));
    }
}
