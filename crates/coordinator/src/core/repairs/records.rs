//! What was asked for, in the catalog's queue.

use stores::CatalogError;

use super::{Core, Order, log_error};
use crate::error::RequestError;

/// Keys of repairs in the catalog's queue begin with this.
const QUEUE_PREFIX: &str = "repair/";

impl Core {
    /// Repairs that an earlier coordinator did not end start anew.
    pub(in crate::core) fn requeue_repairs(&mut self) -> Result<(), CatalogError> {
        for (key, record) in self.catalog.queue_list(QUEUE_PREFIX)? {
            let id = key.strip_prefix(QUEUE_PREFIX).and_then(|id| id.parse().ok());
            match (id, serde_json::from_value(record)) {
                (Some(id), Ok(order)) => self.repairs.add(id, order),
                _ => {
                    tracing::warn!(key, "a queued repair that cannot be read is dropped");
                    self.catalog.queue_remove(&key)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn keep_order(&mut self, id: u64, order: &Order) -> Result<(), RequestError> {
        let record = serde_json::to_value(order).expect("an order has string keys");
        Ok(self.catalog.queue_put(&queue_key(id), &record)?)
    }

    pub(super) fn drop_order(&mut self, id: u64) {
        log_error(self.catalog.queue_remove(&queue_key(id)));
    }
}

fn queue_key(id: u64) -> String {
    format!("{QUEUE_PREFIX}{id:020}")
}
