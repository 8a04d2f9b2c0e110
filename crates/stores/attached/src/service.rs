//! The nodes that the store has in service, as they were last reported.

use std::collections::BTreeSet;

use repair::NodeId;
use store_api::StoreChange;

/// The nodes from which the store serves blocks, as last reported.
#[derive(Debug, Default)]
pub struct ServiceReport(BTreeSet<NodeId>);

impl ServiceReport {
    /// Returns the nodes that entered or left service since the last report, and stores `now` as reported.
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

    /// Removes a node without reporting that it left service.
    pub fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// Forgets all nodes, so that the next [`update`](Self::update) returns every node in service to a new
    /// listener.
    pub fn reset(&mut self) {
        self.0.clear();
    }

    /// Returns all nodes in service, as last reported.
    pub fn repeat(&self) -> Vec<StoreChange> {
        self.0.iter().map(|&node| StoreChange::Service(node, true)).collect()
    }
}
