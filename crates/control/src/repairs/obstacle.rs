//! Reasons why the repair of a stripe does not start, each with the next step.

use cluster::ByteSize;
use recovery::{End, Target};
use store_api::StripeRecord;

use crate::counts::count;
use crate::error::{RequestError, list};
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::repairs::orders::Order;

/// The reason that the repair of a stripe does not start.
pub(crate) struct Obstacle {
    pub end: End,
    pub reason: String,
    pub next_step: String,
}

impl Obstacle {
    pub(crate) fn failed(error: impl Into<RequestError>) -> Self {
        let error = error.into();
        Self { end: End::Failed, reason: error.to_string(), next_step: error.next_step() }
    }

    /// Creates the obstacle for a stripe whose blocks no helper can accept. Its text names helpers but no
    /// block, so stripes with the same reason are reported together.
    pub(crate) fn no_room(
        facts: Facts<'_>,
        jobs: &Jobs,
        order: &Order,
        record: &StripeRecord,
        blocks: usize,
    ) -> Self {
        let emptied = match order.target {
            Target::Drain(node) => Some(node),
            _ => None,
        };
        let omitted = jobs.omitted(facts, record.block_bytes, emptied, &order.requestors);
        let blocks = count(blocks as u64, "block");
        if !order.requestors.is_empty() {
            let only: Vec<String> = order.requestors.iter().map(|&node| facts.nodes.name(node)).collect();
            return Self {
                end: End::Failed,
                reason: format!(
                    "{blocks} may only go to {}: such a helper must be up, have {} free and hold no other \
                     block of the stripe ({})",
                    list(&only),
                    ByteSize::from_bytes(record.block_bytes),
                    omitted.why_of_named()
                ),
                next_step: match emptied {
                    Some(node) => omitted.remedy_or(&facts.nodes.drain_to_any(node)),
                    None => omitted.remedy_or("name other helpers, or name none to allow any helper"),
                },
            };
        }
        Self {
            end: End::Failed,
            reason: format!(
                "no helper can take {blocks} of {}: a helper must be up, have room and hold no other block \
                 of the stripe ({})",
                ByteSize::from_bytes(record.block_bytes),
                omitted.why()
            ),
            next_step: format!("{}; {}", omitted.remedy(), order.next_attempt()),
        }
    }
}
