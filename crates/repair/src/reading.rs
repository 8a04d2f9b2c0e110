//! A node's reads for a plan, as its disks see them.
//!
//! A slice is a piece of every sub-block that is read. With many sub-blocks a slice is many small pieces
//! scattered over the disk, each next to the same piece of the following slice, and reading slice by slice
//! would seek between them. So a node that reads several sub-blocks of a block announces its reads to the
//! kernel. It announces one *stretch* at a time, which is a run of consecutive slices. Adjacent and nearly
//! adjacent ranges are merged ([`Transfer`]), and the kernel prefetches them into the page cache (not into
//! the node's own memory). A node that reads one sub-block of each of its blocks announces nothing if the
//! blocks are a single chunk: its slices are contiguous on disk, and the kernel's own readahead takes larger
//! steps than can be requested.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Range};

use codes::{BlockIndex, SubBlock};

use crate::transfer::{GAP_BYTES, Transfer, joined, together};
use crate::{Chunking, Dealing, Geometry, SliceSet};

/// Bytes that one node reads in a stretch; if a single slice is larger, the stretch is that slice. A stretch
/// is announced when half of the previous stretch has been read. Sized for rotating disks: of a block of 256
/// MiB, a helper of Clay (14, 10, 13) reads 64 pieces of 256 KiB in each stretch, so that seeking takes about
/// as long as reading.
const STRETCH_BYTES: u64 = 16 << 20;

/// The maximum number of pieces in a stretch, independent of the chunk size.
const STRETCH_PIECES: u64 = 1 << 16;

/// The maximum size of a read that joins several sub-blocks. Such a read needs an additional buffer of the
/// same size.
const JOINED_BYTES: u64 = 1 << 20;

/// A contiguous range of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The block.
    pub block: BlockIndex,
    /// The offsets in the block.
    pub bytes: Range<u64>,
}

/// The work of a node's disks for a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskWork {
    /// The number of ranges that do not continue the previous one, which is the number of seeks.
    pub reads: u64,
    /// Bytes of all ranges, including gaps that are read through.
    pub bytes: u64,
}

impl AddAssign for DiskWork {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.bytes += other.bytes;
    }
}

/// All reads of one node for a plan.
#[derive(Debug)]
pub(crate) struct Reading {
    geometry: Geometry,
    slices: SliceSet,
    chunking: Chunking,
    /// The distinct sets of sub-blocks that lanes read for each slice.
    sets: Vec<Vec<SubBlock>>,
    dealing: Dealing,
    /// For each lane, the index of its set in `sets`.
    set_of: Vec<usize>,
    /// Whether a slice has several pieces in a block.
    scattered: bool,
    /// The number of slices in a stretch; `u32::MAX` if reads are contiguous.
    stretch: u32,
}

impl Reading {
    /// Describes the reads of a node that reads the sub-blocks `reads_in(lane)` for every slice of a lane.
    pub(crate) fn new<'a>(
        geometry: &Geometry,
        slices: &SliceSet,
        dealing: &Dealing,
        chunking: Chunking,
        reads_in: impl Fn(u16) -> &'a [SubBlock],
    ) -> Self {
        let mut sets: Vec<Vec<SubBlock>> = Vec::new();
        let mut position = |lane: u16| {
            let reads = reads_in(lane);
            sets.iter().position(|set| set == reads).unwrap_or_else(|| {
                sets.push(reads.to_vec());
                sets.len() - 1
            })
        };
        let set_of = (0..dealing.lanes() as u16).map(&mut position).collect();
        let most = sets.iter().map(Vec::len).max().unwrap_or(0).max(1) as u64;
        let slice_bytes = u64::from(geometry.slice_bytes);
        let pieces = most * slice_bytes.div_ceil(chunking.part_bytes());
        let stretch = (STRETCH_BYTES / (most * slice_bytes)).min(STRETCH_PIECES / pieces);
        let of_one_block = |set: &Vec<SubBlock>| set.windows(2).any(|pair| pair[0].block == pair[1].block);
        let is_cut = chunking.chunk_bytes().is_some() && !sets.iter().all(Vec::is_empty);
        let scattered = is_cut || sets.iter().any(of_one_block);
        let stretch = if scattered { u32::try_from(stretch).unwrap_or(u32::MAX).max(1) } else { u32::MAX };
        let (geometry, slices, dealing) = (geometry.clone(), slices.clone(), dealing.clone());
        Self { geometry, slices, chunking, sets, dealing, set_of, scattered, stretch }
    }

    /// Whether reads should be announced to the kernel.
    pub(crate) fn is_scattered(&self) -> bool {
        self.scattered
    }

    /// The number of the stretch that contains a slice.
    pub(crate) fn stretch_of(&self, slice: u32) -> u32 {
        slice / self.stretch
    }

    /// The last stretch that must be announced before slice `slice` is read: announcements run half a stretch
    /// ahead of reads.
    pub(crate) fn due_at(&self, slice: u32) -> u32 {
        self.stretch_of(slice.saturating_add(self.stretch / 2))
    }

    /// The ranges to read in a stretch, ascending, with neighbours joined.
    pub(crate) fn ranges(&self, stretch: u32) -> Vec<BlockRange> {
        let start = stretch.saturating_mul(self.stretch);
        let end = start.saturating_add(self.stretch);
        let clipped = self.slices.ranges().iter().map(|range| range.start.max(start)..range.end.min(end));
        let mut ranges = Vec::new();
        for (slices, set) in clipped.flat_map(|slices| self.alike(slices)) {
            let within = self.geometry.span(slices.start).start..self.geometry.span(slices.end - 1).end;
            for reads in set.chunk_by(|a, b| a.block == b.block) {
                let subs: Vec<u16> = reads.iter().map(|read| read.sub).collect();
                let runs = joined(&self.chunking, &subs, &within, GAP_BYTES);
                ranges.extend(runs.into_iter().map(|bytes| BlockRange { block: reads[0].block, bytes }));
            }
        }
        ranges.sort_unstable_by_key(|range| (range.block, range.bytes.start));
        ranges.dedup_by(|next, before| before.join(next));
        ranges
    }

    /// Groups the sub-blocks of a slice into disk jobs, in order.
    pub(crate) fn jobs<'a>(
        &self,
        slice: u32,
        sub_blocks: &'a [SubBlock],
    ) -> impl Iterator<Item = &'a [SubBlock]> + use<'a> {
        let within = self.geometry.span(slice);
        let most = (JOINED_BYTES / (within.end - within.start)).max(1) as usize;
        together(&self.chunking, sub_blocks, &within).flat_map(move |close| close.chunks(most))
    }

    /// Returns the transfer that carries out one disk job of a slice.
    pub(crate) fn transfer(&self, slice: u32, job: &[SubBlock]) -> Transfer {
        Transfer::new(self.chunking, job, self.geometry.span(slice))
    }

    /// The work of a disk whose reads follow the announcements, or the kernel's readahead where nothing is
    /// announced.
    ///
    /// A block of many chunks has millions of pieces, but stretches repeat: stretches that begin at the same
    /// position of a chunk's part and of a round of the dealing need the same work, which is computed once.
    pub(crate) fn disk_work(&self) -> DiskWork {
        let mut work = DiskWork::default();
        let Some(last) = self.slices.ranges().last() else { return work };
        let mut known = BTreeMap::new();
        for stretch in 0..=self.stretch_of(last.end - 1) {
            work += match self.likeness(stretch) {
                Some(likeness) => *known.entry(likeness).or_insert_with(|| self.work_of(stretch)),
                None => self.work_of(stretch),
            };
        }
        work
    }

    /// The work of a stretch, given the position where the previous stretches left the disk.
    fn work_of(&self, stretch: u32) -> DiskWork {
        let mut work = DiskWork::default();
        let ranges = self.ranges(stretch);
        if ranges.is_empty() {
            return work;
        }
        let mut at = (0..stretch).rev().find_map(|before| self.ranges(before).pop());
        for range in ranges {
            work.reads += u64::from(!at.is_some_and(|at| at.goes_on_with(&range)));
            work.bytes += range.bytes.end - range.bytes.start;
            at = Some(range);
        }
        work
    }

    /// A key for the work of a stretch: the position of its start in a part and in a round. Two stretches
    /// with the same key read the same pattern at different offsets. Returns `None` if the stretch or the one
    /// before is not read in full.
    fn likeness(&self, stretch: u32) -> Option<(u64, u32)> {
        let before = stretch.checked_sub(1)?.checked_mul(self.stretch)?;
        let start = before.checked_add(self.stretch)?;
        let end = start.checked_add(self.stretch)?;
        let is_full = self.slices.ranges().iter().any(|range| range.start <= before && end <= range.end);
        // The last slice may be short. If a lane reads nothing and a stretch is shorter than a round, the
        // previous stretch may read nothing; the disk's position then comes from an earlier one.
        let is_last = end >= self.geometry.slices();
        let all_read = self.stretch >= self.dealing.round() || self.sets.iter().all(|set| !set.is_empty());
        let offset = self.geometry.window.start + u64::from(start) * u64::from(self.geometry.slice_bytes);
        (is_full && !is_last && all_read)
            .then(|| (offset % self.chunking.part_bytes(), start % self.dealing.round()))
    }

    /// Splits a range of slices wherever the set of sub-blocks to read changes.
    fn alike(&self, slices: Range<u32>) -> impl Iterator<Item = (Range<u32>, &[SubBlock])> {
        let set_of = |slice: u32| self.set_of[usize::from(self.dealing.lane_of(slice))];
        let always = self.sets.len() == 1;
        let mut from = slices.start;
        std::iter::from_fn(move || {
            let set = (from < slices.end).then(|| set_of(from))?;
            let change = if always { None } else { (from..slices.end).find(|&slice| set_of(slice) != set) };
            let begun = std::mem::replace(&mut from, change.unwrap_or(slices.end));
            Some((begun..from, &self.sets[set][..]))
        })
    }
}

impl BlockRange {
    /// Whether the disk can continue with `next` after this range, without a seek.
    fn goes_on_with(&self, next: &Self) -> bool {
        let near = self.bytes.start..self.bytes.end.saturating_add(GAP_BYTES);
        self.block == next.block && near.contains(&next.bytes.start)
    }

    /// If `next` begins within this range or shortly after it, extends this range by `next` and returns true.
    /// `next` must not begin before this range.
    fn join(&mut self, next: &Self) -> bool {
        let goes_on = self.goes_on_with(next);
        if goes_on {
            self.bytes.end = self.bytes.end.max(next.bytes.end);
        }
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation: joins ranges that are less than a page apart.
    fn join(mut pieces: Vec<(u16, u64, u64)>) -> Vec<(u16, u64, u64)> {
        pieces.sort_unstable();
        let mut joined: Vec<(u16, u64, u64)> = Vec::new();
        for (block, start, end) in pieces {
            match joined.last_mut() {
                Some(last) if last.0 == block && start < last.2 + 4096 => last.2 = last.2.max(end),
                _ => joined.push((block, start, end)),
            }
        }
        joined
    }

    fn plain(ranges: &[BlockRange]) -> Vec<(u16, u64, u64)> {
        ranges.iter().map(|range| (range.block.0, range.bytes.start, range.bytes.end)).collect()
    }

    proptest! {
        #[test]
        fn announcements_cover_exactly_the_reads(
            lanes in prop::collection::vec(prop::collection::btree_set((0u16..2, 0u16..6), 0..8), 1..4),
            weights in prop::collection::vec(1u32..4, 3),
            parts in prop::collection::vec((0u32..40, 1u32..12), 1..4),
            slice_kib in prop::sample::select(vec![64u32, 1024, 4096]),
            (sub_block_kib, from) in (1u64..60_000, 0u64..3),
            chunks in prop::sample::select(vec![1u64, 1, 2, 16, 256]),
        ) {
            let sub_block_bytes = (sub_block_kib << 10).next_multiple_of(chunks);
            let chunk_bytes = 6 * sub_block_bytes / chunks;
            let chunking = Chunking::new(6 * sub_block_bytes, chunk_bytes, 6).expect("it divides");
            let window = (from << 10).min(sub_block_bytes - 1)..sub_block_bytes;
            let geometry = Geometry { window, slice_bytes: slice_kib << 10 };
            let mut slices = SliceSet::new();
            for (start, count) in parts {
                slices.insert(start.min(geometry.slices() - 1)..(start + count).min(geometry.slices()));
            }
            let reads: Vec<Vec<SubBlock>> = lanes
                .iter()
                .map(|set| set.iter().map(|&(block, sub)| SubBlock { block: BlockIndex(block), sub }).collect())
                .collect();
            let dealing = Dealing::weighted(&weights[..lanes.len()]).expect("small weights");
            let reads_of = |slice: u32| &reads[usize::from(dealing.lane_of(slice))];
            let reading = Reading::new(&geometry, &slices, &dealing, chunking, |lane| &reads[usize::from(lane)]);
            let pieces_of = |slice: u32, read: &SubBlock| {
                let ranges = chunking.ranges(read.sub, geometry.span(slice));
                ranges.map(|range| (read.block.0, range.start, range.end)).collect::<Vec<_>>()
            };
            let (mut announced, mut work, mut at) = (0, DiskWork::default(), None);
            for slice in slices.iter() {
                prop_assert!(reading.due_at(slice) >= reading.stretch_of(slice));
                prop_assert!(reading.due_at(slice) <= reading.stretch_of(slice) + 1);
                let stretch = reading.stretch_of(slice);
                let ranges = plain(&reading.ranges(stretch));
                let mut left = &reads_of(slice)[..];
                for job in reading.jobs(slice, reads_of(slice)) {
                    let transfer = reading.transfer(slice, job);
                    let (moved, later) = left.split_at(transfer.buffers());
                    let block = transfer.block().0;
                    let found = transfer.reads().into_iter().map(|range| (block, range.start, range.end));
                    let found: Vec<_> = found.collect();
                    prop_assert_eq!(&found, &join(moved.iter().flat_map(|read| pieces_of(slice, read)).collect()));
                    let is_in = |read: &(u16, u64, u64)| {
                        ranges.iter().any(|range| range.0 == read.0 && range.1 <= read.1 && read.2 <= range.2)
                    };
                    prop_assert!(found.iter().all(is_in), "what is read is announced");
                    left = later;
                }
                prop_assert_eq!(left, &[]);
                if announced > stretch {
                    continue;
                }
                announced = stretch + 1;
                let inside = slices.iter().filter(|&slice| reading.stretch_of(slice) == stretch);
                let of_slice = |slice| reads_of(slice).iter().flat_map(move |read| pieces_of(slice, read));
                let pieces: Vec<_> = inside.flat_map(of_slice).collect();
                prop_assert!(!reading.is_scattered() || pieces.iter().map(|piece| piece.2 - piece.1).sum::<u64>()
                    <= STRETCH_BYTES.max(8 * u64::from(geometry.slice_bytes)));
                prop_assert_eq!(&ranges, &join(pieces));
                for (block, start, end) in ranges {
                    let goes_on = at.is_some_and(|(last, from, to)| {
                        last == block && from <= start && start < to + 4096
                    });
                    work.reads += u64::from(!goes_on);
                    work.bytes += end - start;
                    at = Some((block, start, end));
                }
            }
            prop_assert_eq!(reading.disk_work(), work);
        }
    }

    proptest! {
        /// Uses blocks with many stretches, most of which have the same key as an earlier one. In some cases
        /// a few slices are missing.
        #[test]
        fn disk_work_equals_a_step_by_step_count(
            lanes in prop::collection::vec(prop::collection::btree_set((0u16..2, 0u16..6), 0..8), 1..3),
            part in prop::sample::select(vec![64u64, 1 << 10, 3 << 10, 5 << 10, 12 << 10, 1 << 20]),
            (parts, from) in (1u64..40_000, 0u64..2000),
            slice_kib in prop::sample::select(vec![64u32, 192, 1024]),
            left_out in prop::option::of(0u32..200),
        ) {
            let chunks = (parts << 12).div_ceil(part) + 2;
            let chunking = Chunking::new(6 * part * chunks, 6 * part, 6).expect("it divides");
            let window = from.min(part * chunks - 1)..part * chunks;
            let geometry = Geometry { window, slice_bytes: slice_kib << 10 };
            let mut slices = SliceSet::all(geometry.slices());
            if let Some(slice) = left_out {
                let mut missing = SliceSet::new();
                missing.insert(slice..slice + 7);
                slices = slices.minus(&missing);
            }
            let reads: Vec<Vec<SubBlock>> = lanes
                .iter()
                .map(|set| set.iter().map(|&(block, sub)| SubBlock { block: BlockIndex(block), sub }).collect())
                .collect();
            let dealing = Dealing::weighted(&[2, 3][..lanes.len()]).expect("small weights");
            let reading = Reading::new(&geometry, &slices, &dealing, chunking, |lane| &reads[usize::from(lane)]);
            let (mut work, mut at) = (DiskWork::default(), None::<BlockRange>);
            let last = slices.iter().last().map_or(0, |last| reading.stretch_of(last));
            for range in (0..=last).flat_map(|stretch| reading.ranges(stretch)) {
                work.reads += u64::from(!at.is_some_and(|at| at.goes_on_with(&range)));
                work.bytes += range.bytes.end - range.bytes.start;
                at = Some(range);
            }
            prop_assert_eq!(reading.disk_work(), work);
        }
    }
}
