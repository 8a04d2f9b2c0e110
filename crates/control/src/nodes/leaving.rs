//! Drain marks: helpers that are about to fail or to be removed get no new blocks, and a drain empties them.
//!
//! The mark outlives the drain, and also restarts of the coordinator, so nothing is placed on a node that is
//! about to be removed. It is cleared when the drain is cancelled or an operator clears it. A drain that ends
//! with blocks left has failed. An identical drain starts automatically when a helper can accept one of those
//! blocks.

use repair::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store_api::{RecordWrite, Write};

use crate::base::Base;
use crate::nodes::node::Departure;
use crate::nodes::registry::Registry;
use crate::out::Out;
use crate::repairs::orders::Order;
use crate::signal::Signal;
use crate::storing::then::Then;

/// The prefix of the record keys of drain marks; the node's number follows.
const PREFIX: &str = "leaving/";

/// A drain mark, as the records store it.
#[derive(Serialize, Deserialize)]
struct Kept {
    since_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<Order>,
}

impl Registry {
    /// Restores the marks that an earlier coordinator recorded.
    pub(crate) fn recall_leaving(&mut self, records: &[(String, Value)]) {
        for (key, record) in records {
            let Some(id) = key.strip_prefix(PREFIX).and_then(|id| id.parse().ok()) else { continue };
            let kept: Option<Kept> = serde_json::from_value(record.clone()).ok();
            let order = kept.and_then(|kept| kept.order);
            if let Some(node) = self.get_mut(NodeId(id)) {
                node.departure = Some(Departure { order });
            }
        }
    }

    /// Marks a node for a drain. Returns whether the node had no mark, or one for another order.
    pub(crate) fn set_departure(&mut self, node: NodeId, order: &Order) -> bool {
        let Some(node) = self.get_mut(node) else { return false };
        let departure = node.departure.get_or_insert_default();
        let is_new = departure.order.as_ref().is_none_or(|known| known.differs(order));
        departure.order = Some(order.clone());
        is_new
    }

    /// Marks a node for a drain, and records the mark.
    pub(crate) fn mark_leaving(&mut self, base: &Base, node: NodeId, order: &Order, out: &mut Out) {
        if self.set_departure(node, order) {
            tracing::info!(helper = %self.name(node), "helper marked for a drain; it gets no new blocks");
            out.keep_record(key(node), &Kept { since_unix_ms: base.unix_ms, order: Some(order.clone()) });
            out.tell(Signal::Node(node));
        }
    }

    /// Clears the drain mark of a node.
    pub(crate) fn unmark_leaving(&mut self, node: NodeId, out: &mut Out) {
        if self.get_mut(node).and_then(|node| node.departure.take()).is_some() {
            tracing::info!(helper = %self.name(node), "drain mark cleared; the helper gets new blocks again");
            out.store(Write::Records(RecordWrite::Remove(key(node))), Then::Nothing);
            out.tell(Signal::Node(node));
        }
    }
}

impl Registry {
    fn departure(&self, node: NodeId) -> Option<&Departure> {
        self.get(node)?.departure.as_ref()
    }

    /// Whether a node is marked for a drain and gets no new blocks.
    pub(crate) fn is_leaving(&self, node: NodeId) -> bool {
        self.departure(node).is_some()
    }

    /// Returns the nodes that are marked for a drain.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.those(|node| node.departure.is_some())
    }

    /// Returns the order that later drains of a node repeat; `None` for a mark that an earlier version
    /// recorded.
    pub(crate) fn drain_order(&self, node: NodeId) -> Option<&Order> {
        self.departure(node)?.order.as_ref()
    }

    /// Returns the only helpers that may receive a drained node's blocks; empty if any helper may.
    pub(crate) fn drain_requestors(&self, node: NodeId) -> &[NodeId] {
        self.drain_order(node).map_or(&[], |order| &order.requestors)
    }
}

fn key(node: NodeId) -> String {
    format!("{PREFIX}{:010}", node.0)
}
