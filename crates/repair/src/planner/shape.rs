//! A shape: the routes of partial sums between nodes, lane by lane.

use std::collections::BTreeMap;

use super::partial_sums::PartialSums;
use super::placement::{Helper, Placement};
use crate::plan::{Input, PlanBuilder, Summand};
use crate::{Combination, NodeId};

/// The routes of the decoded outputs.
pub(super) enum Shape {
    /// All raw sub-blocks go to one node, which decodes.
    Star(NodeId),
    /// Partial sums travel from rank to rank until the root has all of them.
    Sums(SumShape),
    /// Partial sums are made at several ranks. They travel to each requestor along a tree of its own.
    Trees(TreeShape),
}

/// One lane in which partial sums are made at several ranks.
pub(super) struct TreeShape {
    pub ranks: Vec<Rank>,
    /// (from, to), as in [`Route::moves`]. The ranks that have collected something in the end make a partial
    /// sum of every output.
    pub moves: Vec<(usize, usize)>,
    /// For each requestor's rank the moves, in order, of the partial sums of its outputs.
    pub trees: BTreeMap<usize, Vec<(usize, usize)>>,
}

/// Ranks that hold partial sums, and the routes of the sums.
pub(super) struct SumShape {
    pub ranks: Vec<Rank>,
    pub routes: Vec<Route>,
}

/// A position where sums are collected. A node may be several ranks.
#[derive(Clone, Copy)]
pub(super) struct Rank {
    pub node: NodeId,
    /// The helper whose own terms this rank starts with.
    pub helper: Option<usize>,
}

/// The route of one lane.
pub(super) struct Route {
    /// (from, to), in the order in which they happen: each move forwards everything that `from` has collected
    /// so far. A stream that `from` would not change is sent by the node that made it, directly to the next
    /// node that needs it.
    pub moves: Vec<(usize, usize)>,
    /// After the last move, the ranks through which the sums travel to the root, whether or not a rank
    /// changes them. Empty if the moves end at the root.
    pub gather: Vec<usize>,
    /// The rank where everything ends; it sends each output to its requestor.
    pub root: usize,
}

impl Route {
    /// A route whose result is complete at `root` after `moves`, without gathering.
    pub fn new(moves: Vec<(usize, usize)>, root: usize) -> Self {
        Self { moves, gather: Vec::new(), root }
    }

    /// Reorders the ranks other than the root, so that the ranks at the front of the list are the first to
    /// send.
    pub fn seat_by_leaving(&self, ranks: &mut [Rank]) {
        let listed: Vec<Rank> = (0..ranks.len()).filter(|&at| at != self.root).map(|at| ranks[at]).collect();
        self.moves.iter().zip(listed).for_each(|(&(from, _), rank)| ranks[from] = rank);
    }
}

impl SumShape {
    /// A shape for outputs that need no sums.
    pub fn empty() -> Self {
        Self { ranks: Vec::new(), routes: vec![Route::new(Vec::new(), 0)] }
    }
}

impl Shape {
    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        match self {
            Self::Star(_) | Self::Trees(_) => 1,
            Self::Sums(sums) => sums.routes.len(),
        }
    }

    /// Adds lane number `lane` of the shape to a plan.
    pub fn draw(&self, lane: usize, placement: &Placement, builder: &mut PlanBuilder) {
        builder.lane();
        for &(output, node) in &placement.direct {
            hand_over(builder, node, output, placement.local_terms(output));
        }
        match self {
            Self::Star(decoder) => draw_star(placement, *decoder, builder),
            Self::Sums(sums) => draw_sums(sums, &sums.routes[lane], placement, builder),
            Self::Trees(trees) => draw_trees(trees, placement, builder),
        }
    }
}

/// Every helper sends its sub-blocks unchanged. The decoder sums them, and forwards the outputs that other
/// nodes requested.
fn draw_star(placement: &Placement, decoder: NodeId, builder: &mut PlanBuilder) {
    let mut sums = vec![Combination::new(); placement.decoded.len()];
    for helper in &placement.helpers {
        let arrived = match helper.node == decoder {
            true => BTreeMap::new(),
            false => send_raw(helper, decoder, builder),
        };
        for (sum, terms) in sums.iter_mut().zip(&helper.terms) {
            let seen = |input| arrived.get(&input).copied().unwrap_or(input);
            sum.extend(terms.iter().map(|term| Summand { input: seen(term.input), ..*term }));
        }
    }
    for (sum, &output) in sums.into_iter().zip(&placement.decoded) {
        hand_over(builder, decoder, output, sum);
    }
}

/// Sends each sub-block that a helper reads as a stream, and returns the receiver's input for each.
fn send_raw(helper: &Helper, to: NodeId, builder: &mut PlanBuilder) -> BTreeMap<Input, Input> {
    let reads = helper.reads().into_iter().map(Input::Local);
    reads
        .map(|input| (input, builder.send(helper.node, to, vec![Summand { input, coefficient: 1 }])))
        .collect()
}

fn draw_sums(shape: &SumShape, route: &Route, placement: &Placement, builder: &mut PlanBuilder) {
    let mut holdings = collected(&shape.ranks, &route.moves, placement, builder);
    let Some(root) = shape.ranks.get(route.root) else { return };
    let stations: Vec<usize> = route.gather.iter().copied().chain([route.root]).collect();
    let mut all = std::mem::take(&mut holdings[stations[0]]);
    for pair in stations.windows(2) {
        let (here, there) = (shape.ranks[pair[0]].node, shape.ranks[pair[1]].node);
        if here != there {
            all = all.condensed(here, builder).brought(there, builder);
        }
    }
    end(all, root.node, placement, builder);
}

/// Each rank that has collected something makes its partial sums of all outputs. Then these travel output by
/// output.
fn draw_trees(shape: &TreeShape, placement: &Placement, builder: &mut PlanBuilder) {
    let holdings = collected(&shape.ranks, &shape.moves, placement, builder);
    let node = |rank: usize| shape.ranks[rank].node;
    let at = |(rank, held): (usize, PartialSums)| held.summed(node(rank), builder).apart();
    let sums: Vec<Vec<PartialSums>> = holdings.into_iter().enumerate().map(at).collect();
    for (position, &output) in placement.decoded.iter().enumerate() {
        let requestor = placement.requestors[output];
        let (&end, moves) = shape
            .trees
            .iter()
            .find(|(rank, _)| node(**rank) == requestor)
            .expect("each requestor has a tree");
        let own = |of_rank: &Vec<PartialSums>| {
            of_rank.get(position).cloned().unwrap_or_else(|| PartialSums::empty(1))
        };
        let mut held: Vec<PartialSums> = sums.iter().map(own).collect();
        for &(from, to) in moves {
            let leaving = std::mem::take(&mut held[from]).condensed(node(from), builder);
            held[to].absorb(leaving);
        }
        let sum = std::mem::take(&mut held[end]).gathered(requestor, builder).concat();
        builder.deliver(output, sum);
    }
}

/// The sums at each rank after these moves. A rank that has forwarded its sums takes no further part.
fn collected(
    ranks: &[Rank],
    moves: &[(usize, usize)],
    placement: &Placement,
    builder: &mut PlanBuilder,
) -> Vec<PartialSums> {
    let own = |rank: &Rank| match rank.helper {
        Some(helper) => PartialSums::of(&placement.helpers[helper]),
        None => PartialSums::empty(placement.decoded.len()),
    };
    let mut holdings: Vec<PartialSums> = ranks.iter().map(own).collect();
    for &(from, to) in moves {
        let leaving = std::mem::take(&mut holdings[from]);
        let (here, there) = (ranks[from].node, ranks[to].node);
        let passed = if here == there { leaving } else { leaving.condensed(here, builder) };
        holdings[to].absorb(passed);
    }
    holdings
}

/// Delivers the sums collected at the root.
fn end(all: PartialSums, root: NodeId, placement: &Placement, builder: &mut PlanBuilder) {
    if placement.sole_requestor() == Some(root) {
        let sums = all.gathered(root, builder);
        sums.into_iter().zip(&placement.decoded).for_each(|(sum, &output)| builder.deliver(output, sum));
        return;
    }
    let sums = all.summed(root, builder).finished();
    for ((node, mut sum, factor), &output) in sums.into_iter().zip(&placement.decoded) {
        sum.iter_mut().for_each(|term| term.coefficient = gf::mul(term.coefficient, factor));
        hand_over(builder, node, output, sum);
    }
}

/// Sends a finished output from `node` to its requestor, which delivers it.
fn hand_over(builder: &mut PlanBuilder, node: NodeId, output: usize, sum: Combination) {
    let requestor = builder.outputs()[output].requestor;
    let delivered = match requestor == node {
        true => sum,
        false => vec![Summand { input: builder.send(node, requestor, sum), coefficient: 1 }],
    };
    builder.deliver(output, delivered);
}
