//! Opens the blocks that an assignment reads and the sinks that it delivers to. Sinks that an earlier plan of
//! the job opened are reused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use codes::BlockIndex;
use repair::{Assignment, Refusal, Report, Sink, SinkEnd};
use store_api::{BlockError, Delivery, Sinks};

use crate::block_checks::check_identity;
use crate::disk::{Deliveries, SharedDelivery, Source};
use crate::engine::{Node, blocking};
use crate::error_reports::{block_problem, sink_report};
use crate::gate::DiskGate;
use crate::publishing::in_time;

/// The open blocks and sinks of an assignment.
pub(crate) struct Opened {
    pub(crate) sources: BTreeMap<BlockIndex, Source>,
    pub(crate) sinks: BTreeMap<BlockIndex, (Sink, SharedDelivery)>,
}

/// Opens an assignment's blocks and sinks. `deliveries` are the sinks already open; they are returned
/// together with the new ones. New blocks are read back through `gate` as they are written.
pub(crate) async fn open(
    node: Node,
    assignment: Arc<Assignment>,
    mut deliveries: Deliveries,
    gate: DiskGate,
) -> (Deliveries, Result<Opened, Report>) {
    let opened = async {
        let sources = open_sources(&node, &assignment).await?;
        let sinks = open_sinks(&node, &assignment, &mut deliveries, &gate).await?;
        Ok(Opened { sources, sinks })
    }
    .await;
    (deliveries, opened)
}

async fn open_sources(node: &Node, assignment: &Assignment) -> Result<BTreeMap<BlockIndex, Source>, Report> {
    let (mut opened, mut cold) = (BTreeMap::new(), Vec::new());
    if assignment.locals.is_empty() {
        return Ok(opened);
    }
    let sources = node.local.sources(assignment)?;
    for block in &assignment.locals {
        node.touch(&block.id, assignment.class);
        match sources.open_if_cached(block) {
            Some(reader) if check_identity(&*reader, block).is_ok() => {
                opened.insert(block.index, Source { id: block.id.clone(), reader });
            }
            _ => cold.push(block.clone()),
        }
    }
    if cold.is_empty() {
        return Ok(opened);
    }
    blocking(move || {
        for block in cold {
            let reader =
                sources.open(&block).and_then(|reader| check_identity(&*reader, &block).map(|()| reader));
            let reader = reader.map_err(|error| Report::BadBlock {
                block: block.id.clone(),
                problem: block_problem(&error),
            })?;
            opened.insert(block.index, Source { id: block.id, reader });
        }
        Ok(opened)
    })
    .await
}

async fn open_sinks(
    node: &Node,
    assignment: &Assignment,
    deliveries: &mut Deliveries,
    gate: &DiskGate,
) -> Result<BTreeMap<BlockIndex, (Sink, SharedDelivery)>, Report> {
    let mut opened = BTreeMap::new();
    for sink in &assignment.sinks {
        let delivery = match deliveries.get(&sink.id) {
            Some(delivery) => delivery.clone(),
            None => {
                let delivery = deliver(node.local.sinks(assignment)?, sink.clone(), gate).await?;
                let delivery = Arc::new(Mutex::new(delivery));
                deliveries.insert(sink.id.clone(), delivery.clone());
                delivery
            }
        };
        opened.insert(sink.index, (sink.clone(), delivery));
    }
    Ok(opened)
}

/// Opens one sink and checks that its bytes go where the assignment says: into a store, or to a client. If
/// the store has a process of its own, asks that process now whether it will accept the block, to avoid
/// moving a block that would be refused.
async fn deliver(sinks: Arc<dyn Sinks>, sink: Sink, gate: &DiskGate) -> Result<Delivery, Report> {
    let failed = |error: BlockError| sink_report(sink.id.clone(), &error);
    let wanted = sink.clone();
    let delivery = blocking(move || sinks.deliver(&wanted)).await.map_err(failed)?;
    match (delivery, &sink.end) {
        (Delivery::HandedOver(mut writer), SinkEnd::Kept { .. }) => {
            let prepared = in_time(&writer.terms(), &sink.id, writer.prepare()).await;
            prepared.map(|()| Delivery::HandedOver(writer)).map_err(failed)
        }
        (Delivery::Published(mut writer), SinkEnd::Kept { .. }) => {
            writer.read_back_behind(Arc::new(gate.clone()));
            Ok(Delivery::Published(writer))
        }
        (delivery @ Delivery::Taken(_), SinkEnd::Taken { .. }) => Ok(delivery),
        (_, end) => {
            // The refusal omits the label and the permit, because a permit is a secret.
            let end = match end {
                SinkEnd::Kept { .. } => SinkEnd::Kept { label: None, permit: None },
                SinkEnd::Taken { checked } => SinkEnd::Taken { checked: *checked },
            };
            Err(Report::Refused { why: Refusal::End { block: sink.id, end: Box::new(end) } })
        }
    }
}
