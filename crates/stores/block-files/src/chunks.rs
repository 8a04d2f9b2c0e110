//! Reads any range of a block that can only be read in whole chunks, since each checksum covers one chunk.

use store_api::BlockError;

/// Reads `buffer.len()` bytes of a block at `offset` with a function that reads only whole chunks. A chunk
/// that is only partly in the range is read into a separate buffer.
///
/// `read` gets the offset of the first chunk and a buffer of whole chunks; the block's last chunk may be
/// short. If `read` returns `false` because it would have to wait, this function returns `false` too.
///
/// # Errors
/// The first error of `read`.
pub fn read_by_chunks(
    offset: u64,
    buffer: &mut [u8],
    chunk_bytes: u64,
    block_bytes: u64,
    read: impl Fn(u64, &mut [u8]) -> Result<bool, BlockError>,
) -> Result<bool, BlockError> {
    let end = offset + buffer.len() as u64;
    let whole_from = offset.next_multiple_of(chunk_bytes).min(end);
    let whole_to = if end == block_bytes { end } else { end - end % chunk_bytes };
    let (head, rest) = buffer.split_at_mut((whole_from - offset) as usize);
    let (whole, tail) = rest.split_at_mut(whole_to.saturating_sub(whole_from) as usize);
    let read_part = |offset: u64, part: &mut [u8]| {
        if part.is_empty() {
            return Ok(true);
        }
        let start = offset - offset % chunk_bytes;
        let mut chunk = vec![0; chunk_bytes.min(block_bytes - start) as usize];
        let done = read(start, &mut chunk)?;
        part.copy_from_slice(&chunk[(offset - start) as usize..][..part.len()]);
        Ok(done)
    };
    Ok(read_part(offset, head)?
        && (whole.is_empty() || read(whole_from, whole)?)
        && read_part(end - tail.len() as u64, tail)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_range_is_made_of_whole_chunks(block in 1u64..200, chunk in 1u64..40, from in 0u64..200, length in 0u64..200) {
            let content: Vec<u8> = (0..block as u8).collect();
            let from = from.min(block);
            let to = (from + length).min(block);
            let mut buffer = vec![0; (to - from) as usize];
            let read = |offset: u64, piece: &mut [u8]| {
                let end = offset + piece.len() as u64;
                assert!(!piece.is_empty() && offset.is_multiple_of(chunk));
                assert!(end == block || end.is_multiple_of(chunk));
                piece.copy_from_slice(&content[offset as usize..end as usize]);
                Ok(true)
            };
            prop_assert!(read_by_chunks(from, &mut buffer, chunk, block, read).unwrap());
            prop_assert_eq!(&buffer, &content[from as usize..to as usize]);
        }
    }

    #[test]
    fn a_chunk_that_is_not_cached_ends_the_read() {
        let reads = std::cell::Cell::new(0);
        let read = |_: u64, _: &mut [u8]| {
            reads.set(reads.get() + 1);
            Ok(reads.get() < 2)
        };
        assert!(!read_by_chunks(5, &mut [0; 30], 10, 100, read).unwrap());
        assert_eq!(reads.get(), 2, "the head and the whole chunks, and not the tail");
    }
}
