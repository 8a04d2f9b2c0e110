//! Sequential reads of a block in pieces.

use std::num::NonZeroU64;
use std::ops::Range;

use repair::BlockId;
use store_api::{BlockError, Gate};

/// Calls `read` for each piece of `bytes` in order, at the rate that `gate` allows. `read` also gets a buffer
/// that it may reuse.
///
/// # Errors
/// The first error of `read`, or [`BlockError::GivenUp`]; later pieces are not read.
pub fn read_through(
    block: &BlockId,
    bytes: Range<u64>,
    piece_bytes: NonZeroU64,
    gate: &dyn Gate,
    mut read: impl FnMut(Range<u64>, &mut Vec<u8>) -> Result<(), BlockError>,
) -> Result<(), BlockError> {
    let mut buffer = Vec::new();
    let mut start = bytes.start;
    while start < bytes.end {
        let piece = start..bytes.end.min(start.saturating_add(piece_bytes.get()));
        start = piece.end;
        gate.pass((piece.end - piece.start) as usize).map_err(|closed| closed.of(block))?;
        read(piece, &mut buffer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;
    use store_api::{Closed, OpenGate};

    use super::*;

    /// A gate that lets this many pieces pass and is closed afterwards.
    struct Pieces(AtomicU64);

    impl Gate for Pieces {
        fn pass(&self, _bytes: usize) -> Result<(), Closed> {
            let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.map(drop).map_err(|_| Closed)
        }
    }

    fn block() -> BlockId {
        BlockId("s.0".into())
    }

    proptest! {
        #[test]
        fn every_byte_is_read_once(start in 0u64..100, bytes in 0u64..200, piece in 1u64..70) {
            let mut read = Vec::new();
            let note = |piece: Range<u64>, _: &mut Vec<u8>| {
                read.push(piece);
                Ok(())
            };
            let piece = NonZeroU64::new(piece).expect("one at least");
            let bytes = start..start + bytes;
            read_through(&block(), bytes.clone(), piece, &OpenGate, note).expect("all is well");
            prop_assert!(read.iter().all(|range| range.end - range.start <= piece.get()));
            prop_assert_eq!(read.into_iter().flatten().collect::<Vec<_>>(), bytes.collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_or_a_closed_gate_ends_the_read() {
        let piece = NonZeroU64::new(10).expect("not zero");
        let mut reads = 0;
        let wrong = |piece: Range<u64>, _: &mut Vec<u8>| {
            reads += 1;
            match piece.contains(&77) {
                true => Err(BlockError::Other { block: block(), detail: "rotten".to_owned() }),
                false => Ok(()),
            }
        };
        let found = read_through(&block(), 0..1000, piece, &OpenGate, wrong);
        assert!(matches!(found, Err(BlockError::Other { .. })), "{found:?}");
        assert_eq!(reads, 8);
        let closed = read_through(&block(), 0..1000, piece, &Pieces(AtomicU64::new(5)), |_, _| Ok(()));
        assert!(matches!(closed, Err(BlockError::GivenUp(_))), "{closed:?}");
    }
}
