//! The nodes that the store has in service, as they were last reported.

use std::collections::BTreeSet;

use repair::NodeId;
use store_api::StoreChange;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct ServiceReport(BTreeSet<NodeId>);

impl ServiceReport {
    /// Reports the nodes that entered or left service since the last report.
    pub fn update(&mut self, now: BTreeSet<NodeId>) -> Vec<StoreChange> {
        let came = now.difference(&self.0).map(|&node| StoreChange::Service(node, true));
        let went = self.0.difference(&now).map(|&node| StoreChange::Service(node, false));
        let changes = came.chain(went).collect();
        self.0 = now;
        changes
    }

    /// Adds a node; returns whether it is new.
    pub fn insert(&mut self, node: NodeId) -> bool {
        self.0.insert(node)
    }

    /// Removes a node without a report.
    pub fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// Reports everything again next time, for a new listener.
    pub fn reset(&mut self) {
        self.0.clear();
    }

    /// Reports all nodes as they were last reported.
    pub fn repeat(&self) -> Vec<StoreChange> {
        self.0.iter().map(|&node| StoreChange::Service(node, true)).collect()
    }
}
