//! A shape: in each lane, which node passes its partial sums to which.

use std::collections::BTreeMap;

use super::placement::{Helper, Placement};
use crate::plan::{Input, PlanBuilder, Term};
use crate::{Combination, NodeId};

/// The routes of the decoded outputs.
pub(super) enum Shape {
    /// All raw sub-blocks go to one node, which decodes.
    Star(NodeId),
    /// Partial sums are passed on until a root has all of them.
    Sums(SumShape),
}

/// Ranks that hold partial sums, and the routes of the sums.
pub(super) struct SumShape {
    pub ranks: Vec<Rank>,
    pub routes: Vec<Route>,
}

/// A place where sums are collected. A node may play several ranks.
#[derive(Clone, Copy)]
pub(super) struct Rank {
    pub node: NodeId,
    /// The helper whose own terms this rank starts with.
    pub helper: Option<usize>,
}

/// One lane: who passes everything it has so far to whom, in order.
pub(super) struct Route {
    pub moves: Vec<(usize, usize)>,
    /// The rank where everything ends; it sends each output to its requestor.
    pub root: usize,
}

/// What decides the size of slices.
pub(super) struct Footprint {
    pub lanes: usize,
    pub hops: u32,
    /// The most streams of one lane that begin or end at one node.
    pub streams: usize,
}

impl SumShape {
    /// A shape for outputs that need no sums.
    pub fn empty() -> Self {
        Self { ranks: Vec::new(), routes: vec![Route { moves: Vec::new(), root: 0 }] }
    }

    fn footprint(&self, placement: &Placement) -> (u32, usize) {
        let outputs = placement.decoded.len();
        let (mut hops, mut streams) = (0, 0);
        let mut ends = vec![(0u32, 0usize); self.ranks.len()];
        for route in &self.routes {
            ends.fill((0, 0));
            for &(from, to) in &route.moves {
                if self.ranks[from].node != self.ranks[to].node {
                    ends[from].1 += outputs;
                    ends[to].1 += outputs;
                    ends[to].0 = ends[to].0.max(ends[from].0 + 1);
                } else {
                    ends[to].0 = ends[to].0.max(ends[from].0);
                }
            }
            if let Some(root) = ends.get_mut(route.root) {
                let node = self.ranks[route.root].node;
                let away = placement.decoded.iter().filter(|&&o| placement.requestors[o] != node).count();
                root.0 += u32::from(away > 0);
                root.1 += away;
            }
            hops = ends.iter().map(|&(depth, _)| depth).fold(hops, u32::max);
            streams = ends.iter().map(|&(_, streams)| streams).fold(streams, usize::max);
        }
        (hops, streams)
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

    /// The measures by which a slice size is chosen.
    pub fn footprint(&self, placement: &Placement) -> Footprint {
        let (hops, streams) = match self {
            Self::Star(decoder) => star_footprint(placement, *decoder),
            Self::Sums(sums) => sums.footprint(placement),
        };
        let mut direct: Vec<NodeId> = placement.direct.iter().map(|&(_, node)| node).collect();
        direct.sort_unstable();
        let busiest = direct.chunk_by(|a, b| a == b).map(<[NodeId]>::len).max().unwrap_or(0);
        Footprint { lanes: self.lanes(), hops: hops.max(u32::from(busiest > 0)), streams: streams + busiest }
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

fn star_footprint(placement: &Placement, decoder: NodeId) -> (u32, usize) {
    let others = placement.helpers.iter().filter(|helper| helper.node != decoder);
    let raw: usize = others.map(|helper| helper.reads().len()).sum();
    let forwards = placement.decoded.iter().filter(|&&o| placement.requestors[o] != decoder).count();
    (1 + u32::from(forwards > 0), raw + forwards)
}

/// Every helper sends its sub-blocks as they are; the decoder sums and forwards what is not its own.
fn draw_star(placement: &Placement, decoder: NodeId, builder: &mut PlanBuilder) {
    let mut sums = vec![Combination::new(); placement.decoded.len()];
    for helper in &placement.helpers {
        let arrived = match helper.node == decoder {
            true => BTreeMap::new(),
            false => send_raw(helper, decoder, builder),
        };
        for (sum, terms) in sums.iter_mut().zip(&helper.terms) {
            let seen = |input| arrived.get(&input).copied().unwrap_or(input);
            sum.extend(terms.iter().map(|term| Term { input: seen(term.input), ..*term }));
        }
    }
    for (sum, &output) in sums.into_iter().zip(&placement.decoded) {
        hand_over(builder, decoder, output, sum);
    }
}

/// Sends what a helper reads, each sub-block as a stream; what each is for the receiver.
fn send_raw(helper: &Helper, to: NodeId, builder: &mut PlanBuilder) -> BTreeMap<Input, Input> {
    let reads = helper.reads().into_iter().map(Input::Local);
    reads.map(|input| (input, builder.send(helper.node, to, vec![Term { input, coefficient: 1 }]))).collect()
}

fn draw_sums(shape: &SumShape, route: &Route, placement: &Placement, builder: &mut PlanBuilder) {
    let outputs = placement.decoded.len();
    let mut sums: Vec<Vec<Combination>> = shape
        .ranks
        .iter()
        .map(|rank| {
            rank.helper.map_or_else(|| vec![Vec::new(); outputs], |h| placement.helpers[h].terms.clone())
        })
        .collect();
    for &(from, to) in &route.moves {
        let leaving = std::mem::replace(&mut sums[from], vec![Vec::new(); outputs]);
        for (position, sum) in leaving.into_iter().enumerate().filter(|(_, sum)| !sum.is_empty()) {
            let passed = pass(builder, shape.ranks[from].node, shape.ranks[to].node, sum);
            sums[to][position].extend(passed);
        }
    }
    for (position, &output) in placement.decoded.iter().enumerate() {
        let sum = std::mem::take(&mut sums[route.root][position]);
        hand_over(builder, shape.ranks[route.root].node, output, sum);
    }
}

/// Passes a sum from node to node; what the receiver has to add for it.
fn pass(builder: &mut PlanBuilder, from: NodeId, to: NodeId, sum: Combination) -> Combination {
    if from == to {
        return sum;
    }
    vec![Term { input: builder.send(from, to, sum), coefficient: 1 }]
}

/// Brings a finished output from `node` to its requestor.
fn hand_over(builder: &mut PlanBuilder, node: NodeId, output: usize, sum: Combination) {
    let requestor = builder.outputs()[output].requestor;
    let delivered = pass(builder, node, requestor, sum);
    builder.deliver(output, delivered);
}
