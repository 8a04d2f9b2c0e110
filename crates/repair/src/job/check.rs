//! One parity equation that a repair did not use, checked by fingerprints.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, Recipe};

use crate::{BlockId, Fingerprint, NodeId, Stripe};

/// Equations over rebuilt blocks, blocks the repair used, and one that it did not use; each rebuilt block
/// takes part in at least one.
#[derive(Debug)]
pub(super) struct ParityCheck {
    used: BTreeSet<BlockIndex>,
    equations: Vec<Recipe>,
    blocks: BTreeMap<BlockIndex, (NodeId, BlockId)>,
    answers: BTreeMap<BlockIndex, Vec<Fingerprint>>,
    sub_blocks: usize,
}

impl ParityCheck {
    /// A check of the `rebuilt` blocks, which are where they were delivered, or `None` if no unused block
    /// can be expressed by them and the trusted ones.
    pub(super) fn new(
        stripe: &Stripe,
        rebuilt: &[(BlockIndex, NodeId)],
        trusted: Vec<BlockIndex>,
        unused: Vec<BlockIndex>,
        used: BTreeSet<BlockIndex>,
    ) -> Option<Self> {
        let mut equations = Vec::new();
        let mut covered = BTreeSet::new();
        for &(block, _) in rebuilt {
            if covered.contains(&block) {
                continue;
            }
            let others = rebuilt.iter().map(|&(other, _)| other).filter(|&other| other != block);
            let available: Vec<BlockIndex> =
                std::iter::once(block).chain(others).chain(trusted.iter().copied()).collect();
            let equation = unused.iter().find_map(|&spare| {
                let recipe = stripe.code.repair(&[spare], &available).ok()?;
                recipe.sources().iter().any(|source| source.block == block).then_some(recipe)
            })?;
            covered.extend(equation.sources().iter().map(|source| source.block));
            equations.push(equation);
        }
        let mut blocks = BTreeMap::new();
        for equation in &equations {
            for sub_block in equation.sources().iter().chain(equation.outputs()) {
                let index = sub_block.block;
                let at = rebuilt.iter().find(|&&(block, _)| block == index).map(|&(_, node)| node);
                let node = at.or(stripe.block(index).holder)?;
                blocks.insert(index, (node, stripe.block(index).id.clone()));
            }
        }
        let sub_blocks = stripe.code.sub_blocks();
        (!equations.is_empty()).then(|| Self {
            used,
            equations,
            blocks,
            answers: BTreeMap::new(),
            sub_blocks,
        })
    }

    /// Whom to ask for the fingerprints of which block.
    pub(super) fn questions(&self) -> Vec<(NodeId, BlockId)> {
        self.blocks.values().cloned().collect()
    }

    /// The blocks that the repair used.
    pub(super) fn used(&self) -> &BTreeSet<BlockIndex> {
        &self.used
    }

    pub(super) fn take(&mut self, block: &BlockId, fingerprints: Vec<Fingerprint>) {
        let index = self.blocks.iter().find(|(_, (_, id))| id == block).map(|(&index, _)| index);
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
