//! Attempts of automatic repairs, per helper.

use std::collections::BTreeMap;
use std::time::Duration;

use repair::NodeId;

use crate::repairs::attempts::Attempts;

/// Automatic repairs of one kind, by helper.
#[derive(Default)]
pub(crate) struct Automatic(BTreeMap<NodeId, Tries>);

/// The attempts for one helper.
#[derive(Default)]
pub(crate) struct Tries {
    /// The number of the running automatic repair.
    pub repair: Option<u64>,
    pub attempts: Attempts,
}

impl Automatic {
    /// Returns mutable access to the attempts for a helper.
    pub(crate) fn of(&mut self, node: NodeId) -> &mut Tries {
        self.0.entry(node).or_default()
    }

    pub(crate) fn get(&self, node: NodeId) -> Option<&Tries> {
        self.0.get(&node)
    }

    /// Returns the number of the running automatic repair of a helper.
    pub(crate) fn repair(&self, node: NodeId) -> Option<u64> {
        self.0.get(&node).and_then(|tries| tries.repair)
    }

    /// Returns the time that the next repair must wait because earlier ones have failed.
    pub(crate) fn wait(&self, node: NodeId, now: Duration) -> Duration {
        self.0.get(&node).map_or(Duration::ZERO, |tries| tries.attempts.wait(now))
    }

    pub(crate) fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }
}
