//! From shapes to a plan: of several ways to draw a scheme the lightest, cut into slices and checked.

use super::error::PacingProblem;
use super::placement::Placement;
use super::seating::{self, Seating};
use super::shape::{Shape, SumShape};
use super::{PlanError, PlanRequest, Scheme, chain, crr, ppr, scatter, slicing};
use crate::plan::PlanBuilder;
use crate::{Lane, NodeId, Pacing, Plan, Task, Topology};

/// The plan of a shape that is named, under the name of the scheme that asked for it.
pub(super) fn draw(
    scheme: Scheme,
    shape: Scheme,
    placement: &Placement,
    request: &PlanRequest,
    topology: &Topology,
) -> Result<Plan, PlanError> {
    let builder = lightest(shapes(shape, placement), placement);
    let shares = vec![1.0; builder.lanes()];
    finish(builder, &shares, scheme, request, topology)
}

/// The plan of lanes that are drawn, each with its share of slices.
pub(super) fn finish(
    mut builder: PlanBuilder,
    shares: &[f64],
    scheme: Scheme,
    request: &PlanRequest,
    topology: &Topology,
) -> Result<Plan, PlanError> {
    let (geometry, slices) = slicing::cut(&builder, request, topology)?;
    let (lanes, dealing) = slicing::deal(shares, &slices);
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
        Scheme::Auto
        | Scheme::Migration
        | Scheme::Conventional
        | Scheme::Packed
        | Scheme::Weighted
        | Scheme::RackAware => unreachable!("these are drawn otherwise, or named by other shapes"),
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
fn on_a_cycle(lane: &Lane) -> Option<NodeId> {
    let mut waiting: Vec<&Task> = lane.tasks.iter().collect();
    loop {
        let ready = |task: &&Task| {
            let waits = |node| waiting.iter().any(|other| other.node == node);
            !task.receives.iter().any(|receive| waits(receive.from))
        };
        let still: Vec<&Task> = waiting.iter().copied().filter(|task| !ready(task)).collect();
        if still.len() == waiting.len() {
            return still.first().map(|task| task.node);
        }
        waiting = still;
    }
}
