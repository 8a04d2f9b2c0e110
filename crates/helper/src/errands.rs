//! What a job asks of a node's blocks: whether one is the block that was recorded, and its fingerprints, which are made
//! on threads that may wait.

use std::sync::Arc;

use repair::{BlockId, Fingerprint, FingerprintErrand, Fingerprinter, LocalBlock, Report};
use stores::{BlockError, BlockReader, Blocks, Gate};

use crate::disk::SharedDelivery;
use crate::engine::blocking;
use crate::gate::DiskGate;
use crate::problems::block_problem;

/// Bytes read at once when a whole block is read through.
const READ_THROUGH_BYTES: usize = 1 << 20;

/// Fingerprints a block that is being delivered here.
pub(crate) async fn fingerprint_delivery(
    delivery: SharedDelivery,
    asked: FingerprintErrand,
    gate: DiskGate,
) -> Report {
    let reader = move || delivery.lock().expect("no holder panics").reader();
    fingerprint(reader, asked, gate).await
}

/// Fingerprints a block of the store.
pub(crate) async fn fingerprint_held(
    blocks: Arc<dyn Blocks>,
    asked: FingerprintErrand,
    gate: DiskGate,
) -> Report {
    let block = asked.block.clone();
    let reader = move || {
        let reader = blocks.open(&block)?;
        check_identity(&*reader, &block).map(|()| reader)
    };
    fingerprint(reader, asked, gate).await
}

async fn fingerprint(
    open: impl FnOnce() -> Result<Arc<dyn BlockReader>, BlockError> + Send + 'static,
    asked: FingerprintErrand,
    gate: DiskGate,
) -> Report {
    let block = asked.block.id.clone();
    match blocking(move || fingerprints(&*open()?, &asked, &gate)).await {
        Ok(fingerprints) => Report::Fingerprinted { block, fingerprints },
        Err(error) => Report::BadBlock { problem: block_problem(&error), block },
    }
}

/// Holds a block that was opened against what the catalog has recorded of it, before a byte of it is served: its own
/// checksums agree with it also when both files are those of another block, or of an earlier day.
pub(crate) fn check_identity(reader: &dyn BlockReader, asked: &LocalBlock) -> Result<(), BlockError> {
    let detail = match (asked.digest, reader.digest()) {
        (Some(recorded), Some(found)) if found != recorded || reader.bytes() != asked.bytes => format!(
            "it has {} bytes and digest {found}, and {} bytes with digest {recorded} are recorded",
            reader.bytes(),
            asked.bytes
        ),
        // Without both digests the length is all there is to tell blocks apart by; zeros are read beyond the end of one
        // that is shorter.
        _ if reader.bytes() != asked.bytes => {
            format!("it has {} bytes, and {} are recorded", reader.bytes(), asked.bytes)
        }
        _ => return Ok(()),
    };
    Err(BlockError::Other { block: asked.id.clone(), detail })
}

fn fingerprints(
    reader: &dyn BlockReader,
    asked: &FingerprintErrand,
    gate: &dyn Gate,
) -> Result<Vec<Fingerprint>, BlockError> {
    // What does not lie in a sub-block is nobody's business, and hostile numbers must not overflow.
    let (start, end) = (asked.window.0.min(asked.sub_block_bytes), asked.window.1.min(asked.sub_block_bytes));
    let starts = (0..u64::from(asked.sub_blocks)).map(|sub| sub.saturating_mul(asked.sub_block_bytes));
    let bytes = end.saturating_sub(start);
    let fingerprint = |start: u64| {
        let window = (start, start.saturating_add(bytes));
        fingerprint_of(reader, &asked.block.id, window, asked.seed, gate)
    };
    starts.map(|sub| fingerprint(sub.saturating_add(start))).collect()
}

/// The fingerprint of what lies between two offsets; what lies beyond the block's end counts as zeros.
fn fingerprint_of(
    reader: &dyn BlockReader,
    block: &BlockId,
    (start, end): (u64, u64),
    seed: u64,
    gate: &dyn Gate,
) -> Result<Fingerprint, BlockError> {
    let mut fingerprinter = Fingerprinter::new(seed);
    let end = reader.bytes().min(end);
    let mut buffer = vec![0; READ_THROUGH_BYTES];
    let mut at = start;
    while at < end {
        let piece = &mut buffer[..(end - at).min(READ_THROUGH_BYTES as u64) as usize];
        gate.pass(piece.len()).map_err(|closed| closed.of(block))?;
        reader.read_at(at, piece)?;
        fingerprinter.update(piece);
        at += piece.len() as u64;
    }
    Ok(fingerprinter.finish())
}

#[cfg(test)]
mod tests {
    use codes::BlockIndex;
    use repair::Digest;

    use super::*;

    struct Found {
        bytes: u64,
        digest: Option<Digest>,
    }

    impl BlockReader for Found {
        fn bytes(&self) -> u64 {
            self.bytes
        }

        fn read_at(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
            buffer.fill(0);
            Ok(())
        }

        fn digest(&self) -> Option<Digest> {
            self.digest
        }
    }

    #[test]
    fn a_block_of_another_length_is_refused_with_and_without_digests() {
        let digest = Some(Digest::of_u32("crc32c", 1));
        for (recorded, found) in [(None, None), (None, digest), (digest, None), (digest, digest)] {
            let asked =
                LocalBlock { index: BlockIndex(0), id: BlockId("b".into()), bytes: 100, digest: recorded };
            for (bytes, is_it) in [(99, false), (100, true), (101, false)] {
                let checked = check_identity(&Found { bytes, digest: found }, &asked);
                assert_eq!(checked.is_ok(), is_it, "{bytes} bytes, {recorded:?} recorded, {found:?} found");
            }
        }
    }
}
