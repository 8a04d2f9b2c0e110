//! Turns shapes into a plan: draws the lightest shape of a scheme, cuts it into slices and checks it.

use std::collections::BTreeMap;

use super::error::PacingProblem;
use super::helper_order::{self, HelperOrder};
use super::placement::Placement;
use super::shape::{Shape, SumShape};
use super::{PlanError, PlanRequest, Scheme, chain, crr, ppr, scatter, slicing};
use crate::plan::PlanBuilder;
use crate::{Lane, NodeId, Pacing, Plan, Task, Topology};

/// Makes a plan with the shape of the scheme `shape`, and labels it with `scheme`, the requested one.
pub(super) fn draw(
    scheme: Scheme,
    shape: Scheme,
    placement: &Placement,
    request: &PlanRequest,
    topology: &Topology,
) -> Result<Plan, PlanError> {
    let relays = topology.relays(&request.policy.avoid);
    let builder = lightest(shapes(shape, placement), placement, &relays);
    let shares = vec![1.0; builder.lanes()];
    finish(builder, &shares, scheme, request, topology)
}

/// Makes the plan of the lanes that are already drawn in `builder`; lane `i` carries the share `shares[i]` of
/// the slices.
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

/// Draws the shape with the least work at its busiest node; ties go to fewer streams, then to fewer hops.
fn lightest<'a>(
    mut shapes: Vec<Shape>,
    placement: &Placement<'a>,
    relays: &BTreeMap<(NodeId, NodeId), NodeId>,
) -> PlanBuilder<'a> {
    let draw = |shape: Shape| {
        let mut builder = PlanBuilder::new(placement.stripe, placement.recipe, &placement.requestors);
        builder.set_relays(relays.clone());
        (0..shape.lanes()).for_each(|lane| shape.draw(lane, placement, &mut builder));
        builder
    };
    match shapes.len() {
        1 => draw(shapes.remove(0)),
        _ => shapes.into_iter().map(draw).min_by_key(PlanBuilder::weight).expect("a scheme has a shape"),
    }
}

/// The largest number of terms in a recipe for which drawing several candidate shapes is fast.
const SMALL_RECIPE_TERMS: usize = 1 << 11;

/// The shapes of a scheme, one per helper order worth trying.
fn shapes(scheme: Scheme, placement: &Placement) -> Vec<Shape> {
    match (placement.decoded.first(), scheme) {
        (None, _) => vec![Shape::Sums(SumShape::empty())],
        (Some(&first), Scheme::Conventional) => vec![Shape::Star(placement.requestors[first])],
        _ => {
            let orders = helper_order::orders(placement);
            let mut shapes = orders.iter().map(|order| Shape::Sums(sums(scheme, placement, order)));
            match shapes.next_back() {
                // With several lanes, each helper takes several positions, so the order of the helpers
                // matters little. Drawing a large recipe takes time, so only one order is tried.
                Some(shape) if shape.lanes() > 1 && placement.terms() > SMALL_RECIPE_TERMS => vec![shape],
                last => shapes.chain(last).collect(),
            }
        }
    }
}

fn sums(scheme: Scheme, placement: &Placement, order: &HelperOrder) -> SumShape {
    match scheme {
        Scheme::Ppr => ppr::tree(placement, order),
        Scheme::CrrR => crr::halving(placement, order),
        Scheme::CrrS => crr::splitting(placement, order),
        Scheme::CrrSDirect => crr::splitting_direct(placement, order),
        Scheme::Scatter => scatter::scatter(placement, order),
        Scheme::Cyclic => chain::cyclic(placement, order),
        Scheme::Pipelined | Scheme::PipeB | Scheme::PipeS => chain::chain(placement, order),
        Scheme::Auto
        | Scheme::Migration
        | Scheme::Conventional
        | Scheme::Packed
        | Scheme::Weighted
        | Scheme::RackAware => unreachable!("these are drawn otherwise, or named by other shapes"),
    }
}

/// Checks that the plan's shape works with its pacing. A scheme whose own pacing is not `Pipelined` accepts
/// only its own pacing. Any pacing other than `Pipelined` requires a single lane, in which each node can
/// receive everything before it sends.
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

/// A node on, or downstream of, a cycle of the lane's edges, if there is one.
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
