//! Applies the results of reading and verifying blocks.

use codes::BlockIndex;
use repair::{BlockId, BlockProblem, NodeId, StripeId};
use store_api::{BlockRecord, BlockState};

use crate::facts::OuterFacts;
use crate::helper_queries::state_for;
use crate::jobs::{Jobs, RunningJob};
use crate::out::Out;
use crate::stripes::Stripes;
use crate::stripes::indices::indexed;

/// The largest number of bad blocks that the status lists.
const LOST_REMEMBERED: usize = 100;

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
        let is_known =
            [Some(state), Some(BlockState::NotStored)].contains(&self.unrecorded.latest(known, node));
        // A bad state that could not be recorded is not in the catalog, and must be overruled all the same.
        if is_known && !self.unrecorded.is_left_over(&known.id, node) {
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
        tracing::warn!(%block, helper = %node, problem, "a block is bad");
        if self.lost_lately.len() == LOST_REMEMBERED {
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
    /// Records that parity has shown a block to be wrong. The block counts as lost until it is rebuilt, even if a
    /// plug-in describes its stripe again. A repair ignores the recorded digest of the block, so full reads must
    /// have shown before that no other block is the wrong one.
    pub(crate) fn condemn(
        &mut self,
        outer: OuterFacts<'_>,
        stripe: &StripeId,
        index: codes::BlockIndex,
        node: NodeId,
        out: &mut Out,
    ) {
        let listed = self.picture.stripe(stripe).ok();
        let is_listed = listed.is_some();
        let Some(record) = listed.or_else(|| self.given.get(stripe).cloned()) else { return };
        let Some(block) = record.block(index).map(|block| block.id.clone()) else { return };
        let Some(problem) = self.condemned.add(stripe, &block, node, out) else { return };
        self.remember_loss(outer, node, &block, problem.to_string(), out);
        self.given.note_lost(stripe, index, node, BlockState::Corrupt, out);
        if is_listed {
            self.store_states(outer, vec![(stripe.clone(), index, node, BlockState::Corrupt)], out);
        }
    }
}

/// Marks as corrupt the condemned copies that a stripe's record contains as healthy, because the store lists them again.
/// Copies that a job has just rebuilt are left out, until that is recorded.
pub(crate) fn mark_condemned(
    stripes: &mut Stripes,
    outer: OuterFacts<'_>,
    jobs: &Jobs,
    stripe: &StripeId,
    out: &mut Out,
) {
    let is_recording = |job: &RunningJob| job.stripe == *stripe && job.recording > 0;
    if stripes.condemned.is_empty() || jobs.running.values().any(is_recording) {
        return;
    }
    let Ok(record) = stripes.picture.stripe(stripe) else { return };
    let mut wrong = Vec::new();
    for (index, block) in indexed(&record) {
        for holder in block.holders().filter(|holder| holder.state == BlockState::Healthy) {
            let is_condemned = stripes.condemned.problem(&block.id, holder.node).is_some();
            if is_condemned && !stripes.unrecorded.is_bad(&block.id, holder.node) {
                wrong.push((stripe.clone(), index, holder.node, BlockState::Corrupt));
            }
        }
    }
    if !wrong.is_empty() {
        stripes.store_states(outer, wrong, out);
    }
}
