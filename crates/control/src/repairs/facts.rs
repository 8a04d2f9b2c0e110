//! What the scheduler is told: nodes as they come and go and fill up, blocks as they are lost and found, and who
//! else works on a stripe.

use repair::recovery::{Loads, NodeFacts, ReservationId};
use repair::{Job, NodeId, StripeId};

use crate::facts::Facts;
use crate::repairs::Repairs;
use crate::stripes::indexed;

impl Repairs {
    /// A helper has come, or something else is known of it.
    pub(crate) fn tell_node(&mut self, facts: Facts<'_>, node: NodeId) {
        let Some(view) = facts.nodes.topology.get(node) else { return };
        let facts = NodeFacts {
            alive: facts.nodes.is_helper(node)
                && (!facts.base.nature.tells_service || facts.stripes.picture.is_up(node)),
            rack: view.rack.clone(),
            free_bytes: view.free_bytes,
            blocks: facts.stripes.picture.block_count(node) as u64,
            budget: facts.nodes.budget(facts.base, node),
            draining: facts.nodes.registry.is_leaving(node),
        };
        self.scheduler.set_node(node, facts);
    }

    /// What a helper holds, or has room for, has changed.
    pub(crate) fn tell_space(&mut self, facts: Facts<'_>, node: NodeId) {
        if let Some(view) = facts.nodes.topology.get(node)
            && facts.nodes.is_helper(node)
        {
            let blocks = facts.stripes.picture.block_count(node) as u64;
            self.scheduler.handle_space(node, blocks, view.free_bytes);
        }
    }

    pub(crate) fn tell_node_lost(&mut self, node: NodeId) {
        self.scheduler.handle_node(node, false);
    }

    /// Something else is in the catalog of these blocks of a stripe.
    pub(crate) fn tell_blocks(&mut self, facts: Facts<'_>, stripe: &StripeId) {
        let Ok(record) = facts.stripes.stripe_record(stripe) else { return };
        for (index, block) in indexed(&record) {
            let facts = facts.block_facts(block);
            self.scheduler.handle_block(stripe, index, facts);
        }
    }

    /// A node has come or gone: of what is on others as well, one of those counts now.
    pub(crate) fn tell_replicas(&mut self, facts: Facts<'_>, node: NodeId) {
        for stripe in facts.stripes.picture.replicated_on(node) {
            self.tell_blocks(facts, &stripe);
        }
    }

    /// Reserves what a read or a put moves.
    pub(crate) fn reserve(&mut self, job: &Job, stores: bool) -> Option<ReservationId> {
        let loads = Loads::of(job.running_plan()?, stores);
        Some(self.scheduler.reserve(&loads))
    }
}
