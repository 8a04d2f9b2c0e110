//! Helpers that are about to fail or to be taken away: they get no blocks, and are emptied by a drain.
//!
//! The mark outlives the drain and restarts of the coordinator, so that nothing is placed on a node that somebody is about
//! to remove. It goes when the drain is called off, or the mark is taken back. A drain that ends while blocks are left has
//! failed; another one like it begins by itself as soon as a helper can take one of them.

use std::collections::BTreeMap;

use repair::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stores::{RecordWrite, Write};

use crate::base::Base;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::nodes::Nodes;
use crate::out::Out;
use crate::repairs::orders::Order;
use crate::signal::Signal;
use crate::storing::Then;

/// Keys of marks in the records begin with this.
const PREFIX: &str = "leaving/";

/// Helpers that are to be emptied.
#[derive(Default)]
pub(crate) struct Leaving(BTreeMap<NodeId, Departure>);

/// A helper that is to be emptied.
#[derive(Default)]
struct Departure {
    /// The order that later drains repeat; none if an earlier version kept the mark.
    order: Option<Order>,
}

/// The same in the records.
#[derive(Serialize, Deserialize)]
struct Kept {
    since_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<Order>,
}

impl Leaving {
    pub(crate) fn contains(&self, node: &NodeId) -> bool {
        self.0.contains_key(node)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.0.keys().copied()
    }

    /// Marks a node; whether it was not marked, or for another order.
    pub(crate) fn insert(&mut self, node: NodeId, order: &Order) -> bool {
        let departure = self.0.entry(node).or_default();
        let is_new = departure.order.as_ref().is_none_or(|known| known.differs(order));
        departure.order = Some(order.clone());
        is_new
    }

    /// The order that later drains of a node repeat; none if an earlier version kept the mark.
    pub(crate) fn order(&self, node: NodeId) -> Option<&Order> {
        self.0.get(&node)?.order.as_ref()
    }

    /// The only helpers that get the blocks of a node; any if there are none.
    pub(crate) fn requestors(&self, node: NodeId) -> &[NodeId] {
        self.order(node).map_or(&[], |order| &order.requestors)
    }
}

impl Nodes {
    /// Marks that an earlier coordinator kept.
    pub(crate) fn recall_leaving(&mut self, records: &[(String, Value)]) {
        for (key, record) in records {
            let Some(id) = key.strip_prefix(PREFIX).and_then(|id| id.parse().ok()) else { continue };
            let kept: Option<Kept> = serde_json::from_value(record.clone()).ok();
            let order = kept.and_then(|kept| kept.order);
            self.leaving.0.insert(NodeId(id), Departure { order });
        }
    }

    pub(crate) fn mark_leaving(&mut self, base: &Base, node: NodeId, order: &Order, out: &mut Out) {
        if self.leaving.insert(node, order) {
            tracing::info!(node = %self.name(node), "it is to be emptied, and gets no blocks");
            out.keep_record(key(node), &Kept { since_unix_ms: base.unix_ms, order: Some(order.clone()) });
            out.tell(Signal::Node(node));
        }
    }

    pub(crate) fn unmark_leaving(&mut self, node: NodeId, out: &mut Out) {
        if self.leaving.0.remove(&node).is_some() {
            tracing::info!(node = %self.name(node), "it gets blocks again");
            out.store(Write::Records(RecordWrite::Remove(key(node))), Then::Nothing);
            out.tell(Signal::Node(node));
        }
    }
}

impl Jobs {
    /// Whether the catalog places nothing on a helper that is to be emptied, and nothing is on its way there.
    pub(crate) fn is_emptied(&self, facts: Facts<'_>, node: NodeId) -> bool {
        facts.stripes.picture.block_count(node) == 0 && !self.is_target(node)
    }
}

fn key(node: NodeId) -> String {
    format!("{PREFIX}{:010}", node.0)
}
