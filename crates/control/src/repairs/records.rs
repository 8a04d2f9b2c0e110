//! What was asked for, in the coordinator's records.

use repair::recovery::Target;
use serde_json::Value;
use stores::{RecordWrite, Write};

use crate::out::Out;
use crate::repairs::Repairs;
use crate::repairs::{Control, Order};
use crate::storing::Then;

/// Keys of repairs in the records begin with this.
const QUEUE_PREFIX: &str = "repair/";

impl Control {
    /// Repairs that an earlier coordinator did not end start anew.
    pub(crate) fn requeue_repairs(&mut self, records: &[(String, Value)]) {
        for (key, record) in records.iter().filter(|(key, _)| key.starts_with(QUEUE_PREFIX)) {
            let id = key.strip_prefix(QUEUE_PREFIX).and_then(|id| id.parse().ok());
            match (id, serde_json::from_value(record.clone())) {
                (Some(id), Ok(order)) => self.requeue(id, order),
                _ => {
                    tracing::warn!(key, "a queued repair that cannot be read is dropped");
                    self.out.store(Write::Records(RecordWrite::Remove(key.clone())), Then::Nothing);
                }
            }
        }
    }

    fn requeue(&mut self, id: u64, order: Order) {
        if let Target::Drain(node) = order.target {
            self.nodes.leaving.insert(node, &order); // The mark may not have been kept.
        }
        if let Some(given) = &order.given {
            self.stripes.recall_given(around!(self), given.stripe.clone());
        }
        self.repairs.add(id, order);
    }
}

impl Repairs {
    pub(crate) fn drop_order(&mut self, id: u64, out: &mut Out) {
        out.store(Write::Records(RecordWrite::Remove(queue_key(id))), Then::Nothing);
    }
}

fn queue_key(id: u64) -> String {
    format!("{QUEUE_PREFIX}{id:020}")
}

/// What keeps an order until it ends.
pub(crate) fn kept(id: u64, order: &Order) -> Write {
    let record = serde_json::to_value(order).expect("an order has string keys");
    Write::Records(RecordWrite::Put(queue_key(id), record))
}
