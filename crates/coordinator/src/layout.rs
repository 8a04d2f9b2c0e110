//! How a file is cut into stripes.
//!
//! Contiguous: a stripe holds the next `k · block_bytes` bytes of the file, and its block `i` holds bytes
//! `i · block_bytes` and following of those. The last stripe has the smallest blocks that its bytes fit in,
//! rounded up to what the kernels need; zeros fill them. All blocks of a stripe have the same length. A file
//! of 0 bytes has no stripes.

use codes::Code;

/// Kernels work on whole cache lines of each sub-block.
const LINE_BYTES: u64 = 64;
/// Blocks of whole pages keep reads and checksums aligned.
const PAGE_BYTES: u64 = 4096;

/// One stripe's part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripeExtent {
    /// Bytes of each of its blocks.
    pub block_bytes: u64,
    /// Where its first byte is in the file.
    pub file_offset: u64,
    /// Bytes of the file that it holds.
    pub data_bytes: u64,
}

/// A block size that is not possible, and the nearest that are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadBlockBytes {
    /// What blocks must be a multiple of.
    pub unit: u64,
    /// The nearest possible size that is smaller, if there is one.
    pub below: Option<u64>,
    /// The nearest possible size that is larger.
    pub above: u64,
}

/// What block sizes must be a multiple of under this code.
pub(crate) fn block_unit(code: &dyn Code) -> u64 {
    let sub_blocks = LINE_BYTES * code.sub_blocks() as u64;
    sub_blocks / greatest_common_divisor(sub_blocks, PAGE_BYTES) * PAGE_BYTES
}

/// Checks a block size that a user asks for.
pub(crate) fn check_block_bytes(code: &dyn Code, block_bytes: u64) -> Result<(), BadBlockBytes> {
    let unit = block_unit(code);
    if block_bytes > 0 && block_bytes.is_multiple_of(unit) {
        return Ok(());
    }
    let below = block_bytes / unit * unit;
    Err(BadBlockBytes { unit, below: (below > 0).then_some(below), above: below.saturating_add(unit) })
}

/// Number of stripes of a file.
pub(crate) fn stripe_count(code: &dyn Code, bytes: u64, block_bytes: u64) -> u64 {
    bytes.div_ceil(stripe_bytes(code, block_bytes))
}

/// The part of a file that its stripe at `position` holds.
///
/// # Panics
/// If the file has no such stripe.
pub(crate) fn extent(code: &dyn Code, bytes: u64, block_bytes: u64, position: u64) -> StripeExtent {
    let full = stripe_bytes(code, block_bytes);
    let file_offset = position * full;
    assert!(file_offset < bytes, "stripe {position} is not part of a file of {bytes} bytes");
    let rest = bytes - file_offset;
    if rest >= full {
        return StripeExtent { block_bytes, file_offset, data_bytes: full };
    }
    let line = LINE_BYTES * code.sub_blocks() as u64;
    let block_bytes = rest.div_ceil(code.data_blocks() as u64).next_multiple_of(line);
    StripeExtent { block_bytes, file_offset, data_bytes: rest }
}

fn stripe_bytes(code: &dyn Code, block_bytes: u64) -> u64 {
    block_bytes.saturating_mul(code.data_blocks() as u64)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use codes::CodeSpec;

    use super::*;

    fn code(text: &str) -> Arc<dyn Code> {
        text.parse::<CodeSpec>().unwrap().build().unwrap()
    }

    #[test]
    fn a_file_of_no_bytes_has_no_stripes() {
        assert_eq!(stripe_count(&*code("rs-14-10"), 0, 4096), 0);
    }

    #[test]
    fn one_byte_makes_blocks_of_one_line() {
        let code = code("rs-14-10");
        assert_eq!(stripe_count(&*code, 1, 4096), 1);
        let only = extent(&*code, 1, 4096, 0);
        assert_eq!(only, StripeExtent { block_bytes: 64, file_offset: 0, data_bytes: 1 });
    }

    #[test]
    fn extents_cover_a_file_without_gaps() {
        let code = code("rs-5-3");
        for bytes in [1, 63, 64, 65, 191, 192, 193, 12287, 12288, 12289, 24576, 30_000] {
            let mut end = 0;
            for position in 0..stripe_count(&*code, bytes, 4096) {
                let extent = extent(&*code, bytes, 4096, position);
                assert_eq!(extent.file_offset, end, "{bytes}");
                assert!(extent.data_bytes <= 3 * extent.block_bytes && extent.block_bytes <= 4096, "{bytes}");
                assert!(extent.block_bytes.is_multiple_of(64));
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
        assert!(extent(&*code, 1, 1 << 20, 0).block_bytes.is_multiple_of(64 * alpha));
    }

    #[test]
    fn wrong_block_sizes_name_the_nearest_right_ones() {
        let code = code("rs-14-10");
        assert_eq!(check_block_bytes(&*code, 64 << 20), Ok(()));
        let wrong = |bytes| check_block_bytes(&*code, bytes).unwrap_err();
        assert_eq!(wrong(0), BadBlockBytes { unit: 4096, below: None, above: 4096 });
        assert_eq!(wrong(5000), BadBlockBytes { unit: 4096, below: Some(4096), above: 8192 });
    }
}
