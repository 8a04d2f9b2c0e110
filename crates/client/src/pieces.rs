//! Maps a byte range of a file to pieces of blocks.
//!
//! A file is divided into stripes, a stripe's data into k data blocks, and a block into α equal sub-blocks. A
//! read request names blocks, sub-blocks, and one window of offsets within each sub-block. A byte range
//! therefore becomes a few requests per stripe, which together cover exactly the range.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use codes::BlockIndex;
use repair::Chunking;

/// A byte range of a file, as written on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    start: u64,
    end: Option<u64>,
}

/// The text is not a byte range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a byte range: write FIRST-LAST (inclusive, from 0), FIRST+LENGTH, or FIRST- for all bytes from FIRST on"
)]
pub struct ParseRangeError(
    /// The rejected text.
    pub String,
);

/// The range ends past the end of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the range {range} ends past the end of `{file}`, which has {file_bytes} bytes")]
pub struct RangePastEnd {
    /// The requested range.
    pub range: ByteRange,
    /// The file.
    pub file: String,
    /// The file's length.
    pub file_bytes: u64,
}

impl ByteRange {
    /// The whole file.
    pub const ALL: Self = Self { start: 0, end: None };

    /// Creates the range of the bytes from `range.start` up to, but not including, `range.end`.
    pub fn new(range: Range<u64>) -> Self {
        Self { start: range.start, end: Some(range.end.max(range.start)) }
    }

    /// Returns the bytes that the range covers in a file of `file_bytes` bytes.
    ///
    /// # Errors
    /// [`RangePastEnd`].
    pub fn within(self, file: &str, file_bytes: u64) -> Result<Range<u64>, RangePastEnd> {
        let end = self.end.unwrap_or(file_bytes);
        if self.start <= end && end <= file_bytes {
            return Ok(self.start..end);
        }
        Err(RangePastEnd { range: self, file: file.to_owned(), file_bytes })
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            None => write!(f, "{}-", self.start),
            Some(end) if end == self.start => write!(f, "{}+0", self.start),
            Some(end) => write!(f, "{}-{}", self.start, end - 1),
        }
    }
}

impl FromStr for ByteRange {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_range(text.trim()).ok_or_else(|| ParseRangeError(text.to_owned()))
    }
}

fn parse_range(text: &str) -> Option<ByteRange> {
    let number = |text: &str| text.parse::<cluster::ByteSize>().ok().map(cluster::ByteSize::bytes);
    if let Some((start, length)) = text.split_once('+') {
        let start = number(start)?;
        return Some(ByteRange { start, end: Some(start.checked_add(number(length)?)?) });
    }
    let (start, last) = text.split_once('-')?;
    let start = number(start)?;
    if last.trim().is_empty() {
        return Some(ByteRange { start, end: None });
    }
    let end = number(last)?.checked_add(1)?;
    (start < end).then_some(ByteRange { start, end: Some(end) })
}

/// A stripe's position in its file, and the layout of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeSpan {
    /// Offset of the stripe's first byte in the file.
    pub file_offset: u64,
    /// The number of the file's bytes in this stripe; zeros pad these bytes to k blocks.
    pub data_bytes: u64,
    /// The block size, and the positions of sub-blocks within a block.
    pub chunking: Chunking,
}

/// The part of a stripe that one request reads: the same window of offsets in the same sub-blocks of some
/// blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The blocks, which are consecutive.
    pub blocks: Range<u16>,
    /// The sub-blocks to read in each block.
    pub sub_blocks: Range<u16>,
    /// The offsets to read within each sub-block.
    pub window: Range<u64>,
}

impl Piece {
    /// The number of bytes that the request delivers.
    pub fn bytes(&self) -> u64 {
        self.blocks.len() as u64 * self.sub_blocks.len() as u64 * (self.window.end - self.window.start)
    }

    /// The indices of the piece's blocks.
    pub fn block_indices(&self) -> Vec<BlockIndex> {
        self.blocks.clone().map(BlockIndex).collect()
    }
}

impl StripeSpan {
    /// The size of a block in bytes.
    pub fn block_bytes(&self) -> u64 {
        self.chunking.block_bytes()
    }

    /// Returns the offset of a piece's first byte in its block. If [`pieces_of`] made the piece, the piece's
    /// bytes are contiguous from this offset on.
    pub(crate) fn start_of(&self, piece: &Piece) -> u64 {
        let first = piece.window.start..piece.window.start + 1;
        self.chunking.ranges(piece.sub_blocks.start, first).next().map_or(0, |range| range.start)
    }

    /// Returns the part of a file's range that lies in this stripe, relative to the stripe's start.
    pub fn clip(&self, range: &Range<u64>) -> Range<u64> {
        let clip = |offset: u64| offset.saturating_sub(self.file_offset).min(self.data_bytes);
        clip(range.start)..clip(range.end)
    }
}

/// Returns the pieces that exactly cover the range `wanted` of a stripe's data, in order.
///
/// Consecutive whole blocks form one piece, because lost blocks among them can then be decoded together.
pub fn pieces_of(stripe: &StripeSpan, wanted: &Range<u64>) -> Vec<Piece> {
    let size = stripe.block_bytes();
    let mut pieces = Vec::new();
    let mut at = wanted.start;
    while at < wanted.end {
        let block = at / size;
        let start = at % size;
        let whole = if start == 0 { (wanted.end - at) / size } else { 0 };
        if whole > 0 {
            let window = 0..stripe.chunking.sub_block_bytes();
            let sub_blocks = 0..stripe.chunking.sub_blocks();
            pieces.push(Piece { blocks: indices(block, whole), sub_blocks, window });
            at += whole * size;
        } else {
            let end = (start + (wanted.end - at)).min(size);
            pieces.extend(pieces_of_block(stripe, block, start..end));
            at += end - start;
        }
    }
    pieces
}

/// Splits a range of one block into at most five pieces. The range consists of the end of a chunk, whole
/// chunks, and the start of a chunk, each of which may be missing. Whole chunks are one piece. The end of a
/// chunk is split into the end of a sub-block and whole sub-blocks, and the start of a chunk into whole
/// sub-blocks and the start of a sub-block. A range within a single chunk may have all three.
fn pieces_of_block(stripe: &StripeSpan, block: u64, wanted: Range<u64>) -> Vec<Piece> {
    let (part, sub_blocks) = (stripe.chunking.part_bytes(), u64::from(stripe.chunking.sub_blocks()));
    let chunk = part * sub_blocks;
    let mut pieces = Vec::new();
    let mut at = wanted.start;
    while at < wanted.end {
        let whole_chunks = if at.is_multiple_of(chunk) { (wanted.end - at) / chunk } else { 0 };
        let end = wanted.end.min((at / chunk + whole_chunks.max(1)) * chunk);
        let whole_parts = if at.is_multiple_of(part) { (end - at) / part } else { 0 };
        let first = at / chunk * part + at % part;
        let (sub, subs, bytes) = match (whole_chunks, whole_parts) {
            (0, 0) => (at % chunk / part, 1, (end - at).min(part - at % part)),
            (0, parts) => (at % chunk / part, parts, part),
            (chunks, _) => (0, sub_blocks, chunks * part),
        };
        at += subs * bytes;
        pieces.push(Piece {
            blocks: indices(block, 1),
            sub_blocks: indices(sub, subs),
            window: first..first + bytes,
        });
    }
    pieces
}

/// Returns the range of `count` indices from `first` on, as 16-bit numbers. These suffice for the blocks and
/// sub-blocks of any code.
fn indices(first: u64, count: u64) -> Range<u16> {
    let index =
        |number: u64| u16::try_from(number).expect("a code has less than 65536 blocks and sub-blocks");
    index(first)..index(first + count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Divides a file into stripes as the coordinator does, with smaller blocks in the last stripe.
    fn stripes(file_bytes: u64, k: u64, (part, sub_blocks, chunks): (u64, u16, u64)) -> Vec<StripeSpan> {
        let chunk_bytes = part * u64::from(sub_blocks);
        let mut stripes = Vec::new();
        let mut file_offset = 0;
        while file_offset < file_bytes {
            let data_bytes = (file_bytes - file_offset).min(k * chunks * chunk_bytes);
            let least = data_bytes.div_ceil(k);
            let chunk_bytes =
                if least <= chunk_bytes { least.next_multiple_of(sub_blocks.into()) } else { chunk_bytes };
            let block_bytes = least.next_multiple_of(chunk_bytes);
            let chunking = Chunking::new(block_bytes, chunk_bytes, sub_blocks).expect("it divides");
            stripes.push(StripeSpan { file_offset, data_bytes, chunking });
            file_offset += data_bytes;
        }
        stripes
    }

    /// Returns the file offsets that a piece covers.
    fn offsets(stripe: &StripeSpan, piece: &Piece) -> Vec<u64> {
        let block_start = |block: u16| stripe.file_offset + u64::from(block) * stripe.block_bytes();
        let mut offsets = Vec::new();
        for block in piece.blocks.clone() {
            for sub in piece.sub_blocks.clone() {
                let places = stripe.chunking.ranges(sub, piece.window.clone()).flatten();
                offsets.extend(places.map(|at| block_start(block) + at));
            }
        }
        offsets.sort_unstable();
        offsets
    }

    proptest! {
        #[test]
        fn pieces_cover_exactly_the_range_in_order(
            file_bytes in 0u64..3000, k in 1u64..12,
            (part, sub_blocks, chunks) in (1u64..20, 1u16..9, 1u64..6),
            ends: (prop::sample::Index, prop::sample::Index),
        ) {
            let a = ends.0.index(file_bytes as usize + 1) as u64;
            let b = ends.1.index(file_bytes as usize + 1) as u64;
            let range = a.min(b)..a.max(b);
            let mut covered = Vec::new();
            for stripe in stripes(file_bytes, k, (part, sub_blocks, chunks)) {
                let wanted = stripe.clip(&range);
                let pieces = pieces_of(&stripe, &wanted);
                prop_assert!(pieces.len() <= 7, "{pieces:?}");
                for piece in &pieces {
                    prop_assert!(u64::from(piece.blocks.end) <= k);
                    prop_assert!(piece.window.end <= stripe.chunking.sub_block_bytes());
                    let offsets = offsets(&stripe, piece);
                    prop_assert_eq!(piece.bytes(), offsets.len() as u64);
                    let first = stripe.file_offset + u64::from(piece.blocks.start) * stripe.block_bytes();
                    prop_assert_eq!(first + stripe.start_of(piece), offsets[0]);
                    covered.extend(offsets);
                }
            }
            prop_assert_eq!(covered, range.collect::<Vec<_>>());
        }

        #[test]
        fn ranges_survive_their_text(start in 0u64..1000, bytes: u16) {
            let range = ByteRange::new(start..start + u64::from(bytes));
            prop_assert_eq!(range.to_string().parse(), Ok(range));
        }
    }

    #[test]
    fn ranges_as_people_write_them() {
        let parse = |text: &str| text.parse::<ByteRange>().map(|range| (range.start, range.end));
        assert_eq!(parse("0-0"), Ok((0, Some(1))));
        assert_eq!(parse("1KiB-2047"), Ok((1024, Some(2048))));
        assert_eq!(parse("5+0"), Ok((5, Some(5))));
        assert_eq!(parse("64MiB+1MiB"), Ok((64 << 20, Some(65 << 20))));
        assert_eq!(parse("7-"), Ok((7, None)));
        for wrong in ["", "-", "5", "-5", "5-4", "x-y", "1+", "18446744073709551615+1"] {
            assert_eq!(parse(wrong), Err(ParseRangeError(wrong.to_owned())), "{wrong}");
        }
    }

    #[test]
    fn a_range_past_the_end_says_how_long_the_file_is() {
        assert_eq!(ByteRange::ALL.within("f", 0), Ok(0..0));
        assert_eq!(ByteRange::new(10..10).within("f", 10), Ok(10..10));
        let error = ByteRange::new(4..12).within("f", 10).unwrap_err().to_string();
        assert_eq!(error, "the range 4-11 ends past the end of `f`, which has 10 bytes");
        assert!("11-".parse::<ByteRange>().unwrap().within("f", 10).is_err());
    }
}
