//! A parity check in progress, which asks for fingerprints stretch by stretch.
//!
//! The disks need time to read every survivor again, but most of that time can overlap with the transfer:
//! once all deliveries of a stretch (a part of the window) are written, the job asks survivors for their
//! fingerprints of the stretch. The seed of a stretch is not revealed earlier, so no node that could still
//! alter the delivery knows it. The delivered blocks themselves are fingerprinted at the end, after they are
//! sealed.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, Code};
use rand_chacha::rand_core::Rng;

use super::check::{ParityCheck, Verdict};
use super::work::Work;
use crate::parity::{StripeParity, is_consistent, stripe_parity};
use crate::wire::control::ToNode;
use crate::{BlockId, Fingerprint, Geometry, LocalBlock, NodeId, Topology};

/// The maximum number of stretches in a check. With this many, survivors have little left to fingerprint when
/// the last slice has been written.
const MOST_STRETCHES: u32 = 8;
/// The maximum number of questions to one node in a check. A node queues at most
/// [`MAX_WAITING_MESSAGES`](crate::MAX_WAITING_MESSAGES) messages, and a check may start again.
const MOST_QUESTIONS: usize = crate::MAX_WAITING_MESSAGES / 2;

/// A parity check in progress; see the module's documentation.
#[derive(Debug)]
pub(super) struct Proof {
    check: ParityCheck,
    stretches: Vec<Stretch>,
    /// For each requestor, the first slice that is not known to be written; all slices before it are.
    whole: BTreeMap<NodeId, u32>,
}

#[derive(Debug)]
struct Stretch {
    /// The range of offsets that the stretch covers inside each sub-block: start and end.
    window: (u64, u64),
    /// The first slice after the stretch.
    end: u32,
    seed: u64,
    /// Whether the survivors were asked for fingerprints.
    begun: bool,
    answers: BTreeMap<BlockIndex, Vec<Fingerprint>>,
}

impl Stretch {
    fn new(window: (u64, u64), end: u32, seed: u64) -> Self {
        Self { window, end, seed, begun: false, answers: BTreeMap::new() }
    }
}

impl Proof {
    /// Creates a check of complete deliveries, as a single stretch.
    pub(super) fn of_all(check: ParityCheck, work: &Work) -> Self {
        let all = Stretch::new((work.window.start, work.window.end), u32::MAX, work.check_seed);
        Self { check, stretches: vec![all], whole: BTreeMap::new() }
    }

    /// Creates a check that runs alongside a plan which delivers everything; `None` if the block is too small
    /// for several stretches.
    pub(super) fn ahead(
        check: ParityCheck,
        geometry: &Geometry,
        work: &Work,
        seeds: &mut impl Rng,
    ) -> Option<Self> {
        let bytes = (geometry.window.end - geometry.window.start) * work.stripe.code.sub_blocks() as u64;
        let slices = geometry.slices();
        let most = MOST_STRETCHES.min(slices).min((MOST_QUESTIONS / check.most_at_a_node()) as u32);
        let count = (bytes / work.verify.stretch_bytes).min(u64::from(most)) as u32;
        if count < 2 {
            return None;
        }
        let stretch = |number: u32| {
            let bound = |number: u32| (u64::from(slices) * u64::from(number) / u64::from(count)) as u32;
            let (first, end) = (bound(number), bound(number + 1));
            Stretch::new((geometry.span(first).start, geometry.span(end - 1).end), end, seeds.next_u64())
        };
        let whole = work.requestors().into_iter().map(|requestor| (requestor, 0)).collect();
        Some(Self { check, stretches: (0..count).map(stretch).collect(), whole })
    }

    /// Handles a requestor's report that it has written all slices before `whole`.
    pub(super) fn handle_progress(&mut self, node: NodeId, whole: u32, work: &mut Work) {
        let Some(known) = self.whole.get_mut(&node) else { return };
        *known = whole.max(*known);
        let written = self.whole.values().copied().min().unwrap_or(0);
        let questions = self.check.questions();
        let requestors = work.requestors();
        // A requestor works on one thing at a time and must be able to stop at once, so it is not asked yet.
        let others: Vec<_> = questions.into_iter().filter(|(node, _)| !requestors.contains(node)).collect();
        for stretch in self.stretches.iter_mut().filter(|stretch| stretch.end <= written && !stretch.begun) {
            stretch.begun = true;
            stretch.ask(&others, work);
        }
    }

    /// Asks all remaining questions, including those to requestors, whose deliveries are sealed by now.
    pub(super) fn ask_rest(&mut self, work: &mut Work) {
        let questions = self.check.questions();
        let requestors = work.requestors();
        for stretch in &mut self.stretches {
            let open = |(node, _): &&(NodeId, LocalBlock)| !stretch.begun || requestors.contains(node);
            let open: Vec<_> = questions.iter().filter(open).cloned().collect();
            stretch.begun = true;
            stretch.ask(&open, work);
        }
    }

    /// Whether all nodes that the check asks are alive.
    pub(super) fn can_go_on(&self, topology: &Topology) -> bool {
        self.check.can_go_on(topology)
    }

    /// Whether the check asks this node for fingerprints.
    pub(super) fn asks(&self, node: NodeId) -> bool {
        self.check.questions().iter().any(|&(asked, _)| asked == node)
    }

    /// The nodes that still owe an answer.
    pub(super) fn silent(&self) -> BTreeSet<NodeId> {
        let answered =
            |block: &BlockIndex| self.stretches.iter().all(|stretch| stretch.answers.contains_key(block));
        let questions = self.check.questions().into_iter();
        questions.filter(|(_, asked)| !answered(&asked.index)).map(|(node, _)| node).collect()
    }

    /// Records an answer; only the node that was asked about a block may answer for it. Other answers, and those of
    /// a wrong size, are ignored, so the node counts as silent.
    pub(super) fn take(&mut self, node: NodeId, block: &BlockId, seed: u64, fingerprints: Vec<Fingerprint>) {
        let asked = self.check.asked(block).filter(|&(_, asked)| asked == node);
        let stretch = self.stretches.iter_mut().find(|stretch| stretch.seed == seed && stretch.begun);
        if let (Some((index, _)), Some(stretch)) = (asked, stretch)
            && fingerprints.len() == self.check.sub_blocks()
            && fingerprints.iter().all(Fingerprint::is_whole)
        {
            stretch.answers.insert(index, fingerprints);
        }
    }

    /// Whether the equations hold in every stretch; `None` until all answers are in.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        let mut verdicts = self.stretches.iter().map(|stretch| self.check.verdict(&stretch.answers));
        verdicts.try_fold(Verdict::Holds, |worst, verdict| Some(worst.max(verdict?)))
    }

    /// Whether all other blocks of the check agree with each other, as far as they can be compared.
    pub(super) fn agrees_without(&self, block: BlockIndex, code: &dyn Code) -> bool {
        self.stretches.iter().all(|stretch| {
            let mut others = stretch.answers.clone();
            others.remove(&block);
            is_consistent(code, &others)
        })
    }

    /// The blocks that are wrong, as far as the answers of all stretches identify them.
    pub(super) fn wrong_blocks(&self, code: &dyn Code) -> BTreeSet<BlockIndex> {
        let named = |stretch: &Stretch| match stripe_parity(code, &stretch.answers) {
            StripeParity::Wrong(blocks) => Some(blocks),
            StripeParity::Holds { .. } => Some(BTreeSet::new()),
            StripeParity::Unknown | StripeParity::Contradictory(_) => None,
        };
        let named: Option<Vec<_>> = self.stretches.iter().map(named).collect();
        named.into_iter().flatten().flatten().collect()
    }

    /// The blocks in the check that were not rebuilt.
    pub(super) fn survivors(&self) -> BTreeSet<BlockIndex> {
        self.check.survivors()
    }
}

impl Stretch {
    fn ask(&self, questions: &[(NodeId, LocalBlock)], work: &mut Work) {
        let (job, epoch, chunking) = (work.id, work.epoch, work.stripe.chunking);
        let (window, seed) = (self.window, self.seed);
        for (node, block) in questions.iter().cloned() {
            work.touched.insert(node);
            work.tell(node, ToNode::Fingerprint { job, epoch, block, chunking, window, seed });
        }
    }
}
