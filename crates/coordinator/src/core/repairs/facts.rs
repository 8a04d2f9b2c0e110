//! What the scheduler is told: nodes as they come and go and fill up, blocks as they are lost and found, and who
//! else works on a stripe.

use repair::recovery::{BlockFacts, Loads, NodeFacts, ReservationId};
use repair::{Job, NodeId, StripeId};
use stores::{BlockRecord, BlockState};

use super::Core;
use crate::core::stripes::indexed;

impl Core {
    /// A helper has come, or something else is known of it.
    pub(in crate::core) fn tell_node(&mut self, node: NodeId) {
        let Some(view) = self.topology.get(node) else { return };
        let facts = NodeFacts {
            alive: self.is_helper(node),
            rack: view.rack.clone(),
            free_bytes: view.free_bytes,
            blocks: self.picture.block_count(node) as u64,
            budget: self.budget(node),
            draining: self.leaving.contains(&node),
        };
        self.repairs.scheduler.set_node(node, facts);
    }

    /// What a helper holds, or has room for, has changed.
    pub(in crate::core) fn tell_space(&mut self, node: NodeId) {
        if let Some(view) = self.topology.get(node)
            && self.is_helper(node)
        {
            let blocks = self.picture.block_count(node) as u64;
            self.repairs.scheduler.handle_space(node, blocks, view.free_bytes);
        }
    }

    pub(in crate::core) fn tell_node_lost(&mut self, node: NodeId) {
        self.repairs.scheduler.handle_node(node, false);
    }

    /// Something else is in the catalog of these blocks of a stripe.
    pub(in crate::core) fn tell_blocks(&mut self, stripe: &StripeId) {
        let Ok(record) = self.stripe_record(stripe) else { return };
        for (index, block) in indexed(&record) {
            self.repairs.scheduler.handle_block(stripe, index, block_facts(block));
        }
    }

    /// Reserves what a read or a put moves.
    pub(in crate::core) fn reserve(&mut self, job: &Job, stores: bool) -> Option<ReservationId> {
        let loads = Loads::of(job.running_plan()?, stores);
        Some(self.repairs.scheduler.reserve(&loads))
    }
}

/// What the catalog says of a block.
pub(super) fn block_facts(block: &BlockRecord) -> BlockFacts {
    let good = block.state == BlockState::Healthy;
    BlockFacts { node: block.node, good }
}
