//! Parity equations that verify rebuilt blocks, evaluated on fingerprints.
//!
//! A survivor may be wrong although its checksums hold. Blocks rebuilt from it are then wrong too, in ways
//! that depend on the plans that delivered them. So the model of an error is: one surviving block and the
//! rebuilt blocks are wrong, in an unknown way. Equations *show* an error if the error violates at least one
//! equation. The check must show all errors of this kind, except those that leave the rebuilt blocks correct:
//! such errors do no harm here, and a scrub finds them.
//!
//! For an MDS code any k + 1 survivors suffice. Together with f rebuilt blocks they are k + f + 1 blocks of a
//! stripe. Two different stripes differ in at least f + 2 of these blocks, but an error affects at most
//! f + 1 of them. Fewer survivors or fewer equations are not enough: where parity blocks share coefficients,
//! as in Hitchhiker, an equation misses errors that cancel between two of its terms. For other codes,
//! equations are added until they show the errors of every survivor.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, Matrix, Recipe};

use crate::{BlockId, Fingerprint, LocalBlock, NodeId, Stripe, Topology};

/// A delivered block, and the requestor that received it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivered {
    pub(super) block: BlockIndex,
    pub(super) at: NodeId,
    /// Whether the block was copied rather than rebuilt. A copy counts as a survivor, and every error in it
    /// must show.
    pub(super) copied: bool,
}

/// How many survivors take part in a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Just enough survivors to show an error in any one of them.
    Enough,
    /// All survivors, because any survivor that is left out may be the one that contradicts the others.
    Every,
}

/// The location of a detected error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// In the delivered blocks: the survivors agree with each other.
    Delivery,
    /// Either in a survivor or in a delivered block.
    Unknown,
    /// In a survivor: an equation over survivors alone fails.
    Survivor,
}

/// The result of a check once all answers are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Holds,
    Differs(Fault),
}

/// Equations that relate rebuilt blocks to surviving ones.
#[derive(Debug)]
pub(super) struct ParityCheck {
    equations: Vec<Recipe>,
    is_mds: bool,
    rebuilt: BTreeSet<BlockIndex>,
    delivered: BTreeSet<BlockIndex>,
    blocks: BTreeMap<BlockIndex, (NodeId, LocalBlock)>,
    sub_blocks: usize,
}

impl ParityCheck {
    /// Creates a check of the blocks `delivered`, using other blocks from `usable`, in order of preference.
    /// Returns `None` if these blocks are too few to show an error in any single survivor.
    pub(super) fn new(
        stripe: &Stripe,
        delivered: &[Delivered],
        usable: &[BlockIndex],
        extent: Extent,
    ) -> Option<Self> {
        let (copied, rebuilt): (Vec<Delivered>, Vec<Delivered>) =
            delivered.iter().partition(|block| block.copied);
        let blocks = |delivered: &[Delivered]| delivered.iter().map(|block| block.block).collect::<Vec<_>>();
        let (copied, rebuilt) = (blocks(&copied), blocks(&rebuilt));
        let survivors = [&copied[..], usable].concat();
        let is_mds = stripe.code.spec().is_mds();
        let equations = if is_mds {
            vec![any_survivors(stripe, &rebuilt, &survivors, copied.len(), extent)?]
        } else {
            Gathered::new(stripe, &rebuilt, &survivors, copied.len()).equations(extent)?
        };
        let terms = equations.iter().flat_map(|equation| equation.sources().iter().chain(equation.outputs()));
        let mut blocks = BTreeMap::new();
        for index in terms.map(|sub_block| sub_block.block).collect::<BTreeSet<_>>() {
            let at =
                delivered.iter().find(|delivered| delivered.block == index).map(|delivered| delivered.at);
            blocks.insert(index, (at.or(stripe.block(index).holder)?, stripe.local(index)));
        }
        let sub_blocks = stripe.code.sub_blocks();
        let (rebuilt, delivered) = (rebuilt.into_iter().collect(), all_of(delivered));
        Some(Self { equations, is_mds, rebuilt, delivered, blocks, sub_blocks })
    }

    /// The blocks whose fingerprints to request, each with the node that holds it.
    pub(super) fn questions(&self) -> Vec<(NodeId, LocalBlock)> {
        self.blocks.values().cloned().collect()
    }

    /// The blocks in the check that were not rebuilt.
    pub(super) fn survivors(&self) -> BTreeSet<BlockIndex> {
        self.blocks.keys().copied().filter(|block| !self.rebuilt.contains(block)).collect()
    }

    /// Looks up a block of the check by its name; returns its index and the node that is asked for it.
    pub(super) fn asked(&self, block: &BlockId) -> Option<(BlockIndex, NodeId)> {
        let asked = self.blocks.iter().find(|(_, (_, asked))| asked.id == *block);
        asked.map(|(&index, &(node, _))| (index, node))
    }

    /// Whether all nodes that the check asks are alive.
    pub(super) fn can_go_on(&self, topology: &Topology) -> bool {
        self.blocks.values().all(|(node, _)| topology.is_alive(*node))
    }

    /// The largest number of blocks that any one node is asked for.
    pub(super) fn most_at_a_node(&self) -> usize {
        let mut counts: BTreeMap<NodeId, usize> = BTreeMap::new();
        self.blocks.values().for_each(|(node, _)| *counts.entry(*node).or_default() += 1);
        counts.into_values().max().unwrap_or(1)
    }

    /// The number of fingerprints in an answer, one per sub-block.
    pub(super) fn sub_blocks(&self) -> usize {
        self.sub_blocks
    }

    /// Evaluates the equations on these answers; `None` if an answer is missing.
    pub(super) fn verdict(&self, answers: &BTreeMap<BlockIndex, Vec<Fingerprint>>) -> Option<Verdict> {
        self.blocks.keys().all(|block| answers.contains_key(block)).then(|| self.judge(answers))
    }

    /// Evaluates the equations. Survivors are blamed only if an equation over survivors alone fails. They are
    /// cleared only if such an equation exists, every such equation holds, and the code is MDS. With an MDS
    /// code, one equation shows any error of a single survivor.
    fn judge(&self, answers: &BTreeMap<BlockIndex, Vec<Fingerprint>>) -> Verdict {
        let (mut all_hold, mut some_relate_survivors) = (true, false);
        for (equation, output) in self.rows() {
            let holds = holds(equation, output, answers);
            let of_survivors = self.is_of_survivors(equation, output);
            if of_survivors && !holds {
                return Verdict::Differs(Fault::Survivor);
            }
            (all_hold, some_relate_survivors) = (all_hold && holds, some_relate_survivors || of_survivors);
        }
        match (all_hold, some_relate_survivors && self.is_mds) {
            (true, _) => Verdict::Holds,
            (false, true) => Verdict::Differs(Fault::Delivery),
            (false, false) => Verdict::Differs(Fault::Unknown),
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&Recipe, usize)> {
        let of = |equation: &Recipe| 0..equation.outputs().len();
        self.equations.iter().flat_map(move |equation| of(equation).map(move |output| (equation, output)))
    }

    fn is_of_survivors(&self, equation: &Recipe, output: usize) -> bool {
        let sources =
            equation.row(output).iter().map(|&(source, _)| equation.sources()[source as usize].block);
        let mut terms = sources.chain([equation.outputs()[output].block]);
        !terms.any(|block| self.delivered.contains(&block))
    }
}

fn all_of(delivered: &[Delivered]) -> BTreeSet<BlockIndex> {
    delivered.iter().map(|delivered| delivered.block).collect()
}

/// Whether one row of an equation holds.
fn holds(equation: &Recipe, output: usize, answers: &BTreeMap<BlockIndex, Vec<Fingerprint>>) -> bool {
    let sub_block = equation.outputs()[output];
    let mut sum = Fingerprint::zero();
    for &(source, coefficient) in equation.row(output) {
        let source = equation.sources()[source as usize];
        sum.add(coefficient, &answers[&source.block][usize::from(source.sub)]);
    }
    sum == answers[&sub_block.block][usize::from(sub_block.sub)]
}

/// Expresses the rebuilt blocks and further survivors in terms of the first k survivors. At least one further
/// survivor takes part, and so do all copied blocks; for [`Extent::Every`], all of `survivors` take part.
/// Returns `None` if there are too few survivors.
fn any_survivors(
    stripe: &Stripe,
    rebuilt: &[BlockIndex],
    survivors: &[BlockIndex],
    copied: usize,
    extent: Extent,
) -> Option<Recipe> {
    let k = stripe.code.data_blocks();
    let enough = survivors.get(..copied.max(k + 1))?;
    let asked = if extent == Extent::Every { survivors } else { enough };
    let (sources, others) = asked.split_at(k);
    stripe.code.repair(&[others, rebuilt].concat(), sources).ok()
}

/// Equations collected one by one; each must show errors that the earlier ones miss.
struct Gathered<'stripe> {
    stripe: &'stripe Stripe,
    rebuilt: &'stripe [BlockIndex],
    survivors: &'stripe [BlockIndex],
    /// The first `copied` survivors were delivered as copies, so every error in them must show.
    copied: usize,
    equations: Vec<Recipe>,
    shown: usize,
}

impl<'stripe> Gathered<'stripe> {
    fn new(
        stripe: &'stripe Stripe,
        rebuilt: &'stripe [BlockIndex],
        survivors: &'stripe [BlockIndex],
        copied: usize,
    ) -> Self {
        Self { stripe, rebuilt, survivors, copied, equations: Vec::new(), shown: 0 }
    }

    /// The equations that show every error, or `None` if they do not exist. [`Extent::Every`] yields one
    /// equation for each block that the other blocks determine.
    fn equations(mut self, extent: Extent) -> Option<Vec<Recipe>> {
        let all = (self.survivors.len() * self.rebuilt.len() + self.copied) * self.stripe.code.sub_blocks();
        for &block in self.rebuilt.iter().chain(self.survivors) {
            let Some(equation) = self.equation(block) else { continue };
            self.equations.push(equation);
            let shown = self.shown();
            if extent == Extent::Enough {
                if shown == all {
                    return Some(self.equations);
                }
                if shown == self.shown {
                    self.equations.pop();
                }
            }
            self.shown = shown;
        }
        (extent == Extent::Every && self.shown == all).then_some(self.equations)
    }

    /// Expresses a block in terms of others, preferring blocks that already occur in an equation.
    fn equation(&self, block: BlockIndex) -> Option<Recipe> {
        let terms =
            self.equations.iter().flat_map(|equation| equation.sources().iter().chain(equation.outputs()));
        let known: BTreeSet<BlockIndex> = terms.map(|sub_block| sub_block.block).collect();
        let (first, rest): (Vec<BlockIndex>, Vec<BlockIndex>) =
            self.survivors.iter().partition(|index| known.contains(index));
        let rebuilt = self.rebuilt.iter().copied();
        let others: Vec<BlockIndex> =
            first.into_iter().chain(rebuilt).chain(rest).filter(|&other| other != block).collect();
        self.stripe.code.repair(&[block], &others).ok()
    }

    /// Measures how much the equations show, as a sum over survivors: the number of dimensions of errors in
    /// the rebuilt blocks that show regardless of the survivor's own error, plus, for a copied survivor, the
    /// number of dimensions of its own error that show. More equations never show less.
    fn shown(&self) -> usize {
        let of = |blocks: &[BlockIndex]| self.columns(blocks).rank();
        let beside = |(at, &survivor): (usize, &BlockIndex)| {
            let both: Vec<BlockIndex> =
                std::iter::once(survivor).chain(self.rebuilt.iter().copied()).collect();
            of(&both) - if at < self.copied { 0 } else { of(&[survivor]) }
        };
        self.survivors.iter().enumerate().map(beside).sum()
    }

    /// The coefficients of these blocks' sub-blocks, one row per equation.
    fn columns(&self, blocks: &[BlockIndex]) -> Matrix {
        let sub_blocks = self.stripe.code.sub_blocks();
        let rows = self
            .equations
            .iter()
            .flat_map(|equation| (0..equation.outputs().len()).map(move |at| (equation, at)));
        Matrix::from_rows(rows.map(|(equation, at)| {
            let mut row = vec![0; blocks.len() * sub_blocks];
            let terms = equation.row(at).iter().map(|&(source, c)| (equation.sources()[source as usize], c));
            for (sub_block, coefficient) in terms.chain([(equation.outputs()[at], 1)]) {
                if let Some(position) = blocks.iter().position(|&block| block == sub_block.block) {
                    row[position * sub_blocks + usize::from(sub_block.sub)] = coefficient;
                }
            }
            row
        }))
    }
}

#[cfg(test)]
mod tests {
    use codes::CodeSpec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select, subsequence};

    use super::*;
    use crate::{Chunking, Fingerprinter, StripeBlock, StripeId};

    const CODES: [&str; 12] = [
        "rs-5-3",
        "rs-9-6-jerasure",
        "hitchhiker-xor-9-6",
        "hitchhiker-xorplus-9-6",
        "hitchhiker-nonxor-7-4",
        "rotated-8-6-2",
        "clay-6-4-5",
        "less-7-4-2",
        "lrc-6-2-2",
        "lrc1-4-2-2",
        "ceph-shec-4-3-2",
        "ceph-lrc-4-2-3",
    ];
    const SUB_BLOCK_BYTES: usize = 24;

    fn stripe(spec: &CodeSpec) -> Stripe {
        let code = spec.build().unwrap();
        let bytes = (code.sub_blocks() * SUB_BLOCK_BYTES) as u64;
        let block = |index: u16| {
            let id = BlockId(format!("s.{index}"));
            StripeBlock { id, bytes, holder: Some(NodeId(index.into())), digest: None }
        };
        let blocks = (0..code.blocks() as u16).map(block).collect();
        Stripe {
            id: StripeId("s".into()),
            chunking: Chunking::whole(&*code, bytes),
            code,
            blocks,
            label: None,
        }
    }

    /// The bytes of each sub-block of every block.
    type Contents = BTreeMap<BlockIndex, Vec<Vec<u8>>>;

    fn computed(recipe: &Recipe, contents: &Contents) -> Vec<Vec<u8>> {
        let bytes = |sub_block: &codes::SubBlock| &contents[&sub_block.block][usize::from(sub_block.sub)][..];
        recipe.apply(&recipe.sources().iter().map(bytes).collect::<Vec<_>>())
    }

    fn encoded(stripe: &Stripe, random: impl Iterator<Item = u8>) -> Contents {
        let (code, mut random) = (&stripe.code, random);
        let mut sub_block = || random.by_ref().take(SUB_BLOCK_BYTES).collect::<Vec<u8>>();
        let mut contents: Contents = (0..code.data_blocks() as u16)
            .map(|index| (BlockIndex(index), (0..code.sub_blocks()).map(|_| sub_block()).collect()))
            .collect();
        let parity = computed(code.encoding(), &contents);
        for (index, sub_blocks) in (code.data_blocks() as u16..).zip(parity.chunks(code.sub_blocks())) {
            contents.insert(BlockIndex(index), sub_blocks.to_vec());
        }
        contents
    }

    fn verdict(check: &ParityCheck, contents: &Contents) -> Option<Verdict> {
        let fingerprint = |bytes: &Vec<u8>| {
            let mut fingerprinter = Fingerprinter::new(7);
            fingerprinter.update(bytes);
            fingerprinter.finish()
        };
        let answer = |local: LocalBlock| {
            (local.index, contents[&local.index].iter().map(fingerprint).collect::<Vec<_>>())
        };
        check.verdict(&check.questions().into_iter().map(|(_, local)| answer(local)).collect())
    }

    proptest! {
        /// An error in any single survivor, in any of its sub-blocks, is detected if it spoils a rebuilt
        /// block; a correct stripe is never accused.
        #[test]
        fn errors_of_one_survivor_are_found(
            spec in select(&CODES[..]),
            lost in subsequence((0..5u16).collect::<Vec<_>>(), 0..=2),
            copies in 0..14usize,
            out_of_reach in subsequence((5..7u16).collect::<Vec<_>>(), 0..=1),
            order in any::<u64>(),
            liar in any::<Index>(),
            lies in prop::collection::vec((any::<Index>(), 0..SUB_BLOCK_BYTES, 1..=255u8), 1..3),
            seed in any::<u64>(),
            extent in select(vec![Extent::Enough, Extent::Every]),
        ) {
            use rand_chacha::rand_core::{Rng, SeedableRng};
            let stripe = stripe(&spec.parse().unwrap());
            let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let truth = encoded(&stripe, std::iter::repeat_with(move || random.next_u32() as u8));
            let lost: Vec<BlockIndex> = lost.into_iter().map(BlockIndex).collect();
            let is_there = |index: &BlockIndex| !lost.contains(index) && !out_of_reach.contains(&index.0);
            let mut usable: Vec<BlockIndex> = stripe.indices().filter(is_there).collect();
            let turns = usable.len();
            usable.rotate_left(order as usize % turns);
            let survivors = usable.clone();
            let copies: Vec<BlockIndex> = usable.drain(..copies.min(usable.len())).collect();
            let delivered = |copied| move |&block: &BlockIndex| Delivered { block, at: NodeId(99), copied };
            let all: Vec<Delivered> =
                lost.iter().map(delivered(false)).chain(copies.iter().map(delivered(true))).collect();
            let check = ParityCheck::new(&stripe, &all, &usable, extent);
            let usable = survivors;
            if stripe.code.spec().is_mds() {
                prop_assert_eq!(check.is_some(), usable.len() > stripe.code.data_blocks());
            }
            let (Some(check), Ok(recipe)) = (check, stripe.code.repair(&lost, &usable)) else { return Ok(()) };
            prop_assert_eq!(verdict(&check, &truth), Some(Verdict::Holds), "nothing is wrong");
            let mut found = truth.clone();
            for (sub, at, flip) in lies {
                let sub_blocks = found.get_mut(liar.get(&usable)).unwrap();
                sub_blocks[sub.index(stripe.code.sub_blocks())][at] ^= flip;
            }
            let outputs = computed(&recipe, &found);
            for (&block, sub_blocks) in lost.iter().zip(outputs.chunks(stripe.code.sub_blocks())) {
                found.insert(block, sub_blocks.to_vec());
            }
            if lost.iter().chain(&copies).any(|block| found[block] != truth[block]) {
                let found = verdict(&check, &found);
                prop_assert!(found > Some(Verdict::Holds), "of {:?} and {:?}", lost, copies);
                // If the wrong survivor takes part in the check, the check must not blame the delivery alone.
                // In codes with sub-blocks, the repair may have read blocks that take no part in the check.
                let is_asked = check.survivors().contains(liar.get(&usable));
                let is_spared = found > Some(Verdict::Differs(Fault::Delivery));
                prop_assert!(is_spared || !is_asked, "{:?} of {:?}", found, lost);
            }
        }
    }

    #[test]
    fn an_lrc_is_checked_by_its_group_and_one_global_equation() {
        let stripe = stripe(&"lrc-6-2-2".parse().unwrap());
        let usable: Vec<BlockIndex> = (1..10).map(BlockIndex).collect();
        let lost = Delivered { block: BlockIndex(0), at: NodeId(99), copied: false };
        let check = ParityCheck::new(&stripe, &[lost], &usable, Extent::Enough).unwrap();
        assert!(check.equations.len() <= 3, "{:?}", check.equations);
    }
}
