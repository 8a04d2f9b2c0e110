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
    /// Ranks that also forward data they do not change, because the links through them are better than the
    /// links around them.
    pub relays: Vec<usize>,
}

impl Route {
    /// A route whose result is complete at `root` after `moves`, without gathering or relays.
    pub fn new(moves: Vec<(usize, usize)>, root: usize) -> Self {
        Self { moves, gather: Vec::new(), root, relays: Vec::new() }
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
            Self::Star(_) => 1,
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
    let outputs = placement.decoded.len();
    let own = |rank: &Rank| {
        rank.helper
            .map_or_else(|| PartialSums::empty(outputs), |helper| PartialSums::of(&placement.helpers[helper]))
    };
    let mut holdings: Vec<PartialSums> = shape.ranks.iter().map(own).collect();
    // A rank that has forwarded its sums takes no further part.
    for &(from, to) in &route.moves {
        let leaving = std::mem::take(&mut holdings[from]);
        let (here, there) = (shape.ranks[from].node, shape.ranks[to].node);
        let mut passed = if here == there { leaving } else { leaving.condensed(here, builder) };
        if route.relays.contains(&from) {
            passed = passed.brought(here, builder);
        }
        holdings[to].absorb(passed);
    }
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
