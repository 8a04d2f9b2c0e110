//! Helpers that are about to fail or to be taken away: they get no blocks, and are emptied by a drain.
//!
//! The mark outlives the drain and restarts of the coordinator, so that nothing is placed on a node that somebody is about
//! to remove. It goes when the drain is called off, or the mark is taken back.

use repair::NodeId;
use repair::recovery::Target;
use serde_json::{Value, json};
use stores::{RecordWrite, Write};

use super::storing::Then;
use super::{Core, unix_ms};
use crate::error::RequestError;
use views::{LeavingView, NodeView};

/// Keys of marks in the records begin with this.
const PREFIX: &str = "leaving/";

impl Core {
    /// Marks that an earlier coordinator kept.
    pub(super) fn recall_leaving(&mut self, records: &[(String, Value)]) {
        let ids = records.iter().filter_map(|(key, _)| key.strip_prefix(PREFIX)?.parse().ok());
        self.leaving.extend(ids.map(NodeId));
    }

    pub(super) fn mark_leaving(&mut self, node: NodeId) {
        if self.leaving.insert(node) {
            tracing::info!(node = %self.name(node), "it is to be emptied, and gets no blocks");
            let mark = json!({ "since_unix_ms": unix_ms() });
            self.store(Write::Records(RecordWrite::Put(key(node), mark)), Then::Nothing);
            self.tell_node(node);
        }
    }

    pub(super) fn unmark_leaving(&mut self, node: NodeId) {
        if self.leaving.remove(&node) {
            tracing::info!(node = %self.name(node), "it gets blocks again");
            self.store(Write::Records(RecordWrite::Remove(key(node))), Then::Nothing);
            self.tell_node(node);
        }
    }

    /// Takes the mark of a helper back, and calls off what empties it.
    pub(super) fn stop_drain(&mut self, name: &str) -> Result<NodeView, RequestError> {
        let node = self.node_named(name)?;
        for repair in self.open_repairs_of(&Target::Drain(node)) {
            self.cancel_repair(repair)?;
        }
        self.unmark_leaving(node);
        self.node_view(node)
    }

    /// Whether the catalog places nothing on a helper that is to be emptied, and nothing is on its way there.
    fn is_emptied(&self, node: NodeId) -> bool {
        self.picture.block_count(node) == 0 && !self.is_target(node)
    }

    pub(super) fn leaving_views(&self) -> Vec<LeavingView> {
        let view = |&node: &NodeId| LeavingView {
            node: self.name(node),
            blocks: self.picture.block_count(node) as u64,
            safe_to_remove: self.is_emptied(node),
        };
        self.leaving.iter().map(view).collect()
    }
}

fn key(node: NodeId) -> String {
    format!("{PREFIX}{:010}", node.0)
}
