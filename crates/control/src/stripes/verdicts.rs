//! Applies the results of reading and verifying blocks.

use codes::BlockIndex;
use repair::{BlockId, BlockProblem, NodeId, StripeId};
use store_api::{BlockRecord, BlockState};

use crate::facts::OuterFacts;
use crate::helper_queries::state_for;
use crate::out::Out;
use crate::stripes::Stripes;

impl Stripes {
    /// Asks a helper to verify a block, after a failed read that says nothing about the block itself.
    pub(crate) fn look_again(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        stripe: StripeId,
        index: BlockIndex,
        known: BlockRecord,
        out: &mut Out,
    ) {
        if !out.queries.is_verifying_block(node, &known.id) && outer.nodes.is_connected(node) {
            outer.with(self).ask_for_block(node, stripe, index, known, false, out);
        }
    }
}

impl Stripes {
    pub(crate) fn apply_verdict(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        (stripe, index): (&StripeId, BlockIndex),
        known: &BlockRecord,
        problem: Option<&BlockProblem>,
        out: &mut Out,
    ) {
        let Some(state) = problem.map_or(Some(BlockState::Healthy), state_for) else { return };
        if [Some(state), Some(BlockState::NotStored)].contains(&known.state_on(node)) {
            return;
        }
        if let Some(problem) = problem {
            self.remember_loss(outer, node, &known.id, problem.to_string(), out);
        }
        self.store_states(outer, vec![(stripe.clone(), index, node, state)], out);
    }

    pub(crate) fn note_loss(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        block: &BlockId,
        state: BlockState,
        out: &mut Out,
    ) {
        let problem = if state == BlockState::Missing { "missing" } else { "of the wrong length" };
        self.remember_loss(outer, node, block, problem.to_owned(), out);
    }

    /// Adds a bad block to the status and to the history.
    pub(crate) fn remember_loss(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        block: &BlockId,
        problem: String,
        out: &mut Out,
    ) {
        out.note_bad(node, block, &problem);
        let node = outer.nodes.name(node);
        tracing::warn!(%block, %node, problem, "a block is bad");
        if self.lost_lately.len() == crate::LOST_REMEMBERED {
            self.lost_lately.pop_front();
        }
        self.lost_lately.push_back(views::LostBlock {
            block: block.to_string(),
            node,
            problem,
            at_unix_ms: outer.base.unix_ms,
        });
    }
}

impl Stripes {
    /// Records that parity has shown a block to be wrong. The block counts as lost until it is rebuilt.
    pub(crate) fn condemn(
        &mut self,
        outer: OuterFacts<'_>,
        stripe: &StripeId,
        index: codes::BlockIndex,
        node: NodeId,
        out: &mut Out,
    ) {
        let Ok(record) = self.picture.stripe(stripe) else { return };
        let block = record.blocks[usize::from(index.0)].id.clone();
        let Some(problem) = self.condemned.add(stripe, &block, node, out) else { return };
        self.remember_loss(outer, node, &block, problem.to_string(), out);
        self.store_states(outer, vec![(stripe.clone(), index, node, BlockState::Corrupt)], out);
    }
}
