//! Finishes deliveries to a store: seals and commits blocks, and reads back the part that was not read back
//! during the writes.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use repair::{BlockId, Digest, Refusal, Report, SinkEnd};
use store_api::{BlockError, Blocks, Delivery, HandOverTerms, Later, ProcessError, ReadBack};

use crate::disk::{Deliveries, SharedDelivery};
use crate::engine::blocking;
use crate::error_reports::{block_problem, sink_report};
use crate::gate::DiskGate;

pub(crate) async fn seal(deliveries: Deliveries) -> Report {
    let hand_over: Duration =
        deliveries.values().filter_map(|delivery| locked(delivery).terms()).map(|terms| terms.limit).sum();
    let sealed = blocking(move || {
        let seal = |(block, delivery): (BlockId, SharedDelivery)| {
            let mut delivery = locked(&delivery);
            let Some(writer) = delivery.block() else { return Err(nothing_to_keep(block)) };
            let digest = writer.seal();
            digest.map(|digest| (block.clone(), digest)).map_err(|error| sink_report(block, &error))
        };
        deliveries.into_iter().map(seal).collect::<Result<Vec<_>, _>>()
    })
    .await;
    let hand_over_ms = u32::try_from(hand_over.as_millis()).unwrap_or(u32::MAX);
    sealed.map_or_else(|report| report, |digests| Report::Sealed { digests, hand_over_ms })
}

/// For each committed block, the remaining work of reading it back.
pub(crate) type Committed = BTreeMap<BlockId, ReadBack>;

/// Commits one block after another, and returns the remaining work of reading them back. A commit that has
/// begun is finished even if the coordinator disappears, because the block was verified.
pub(crate) async fn commit(deliveries: Deliveries) -> (Report, Committed) {
    let mut done = Committed::new();
    for (block, delivery) in deliveries {
        let delivery =
            Arc::into_inner(delivery).expect("no task uses the delivery after the end of its plan");
        let delivery = delivery.into_inner().unwrap_or_else(PoisonError::into_inner);
        let committed = match delivery {
            Delivery::Taken(_) => return (nothing_to_keep(block), done),
            Delivery::Published(writer) => blocking(move || writer.commit()).await,
            Delivery::HandedOver(writer) => {
                in_time(&writer.terms(), &block, writer.hand_over()).await.map(|()| None)
            }
        };
        match committed {
            Ok(rest) => done.extend(rest.map(|rest| (block, rest))),
            Err(error) => return (sink_report(block, &error), done),
        }
    }
    (Report::Committed, done)
}

/// Reads a block back and reports its digest. If the store's own process serves readers, the block is read
/// through that process, without regard to the disk's cap. Otherwise it is read from its files, within the
/// cap. For a block that was just committed, `rest` reads only the bytes that were not read back before the
/// commit; without `rest`, the whole block is read. `recorded` is the digest that the coordinator records.
pub(crate) async fn reread(
    blocks: Arc<dyn Blocks>,
    (block, recorded): (BlockId, Option<Digest>),
    rest: Option<ReadBack>,
    gate: DiskGate,
) -> Report {
    let read = match (blocks.read_back(&block), rest) {
        (Some(read), _) => read.await,
        (None, Some(rest)) => blocking(move || rest(&gate)).await,
        (None, None) => {
            let name = block.clone();
            blocking(move || blocks.verify_recorded(&name, recorded, &gate)).await
        }
    };
    match read {
        Ok(digest) => Report::Reread { block, digest },
        Err(error) => Report::BadBlock { problem: block_problem(&error), block },
    }
}

/// Waits for an operation of the store's own process, up to the time limit in `terms`.
pub(crate) async fn in_time(
    terms: &HandOverTerms,
    block: &BlockId,
    work: Later<'_, Result<(), BlockError>>,
) -> Result<(), BlockError> {
    let HandOverTerms { process, limit } = terms.clone();
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(BlockError::Process {
            block: block.clone(),
            error: ProcessError::TimedOut { process, limit },
        }),
    }
}

fn nothing_to_keep(block: BlockId) -> Report {
    Report::Refused {
        why: Refusal::End { block, end: Box::new(SinkEnd::Kept { label: None, permit: None }) },
    }
}

/// Locks a delivery and ignores poisoning: if a write panicked, bytes are missing, and sealing the block
/// fails.
fn locked(delivery: &SharedDelivery) -> std::sync::MutexGuard<'_, Delivery> {
    delivery.lock().unwrap_or_else(PoisonError::into_inner)
}
