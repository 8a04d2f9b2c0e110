//! Reports of helpers on how clients use them.

use repair::NodeId;
use repair::wire::control::BlockHeat;

use crate::Control;

impl Control {
    pub(super) fn note_user_load(&mut self, node: NodeId, bytes_per_s: u64) {
        if let Some(usage) = self.nodes.registry.usage_mut(node) {
            usage.user_bytes_per_s = bytes_per_s;
            self.repairs.scheduler.handle_user_load(node, bytes_per_s);
        }
    }

    pub(super) fn note_heat(&mut self, node: NodeId, mut changes: Vec<BlockHeat>) {
        let Some(usage) = self.nodes.registry.usage_mut(node) else { return };
        changes.retain(|change| usage.note(change));
        for change in &changes {
            self.repairs.tell_heat(facts!(self), node, change);
        }
    }
}
