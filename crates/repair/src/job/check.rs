//! Parity equations that a repair did not use, checked by fingerprints.
//!
//! An equation tells that something is wrong only if it is not the very one by which the block was rebuilt:
//! a bad source then makes both sides wrong alike. After a failure a block may have been rebuilt partly from
//! one set of sources and partly from another, so each set needs an equation of its own, with a block that
//! is not in the set. For an MDS code every single bad source then shows: in terms of the set, the block
//! outside has a coefficient other than zero for each of its blocks.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, Recipe, SubBlock};

use crate::{BlockId, Fingerprint, LocalBlock, NodeId, Stripe};

/// Equations over rebuilt blocks, blocks the repair used, and one that it did not use; each sub-block of a rebuilt
/// block takes part in at least one.
#[derive(Debug)]
pub(super) struct ParityCheck {
    equations: Vec<Recipe>,
    blocks: BTreeMap<BlockIndex, (NodeId, LocalBlock)>,
    answers: BTreeMap<BlockIndex, Vec<Fingerprint>>,
    sub_blocks: usize,
}

impl ParityCheck {
    /// A check of the `rebuilt` blocks, which are where they were delivered, by blocks that are `usable`, or
    /// `None` if there is a set of sources in `used` outside which no usable block can be expressed by the
    /// rebuilt ones and other usable ones.
    pub(super) fn new(
        stripe: &Stripe,
        rebuilt: &[(BlockIndex, NodeId)],
        used: &BTreeSet<BTreeSet<BlockIndex>>,
        usable: &[BlockIndex],
    ) -> Option<Self> {
        let mut equations = Vec::new();
        for sources in used {
            for equation in equations_for(stripe, rebuilt, sources, usable)? {
                if !equations.contains(&equation) {
                    equations.push(equation);
                }
            }
        }
        let mut blocks = BTreeMap::new();
        for equation in &equations {
            for sub_block in equation.sources().iter().chain(equation.outputs()) {
                let index = sub_block.block;
                let at = rebuilt.iter().find(|&&(block, _)| block == index).map(|&(_, node)| node);
                let node = at.or(stripe.block(index).holder)?;
                blocks.insert(index, (node, stripe.local(index)));
            }
        }
        let sub_blocks = stripe.code.sub_blocks();
        (!equations.is_empty()).then(|| Self { equations, blocks, answers: BTreeMap::new(), sub_blocks })
    }

    /// Whom to ask for the fingerprints of which block.
    pub(super) fn questions(&self) -> Vec<(NodeId, LocalBlock)> {
        self.blocks.values().cloned().collect()
    }

    pub(super) fn take(&mut self, block: &BlockId, fingerprints: Vec<Fingerprint>) {
        let index = self.blocks.iter().find(|(_, (_, asked))| asked.id == *block).map(|(&index, _)| index);
        if let Some(index) = index
            && fingerprints.len() == self.sub_blocks
        {
            self.answers.insert(index, fingerprints);
        }
    }

    /// Whether the equations hold; `None` until all answers are there.
    pub(super) fn verdict(&self) -> Option<bool> {
        if self.answers.len() < self.blocks.len() {
            return None;
        }
        Some(self.equations.iter().all(|equation| self.holds(equation)))
    }

    fn holds(&self, equation: &Recipe) -> bool {
        equation.outputs().iter().enumerate().all(|(output, sub_block)| {
            let mut sum = Fingerprint::zero();
            for &(source, coefficient) in equation.row(output) {
                let source = equation.sources()[source as usize];
                sum.add(coefficient, &self.answers[&source.block][usize::from(source.sub)]);
            }
            sum == self.answers[&sub_block.block][usize::from(sub_block.sub)]
        })
    }
}

/// Equations in which every sub-block of every rebuilt block takes part, each with one usable block that is not among the
/// `sources`.
fn equations_for(
    stripe: &Stripe,
    rebuilt: &[(BlockIndex, NodeId)],
    sources: &BTreeSet<BlockIndex>,
    usable: &[BlockIndex],
) -> Option<Vec<Recipe>> {
    let (trusted, unused): (Vec<BlockIndex>, Vec<BlockIndex>) =
        usable.iter().copied().partition(|index| sources.contains(index));
    let mut equations: Vec<Recipe> = Vec::new();
    for &(block, _) in rebuilt {
        let others = rebuilt.iter().map(|&(other, _)| other).filter(|&other| other != block);
        let first: Vec<BlockIndex> =
            std::iter::once(block).chain(others).chain(trusted.iter().copied()).collect();
        let mut open: BTreeSet<u16> = (0..stripe.code.sub_blocks() as u16).collect();
        equations.iter().for_each(|equation| open.retain(|&sub| !takes_part(equation, block, sub)));
        // Sources come first; where too few of them are left, others help out. Given only as many blocks as decode it, an
        // equation must read all of each.
        for most in [stripe.code.blocks(), stripe.code.data_blocks()] {
            for &spare in &unused {
                if open.is_empty() {
                    break;
                }
                let rest = unused.iter().copied().filter(|&other| other != spare);
                let available: Vec<BlockIndex> = first.iter().copied().chain(rest).take(most).collect();
                let Ok(equation) = stripe.code.repair(&[spare], &available) else { continue };
                let before = open.len();
                open.retain(|&sub| !takes_part(&equation, block, sub));
                if open.len() < before {
                    equations.push(equation);
                }
            }
        }
        if !open.is_empty() {
            return None;
        }
    }
    Some(equations)
}

fn takes_part(equation: &Recipe, block: BlockIndex, sub: u16) -> bool {
    equation.sources().contains(&SubBlock { block, sub })
}
