//! Reading a block through, piece by piece.

use std::num::NonZeroU64;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use repair::BlockId;

use crate::{BlockError, Gate};

/// Has each piece of a block of so many bytes read, as `gate` lets them pass. Two threads take one piece after another, so that
/// one reads while the other checks; the medium sees them nearly in order. `read` gets a buffer of its thread's own.
///
/// # Errors
/// The first that `read` finds, or [`BlockError::GivenUp`]; the pieces that come after it are not read.
pub(crate) fn read_through(
    block: &BlockId,
    bytes: u64,
    piece_bytes: NonZeroU64,
    gate: &dyn Gate,
    read: impl Fn(Range<u64>, &mut Vec<u8>) -> Result<(), BlockError> + Sync,
) -> Result<(), BlockError> {
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let read_piece = |buffer: &mut Vec<u8>| {
        let start = next.fetch_add(piece_bytes.get(), Ordering::Relaxed);
        if start >= bytes || is_over.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let piece = start..(start + piece_bytes.get()).min(bytes);
        gate.pass((piece.end - piece.start) as usize).map_err(|closed| closed.of(block))?;
        read(piece, buffer).map(|()| true)
    };
    let read_pieces = || {
        let mut buffer = Vec::new();
        loop {
            match read_piece(&mut buffer) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    is_over.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    };
    thread::scope(|scope| {
        // Without a second thread one reads all of it.
        let second =
            || thread::Builder::new().name("read-through".to_owned()).spawn_scoped(scope, read_pieces).ok();
        let second = if bytes > piece_bytes.get() { second() } else { None };
        let first = read_pieces();
        let second =
            second.map_or(Ok(()), |second| second.join().unwrap_or_else(|panic| resume_unwind(panic)));
        first.and(second)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;
    use crate::{Closed, OpenGate};

    /// Lets so many pieces pass.
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
        fn every_byte_is_read_once(bytes in 0u64..200, piece in 1u64..70) {
            let read = Mutex::new(Vec::new());
            let note = |piece: Range<u64>, _: &mut Vec<u8>| {
                read.lock().expect("not poisoned").push(piece);
                Ok(())
            };
            let piece = NonZeroU64::new(piece).expect("one at least");
            read_through(&block(), bytes, piece, &OpenGate, note).expect("all is well");
            let mut read = read.into_inner().expect("not poisoned");
            read.sort_by_key(|piece| piece.start);
            prop_assert!(read.iter().all(|range| range.end - range.start <= piece.get()));
            prop_assert_eq!(read.into_iter().flatten().collect::<Vec<_>>(), (0..bytes).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_one_of_them_finds_is_told_and_a_closed_gate_ends_both() {
        let piece = NonZeroU64::new(10).expect("not zero");
        let wrong = |piece: Range<u64>, _: &mut Vec<u8>| match piece.contains(&77) {
            true => Err(BlockError::Other { block: block(), detail: "rotten".to_owned() }),
            false => Ok(()),
        };
        let found = read_through(&block(), 1000, piece, &OpenGate, wrong);
        assert!(matches!(found, Err(BlockError::Other { .. })), "{found:?}");
        let closed = read_through(&block(), 1000, piece, &Pieces(AtomicU64::new(5)), |_, _| Ok(()));
        assert!(matches!(closed, Err(BlockError::GivenUp(_))), "{closed:?}");
    }
}
