//! Checks that an opened block is the one that the catalog records, and computes fingerprints of blocks on
//! low-priority threads.

use std::sync::Arc;

use repair::{Fingerprint, FingerprintErrand, LocalBlock, Report};
use store_api::{BlockError, BlockReader, Blocks, Gate};

use crate::disk::SharedDelivery;
use crate::engine::aside;
use crate::error_reports::block_problem;
use crate::gate::DiskGate;

/// Computes the fingerprints of a block that is being delivered to this node.
pub(crate) async fn fingerprint_delivery(
    delivery: SharedDelivery,
    asked: FingerprintErrand,
    gate: DiskGate,
) -> Report {
    let reader = move || delivery.lock().expect("never poisoned").reader();
    fingerprint(reader, asked, gate).await
}

/// Computes the fingerprints of a block in the store.
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
    let (block, seed) = (asked.block.id.clone(), asked.seed);
    match aside(move || fingerprints(&*open()?, &asked, &gate)).await {
        Ok(fingerprints) => Report::Fingerprinted { block, seed, fingerprints },
        Err(error) => Report::BadBlock { problem: block_problem(&error), block },
    }
}

/// Compares an opened block with the catalog's record before any byte is served. The block's own checksums
/// cannot detect that the opened files belong to another block, or to an older version of this block.
pub(crate) fn check_identity(reader: &dyn BlockReader, asked: &LocalBlock) -> Result<(), BlockError> {
    let detail = match (asked.digest, reader.digest()) {
        (Some(recorded), Some(found)) if found != recorded || reader.bytes() != asked.bytes => format!(
            "it has {} bytes and digest {found}, but {} bytes with digest {recorded} are recorded",
            reader.bytes(),
            asked.bytes
        ),
        // If either digest is missing, only the lengths can be compared. A shorter block must be refused,
        // because it would be padded with zeros.
        _ if reader.bytes() != asked.bytes => {
            format!("it has {} bytes, but {} are recorded", reader.bytes(), asked.bytes)
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
    let window = asked.window.0..asked.window.1;
    repair::fingerprints(&asked.chunking, &window, asked.seed, reader.bytes(), |offset, bytes| {
        gate.pass(bytes.len()).map_err(|closed| closed.of(&asked.block.id))?;
        reader.read_at(offset, bytes)
    })
}

#[cfg(test)]
mod tests {
    use codes::BlockIndex;
    use repair::{BlockId, Digest};

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
