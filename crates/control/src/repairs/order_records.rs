//! Orders in the coordinator's records. After a restart, the coordinator queues the recorded orders again.

use serde_json::Value;
use store_api::{RecordWrite, Write};

use crate::repairs::orders::Order;

/// The prefix of the record keys of orders; the repair's number follows.
const QUEUE_PREFIX: &str = "repair/";

/// Returns the write that stores an order. The record is removed when the repair ends.
pub(crate) fn kept(id: u64, order: &Order) -> Write {
    let record = serde_json::to_value(order).expect("an order has string keys");
    Write::Records(RecordWrite::Put(queue_key(id), record))
}

/// Returns the write that removes the order of a repair that has ended or was dropped.
pub(crate) fn dropped(id: u64) -> Write {
    Write::Records(RecordWrite::Remove(queue_key(id)))
}

fn queue_key(id: u64) -> String {
    format!("{QUEUE_PREFIX}{id:020}")
}

/// Returns the orders that an earlier coordinator recorded, by the numbers of their repairs. Records that
/// cannot be decoded yield their key as an error.
pub(crate) fn kept_orders(records: &[(String, Value)]) -> impl Iterator<Item = Result<(u64, Order), &str>> {
    records.iter().filter_map(|(key, record)| {
        let id = key.strip_prefix(QUEUE_PREFIX)?;
        let order = id.parse().ok().zip(serde_json::from_value(record.clone()).ok());
        Some(order.ok_or(key.as_str()))
    })
}
