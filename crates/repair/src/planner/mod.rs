//! The planner: a pure function from a stripe, what is wanted of it, and a topology to a [`Plan`].
//!
//! The code says what to read and which sums to make ([`Recipe`]); [`placement`] finds the nodes; a shape
//! ([`chain`], [`ppr`], [`crr`], or the star) says who passes partial sums to whom; [`slicing`] cuts the
//! window. Every output whose sources are all on one node is computed there and sent straight to its
//! requestor, whatever the scheme: that covers migration, plain reads and the encoding of a put.
//!
//! Deliberately absent: retries and what to avoid next (the job decides), and any memory of earlier plans.

mod auto;
mod bound;
mod candidates;
mod chain;
mod crr;
mod dealt;
mod drawing;
mod echelon;
mod error;
mod explain;
mod ground;
mod holding;
mod network;
mod packed;
mod packing;
mod path;
mod placement;
mod ppr;
mod routed;
mod routes;
mod scatter;
mod scheme;
mod seating;
mod shape;
mod slicing;

use std::collections::BTreeSet;
use std::ops::Range;

use codes::BlockIndex;

pub use bound::{Bound, Limit};
pub use error::{Missing, PacingProblem, PlanError};
pub use explain::{Explanation, explain};
pub use scheme::{Scheme, UnknownScheme};

use crate::recovery::Stretch;
use crate::{Geometry, NodeId, Pacing, Plan, SliceSet, Stripe, Topology};
use ground::Ground;
use placement::Placement;

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
    /// Chains that slices are dealt to in proportion to how long the stretches are, in place of the scheme's shape, where
    /// the code reads any k blocks: whoever starts many repairs deals work out so that nodes are evenly busy.
    pub stretches: Vec<Stretch>,
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
/// the requestors are preferred, then blocks on the nodes that the policy prefers, then blocks on nodes of which others
/// have reserved less, then blocks on less loaded nodes, then lower indices.
///
/// # Errors
/// [`PlanError`], if what is asked for cannot be done or makes no sense.
pub fn plan(stripe: &Stripe, request: &PlanRequest, topology: &Topology) -> Result<Plan, PlanError> {
    on_ground(stripe, request, topology, |ground| match (dealt::plan(ground), request.policy.scheme) {
        (Some(dealt), _) => dealt,
        (None, Scheme::Auto) => Ok(auto::weighed(ground)?.0),
        (None, scheme) => ground.plan(scheme),
    })
}

/// Checks a request and looks what there is to plan with.
fn on_ground<T>(
    stripe: &Stripe,
    request: &PlanRequest,
    topology: &Topology,
    make: impl FnOnce(&Ground) -> Result<T, PlanError>,
) -> Result<T, PlanError> {
    check_requestors(request, topology)?;
    slicing::check(stripe, request)?;
    let available = ground::available(stripe, request, topology);
    let recipe = ground::recipe(stripe, request, &available, topology)?;
    let placement = Placement::new(stripe, &recipe, &request.wanted);
    make(&Ground { placement, available: &available, request, topology })
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
            Some(view) if view.rates.down <= 0.0 => {
                return Err(PlanError::DeafRequestor { requestor, name: view.name.clone() });
            }
            Some(_) => {}
        }
    }
    Ok(())
}
