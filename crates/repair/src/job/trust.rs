//! Whether what is delivered can be believed: what it was made from, and which block may be wrong.
//!
//! When a delivery turns out wrong, some block that was read is not what its checksums say, or some node on the way is at fault. One
//! after another is left out of the plans, until what is delivered is right, and is known to be: by a check that is as
//! strong as the one that failed ([`Strength`]), and that asks every survivor which is not left out.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use codes::BlockIndex;

use super::JobError;
use super::check::{Delivered, Extent, Fault, ParityCheck};
use super::work::{Goal, Work};
use crate::{NodeId, Plan, Strength, Stripe, Topology};

#[derive(Debug, Default)]
pub(super) struct Trust {
    /// The blocks that plans read of which something was delivered.
    used: BTreeSet<BlockIndex>,
    /// Wanted blocks of which every delivered byte was read from the block itself; `None` before anything moves.
    copied: Option<BTreeSet<BlockIndex>>,
    doubt: Option<Doubt>,
    /// Equations over blocks of the stripe did not hold before the job began.
    was_in_doubt: bool,
    /// Survivors in equations over survivors alone that did not hold.
    contradicting: BTreeSet<BlockIndex>,
}

/// What was delivered is wrong, or cannot be known to be right.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) reason: String,
    /// What says so: only what is as strong says the contrary.
    pub(super) by: Strength,
    pub(super) fault: Fault,
    /// Survivors that contradict each other, where the fault is with one of them.
    pub(super) contradicting: BTreeSet<BlockIndex>,
    /// The requestors that have it, and may have spoilt it themselves.
    pub(super) at: BTreeSet<NodeId>,
}

#[derive(Debug)]
struct Doubt {
    /// The blocks that may be wrong; the first is left out now. There is at least one.
    suspects: VecDeque<BlockIndex>,
    by: Strength,
    fault: Fault,
    /// Whether the history says which is left out.
    named: bool,
}

impl Trust {
    /// At the start of a job; whether the stripe was in doubt before.
    pub(super) fn new(was_in_doubt: bool) -> Self {
        Self { was_in_doubt, ..Self::default() }
    }

    /// Equations over blocks of the stripe were found not to hold, elsewhere.
    pub(super) fn hear_of_contradiction(&mut self) {
        self.was_in_doubt = true;
    }

    /// The survivors that contradicted each other so far.
    pub(super) fn contradicting(&self) -> &BTreeSet<BlockIndex> {
        &self.contradicting
    }

    /// Nothing tells which block is wrong.
    pub(super) fn contradiction(&self, work: &Work) -> JobError {
        let held = || work.stripe.held().map(|(block, _)| block).collect();
        let blocks: BTreeSet<BlockIndex> = match &self.contradicting {
            none if none.is_empty() => held(),
            some => some.clone(),
        };
        let blocks = blocks.into_iter().map(|block| work.id_of(block).clone()).collect();
        JobError::Contradiction { blocks, replanned: work.replanned.clone() }
    }

    /// The blocks that are proven right by a delivery that is: each of the k that it was made of has a part in every byte.
    pub(super) fn proven_by_delivery(&self, stripe: &Stripe) -> BTreeSet<BlockIndex> {
        let code = &stripe.code;
        let each_counts = code.spec().is_mds() && code.sub_blocks() == 1;
        let is_rebuilt = self.copied.as_ref().is_some_and(BTreeSet::is_empty);
        match each_counts && is_rebuilt && self.used.len() == code.data_blocks() {
            true => self.used.clone(),
            false => BTreeSet::new(),
        }
    }

    /// Notes survivors that contradict each other.
    pub(super) fn note_contradicting(&mut self, blocks: &BTreeSet<BlockIndex>) {
        self.contradicting.extend(blocks);
    }

    /// Notes what deliveries were made from.
    pub(super) fn note(&mut self, sources: impl IntoIterator<Item = BlockIndex>) {
        self.used.extend(sources);
    }

    /// A plan begins.
    pub(super) fn begin(&mut self, plan: &Plan, work: &Work) {
        self.copied = Some(self.copied_after(plan, work));
    }

    /// What came before is dropped.
    pub(super) fn begin_anew(&mut self) {
        (self.used, self.copied) = (BTreeSet::new(), None);
    }

    /// Whether something of what came was made from the block that is left out now.
    pub(super) fn used_suspect(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| self.used.contains(&doubt.suspect()))
    }

    fn copied_after(&self, plan: &Plan, work: &Work) -> BTreeSet<BlockIndex> {
        let read = sources(plan);
        let was = |block: &BlockIndex| self.copied.as_ref().is_none_or(|copied| copied.contains(block));
        let copies = |goal: &&Goal| was(&goal.block) && (goal.is_met() || read.contains(&goal.block));
        work.goals.iter().filter(copies).map(|goal| goal.block).collect()
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// How many plans can be tried, each without another suspect.
    pub(super) fn turns(&self) -> usize {
        self.doubt.as_ref().map_or(1, |doubt| doubt.suspects.len())
    }

    /// Another suspect is left out next.
    pub(super) fn postpone(&mut self) {
        self.doubt.iter_mut().for_each(Doubt::postpone);
    }

    /// The block that is left out of the plan that begins, if that was not said before.
    pub(super) fn name_suspect(&mut self) -> Option<BlockIndex> {
        let doubt = self.doubt.as_mut()?;
        (!std::mem::replace(&mut doubt.named, true)).then(|| doubt.suspect())
    }

    /// What was delivered is wrong, or cannot be known to be right; whether another suspect is left.
    pub(super) fn distrust(&mut self, stripe: &Stripe, wrong: &Wrong) -> bool {
        let used = std::mem::take(&mut self.used);
        self.note_contradicting(&wrong.contradicting);
        match &mut self.doubt {
            // Nodes were left out, and it is a block that is wrong.
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

    /// The stripe without a block that is under suspicion.
    pub(super) fn trusted_stripe<'work>(&self, work: &'work Work) -> Cow<'work, Stripe> {
        let Some(doubt) = &self.doubt else { return Cow::Borrowed(&work.stripe) };
        let mut stripe = work.stripe.clone();
        stripe.blocks[usize::from(doubt.suspect().0)].holder = None;
        Cow::Owned(stripe)
    }

    /// Whether what a plan delivers can be known to be right, if there is reason to doubt.
    pub(super) fn can_be_known(&self, plan: &Plan, work: &Work, topology: &Topology) -> bool {
        !self.needs_parity(work)
            || self.check_of(&self.copied_after(plan, work), work, topology, &BTreeSet::new()).is_some()
    }

    /// Whether there is reason to doubt, and no digest that is strong enough to dispel it.
    pub(super) fn needs_parity(&self, work: &Work) -> bool {
        let recorded = self.was_in_doubt.then_some(Strength::Parity);
        let Some(doubted_by) = self.doubt.as_ref().map(|doubt| doubt.by).max(recorded) else { return false };
        let mut open = work.goals.iter().filter(|goal| !goal.committed);
        !open.all(|goal| work.digest_strength(goal) >= Some(doubted_by))
    }

    /// A check of what was delivered, if enough other blocks can be asked, and not of nodes that are `silent`. Nodes that failed
    /// before are asked only if it does not go without them.
    pub(super) fn parity_check(
        &self,
        work: &Work,
        topology: &Topology,
        silent: &BTreeSet<NodeId>,
    ) -> Option<ParityCheck> {
        self.check_of(self.copied.as_ref().unwrap_or(&BTreeSet::new()), work, topology, silent)
    }

    fn extent(&self) -> Extent {
        if self.was_in_doubt || self.doubt.is_some() { Extent::Every } else { Extent::Enough }
    }

    /// The block that is not to bear witness: where a node is at fault, its block is as good as any.
    fn excluded(&self) -> Option<BlockIndex> {
        self.doubt.as_ref().filter(|doubt| doubt.fault != Fault::Delivery).map(Doubt::suspect)
    }

    fn check_of(
        &self,
        copied: &BTreeSet<BlockIndex>,
        work: &Work,
        topology: &Topology,
        silent: &BTreeSet<NodeId>,
    ) -> Option<ParityCheck> {
        // An equation relates whole lines of sub-blocks, so some of them alone cannot be checked.
        if !work.has_whole_lines() {
            return None;
        }
        let delivered: Vec<Delivered> = work
            .goals
            .iter()
            .map(|goal| Delivered {
                block: goal.block,
                at: goal.requestor,
                copied: copied.contains(&goal.block),
            })
            .collect();
        let excluded = self.excluded();
        let alive: Vec<(BlockIndex, NodeId)> = work
            .stripe
            .held()
            .filter(|&(index, holder)| topology.is_alive(holder) && Some(index) != excluded)
            .filter(|(_, holder)| !silent.contains(holder))
            .filter(|&(index, _)| !work.is_wanted(index))
            .collect();
        let sound = alive.iter().filter(|(_, holder)| !work.policy.avoid.contains(holder));
        let sound: Vec<BlockIndex> = sound.map(|&(index, _)| index).collect();
        let alive: Vec<BlockIndex> = alive.iter().map(|&(index, _)| index).collect();
        let check = |usable: &[BlockIndex]| ParityCheck::new(&work.stripe, &delivered, usable, self.extent());
        match self.extent() {
            Extent::Enough => check(&sound).or_else(|| check(&alive)),
            Extent::Every => check(&alive),
        }
    }
}

/// The one block that is wrong, if all others that contradicted it are `proven`. In other codes than MDS codes, several
/// blocks may explain one contradiction.
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
    /// Suspects the blocks that were used, then all others that may have contradicted.
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

    /// It was not this suspect; false if there is no other.
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
