//! What the scheduler is told: nodes as they come and go and fill up, blocks as they are lost and found, and who
//! else works on a stripe.

use repair::recovery::{Loads, NodeFacts, ReservationId};
use repair::{Job, NodeId, StripeId};

use super::Control;
use crate::stripes::indexed;

impl Control {
    /// A helper has come, or something else is known of it.
    pub(crate) fn tell_node(&mut self, node: NodeId) {
        let Some(view) = self.nodes.topology.get(node) else { return };
        let facts = NodeFacts {
            alive: self.nodes.is_helper(node)
                && (!self.base.nature.tells_service || self.stripes.picture.is_up(node)),
            rack: view.rack.clone(),
            free_bytes: view.free_bytes,
            blocks: self.stripes.picture.block_count(node) as u64,
            budget: self.facts().budget(node),
            draining: self.nodes.leaving.contains(&node),
        };
        self.repairs.scheduler.set_node(node, facts);
    }

    /// What a helper holds, or has room for, has changed.
    pub(crate) fn tell_space(&mut self, node: NodeId) {
        if let Some(view) = self.nodes.topology.get(node)
            && self.nodes.is_helper(node)
        {
            let blocks = self.stripes.picture.block_count(node) as u64;
            self.repairs.scheduler.handle_space(node, blocks, view.free_bytes);
        }
    }

    pub(crate) fn tell_node_lost(&mut self, node: NodeId) {
        self.repairs.scheduler.handle_node(node, false);
    }

    /// Something else is in the catalog of these blocks of a stripe.
    pub(crate) fn tell_blocks(&mut self, stripe: &StripeId) {
        let Ok(record) = self.stripes.stripe_record(stripe) else { return };
        for (index, block) in indexed(&record) {
            let facts = self.facts().block_facts(block);
            self.repairs.scheduler.handle_block(stripe, index, facts);
        }
    }

    /// A node has come or gone: of what is on others as well, one of those counts now.
    pub(crate) fn tell_replicas(&mut self, node: NodeId) {
        for stripe in self.stripes.picture.replicated_on(node) {
            self.tell_blocks(&stripe);
        }
    }

    /// Reserves what a read or a put moves.
    pub(crate) fn reserve(&mut self, job: &Job, stores: bool) -> Option<ReservationId> {
        let loads = Loads::of(job.running_plan()?, stores);
        Some(self.repairs.scheduler.reserve(&loads))
    }
}
