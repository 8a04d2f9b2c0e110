//! A recipe placed on nodes: which node computes which terms from its own blocks.

use codes::{Recipe, SubBlock};

use super::Wanted;
use super::shape::Rank;
use crate::{Combination, Input, NodeId, Stripe, Summand};

/// A recipe with the nodes of its sources and outputs.
pub(super) struct Placement<'a> {
    pub stripe: &'a Stripe,
    pub recipe: &'a Recipe,
    /// The requestor of each output.
    pub requestors: Vec<NodeId>,
    /// (output, node): outputs whose sources are all on `node`, which computes the output and sends it
    /// directly to the requestor.
    pub direct: Vec<(usize, NodeId)>,
    /// The other outputs. Their partial sums travel along the scheme's shape.
    pub decoded: Vec<usize>,
    /// The nodes with a term for a decoded output, in the order of the recipe's sources.
    pub helpers: Vec<Helper>,
}

/// A node that adds terms of its own to decoded outputs.
pub(super) struct Helper {
    pub node: NodeId,
    /// The node's own terms for each of the decoded outputs, by position in [`Placement::decoded`].
    pub terms: Vec<Combination>,
}

impl Helper {
    /// The sub-blocks that the helper reads, ascending.
    pub fn reads(&self) -> Vec<SubBlock> {
        let mut reads: Vec<SubBlock> = self
            .terms
            .iter()
            .flatten()
            .filter_map(|term| match term.input {
                Input::Local(sub_block) => Some(sub_block),
                Input::Received(_) => None,
            })
            .collect();
        reads.sort_unstable();
        reads.dedup();
        reads
    }

    /// The number of streams that the helper's own contribution needs: one per sub-block that the helper
    /// reads, or one per sum that the helper feeds, whichever is fewer.
    pub fn streams(&self) -> usize {
        self.reads().len().min(self.rows())
    }

    /// The number of decoded outputs that the helper feeds.
    pub fn rows(&self) -> usize {
        self.terms.iter().filter(|terms| !terms.is_empty()).count()
    }
}

impl<'a> Placement<'a> {
    pub fn new(stripe: &'a Stripe, recipe: &'a Recipe, wanted: &[Wanted]) -> Self {
        let holders: Vec<NodeId> = recipe.sources().iter().map(|source| holder(stripe, *source)).collect();
        let requestors = recipe.outputs().iter().map(|output| requestor(wanted, *output)).collect();
        let mut placement =
            Self { stripe, recipe, requestors, direct: Vec::new(), decoded: Vec::new(), helpers: Vec::new() };
        for output in 0..recipe.outputs().len() {
            match only_node(recipe.row(output), &holders) {
                Some(node) => placement.direct.push((output, node)),
                None => placement.decoded.push(output),
            }
        }
        placement.helpers = placement.helpers_of(&holders);
        placement
    }

    /// Expresses output number `output` in terms of the sources, for the one node that holds all of them.
    pub fn local_terms(&self, output: usize) -> Combination {
        self.recipe.row(output).iter().map(|&(source, c)| self.local(source, c)).collect()
    }

    /// The requestor of all decoded outputs, if it is one node.
    pub fn sole_requestor(&self) -> Option<NodeId> {
        let mut requestors = self.decoded.iter().map(|&output| self.requestors[output]);
        let first = requestors.next()?;
        requestors.all(|requestor| requestor == first).then_some(first)
    }

    /// Whether a decoded output goes to `node`.
    pub fn is_requestor(&self, node: NodeId) -> bool {
        self.decoded.iter().any(|&output| self.requestors[output] == node)
    }

    /// The position of `node` among the helpers.
    pub fn helper_at(&self, node: NodeId) -> Option<usize> {
        self.helpers.iter().position(|helper| helper.node == node)
    }

    /// Creates the rank of a helper, which starts with the helper's own terms.
    pub fn rank_of(&self, helper: usize) -> Rank {
        Rank { node: self.helpers[helper].node, helper: Some(helper) }
    }

    /// The number of terms of all decoded outputs.
    pub fn terms(&self) -> usize {
        self.decoded.iter().map(|&output| self.recipe.row(output).len()).sum()
    }

    /// Whether every output is itself a source, so that no decoding is needed.
    pub fn only_copies(&self) -> bool {
        let outputs = self.recipe.outputs().iter().enumerate();
        outputs.into_iter().all(|(output, sub_block)| match self.recipe.row(output) {
            &[(source, 1)] => self.recipe.sources()[source as usize] == *sub_block,
            _ => false,
        })
    }

    fn local(&self, source: u32, coefficient: u8) -> Summand {
        Summand { input: Input::Local(self.recipe.sources()[source as usize]), coefficient }
    }

    fn helpers_of(&self, holders: &[NodeId]) -> Vec<Helper> {
        let mut helpers = Vec::new();
        let mut at = vec![None; holders.len()];
        for source in self.decoded_sources(holders.len()) {
            let node = holders[source];
            let known = helpers.iter().position(|helper: &Helper| helper.node == node);
            at[source] = Some(known.unwrap_or_else(|| {
                helpers.push(Helper { node, terms: vec![Combination::new(); self.decoded.len()] });
                helpers.len() - 1
            }));
        }
        for (position, &output) in self.decoded.iter().enumerate() {
            for &(source, coefficient) in self.recipe.row(output) {
                let helper = at[source as usize].expect("the source of a decoded output");
                helpers[helper].terms[position].push(self.local(source, coefficient));
            }
        }
        helpers
    }

    /// The sources that some decoded output uses, ascending.
    fn decoded_sources(&self, sources: usize) -> impl Iterator<Item = usize> + use<> {
        let mut used = vec![false; sources];
        for &output in &self.decoded {
            self.recipe.row(output).iter().for_each(|&(source, _)| used[source as usize] = true);
        }
        (0..sources).filter(move |&source| used[source])
    }
}

fn holder(stripe: &Stripe, source: SubBlock) -> NodeId {
    stripe.block(source.block).holder.expect("a recipe reads only blocks that are held")
}

fn requestor(wanted: &[Wanted], output: SubBlock) -> NodeId {
    let wanted = wanted.iter().find(|wanted| wanted.block == output.block);
    wanted.expect("a recipe has outputs only of wanted blocks").requestor
}

/// The node that holds all sources of a row, if there is one.
fn only_node(row: &[(u32, u8)], holders: &[NodeId]) -> Option<NodeId> {
    let mut nodes = row.iter().map(|&(source, _)| holders[source as usize]);
    let first = nodes.next()?;
    nodes.all(|node| node == first).then_some(first)
}
