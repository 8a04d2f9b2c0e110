//! Returned helpers. The scheduler suspends the stripes of their blocks until the helpers have described
//! these blocks.

use std::collections::BTreeSet;

use repair::wire::control::{Description, ToNode};
use repair::{NodeId, StripeId};
use store_api::BlockState;

use crate::control::{Control, outer_facts};
use crate::helper_queries::Subject;
use crate::nodes::node::Unproven;
use crate::stripes::returned::PATIENCE;

impl Control {
    /// Asks a known helper that has returned to describe its blocks.
    pub(crate) fn check_returned(&mut self, node: NodeId) {
        // During the start-up phase, no helper counts as returned. A store that itself reports which servers
        // are in service needs no descriptions.
        if self.base.store.reports_service()
            || !self.nodes.settled
            || self.stripes.picture.block_count(node) == 0
        {
            return;
        }
        let mut stripes: Vec<StripeId> =
            self.stripes.picture.blocks_of(node).into_iter().map(|(stripe, _)| stripe).collect();
        stripes.dedup();
        self.repairs.hold(&stripes);
        let unproven = Unproven { stripes, described: BTreeSet::new(), until: self.base.now + PATIENCE };
        self.nodes.registry.await_description(node, unproven);
        let ask = self.out.queries.open(node, Subject::Returned, self.base.now);
        self.nodes.send(node, ToNode::Describe { ask }, &mut self.out);
    }

    /// Compares descriptions of a returned helper's blocks with the recorded digests.
    pub(crate) fn take_returned(&mut self, node: NodeId, blocks: &[Description], last: bool) {
        self.nodes.registry.note_described(node, blocks.iter().map(|block| block.id.clone()));
        let mut bad = Vec::new();
        for block in blocks {
            let Some((stripe, index)) = self.stripes.contradicted_by(node, block) else { continue };
            let problem = "its digest differs from the recorded one".to_owned();
            self.stripes.remember_loss(outer_facts!(self), node, &block.id, problem, &mut self.out);
            self.repairs.note_bad_block(&stripe, index, node);
            bad.push((stripe, index, node, BlockState::Corrupt));
        }
        if !bad.is_empty() {
            self.stripes.store_states(outer_facts!(self), bad, &mut self.out);
        }
        if last {
            self.end_returned(node, true);
        }
    }

    /// Stops waiting for descriptions of a returned helper, because it has sent the last of them or the deadline has
    /// passed. If it has answered, the blocks that it has not described are verified. Without any answer, repairs rely
    /// on all its blocks: it may just be slow, and bad blocks will be found when they are read.
    pub(crate) fn end_returned(&mut self, node: NodeId, has_answered: bool) {
        let Some(unproven) = self.nodes.registry.end_description(node) else { return };
        if has_answered {
            self.stripes.look_at_silent(outer_facts!(self), node, &unproven.described, &mut self.out);
        }
        self.repairs.let_go(&unproven.stripes);
    }
}
