//! Whether what is delivered can be believed: what it was made from, and which block may be wrong.
//!
//! When a delivery turns out wrong, some block that was read is not what its checksums say. One after another is left out
//! of the plans, until what is delivered is right, and is known to be.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use codes::BlockIndex;

use super::check::{Delivered, ParityCheck};
use super::work::{Goal, Work};
use crate::{NodeId, Plan, Stripe, Topology};

#[derive(Debug, Default)]
pub(super) struct Trust {
    /// The blocks that plans read of which something was delivered.
    used: BTreeSet<BlockIndex>,
    /// Wanted blocks of which every delivered byte was read from the block itself; `None` before anything moves.
    copied: Option<BTreeSet<BlockIndex>>,
    doubt: Option<Doubt>,
}

#[derive(Debug)]
struct Doubt {
    /// The blocks that may be wrong; the first is left out now. There is at least one.
    suspects: VecDeque<BlockIndex>,
    /// Whether the history says which is left out.
    named: bool,
}

impl Trust {
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
    pub(super) fn distrust(&mut self, stripe: &Stripe) -> bool {
        let used = std::mem::take(&mut self.used);
        let is_left = self.doubt.as_mut().map(Doubt::acquit);
        match is_left {
            None => self.doubt = Doubt::new(stripe, &used),
            Some(false) => self.doubt = None,
            Some(true) => {}
        }
        is_left.unwrap_or(true)
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
        !self.needs_parity(work) || self.check_of(&self.copied_after(plan, work), work, topology).is_some()
    }

    /// Whether there is reason to doubt, and no digest to dispel it.
    pub(super) fn needs_parity(&self, work: &Work) -> bool {
        let mut open = work.goals.iter().filter(|goal| !goal.committed);
        // What is only read is never sealed, so its digest dispels nothing.
        let dispels = |goal: &Goal| work.publish && work.stripe.block(goal.block).digest.is_some();
        self.doubt.is_some() && !open.all(dispels)
    }

    /// A check of what was delivered, if enough other blocks can be asked. Nodes that failed before are asked only if it
    /// does not go without them.
    pub(super) fn parity_check(&self, work: &Work, topology: &Topology) -> Option<ParityCheck> {
        self.check_of(self.copied.as_ref().unwrap_or(&BTreeSet::new()), work, topology)
    }

    fn check_of(
        &self,
        copied: &BTreeSet<BlockIndex>,
        work: &Work,
        topology: &Topology,
    ) -> Option<ParityCheck> {
        // An equation relates whole lines of sub-blocks, so some of them alone cannot be checked.
        let all = 0..work.stripe.code.sub_blocks() as u16;
        if work.sub_blocks.as_ref().is_some_and(|some| *some != all) {
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
        let suspect = self.doubt.as_ref().map(Doubt::suspect);
        let alive: Vec<(BlockIndex, NodeId)> = work
            .stripe
            .held()
            .filter(|&(index, holder)| topology.is_alive(holder) && Some(index) != suspect)
            .filter(|&(index, _)| !work.is_wanted(index))
            .collect();
        let sound = alive.iter().filter(|(_, holder)| !work.policy.avoid.contains(holder));
        let sound: Vec<BlockIndex> = sound.map(|&(index, _)| index).collect();
        let alive: Vec<BlockIndex> = alive.iter().map(|&(index, _)| index).collect();
        let check = |usable: &[BlockIndex]| ParityCheck::new(&work.stripe, &delivered, usable);
        check(&sound).or_else(|| check(&alive))
    }
}

/// The blocks that a plan reads.
pub(super) fn sources(plan: &Plan) -> BTreeSet<BlockIndex> {
    let tasks = plan.lanes().iter().flat_map(|lane| &lane.tasks);
    tasks.flat_map(|task| &task.reads).map(|read| read.block).collect()
}

impl Doubt {
    /// Suspects the blocks that were used, then all others, since one of those may have contradicted.
    fn new(stripe: &Stripe, used: &BTreeSet<BlockIndex>) -> Option<Self> {
        let unused = stripe.held().map(|(block, _)| block).filter(|block| !used.contains(block));
        let suspects: VecDeque<BlockIndex> = used.iter().copied().chain(unused).collect();
        (!suspects.is_empty()).then_some(Self { suspects, named: false })
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
