//! The planner: a pure function from a stripe, what is wanted of it, and a topology to a [`Plan`].
//!
//! The code says what to read and which sums to make ([`Recipe`]); [`placement`] finds the nodes; a shape
//! ([`chain`], [`ppr`], [`crr`], or the star) says who passes partial sums to whom; [`slicing`] cuts the
//! window. Every output whose sources are all on one node is computed there and sent straight to its
//! requestor, whatever the scheme: that covers migration, plain reads and the encoding of a put.
//!
//! Deliberately absent: retries and what to avoid next (the job decides), and any memory of earlier plans.

mod auto;
mod chain;
mod crr;
mod echelon;
mod error;
mod holding;
mod placement;
mod ppr;
mod scatter;
mod scheme;
mod seating;
mod shape;
mod slicing;

use std::collections::BTreeSet;
use std::ops::Range;

use codes::{BlockIndex, Recipe};

pub use error::{Missing, PacingProblem, PlanError};
pub use scheme::{Scheme, UnknownScheme};

use crate::plan::PlanBuilder;
use crate::{Geometry, NodeId, Pacing, Plan, SliceSet, Stripe, Topology};
use placement::Placement;
use seating::Seating;
use shape::{Shape, SumShape};

/// A block to be delivered, and where. It may still be available: then it is read and not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The block.
    pub block: BlockIndex,
    /// Where it is delivered.
    pub requestor: NodeId,
}

/// How a plan is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The shape.
    pub scheme: Scheme,
    /// Bytes of a slice; chosen by the planner if `None`.
    pub slice_bytes: Option<u32>,
    /// How nodes move slices on; the scheme's own way if `None`.
    pub pacing: Option<Pacing>,
    /// Nodes whose blocks are not read.
    pub avoid: BTreeSet<NodeId>,
    /// Nodes whose blocks are preferred to those of others, the best first: whoever starts many repairs says so.
    pub prefer: Vec<NodeId>,
}

/// What is wanted of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// The blocks, and where each goes.
    pub wanted: Vec<Wanted>,
    /// The wanted offsets in each sub-block.
    pub window: Range<u64>,
    /// The wanted sub-blocks of the wanted blocks; all if `None`.
    pub sub_blocks: Option<Range<u16>>,
    /// For a repair that goes on: its geometry, which is kept (and replaces `window` and the policy's slice
    /// size), and the slices that are still to be moved.
    pub resume: Option<(Geometry, SliceSet)>,
    /// How.
    pub policy: Policy,
}

/// Makes a plan.
///
/// Blocks are read from nodes that are alive in `topology` and not to be avoided; among those, blocks on
/// the requestors are preferred, then blocks on the nodes that the policy prefers, then blocks on less loaded nodes,
/// then lower indices.
///
/// # Errors
/// [`PlanError`], if what is asked for cannot be done or makes no sense.
pub fn plan(stripe: &Stripe, request: &PlanRequest, topology: &Topology) -> Result<Plan, PlanError> {
    check_requestors(request, topology)?;
    slicing::check(stripe, request)?;
    let recipe = recipe(stripe, request, topology)?;
    let placement = Placement::new(stripe, &recipe, &request.wanted);
    match request.policy.scheme {
        Scheme::Auto => auto::fastest(&placement, request, topology),
        scheme => draw(scheme, &placement, request, topology),
    }
}

fn check_requestors(request: &PlanRequest, topology: &Topology) -> Result<(), PlanError> {
    if request.wanted.is_empty() {
        return Err(PlanError::NothingWanted);
    }
    for (position, &Wanted { block, requestor }) in request.wanted.iter().enumerate() {
        if request.wanted[..position].iter().any(|earlier| earlier.block == block) {
            return Err(PlanError::WantedTwice { block });
        }
        match topology.get(requestor) {
            None => return Err(PlanError::UnknownRequestor { requestor }),
            Some(view) if !view.alive => {
                return Err(PlanError::DeadRequestor { requestor, name: view.name.clone() });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// What to read and which sums to make.
fn recipe(stripe: &Stripe, request: &PlanRequest, topology: &Topology) -> Result<Recipe, PlanError> {
    let available = available(stripe, request, topology);
    let wanted: Vec<BlockIndex> = request.wanted.iter().map(|wanted| wanted.block).collect();
    if request.policy.scheme == Scheme::Migration
        && let Some(&block) = wanted.iter().find(|block| !available.contains(block))
    {
        let missing = missing(stripe, request, topology);
        return Err(PlanError::NothingToMigrate { stripe: stripe.id.clone(), block, missing });
    }
    let recipe = stripe.code.repair(&wanted, &available).map_err(|source| {
        let missing = missing(stripe, request, topology);
        PlanError::Decode { stripe: stripe.id.clone(), source, missing }
    })?;
    Ok(match &request.sub_blocks {
        None => recipe,
        Some(sub_blocks) => recipe.only(|output| sub_blocks.contains(&output.sub)),
    })
}

/// The blocks that may be read, the preferred ones first.
fn available(stripe: &Stripe, request: &PlanRequest, topology: &Topology) -> Vec<BlockIndex> {
    let prefer = &request.policy.prefer;
    let rank = |node| prefer.iter().position(|&other| other == node).unwrap_or(prefer.len());
    let mut available: Vec<(bool, usize, u32, BlockIndex)> = stripe
        .held()
        .filter(|(_, holder)| !request.policy.avoid.contains(holder))
        .filter_map(|(block, holder)| {
            let view = topology.get(holder).filter(|view| view.alive)?;
            let elsewhere = request.wanted.iter().all(|wanted| wanted.requestor != holder);
            Some((elsewhere, rank(holder), view.load, block))
        })
        .collect();
    available.sort_unstable();
    available.into_iter().map(|(.., block)| block).collect()
}

/// Why each of the blocks that may not be read may not.
fn missing(stripe: &Stripe, request: &PlanRequest, topology: &Topology) -> Missing {
    let mut missing = Missing::default();
    for block in stripe.indices() {
        match stripe.block(block).holder {
            None => missing.lost.push(block),
            Some(holder) if !topology.is_alive(holder) => missing.unreachable.push((block, holder)),
            Some(holder) if request.policy.avoid.contains(&holder) => missing.avoided.push((block, holder)),
            Some(_) => {}
        }
    }
    missing
}

/// A plan of one scheme.
fn draw(
    scheme: Scheme,
    placement: &Placement,
    request: &PlanRequest,
    topology: &Topology,
) -> Result<Plan, PlanError> {
    let mut builder = lightest(shapes(scheme, placement), placement);
    let (geometry, slices) = slicing::cut(&builder.footprint(), placement, request, topology)?;
    let (lanes, dealing) = slicing::deal(&vec![1; builder.lanes()], &slices);
    builder.keep(&lanes);
    let pacing = request.policy.pacing.unwrap_or(scheme.pacing());
    let plan = builder.finish(scheme, pacing, geometry, slices, dealing);
    check_pacing(&plan).map_err(|reason| PlanError::Pacing { scheme, pacing, reason })?;
    Ok(plan)
}

/// The shape whose busiest node has least to do, drawn; of several, that with the fewest streams, then the
/// fewest hops.
fn lightest<'a>(mut shapes: Vec<Shape>, placement: &Placement<'a>) -> PlanBuilder<'a> {
    let draw = |shape: Shape| {
        let mut builder = PlanBuilder::new(placement.stripe, placement.recipe, &placement.requestors);
        (0..shape.lanes()).for_each(|lane| shape.draw(lane, placement, &mut builder));
        builder
    };
    match shapes.len() {
        1 => draw(shapes.remove(0)),
        _ => shapes.into_iter().map(draw).min_by_key(PlanBuilder::weight).expect("a scheme has a shape"),
    }
}

/// Up to here the lanes of a recipe are quickly drawn.
const SMALL_RECIPE_TERMS: usize = 1 << 11;

/// The shapes of a scheme: one for each order of the helpers that is worth trying.
fn shapes(scheme: Scheme, placement: &Placement) -> Vec<Shape> {
    match (placement.decoded.first(), scheme) {
        (None, _) => vec![Shape::Sums(SumShape::empty())],
        (Some(&first), Scheme::Conventional) => vec![Shape::Star(placement.requestors[first])],
        _ => {
            let seatings = seating::seatings(placement);
            let mut shapes = seatings.iter().map(|seating| Shape::Sums(sums(scheme, placement, seating)));
            match shapes.next_back() {
                // Over lanes places even out, and drawing them takes time.
                Some(shape) if shape.lanes() > 1 && placement.terms() > SMALL_RECIPE_TERMS => vec![shape],
                last => shapes.chain(last).collect(),
            }
        }
    }
}

fn sums(scheme: Scheme, placement: &Placement, seating: &Seating) -> SumShape {
    match scheme {
        Scheme::Ppr => ppr::tree(placement, seating),
        Scheme::CrrR => crr::halving(placement, seating),
        Scheme::CrrS => crr::splitting(placement, seating),
        Scheme::CrrSDirect => crr::splitting_direct(placement, seating),
        Scheme::Scatter => scatter::scatter(placement, seating),
        Scheme::Cyclic => chain::cyclic(placement, seating),
        Scheme::Pipelined | Scheme::PipeB | Scheme::PipeS => chain::chain(placement, seating),
        Scheme::Auto | Scheme::Migration | Scheme::Conventional => {
            unreachable!("auto picks a scheme, migration decodes nothing, and the star sums at its end")
        }
    }
}

/// A pacing other than slice by slice needs nodes that first receive everything and then send.
fn check_pacing(plan: &Plan) -> Result<(), PacingProblem> {
    let own = plan.scheme.pacing();
    if own != Pacing::Pipelined && plan.pacing != own {
        return Err(PacingProblem::Defined);
    }
    if plan.pacing == Pacing::Pipelined {
        return Ok(());
    }
    match plan.lanes.as_slice() {
        [lane] => match on_a_cycle(lane) {
            Some(node) => Err(PacingProblem::Cycle(node)),
            None => Ok(()),
        },
        lanes => Err(PacingProblem::Lanes(lanes.len())),
    }
}

/// A node that is on a cycle of the lane's edges or behind one, if there is a cycle.
fn on_a_cycle(lane: &crate::Lane) -> Option<NodeId> {
    let mut waiting: Vec<&crate::Task> = lane.tasks.iter().collect();
    loop {
        let ready = |task: &&crate::Task| {
            let waits = |node| waiting.iter().any(|other| other.node == node);
            !task.receives.iter().any(|receive| waits(receive.from))
        };
        let still: Vec<&crate::Task> = waiting.iter().copied().filter(|task| !ready(task)).collect();
        if still.len() == waiting.len() {
            return still.first().map(|task| task.node);
        }
        waiting = still;
    }
}
