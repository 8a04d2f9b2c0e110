//! Validates a file layout that the coordinator sent, which lists the file's stripes and blocks.
//!
//! A get takes the position of each byte from the layout. With a missing or duplicate stripe, the file would
//! look complete but contain a hole of zeros.

use repair::{Chunking, ChunkingError};
use views::{FileLayout, FileStripe};

/// The maximum number of blocks per stripe in any code.
const MAX_BLOCKS: usize = 255;

/// A defect in a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LayoutError {
    #[error("a file with {data_blocks} data blocks of {sub_blocks} sub-blocks in a stripe")]
    Code { data_blocks: usize, sub_blocks: usize },
    #[error("a file whose stripe {position} begins at byte {found}, where byte {expected} is due")]
    Offset { position: u64, found: u64, expected: u64 },
    #[error("stripe {position} with {data_bytes} bytes of the file in blocks of {block_bytes} bytes")]
    Stripe { position: u64, data_bytes: u64, block_bytes: u64 },
    #[error("a file of {bytes} bytes whose stripes hold {held}")]
    Length { bytes: u64, held: u64 },
}

/// Checks that the stripes are contiguous, cover the whole file, and are large enough for their data.
pub(crate) fn check(layout: &FileLayout) -> Result<(), LayoutError> {
    let &FileLayout { data_blocks, sub_blocks, .. } = layout;
    if !(1..=MAX_BLOCKS).contains(&data_blocks) || !(1..=usize::from(u16::MAX)).contains(&sub_blocks) {
        return Err(LayoutError::Code { data_blocks, sub_blocks });
    }
    let mut held = 0;
    for stripe in &layout.layout {
        let &FileStripe { position, file_offset, data_bytes, .. } = stripe;
        if file_offset != held {
            return Err(LayoutError::Offset { position, found: file_offset, expected: held });
        }
        let block_bytes = stripe.stripe.block_bytes;
        let bad = LayoutError::Stripe { position, data_bytes, block_bytes };
        let room = block_bytes.checked_mul(data_blocks as u64);
        let is_cut = chunking(layout, stripe).is_ok();
        if data_bytes == 0 || !is_cut || room.is_none_or(|room| data_bytes > room) {
            return Err(bad);
        }
        held = held.checked_add(data_bytes).ok_or(bad)?;
    }
    let bytes = layout.file.bytes;
    if held == bytes { Ok(()) } else { Err(LayoutError::Length { bytes, held }) }
}

/// Returns the positions of sub-blocks in a stripe's blocks.
///
/// # Panics
/// If the file has no sub-blocks or too many to number; [`check`] rejects such layouts.
pub(crate) fn chunking(layout: &FileLayout, stripe: &FileStripe) -> Result<Chunking, ChunkingError> {
    let sub_blocks = u16::try_from(layout.sub_blocks).expect("sub-blocks have numbers of 16 bits");
    let block_bytes = stripe.stripe.block_bytes;
    Chunking::new(block_bytes, stripe.stripe.chunk_bytes.unwrap_or(block_bytes), sub_blocks)
}

#[cfg(test)]
mod tests {
    use views::{FileView, StripeView};

    use super::*;

    fn layout(stripes: &[(u64, u64, u64)]) -> FileLayout {
        let (name, code) = ("film".to_owned(), "rs-6-4".to_owned());
        let stripe =
            |(&(file_offset, data_bytes, block_bytes), position): (&(u64, u64, u64), u64)| FileStripe {
                position,
                file_offset,
                data_bytes,
                stripe: StripeView {
                    stripe: position.to_string(),
                    code: "rs-6-4".to_owned(),
                    block_bytes,
                    chunk_bytes: None,
                    readable: true,
                    survives: 2,
                    helpers: 2,
                    blocks: Vec::new(),
                },
            };
        FileLayout {
            file: FileView {
                name,
                bytes: 70_000,
                code,
                block_bytes: 8192,
                chunk_bytes: None,
                stripes: 3,
                created_unix_ms: 0,
            },
            data_blocks: 4,
            sub_blocks: 2,
            layout: stripes.iter().zip(0..).map(stripe).collect(),
        }
    }

    #[test]
    fn only_layouts_without_holes_are_taken() {
        let good = [(0, 32_768, 8192), (32_768, 32_768, 8192), (65_536, 4464, 4096)];
        assert_eq!(check(&layout(&good)), Ok(()));
        let changed = |index: usize, stripe| {
            let mut stripes = good;
            stripes[index] = stripe;
            check(&layout(&stripes)).unwrap_err()
        };
        assert_eq!(check(&layout(&good[..2])), Err(LayoutError::Length { bytes: 70_000, held: 65_536 }));
        let gap = LayoutError::Offset { position: 1, found: 65_536, expected: 32_768 };
        assert_eq!(check(&layout(&[good[0], good[2]])), Err(gap));
        let small = LayoutError::Stripe { position: 2, data_bytes: 4464, block_bytes: 1024 };
        assert_eq!(changed(2, (65_536, 4464, 1024)), small);
        for stripe in [(65_536, 4464, 0), (65_536, 4464, 4097), (65_536, 0, 4096), (65_536, 4464, u64::MAX)] {
            assert!(matches!(changed(2, stripe), LayoutError::Stripe { .. }), "{stripe:?}");
        }
        assert!(check(&FileLayout { sub_blocks: 0, ..layout(&good) }).is_err());
        assert!(check(&FileLayout { data_blocks: 0, ..layout(&good) }).is_err());
        assert!(check(&FileLayout { sub_blocks: 65_538, ..layout(&good) }).is_err());
    }
}
