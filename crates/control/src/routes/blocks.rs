//! Answers of helpers about their blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::{Description, HeldBlock, StoreProblem};
use repair::{BlockId, BlockProblem, Digest, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, RecordWrite, StorePolicy, Write};
use views::FoundBy;

use crate::control::{Control, facts, outer_facts};
use crate::helper_queries::{Query, Subject, other_digest, state_for};
use crate::repairs::scheduler_facts::{tell_blocks, tell_replicas};
use crate::stripes::Stripes;
use crate::stripes::continuation::StripeThen;
use crate::stripes::inventory::is_known_by_name;

impl Control {
    /// Closes expired queries to connected helpers, and continues without the answers.
    pub(crate) fn expire_asks(&mut self) {
        for (number, Query { node, subject, has_begun, .. }) in self.out.queries.expire(self.base.now) {
            tracing::warn!(
                helper = %self.nodes.name(node),
                "a helper did not answer in time; its disk may not respond"
            );
            self.repairs.note_verified((number, node), None, None);
            match subject {
                Subject::Block { stripe, index, known, scrub: false } => {
                    try_again_later(&mut self.stripes, node, &known, self.base.now);
                    self.scrub.reported.note_unanswered(&self.nodes, node, stripe, index);
                    self.stripes.recheck_next(outer_facts!(self), node, &mut self.out)
                }
                // A helper whose disk fails would read all its checksum files again and again.
                Subject::Tidying if has_begun => {
                    self.stripes.end_tidying(outer_facts!(self), &self.jobs, node);
                }
                Subject::Orphans | Subject::Tidying | Subject::Newer => {}
                Subject::Returned => self.end_returned(node, has_begun),
                Subject::Block { .. } | Subject::List => {
                    self.scrub.skip_in_scrub(facts!(self), node, "it does not answer", &mut self.out)
                }
            }
        }
    }

    /// Handles a helper's answer about a block that it was asked to verify.
    pub(crate) fn take_verified(
        &mut self,
        node: NodeId,
        number: u64,
        block: &BlockId,
        result: Result<Option<Digest>, BlockProblem>,
    ) {
        let is_asked = matches!(self.out.queries.subject(node, number), Some(Subject::Block { .. }));
        let asked = is_asked.then(|| self.out.queries.close(node, number)).flatten();
        let Some(Subject::Block { stripe, index, known, scrub }) = asked else { return };
        // Whoever forges a block can forge its checksums too. So a block that parity showed to be wrong stays
        // wrong even if its checksums match.
        let result = match self.stripes.condemned.problem(&known.id, node) {
            Some(problem) => result.and(Err(problem)),
            None if known.id != *block => {
                Err(BlockProblem::Unavailable(format!("its helper answered about block {block}")))
            }
            None => result,
        };
        let digest = result.as_ref().ok().copied();
        let problem = problem_of(&known, result);
        // A verdict about an outdated record is ignored, but a block that is recorded there by now is verified again.
        let current = self.stripes.picture.stripe(&stripe).ok();
        let current = current.and_then(|record| record.blocks.into_iter().nth(usize::from(index.0)));
        let verified = Verified { node, stripe, index, known, current, digest, problem };
        if !scrub && verified.is_unsettled() {
            try_again_later(&mut self.stripes, node, &verified.known, self.base.now);
        }
        heed(self, &verified);
        let (answer, is_good) = ((node, number), verified.state() == Some(BlockState::Healthy));
        self.surplus.note_answer(facts!(self), &self.jobs, answer, is_good, &mut self.out);
        self.repairs.note_verified((number, node), Some(verified.index), verified.state());
        if !scrub {
            return self.stripes.recheck_next(outer_facts!(self), node, &mut self.out);
        }
        let Verified { stripe, known, .. } = &verified;
        self.scrub.count_in_scrub(facts!(self), node, number, stripe, known, verified.for_scrub());
    }

    /// Handles a helper's list of its blocks, or the reason why it could not list them. The scrub continues
    /// either way.
    pub(crate) fn take_list(
        &mut self,
        node: NodeId,
        number: u64,
        listed: Result<&[HeldBlock], &StoreProblem>,
    ) {
        if !matches!(self.out.queries.subject(node, number), Some(Subject::List)) {
            return;
        }
        self.out.queries.close(node, number);
        match listed {
            Ok(blocks) => {
                self.stripes.note_orphans(outer_facts!(self), node, blocks, &mut self.out);
                self.scrub.listed_in_scrub(node);
            }
            Err(problem) => {
                tracing::warn!(helper = %self.nodes.name(node), %problem, "cannot list the blocks of a helper");
                let why = format!("it cannot list its blocks: {problem}");
                self.scrub.unlisted_in_scrub(facts!(self), node, why, &mut self.out);
            }
        }
    }

    /// Handles a helper's descriptions of its blocks. Removes the orphans among them if their labels and the
    /// catalog prove that no stripe needs them.
    pub(crate) fn take_described(&mut self, node: NodeId, ask: u64, blocks: &[Description], last: bool) {
        let (returned, by_itself) = match self.out.queries.subject(node, ask) {
            Some(Subject::Orphans) => (false, false),
            Some(Subject::Tidying) => (false, true),
            Some(Subject::Returned) => (true, false),
            Some(Subject::Newer) => {
                match last {
                    true => drop(self.out.queries.close(node, ask)),
                    false => self.out.queries.wait(node, ask, self.base.now),
                }
                return self.stripes.newer.note_begun(&self.base, blocks, &mut self.out);
            }
            _ => {
                return tracing::warn!(helper = %self.nodes.name(node), "ignoring an unsolicited answer");
            }
        };
        match last {
            true => drop(self.out.queries.close(node, ask)),
            false => self.out.queries.wait(node, ask, self.base.now), // More parts will follow.
        }
        self.stripes.newer.note_begun(&self.base, blocks, &mut self.out);
        if returned {
            return self.take_returned(node, blocks, last);
        }
        for block in blocks {
            let is_proven = !by_itself || self.facts().is_unreferenced(node, &block.id);
            if is_proven && self.jobs.is_needless(facts!(self), node, block) {
                tracing::info!(block = %block.id, helper = %self.nodes.name(node), "removing a block that nothing refers to");
                let then = StripeThen::Needless { node, block: block.id.clone() };
                self.out.store(Write::Records(RecordWrite::Discard(node, block.id.clone())), then);
            }
        }
        if by_itself && last {
            self.stripes.end_tidying(outer_facts!(self), &self.jobs, node);
        }
    }
}

/// A helper's answer about a block.
struct Verified {
    node: NodeId,
    stripe: StripeId,
    index: BlockIndex,
    /// The block's record at the time of the query.
    known: BlockRecord,
    /// The block's record now.
    current: Option<BlockRecord>,
    /// The digest that the helper has computed, if it could read the block and has checksums.
    digest: Option<Option<Digest>>,
    problem: Option<BlockProblem>,
}

impl Verified {
    /// Whether the record is the same as at the time of the query.
    fn is_current(&self) -> bool {
        self.current.as_ref() == Some(&self.known)
    }

    /// Whether the answer does not decide the state of a recorded copy.
    fn is_unsettled(&self) -> bool {
        let is_unsettled =
            |problem: &BlockProblem| state_for(problem).is_none() || self.known.state_on(self.node).is_none();
        self.problem.as_ref().is_some_and(is_unsettled)
    }

    /// Returns the state of the recorded block; `None` if the answer does not tell.
    fn state(&self) -> Option<BlockState> {
        let state = self.problem.as_ref().map_or(Some(BlockState::Healthy), state_for);
        state.filter(|_| self.is_current())
    }

    /// Returns the answer for a scrub. A concurrent read or repair may have recorded the same damage first; the
    /// scrub reports it all the same.
    fn for_scrub(&self) -> Result<Option<Digest>, BlockProblem> {
        let recorded = self.current.as_ref().and_then(|current| current.state_on(self.node));
        let is_recorded = recorded.is_some_and(BlockState::is_bad);
        match &self.problem {
            Some(problem) if self.is_current() || is_recorded => Err(problem.clone()),
            Some(_) if recorded.is_some() => {
                Err(BlockProblem::Unavailable("its record changed meanwhile".to_owned()))
            }
            _ => Ok(self.digest.unwrap_or(self.known.digest)),
        }
    }
}

/// Applies a helper's answer about a block to jobs and stripes.
fn heed(control: &mut Control, verified: &Verified) {
    let Verified { node, ref stripe, index, ref known, ref current, digest, ref problem } = *verified;
    if let Some(problem) = problem {
        control.jobs.lose_unrecorded(stripe, index, node, problem);
    }
    let is_current = verified.is_current();
    let (outer, out) = (outer_facts!(control), &mut control.out);
    match (digest, current) {
        // The block's home may have returned without the block, so the current record decides.
        (Some(digest), Some(current)) if is_found(&control.base.store, node, current) => {
            if is_known_by_name(&control.base.store, current) {
                control.scrub.proof.doubt(stripe, out);
            }
            control.stripes.adopt(outer, node, (stripe, index), current, digest, out);
        }
        (_, Some(current)) if !is_current && disagrees(&control.stripes, current, node, problem.as_ref()) => {
            control.stripes.look_again(outer, node, stripe.clone(), index, current.clone(), out);
        }
        _ if is_current && known.state_on(node).is_some() => {
            control.stripes.apply_verdict(outer, node, (stripe, index), known, problem.as_ref(), out);
        }
        _ => {}
    }
}

/// Handles changes of a stripe's blocks.
pub(crate) fn note_blocks(control: &mut Control, stripe: &StripeId) {
    tell_blocks(&mut control.repairs.scheduler, facts!(control), stripe);
    look_for_left_out(control, stripe);
}

/// Handles a node that is in service or whose helper is connected now, or not any more.
pub(crate) fn note_replicas(control: &mut Control, node: NodeId) {
    tell_replicas(&mut control.repairs.scheduler, facts!(control), node);
    let (outer, jobs) = (outer_facts!(control), &control.jobs);
    control.stripes.look_for_all_left_out(outer, |stripe, made| jobs.makes(stripe, made), &mut control.out);
}

/// Opens the ended contradiction of a stripe again if a copy has returned that no check has read since.
pub(crate) fn look_for_left_out(control: &mut Control, stripe: &StripeId) {
    let (outer, jobs) = (outer_facts!(control), &control.jobs);
    control.stripes.look_for_left_out(outer, |of, made| jobs.makes(of, made), stripe, &mut control.out);
}

/// Forgets a stripe that has been removed.
pub(crate) fn forget_stripe(control: &mut Control, stripe: &StripeId) {
    // A stripe whose state is unknown still exists.
    if !control.stripes.unjudged.contain(stripe) {
        control.scrub.proof.forget(stripe);
        control.scrub.distrusted.note_removed(stripe);
    }
    control.repairs.forget_stripe(stripe);
    control.surplus.forget_stripe(stripe);
}

/// Handles a contradiction between blocks of a stripe.
pub(crate) fn note_contradiction(
    control: &mut Control,
    stripe: &StripeId,
    blocks: &BTreeSet<BlockIndex>,
    found_by: FoundBy,
) {
    control.scrub.proof.forget(stripe);
    control.scrub.distrusted.forget(stripe);
    if found_by != FoundBy::Scrub {
        control.scrub.doubted.doubt(stripe, control.base.now);
    }
    let (outer, out) = (outer_facts!(control), &mut control.out);
    control.stripes.note_contradiction(outer, stripe, blocks, found_by, out);
}

/// Handles a parity check that has passed, and that has read these blocks, each on its node.
pub(crate) fn note_parity(control: &mut Control, stripe: &StripeId, read: BTreeMap<BlockIndex, NodeId>) {
    control.surplus.note_parity(facts!(control), &control.jobs, (stripe, &read), &mut control.out);
    control.scrub.distrusted.note_held(facts!(control), stripe, &read);
    let blocks = read.keys().copied().collect();
    control.scrub.proof.note_held(facts!(control), stripe, &blocks);
    control.stripes.parity_held(outer_facts!(control), stripe, &read, &mut control.out);
    // A job may have read other copies than the next one would.
    look_for_left_out(control, stripe);
}

/// Has a block verified that a job could not read, now or after its helper has returned.
pub(crate) fn note_unavailable(
    control: &mut Control,
    node: NodeId,
    stripe: StripeId,
    index: BlockIndex,
    known: BlockRecord,
) {
    control.surplus.note_failed_read(&stripe, control.base.now);
    match control.nodes.is_connected(node) {
        true => {
            let (outer, out) = (outer_facts!(control), &mut control.out);
            control.stripes.look_again(outer, node, stripe, index, known, out);
        }
        false => control.scrub.reported.note(&control.nodes, node, stripe, index),
    }
}

/// Whether a copy that a node has just read must be put into service: the catalog does not place the block on
/// this node, or the store's server on this node does not serve it. Such a server may have stopped serving the
/// block. If a corrupt file was replaced on its disk, the server may also still serve the corrupt one, which it
/// had opened before.
fn is_found(store: &StorePolicy, node: NodeId, block: &BlockRecord) -> bool {
    let opens_once = store.reports_service() && store.trusts_lists();
    block.state_on(node).is_none_or(|state| opens_once && state.is_bad())
}

/// Has a copy verified again later that was to be verified because it is wanted, and that could not be read, or that is
/// bad or missing although the catalog does not place the block on this node.
fn try_again_later(stripes: &mut Stripes, node: NodeId, known: &BlockRecord, now: Duration) {
    if stripes.unrecorded.latest(known, node) != Some(BlockState::Healthy) {
        stripes.inventory.unadopted.failed(node, known.id.clone(), now);
    }
}

/// Whether a verdict about an earlier record of a block differs from what is known of the block now.
fn disagrees(stripes: &Stripes, current: &BlockRecord, node: NodeId, problem: Option<&BlockProblem>) -> bool {
    let found = problem.map_or(Some(BlockState::Healthy), state_for);
    let known = stripes.unrecorded.latest(current, node);
    found.zip(known).is_some_and(|(found, known)| found != known && known != BlockState::NotStored)
}

/// Returns what is wrong with a block, according to its helper's answer.
fn problem_of(known: &BlockRecord, result: Result<Option<Digest>, BlockProblem>) -> Option<BlockProblem> {
    match result {
        Ok(digest) if known.digest.is_none() || known.digest == digest => None,
        // The block is readable, but its node has no checksums to compare it with.
        Ok(None) => Some(BlockProblem::Unavailable(
            "its helper has no checksums for this block at the moment".to_owned(),
        )),
        Ok(digest) => Some(BlockProblem::Corrupt(other_digest(known.digest, digest))),
        Err(problem) => Some(problem),
    }
}
