//! What was asked for, in the coordinator's records.

use store_api::{RecordWrite, Write};

use crate::out::Out;
use crate::repairs::Order;
use crate::repairs::Repairs;
use crate::storing::Then;

/// Keys of repairs in the records begin with this.
pub(crate) const QUEUE_PREFIX: &str = "repair/";

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
