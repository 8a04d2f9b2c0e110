//! Orders in the coordinator's records: after a restart the coordinator queues them again.

use serde_json::Value;
use store_api::{RecordWrite, Write};

use crate::repairs::orders::Order;

/// Keys of repairs in the records begin with this.
const QUEUE_PREFIX: &str = "repair/";

/// The write that keeps an order until its repair ends.
pub(crate) fn kept(id: u64, order: &Order) -> Write {
    let record = serde_json::to_value(order).expect("an order has string keys");
    Write::Records(RecordWrite::Put(queue_key(id), record))
}

/// The write that removes the order of a repair that has ended or is not wanted any more.
pub(crate) fn dropped(id: u64) -> Write {
    Write::Records(RecordWrite::Remove(queue_key(id)))
}

fn queue_key(id: u64) -> String {
    format!("{QUEUE_PREFIX}{id:020}")
}

/// The orders that an earlier coordinator kept, by the numbers of their repairs; or the keys of those that
/// cannot be read.
pub(crate) fn kept_orders(records: &[(String, Value)]) -> impl Iterator<Item = Result<(u64, Order), &str>> {
    records.iter().filter_map(|(key, record)| {
        let id = key.strip_prefix(QUEUE_PREFIX)?;
        let order = id.parse().ok().zip(serde_json::from_value(record.clone()).ok());
        Some(order.ok_or(key.as_str()))
    })
}
