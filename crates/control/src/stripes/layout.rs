//! The layout of a file in stripes.
//!
//! The layout is contiguous: each stripe contains the next `k · block_bytes` bytes of the file, and block `i`
//! of the stripe contains `block_bytes` of these, from offset `i · block_bytes`. All blocks of a stripe have
//! the same length. The last stripe has the smallest blocks that fit its bytes, rounded up to the unit of the
//! kernels or to whole chunks, and padded with zeros. If the blocks of the last stripe need less than one
//! chunk, each of them is a single smaller chunk, to save space. A file of 0 bytes has no stripes.

use codes::Code;
use store_api::BlockSize;

/// Kernels work on whole cache lines of each sub-block.
const LINE_BYTES: u64 = 64;
/// Blocks of whole pages keep reads and checksums aligned.
const PAGE_BYTES: u64 = 4096;

/// One stripe's part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripeExtent {
    /// The size of the stripe's blocks.
    pub size: BlockSize,
    /// The offset of the stripe's first byte in the file.
    pub file_offset: u64,
    /// The number of the file's bytes in the stripe.
    pub data_bytes: u64,
}

/// A block or chunk size that is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadSize {
    /// The block size is not possible.
    Block(BadBytes),
    /// The chunk size is not possible.
    Chunk(BadBytes),
}

/// The possible sizes nearest to the requested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadBytes {
    /// All possible sizes are multiples of this.
    pub unit: u64,
    /// The next smaller possible size, if there is one.
    pub below: Option<u64>,
    /// The next larger possible size, if there is one.
    pub above: Option<u64>,
}

/// Returns the unit of block and chunk sizes under this code.
fn line(code: &dyn Code) -> u64 {
    LINE_BYTES * code.sub_blocks() as u64
}

/// Validates the sizes that a user requests. Chunks are ignored for codes without sub-blocks, and if a chunk
/// is as long as the block.
pub(crate) fn checked(
    code: &dyn Code,
    block_bytes: u64,
    chunk_bytes: Option<u64>,
) -> Result<BlockSize, BadSize> {
    let chunk_bytes = chunk_bytes.filter(|_| code.sub_blocks() > 1);
    if let Some(bytes) = chunk_bytes {
        check(bytes, line(code)).map_err(BadSize::Chunk)?;
    }
    let unit = least_common_multiple(chunk_bytes.unwrap_or(line(code)), PAGE_BYTES);
    check(block_bytes, unit).map_err(BadSize::Block)?;
    Ok(BlockSize { block_bytes, chunk_bytes: chunk_bytes.filter(|&bytes| bytes < block_bytes) })
}

fn check(bytes: u64, unit: u64) -> Result<(), BadBytes> {
    if bytes > 0 && bytes.is_multiple_of(unit) {
        return Ok(());
    }
    let below = bytes / unit * unit;
    Err(BadBytes { unit, below: (below > 0).then_some(below), above: below.checked_add(unit) })
}

/// Returns the number of stripes of a file.
pub(crate) fn stripe_count(code: &dyn Code, bytes: u64, size: BlockSize) -> u64 {
    bytes.div_ceil(stripe_bytes(code, size))
}

/// Returns the extent of the stripe at `position` of a file.
///
/// # Panics
/// If the file has no such stripe.
pub(crate) fn extent(code: &dyn Code, bytes: u64, size: BlockSize, position: u64) -> StripeExtent {
    let full = stripe_bytes(code, size);
    let file_offset = position * full;
    assert!(file_offset < bytes, "stripe {position} is not part of a file of {bytes} bytes");
    let rest = bytes - file_offset;
    if rest >= full {
        return StripeExtent { size, file_offset, data_bytes: full };
    }
    let least = rest.div_ceil(code.data_blocks() as u64);
    let chunk_bytes = size.chunk_bytes.filter(|&bytes| bytes < least);
    let block_bytes = least.next_multiple_of(chunk_bytes.unwrap_or(line(code)));
    StripeExtent { size: BlockSize { block_bytes, chunk_bytes }, file_offset, data_bytes: rest }
}

fn stripe_bytes(code: &dyn Code, size: BlockSize) -> u64 {
    size.block_bytes.saturating_mul(code.data_blocks() as u64)
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    (a / greatest_common_divisor(a, b)).saturating_mul(b)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use codes::CodeSpec;

    use super::*;

    const PAGE: BlockSize = BlockSize { block_bytes: 4096, chunk_bytes: None };

    fn code(text: &str) -> Arc<dyn Code> {
        text.parse::<CodeSpec>().unwrap().build().unwrap()
    }

    #[test]
    fn a_file_of_no_bytes_has_no_stripes() {
        assert_eq!(stripe_count(&*code("rs-14-10"), 0, PAGE), 0);
    }

    #[test]
    fn one_byte_makes_blocks_of_one_line() {
        let code = code("rs-14-10");
        assert_eq!(stripe_count(&*code, 1, PAGE), 1);
        let only = extent(&*code, 1, PAGE, 0);
        assert_eq!(only, StripeExtent { size: BlockSize::whole(64), file_offset: 0, data_bytes: 1 });
    }

    #[test]
    fn extents_cover_a_file_without_gaps() {
        let code = code("rs-5-3");
        for bytes in [1, 63, 64, 65, 191, 192, 193, 12287, 12288, 12289, 24576, 30_000] {
            let mut end = 0;
            for position in 0..stripe_count(&*code, bytes, PAGE) {
                let extent = extent(&*code, bytes, PAGE, position);
                assert_eq!(extent.file_offset, end, "{bytes}");
                let block_bytes = extent.size.block_bytes;
                assert!(extent.data_bytes <= 3 * block_bytes && block_bytes <= 4096, "{bytes}");
                assert!(block_bytes.is_multiple_of(64));
                end += extent.data_bytes;
            }
            assert_eq!(end, bytes);
        }
    }

    #[test]
    fn the_last_block_size_fits_the_sub_blocks() {
        let code = code("clay-6-4-5");
        let alpha = code.sub_blocks() as u64;
        assert!(alpha > 1);
        assert!(extent(&*code, 1, BlockSize::whole(1 << 20), 0).size.block_bytes.is_multiple_of(64 * alpha));
    }

    #[test]
    fn blocks_of_the_last_stripe_are_whole_chunks_or_one_smaller_chunk() {
        let code = code("hitchhiker-xor-4-2");
        let size = checked(&*code, 64 << 10, Some(4096)).unwrap();
        let last = |bytes: u64| extent(&*code, (128 << 10) + bytes, size, 1).size;
        assert_eq!(last(1), BlockSize::whole(128));
        assert_eq!(last(8192), BlockSize::whole(4096));
        let chunks = |block_bytes| BlockSize { block_bytes, chunk_bytes: Some(4096) };
        assert_eq!(last(8193), chunks(8192));
        assert_eq!(last((128 << 10) - 1), chunks(64 << 10));
        assert_eq!(extent(&*code, 128 << 10, size, 0).size, size);
    }

    #[test]
    fn wrong_block_sizes_name_the_nearest_right_ones() {
        let code = code("rs-14-10");
        // A code without sub-blocks ignores chunks.
        assert_eq!(checked(&*code, 64 << 20, Some(5000)), Ok(BlockSize::whole(64 << 20)));
        let wrong = |bytes| checked(&*code, bytes, None).unwrap_err();
        assert_eq!(wrong(0), BadSize::Block(BadBytes { unit: 4096, below: None, above: Some(4096) }));
        assert_eq!(
            wrong(5000),
            BadSize::Block(BadBytes { unit: 4096, below: Some(4096), above: Some(8192) })
        );
        let code = self::code("hitchhiker-xor-4-2");
        let wrong = |bytes, chunk| checked(&*code, bytes, Some(chunk)).unwrap_err();
        assert_eq!(
            wrong(8192, 200),
            BadSize::Chunk(BadBytes { unit: 128, below: Some(128), above: Some(256) })
        );
        let twelve = BadBytes { unit: 12_288, below: None, above: Some(12_288) };
        assert_eq!(wrong(8192, 6144), BadSize::Block(twelve));
        assert_eq!(
            wrong(0, u64::MAX - 127),
            BadSize::Block(BadBytes { unit: u64::MAX, below: None, above: Some(u64::MAX) })
        );
        assert_eq!(checked(&*code, 8192, Some(8192)), Ok(BlockSize::whole(8192)));
    }
}
