//! Tracks whether a delivery can be trusted: which blocks it was made from, and which of them may be wrong.
//!
//! A wrong delivery means that a block that was read is wrong although its checksums match, or that a node on
//! the path is faulty. The job leaves out one suspect after another until the delivery is proven correct. The
//! proof must be a check at least as strong as the one that failed ([`Strength`]), and it must ask every
//! survivor except the one left out.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use codes::BlockIndex;

use super::JobError;
use super::check::{Delivered, Extent, Fault, ParityCheck};
use super::work::{Goal, Work};
use crate::{Digest, NodeId, Plan, Strength, Stripe, Topology};

#[derive(Debug, Default)]
pub(super) struct Trust {
    /// The blocks read by plans that delivered slices.
    used: BTreeSet<BlockIndex>,
    /// Wanted blocks whose delivered bytes were all copied from the block itself; `None` before anything
    /// moves.
    copied: Option<BTreeSet<BlockIndex>>,
    doubt: Option<Doubt>,
    /// Whether parity equations over the stripe's blocks failed outside this job, in another job or a scrub.
    was_in_doubt: bool,
    /// Survivors that took part in a failed equation over survivors alone.
    contradicting: BTreeSet<BlockIndex>,
    /// Digests of deliveries whose parity held, although other digests are recorded, by their requestors.
    refuting: BTreeSet<Refuting>,
    /// Blocks of which the job reads another copy than before. Deliveries may be made from several copies.
    moved: BTreeSet<BlockIndex>,
}

/// A block, the requestor that received it, and its digest according to the requestor.
pub(super) type Refuting = (BlockIndex, NodeId, Digest);

/// A delivery that is wrong or cannot be verified.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) reason: String,
    /// The strength of the check that failed; only a check at least as strong overrules it.
    pub(super) by: Strength,
    pub(super) fault: Fault,
    /// Survivors that contradict each other, if the fault is in one of them.
    pub(super) contradicting: BTreeSet<BlockIndex>,
    /// The requestors that received the delivery. They may have corrupted it themselves.
    pub(super) at: BTreeSet<NodeId>,
    /// If nothing but recorded digests is against the delivery: the digests that it has.
    pub(super) refuting: Vec<Refuting>,
}

#[derive(Debug)]
struct Doubt {
    /// The blocks that may be wrong; never empty. The first one is currently left out.
    suspects: VecDeque<BlockIndex>,
    by: Strength,
    fault: Fault,
    /// Whether the job's history already says which block was left out.
    named: bool,
}

impl Trust {
    /// Starts tracking; `was_in_doubt` is true if the stripe's blocks are already known to contradict each
    /// other.
    pub(super) fn new(was_in_doubt: bool) -> Self {
        Self { was_in_doubt, ..Self::default() }
    }

    /// Records that another job or a scrub found that parity equations over the stripe fail.
    pub(super) fn hear_of_contradiction(&mut self) {
        self.was_in_doubt = true;
    }

    /// The survivors that have contradicted each other so far.
    pub(super) fn contradicting(&self) -> &BTreeSet<BlockIndex> {
        &self.contradicting
    }

    /// The error for a stripe whose wrong block cannot be identified.
    pub(super) fn contradiction(&self, work: &Work) -> JobError {
        let held = || work.stripe.held().map(|(block, _)| block).collect();
        let blocks: BTreeSet<BlockIndex> = match &self.contradicting {
            none if none.is_empty() => held(),
            some => some.clone(),
        };
        let blocks = blocks.into_iter().map(|block| work.id_of(block).clone()).collect();
        JobError::Contradiction { blocks, replanned: work.replanned.clone() }
    }

    /// Returns the blocks that a correct delivery proves to be correct. If the delivery was rebuilt from
    /// exactly k blocks of an MDS code without sub-blocks, all k are proven, because each of them contributes
    /// to every byte; otherwise, none is proven.
    pub(super) fn proven_by_delivery(&self, stripe: &Stripe) -> BTreeSet<BlockIndex> {
        let code = &stripe.code;
        let each_counts = code.spec().is_mds() && code.sub_blocks() == 1;
        let is_rebuilt = self.copied.as_ref().is_some_and(BTreeSet::is_empty);
        let is_one_copy = self.used.is_disjoint(&self.moved);
        match each_counts && is_rebuilt && is_one_copy && self.used.len() == code.data_blocks() {
            true => self.used.clone(),
            false => BTreeSet::new(),
        }
    }

    /// Records the digests of a delivery that only recorded digests are against.
    pub(super) fn note_refuting(&mut self, refuting: &[Refuting]) {
        self.refuting.extend(refuting);
    }

    /// Whether another requestor has received the same bytes, and their parity held too.
    pub(super) fn is_received_twice(&self, goal: &Goal) -> bool {
        let is_same = |&(block, node, digest): &Refuting| {
            block == goal.block && node != goal.requestor && Some(digest) == goal.digest
        };
        self.refuting.iter().any(is_same)
    }

    /// Records survivors that contradict each other.
    pub(super) fn note_contradicting(&mut self, blocks: &BTreeSet<BlockIndex>) {
        self.contradicting.extend(blocks);
    }

    /// Records the blocks that deliveries were made from.
    pub(super) fn note(&mut self, sources: impl IntoIterator<Item = BlockIndex>) {
        self.used.extend(sources);
    }

    /// Records, when a plan starts, which wanted blocks consist only of copied bytes.
    pub(super) fn begin(&mut self, plan: &Plan, work: &Work) {
        self.copied = Some(self.copied_after(plan, work));
    }

    /// Forgets earlier deliveries, because they were discarded.
    pub(super) fn begin_anew(&mut self) {
        (self.used, self.copied) = (BTreeSet::new(), None);
        self.moved.clear();
    }

    /// Records that the job reads another copy of a block from now on.
    pub(super) fn note_moved(&mut self, block: BlockIndex) {
        self.moved.insert(block);
    }

    /// Whether no blocks contradict each other, as far as the job knows. Conclusions from comparisons hold only for the
    /// compared copies.
    pub(super) fn compares_nothing(&self) -> bool {
        self.doubt.is_none() && self.contradicting.is_empty() && self.refuting.is_empty()
    }

    /// Whether a delivered slice was made from the block that is currently left out.
    pub(super) fn used_suspect(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| self.used.contains(&doubt.suspect()))
    }

    fn copied_after(&self, plan: &Plan, work: &Work) -> BTreeSet<BlockIndex> {
        let read = sources(plan);
        let was = |block: &BlockIndex| self.copied.as_ref().is_none_or(|copied| copied.contains(block));
        let copies = |goal: &&Goal| was(&goal.block) && (goal.is_met() || read.contains(&goal.block));
        work.goals.iter().filter(copies).map(|goal| goal.block).collect()
    }

    /// Whether any delivery that is not committed was rebuilt from other blocks, rather than copied.
    pub(super) fn is_rebuilt(&self, work: &Work) -> bool {
        let is_copied = |block| self.copied.as_ref().is_some_and(|copied| copied.contains(block));
        work.goals.iter().any(|goal| !goal.committed && !is_copied(&goal.block))
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// The number of plans to try; each leaves out a different suspect.
    pub(super) fn turns(&self) -> usize {
        self.doubt.as_ref().map_or(1, |doubt| doubt.suspects.len())
    }

    /// Moves the current suspect to the end of the list and leaves out the next suspect instead.
    pub(super) fn postpone(&mut self) {
        self.doubt.iter_mut().for_each(Doubt::postpone);
    }

    /// Returns the block that is left out of the new plan, if the job's history does not mention it yet.
    pub(super) fn name_suspect(&mut self) -> Option<BlockIndex> {
        let doubt = self.doubt.as_mut()?;
        (!std::mem::replace(&mut doubt.named, true)).then(|| doubt.suspect())
    }

    /// Handles a delivery that is wrong or cannot be verified; returns whether a suspect remains.
    pub(super) fn distrust(&mut self, stripe: &Stripe, wrong: &Wrong) -> bool {
        let used = std::mem::take(&mut self.used);
        self.note_contradicting(&wrong.contradicting);
        match &mut self.doubt {
            // So far, a survivor or the delivery could be wrong. Now a survivor is known to be wrong, so the
            // list of suspects is made anew.
            Some(doubt) if doubt.fault < wrong.fault && wrong.fault == Fault::Survivor => {}
            Some(doubt) => {
                doubt.by = doubt.by.max(wrong.by);
                let is_left = doubt.acquit();
                if !is_left {
                    self.doubt = None;
                }
                return is_left;
            }
            None => {}
        }
        self.doubt = Doubt::new(stripe, &used, wrong);
        true
    }

    /// The stripe, without the block under suspicion.
    pub(super) fn trusted_stripe<'work>(&self, work: &'work Work) -> Cow<'work, Stripe> {
        let Some(doubt) = &self.doubt else { return Cow::Borrowed(&work.stripe) };
        let mut stripe = work.stripe.clone();
        stripe.blocks[usize::from(doubt.suspect().0)].holder = None;
        Cow::Owned(stripe)
    }

    /// Whether the result of `plan` could be verified by a parity check, or needs no such check.
    pub(super) fn can_be_known(&self, plan: &Plan, work: &Work, topology: &Topology) -> bool {
        let copied = self.copied_after(plan, work);
        !self.needs_parity_of(&copied, work)
            || self.check_of(&copied, work, topology, &BTreeSet::new()).is_some()
    }

    /// Whether a delivery needs a parity check: blocks are suspected, and the recorded digest of the delivery
    /// is weaker than the check that raised the suspicion.
    pub(super) fn needs_parity(&self, work: &Work) -> bool {
        self.needs_parity_of(self.copied.as_ref().unwrap_or(&BTreeSet::new()), work)
    }

    fn needs_parity_of(&self, copied: &BTreeSet<BlockIndex>, work: &Work) -> bool {
        // A plain read of stored blocks returns them as they are.
        let is_plain = !work.publish && !work.verify.parity;
        let is_stored = is_plain && work.goals.iter().all(|goal| copied.contains(&goal.block));
        let recorded = (self.was_in_doubt && !is_stored).then_some(Strength::Parity);
        let Some(doubted_by) = self.doubt.as_ref().map(|doubt| doubt.by).max(recorded) else { return false };
        let mut open = work.goals.iter().filter(|goal| !goal.committed);
        !open.all(|goal| work.digest_strength(goal) >= Some(doubted_by))
    }

    /// Creates a parity check of the delivery, if enough other blocks are available. It does not ask nodes in
    /// `silent`, and asks nodes that failed before only if necessary.
    pub(super) fn parity_check(
        &self,
        work: &Work,
        topology: &Topology,
        silent: &BTreeSet<NodeId>,
    ) -> Option<ParityCheck> {
        self.check_of(self.copied.as_ref().unwrap_or(&BTreeSet::new()), work, topology, silent)
    }

    fn extent(&self) -> Extent {
        let needs_every = self.was_in_doubt || self.doubt.is_some() || !self.refuting.is_empty();
        if needs_every { Extent::Every } else { Extent::Enough }
    }

    /// The block that checks leave out. If the fault is in the delivery, no block is left out.
    pub(super) fn left_out(&self) -> Option<BlockIndex> {
        self.doubt.as_ref().filter(|doubt| doubt.fault != Fault::Delivery).map(Doubt::suspect)
    }

    fn check_of(
        &self,
        copied: &BTreeSet<BlockIndex>,
        work: &Work,
        topology: &Topology,
        silent: &BTreeSet<NodeId>,
    ) -> Option<ParityCheck> {
        // An equation relates all sub-blocks at an offset, so a subset of them cannot be checked.
        if !work.has_whole_lines() {
            return None;
        }
        // A put delivers all blocks, so they are compared with each other, and an error in any of them must show.
        let is_copied = |block: BlockIndex| work.is_put() || copied.contains(&block);
        let delivered: Vec<Delivered> = work
            .goals
            .iter()
            .map(|goal| Delivered { block: goal.block, at: goal.requestor, copied: is_copied(goal.block) })
            .collect();
        let left_out = self.left_out();
        let alive: Vec<(BlockIndex, NodeId)> = work
            .stripe
            .held()
            .filter(|&(index, holder)| topology.is_alive(holder) && Some(index) != left_out)
            .filter(|(_, holder)| !silent.contains(holder))
            .filter(|&(index, _)| !work.is_wanted(index))
            .collect();
        let sound = alive.iter().filter(|(_, holder)| !work.policy.avoid.contains(holder));
        let sound: Vec<BlockIndex> = sound.map(|&(index, _)| index).collect();
        let alive: Vec<BlockIndex> = alive.iter().map(|&(index, _)| index).collect();
        let stripe = work.stripe_with_seals();
        let check = |usable: &[BlockIndex]| ParityCheck::new(&stripe, &delivered, usable, self.extent());
        match self.extent() {
            Extent::Enough => check(&sound).or_else(|| check(&alive)),
            Extent::Every => check(&alive),
        }
    }
}

/// The single wrong block, if all other contradicting blocks are `proven`. Only MDS codes allow this
/// conclusion; in other codes, several blocks may explain the same contradiction.
pub(super) fn culprit(
    contradicting: &BTreeSet<BlockIndex>,
    proven: &BTreeSet<BlockIndex>,
    stripe: &Stripe,
) -> Option<BlockIndex> {
    let mut open = contradicting.difference(proven).copied();
    let culprit = open.next().filter(|_| stripe.code.spec().is_mds())?;
    open.next().is_none().then_some(culprit)
}

/// The blocks that a plan reads.
pub(super) fn sources(plan: &Plan) -> BTreeSet<BlockIndex> {
    let tasks = plan.lanes().iter().flat_map(|lane| &lane.tasks);
    tasks.flat_map(|task| &task.reads).map(|read| read.block).collect()
}

impl Doubt {
    /// Lists the blocks that may have caused the fault: first those that the delivery was made from, then
    /// others.
    fn new(stripe: &Stripe, used: &BTreeSet<BlockIndex>, wrong: &Wrong) -> Option<Self> {
        let may_be = |block: &BlockIndex| match wrong.fault {
            Fault::Delivery => used.contains(block),
            Fault::Unknown => true,
            Fault::Survivor => wrong.contradicting.contains(block),
        };
        let unused = stripe.held().map(|(block, _)| block).filter(|block| !used.contains(block));
        let suspects: VecDeque<BlockIndex> = used.iter().copied().chain(unused).filter(may_be).collect();
        let Wrong { by, fault, .. } = *wrong;
        (!suspects.is_empty()).then_some(Self { suspects, by, fault, named: false })
    }

    fn suspect(&self) -> BlockIndex {
        self.suspects[0]
    }

    /// Clears the current suspect; returns false if none remains.
    fn acquit(&mut self) -> bool {
        self.named = false;
        self.suspects.pop_front();
        !self.suspects.is_empty()
    }

    fn postpone(&mut self) {
        self.named &= self.suspects.len() == 1;
        self.suspects.rotate_left(1);
    }
}
