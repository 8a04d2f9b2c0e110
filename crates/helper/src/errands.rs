//! What a job asks of a node's disk outside of plans: seal, commit, fingerprint, read back. All of it runs on threads
//! that may wait.

use std::sync::Arc;

use repair::{BlockId, Fingerprint, FingerprintErrand, Fingerprinter, LocalBlock, Meter, Report};
use stores::{BlockError, BlockReader};

use crate::disk::{SharedWriter, Sinks};
use crate::engine::{Local, blocking};
use crate::problems::{block_problem, sink_report};
use crate::throttle::Allowance;

/// Bytes read at once when a whole block is read through.
const READ_THROUGH_BYTES: usize = 1 << 20;

pub(crate) async fn seal(sinks: Sinks) -> Report {
    let sealed = blocking(move || {
        let seal = |(block, writer): (BlockId, SharedWriter)| {
            let digest = writer.lock().expect("no holder panics").seal();
            digest.map(|digest| (block.clone(), digest)).map_err(|error| sink_report(block, &error))
        };
        sinks.into_iter().map(seal).collect::<Result<Vec<_>, _>>()
    })
    .await;
    sealed.map_or_else(|report| report, |digests| Report::Sealed { digests })
}

pub(crate) async fn commit(sinks: Sinks) -> Report {
    let committed = blocking(move || {
        for (block, writer) in sinks {
            let writer = Arc::into_inner(writer).expect("its plan has ended");
            let writer = writer.into_inner().expect("no holder panics");
            writer.commit().map_err(|error| sink_report(block, &error))?;
        }
        Ok::<_, Report>(())
    })
    .await;
    committed.map_or_else(|report| report, |()| Report::Committed)
}

/// Fingerprints `sink` if the block is being delivered here, or else a block that is held.
pub(crate) async fn fingerprint(
    local: Arc<dyn Local>,
    sink: Option<SharedWriter>,
    asked: FingerprintErrand,
    allowance: Allowance,
) -> Report {
    let block = asked.block.id.clone();
    let result = blocking(move || {
        let reader = match sink {
            Some(writer) => writer.lock().expect("no holder panics").reader()?,
            None => {
                let reader = local.held(&asked.block.id)?;
                check_identity(&*reader, &asked.block)?;
                reader
            }
        };
        fingerprints(&*reader, &asked, &allowance)
    })
    .await;
    match result {
        Ok(fingerprints) => Report::Fingerprinted { block, fingerprints },
        Err(error) => Report::BadBlock { problem: block_problem(&error), block },
    }
}

pub(crate) async fn reread(local: Arc<dyn Local>, block: BlockId) -> Report {
    let name = block.clone();
    match blocking(move || local.held(&name)?.verify()).await {
        Ok(digest) => Report::Reread { block, digest },
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
        // Without a recorded digest the length is all there is to tell a store's blocks apart by. What has no digest
        // itself is a client's file, whose last blocks end early.
        (None, Some(_)) if reader.bytes() != asked.bytes => {
            format!("it has {} bytes, and {} are recorded", reader.bytes(), asked.bytes)
        }
        _ => return Ok(()),
    };
    Err(BlockError::Other { block: asked.id.clone(), detail })
}

fn fingerprints(
    reader: &dyn BlockReader,
    asked: &FingerprintErrand,
    allowance: &Allowance,
) -> Result<Vec<Fingerprint>, BlockError> {
    // What does not lie in a sub-block is nobody's business, and hostile numbers must not overflow.
    let (start, end) = (asked.window.0.min(asked.sub_block_bytes), asked.window.1.min(asked.sub_block_bytes));
    let starts = (0..u64::from(asked.sub_blocks)).map(|sub| sub.saturating_mul(asked.sub_block_bytes));
    let bytes = end.saturating_sub(start);
    let fingerprint = |start| fingerprint_of(reader, start, bytes, asked.seed, allowance);
    starts.map(|sub| fingerprint(sub.saturating_add(start))).collect()
}

/// The fingerprint of a sub-block; what lies beyond the block's end counts as zeros.
fn fingerprint_of(
    reader: &dyn BlockReader,
    start: u64,
    bytes: u64,
    seed: u64,
    allowance: &Allowance,
) -> Result<Fingerprint, BlockError> {
    let mut fingerprinter = Fingerprinter::new(seed);
    let end = reader.bytes().min(start.saturating_add(bytes));
    let mut buffer = vec![0; READ_THROUGH_BYTES];
    let mut at = start;
    while at < end {
        let piece = &mut buffer[..(end - at).min(READ_THROUGH_BYTES as u64) as usize];
        allowance.wait_for(Meter::Disk, piece.len());
        reader.read_at(at, piece)?;
        fingerprinter.update(piece);
        at += piece.len() as u64;
    }
    Ok(fingerprinter.finish())
}
