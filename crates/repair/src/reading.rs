//! What a node reads of its blocks, as its disks see it.
//!
//! A slice is a piece of every sub-block that is read, so with a code of many sub-blocks a slice is many small pieces
//! scattered over the disk, each next to the same piece of the following slice. Reading slice by slice would seek
//! between them. So a node that reads several sub-blocks of a block announces its reads for a stretch of slices at a
//! time, with adjacent ranges merged, and the kernel prefetches these ranges into the page cache (not into the node's own
//! memory). A node that reads one sub-block of each of its blocks announces nothing: its slices are contiguous on the
//! disk, and the kernel's own readahead takes larger steps than can be asked for.

use std::ops::Range;

use codes::{BlockIndex, SubBlock};

use crate::{Dealing, Geometry, SliceSet};

/// What a stretch holds at one node, unless a single slice is more. It is announced when half of the one before is
/// used. Chosen for rotating disks: the 64 quarters of a megabyte which a helper of Clay (14, 10, 13) reads
/// of 256 MiB take about as long to find as to read.
const STRETCH_BYTES: u64 = 16 << 20;

/// Joined reads are no larger: they take as much memory once more.
const JOINED_BYTES: u64 = 1 << 20;

/// Some bytes of a block that lie beside one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The block.
    pub block: BlockIndex,
    /// The offsets in the block.
    pub bytes: Range<u64>,
}

/// All that one node reads for a plan.
#[derive(Debug)]
pub(crate) struct Reading {
    geometry: Geometry,
    slices: SliceSet,
    sub_block_bytes: u64,
    /// What there is to read for a slice; all different.
    sets: Vec<Vec<SubBlock>>,
    dealing: Dealing,
    /// For each lane: which of the sets.
    set_of: Vec<usize>,
    /// Whether a slice has several places in a block.
    scattered: bool,
    /// Slices of a stretch; all of them if nothing is scattered.
    stretch: u32,
}

impl Reading {
    /// `reads_in(lane)` are the sub-blocks that the node reads for every slice of a lane.
    pub(crate) fn new<'a>(
        geometry: &Geometry,
        slices: &SliceSet,
        dealing: &Dealing,
        sub_block_bytes: u64,
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
        let stretch = STRETCH_BYTES / (most * u64::from(geometry.slice_bytes));
        let scattered = sets.iter().any(|set| set.windows(2).any(|pair| pair[0].block == pair[1].block));
        let stretch = if scattered { u32::try_from(stretch).unwrap_or(u32::MAX).max(1) } else { u32::MAX };
        let (geometry, slices, dealing) = (geometry.clone(), slices.clone(), dealing.clone());
        Self { geometry, slices, sub_block_bytes, sets, dealing, set_of, scattered, stretch }
    }

    /// Whether the disk should be told what comes.
    pub(crate) fn is_scattered(&self) -> bool {
        self.scattered
    }

    /// The stretch that a slice is in.
    pub(crate) fn stretch_of(&self, slice: u32) -> u32 {
        slice / self.stretch
    }

    /// The last stretch that should be announced when a slice's turn comes: half a stretch ahead.
    pub(crate) fn due_at(&self, slice: u32) -> u32 {
        self.stretch_of(slice.saturating_add(self.stretch / 2))
    }

    /// What is read for a stretch: ascending, neighbours joined.
    pub(crate) fn ranges(&self, stretch: u32) -> Vec<BlockRange> {
        let start = stretch.saturating_mul(self.stretch);
        let end = start.saturating_add(self.stretch);
        let clipped = self.slices.ranges().iter().map(|range| range.start.max(start)..range.end.min(end));
        let mut ranges = Vec::new();
        for (slices, set) in clipped.flat_map(|slices| self.alike(slices)) {
            let (first, last) = (self.geometry.span(slices.start), self.geometry.span(slices.end - 1));
            ranges.extend(set.iter().map(|read| BlockRange {
                block: read.block,
                bytes: self.in_block(*read, first.start..last.end),
            }));
        }
        ranges.sort_unstable_by_key(|range| (range.block, range.bytes.start));
        ranges.dedup_by(|next, before| before.join(next));
        ranges
    }

    /// The sub-blocks that a slice reads, neighbours of which the slice is all together: one read gets them.
    pub(crate) fn joined<'a>(
        &self,
        slice: u32,
        sub_blocks: &'a [SubBlock],
    ) -> impl Iterator<Item = &'a [SubBlock]> + use<'a> {
        let span = self.geometry.span(slice);
        let whole = span == (0..self.sub_block_bytes);
        let together = (JOINED_BYTES / (span.end - span.start)).max(1) as usize;
        let beside = move |a: &SubBlock, b: &SubBlock| {
            whole && a.block == b.block && a.sub.checked_add(1) == Some(b.sub)
        };
        sub_blocks.chunk_by(beside).flat_map(move |run| run.chunks(together))
    }

    /// What a slice reads of sub-blocks that lie beside one another.
    pub(crate) fn range(&self, slice: u32, joined: &[SubBlock]) -> BlockRange {
        let span = self.geometry.span(slice);
        let (first, last) = (joined[0], joined[joined.len() - 1]);
        let (start, end) = (self.in_block(first, span.clone()).start, self.in_block(last, span).end);
        BlockRange { block: first.block, bytes: start..end }
    }

    /// How often a disk that follows the announcements, or reads ahead where there are none, begins to read somewhere
    /// else than where it is.
    pub(crate) fn jumps(&self) -> u64 {
        let Some(last) = self.slices.ranges().last() else { return 0 };
        let mut at: Option<BlockRange> = None;
        let mut jumps = 0;
        for range in (0..=self.stretch_of(last.end - 1)).flat_map(|stretch| self.ranges(stretch)) {
            jumps += u64::from(!at.is_some_and(|at| at.is_followed_by(&range)));
            at = Some(range);
        }
        jumps
    }

    /// Cuts slices where what is read for them changes.
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

    /// Offsets in a sub-block as offsets in its block.
    fn in_block(&self, sub_block: SubBlock, span: Range<u64>) -> Range<u64> {
        let start = u64::from(sub_block.sub) * self.sub_block_bytes;
        start + span.start..start + span.end
    }
}

impl BlockRange {
    fn is_followed_by(&self, next: &Self) -> bool {
        self.block == next.block && self.bytes.end == next.bytes.start
    }

    /// Takes in a range that follows; whether it does.
    fn join(&mut self, next: &Self) -> bool {
        let follows = self.is_followed_by(next);
        if follows {
            self.bytes.end = next.bytes.end;
        }
        follows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Neighbours joined, in a straightforward way.
    fn join(mut pieces: Vec<(u16, u64, u64)>) -> Vec<(u16, u64, u64)> {
        pieces.sort_unstable();
        let mut joined: Vec<(u16, u64, u64)> = Vec::new();
        for (block, start, end) in pieces {
            match joined.last_mut() {
                Some(last) if (last.0, last.2) == (block, start) => last.2 = end,
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
        fn announcements_are_what_slices_read(
            lanes in prop::collection::vec(prop::collection::btree_set((0u16..2, 0u16..6), 0..8), 1..4),
            weights in prop::collection::vec(1u32..4, 3),
            parts in prop::collection::vec((0u32..40, 1u32..12), 1..4),
            (slice_kib, sub_block_kib, from) in (prop::sample::select(vec![64u32, 1024, 4096]), 1u64..60_000, 0u64..3),
        ) {
            let window = (from << 10).min((sub_block_kib << 10) - 1)..sub_block_kib << 10;
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
            let sub_block_bytes = sub_block_kib << 10;
            let reading = Reading::new(&geometry, &slices, &dealing, sub_block_bytes, |lane| {
                &reads[usize::from(lane)]
            });
            let piece = |slice: u32, read: &SubBlock| {
                let (start, span) = (u64::from(read.sub) * sub_block_bytes, geometry.span(slice));
                (read.block.0, start + span.start, start + span.end)
            };
            let (mut announced, mut jumps, mut at) = (0, 0, None);
            for slice in slices.iter() {
                prop_assert!(reading.due_at(slice) >= reading.stretch_of(slice));
                prop_assert!(reading.due_at(slice) <= reading.stretch_of(slice) + 1);
                // One read gets what is joined.
                let mut read: Vec<SubBlock> = Vec::new();
                for joined in reading.joined(slice, reads_of(slice)) {
                    let range = reading.range(slice, joined);
                    prop_assert_eq!(plain(&[range]), join(joined.iter().map(|sub| piece(slice, sub)).collect()));
                    read.extend(joined);
                }
                prop_assert_eq!(&read, reads_of(slice));
                if announced > reading.stretch_of(slice) {
                    continue;
                }
                let stretch = reading.stretch_of(slice);
                announced = stretch + 1;
                let inside = slices.iter().filter(|&slice| reading.stretch_of(slice) == stretch);
                let pieces: Vec<_> =
                    inside.flat_map(|slice| reads_of(slice).iter().map(move |read| piece(slice, read))).collect();
                prop_assert!(!reading.is_scattered() || pieces.iter().map(|piece| piece.2 - piece.1).sum::<u64>()
                    <= STRETCH_BYTES.max(8 * u64::from(geometry.slice_bytes)));
                let expected = join(pieces);
                prop_assert_eq!(plain(&reading.ranges(stretch)), expected.clone());
                for (block, start, end) in expected {
                    jumps += u64::from(at != Some((block, start)));
                    at = Some((block, end));
                }
            }
            prop_assert_eq!(reading.jumps(), jumps);
        }
    }
}
