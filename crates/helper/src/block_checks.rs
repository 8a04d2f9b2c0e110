//! Checks that an opened block is the one that the catalog records, and computes fingerprints of blocks.
//! Fingerprints of large blocks are computed on low-priority threads.

use std::io;
use std::sync::Arc;

use repair::{BlockId, Fingerprint, FingerprintErrand, LocalBlock, Report};
use store_api::{BlockError, BlockReader, Blocks, Gate};

use crate::disk::SharedDelivery;
use crate::engine::{aside, blocking};
use crate::error_reports::block_problem;
use crate::gate::DiskGate;

/// Fingerprints of up to this many bytes are computed on a pooled thread: that takes less time than starting
/// a low-priority thread for them.
const SMALL_BYTES: u64 = 256 << 10;

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
    let window = asked.window.1.saturating_sub(asked.window.0);
    let is_small = window.saturating_mul(asked.chunking.sub_blocks().into()) <= SMALL_BYTES;
    let work = move || fingerprints(&*open()?, &asked, &gate);
    let done = if is_small { blocking(work).await } else { aside(work).await };
    match done {
        Ok(fingerprints) => Report::Fingerprinted { block, seed, fingerprints },
        Err(error) => Report::BadBlock { problem: block_problem(&error), block },
    }
}

/// Compares an opened block with the catalog's record before any byte is served. The block's own checksums
/// cannot detect that the opened files belong to another block, or to an older version of this block. If a
/// digest is recorded, but the store has no checksums that would show wrong bytes, the block is not served.
pub(crate) fn check_identity(reader: &dyn BlockReader, asked: &LocalBlock) -> Result<(), BlockError> {
    let detail = match (asked.digest, reader.digest()) {
        (Some(recorded), Some(found)) if found != recorded || reader.bytes() != asked.bytes => format!(
            "it has {} bytes and digest {found}, but {} bytes with digest {recorded} are recorded",
            reader.bytes(),
            asked.bytes
        ),
        // A shorter block must be refused also without digests, because it would be padded with zeros.
        _ if reader.bytes() != asked.bytes => {
            format!("it has {} bytes, but {} are recorded", reader.bytes(), asked.bytes)
        }
        (Some(_), None) => return Err(without_checksums(&asked.id)),
        _ => return Ok(()),
    };
    Err(BlockError::Other { block: asked.id.clone(), detail })
}

/// Returns the error for a block with a recorded digest, but without checksums. That proves nothing about the
/// block.
fn without_checksums(block: &BlockId) -> BlockError {
    let text = "its helper has no checksums for this block at the moment, so wrong bytes would not be found";
    BlockError::Io { path: block.0.clone(), source: io::Error::new(io::ErrorKind::Unsupported, text) }
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
    use repair::{BlockProblem, Caps, Chunking, Class, Digest};

    use super::*;
    use crate::gate::Interest;
    use crate::throttle::{Allowance, Throttle};
    use crate::traffic::Traffic;

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

    fn asked(digest: Option<Digest>) -> LocalBlock {
        LocalBlock { index: BlockIndex(0), id: BlockId("b".into()), bytes: 100, digest }
    }

    #[test]
    fn a_block_of_another_length_is_refused_with_and_without_digests() {
        let digest = Some(Digest::of_u32("crc32c", 1));
        for (recorded, found) in [(None, None), (None, digest), (digest, None), (digest, digest)] {
            for (bytes, is_it) in [(99, false), (100, recorded.is_none() || found.is_some()), (101, false)] {
                let checked = check_identity(&Found { bytes, digest: found }, &asked(recorded));
                assert_eq!(checked.is_ok(), is_it, "{bytes} bytes, {recorded:?} recorded, {found:?} found");
            }
        }
    }

    #[test]
    fn a_block_with_a_recorded_digest_is_not_read_without_checksums() {
        let recorded = asked(Some(Digest::of_u32("ecsum", 1)));
        let error = check_identity(&Found { bytes: 100, digest: None }, &recorded).unwrap_err();
        // Nothing is known against the block.
        assert!(matches!(block_problem(&error), BlockProblem::Unavailable(_)), "{error}");
    }

    #[tokio::test]
    async fn only_large_blocks_get_a_thread_of_their_own() {
        let (interest, counting) = (Interest::default(), Traffic::default().for_purpose(Class::Repair));
        for (bytes, is_aside) in [(SMALL_BYTES, false), (SMALL_BYTES + 1, true)] {
            let allowance = Allowance::new(Throttle::new(Caps::default()), None, Class::Repair);
            let gate = interest.gate(allowance, counting.clone());
            let chunking = Chunking::new(bytes, bytes, 1).unwrap();
            let block = LocalBlock { index: BlockIndex(0), id: BlockId("b".into()), bytes, digest: None };
            let asked = FingerprintErrand { block, chunking, window: (0, bytes), seed: 1 };
            let (sender, found) = std::sync::mpsc::channel();
            let open = move || {
                sender.send(std::thread::current().name() == Some("aside")).unwrap();
                Ok(Arc::new(Found { bytes, digest: None }) as Arc<dyn BlockReader>)
            };
            let report = fingerprint(open, asked, gate).await;
            assert!(matches!(report, Report::Fingerprinted { .. }), "{report:?}");
            assert_eq!(found.recv(), Ok(is_aside), "{bytes} bytes");
        }
    }
}
