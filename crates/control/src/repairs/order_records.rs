//! Orders in the coordinator's records: after a restart the coordinator queues them again.

use serde_json::Value;
use stores::{RecordWrite, Write};

use crate::out::Out;
use crate::repairs::orders::Order;
use crate::storing::Then;

/// Keys of repairs in the records begin with this.
const QUEUE_PREFIX: &str = "repair/";

/// The write that keeps an order until its repair ends.
pub(crate) fn kept(id: u64, order: &Order) -> Write {
    let record = serde_json::to_value(order).expect("an order has string keys");
    Write::Records(RecordWrite::Put(queue_key(id), record))
}

/// Removes the order of a repair that has ended or is not wanted any more.
pub(crate) fn drop_order(id: u64, out: &mut Out) {
    out.store(Write::Records(RecordWrite::Remove(queue_key(id))), Then::Nothing);
}

fn queue_key(id: u64) -> String {
    format!("{QUEUE_PREFIX}{id:020}")
}

/// The orders that an earlier coordinator kept, by the numbers of their repairs.
pub(crate) fn recall_orders(records: &[(String, Value)], out: &mut Out) -> Vec<(u64, Order)> {
    let mut orders = Vec::new();
    for (key, record) in records {
        let Some(id) = key.strip_prefix(QUEUE_PREFIX) else { continue };
        match (id.parse(), serde_json::from_value(record.clone())) {
            (Ok(id), Ok(order)) => orders.push((id, order)),
            _ => {
                tracing::warn!(key, "a queued repair that cannot be read is dropped");
                out.forget_record(key.clone());
            }
        }
    }
    orders
}
