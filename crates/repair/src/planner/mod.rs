//! The planner: a pure function from a stripe, a request and a topology to a [`Plan`].
//!
//! The erasure code decides which blocks to read and how to combine them (`codes::Recipe`). [`placement`]
//! determines which node computes which terms; a shape ([`chain`], [`ppr`], [`crr`], or the star) routes the
//! partial sums between nodes; [`slicing`] cuts the window, which is the wanted range of offsets, into
//! slices. If one node has all sources of an output, it computes the output and sends it directly to the
//! requestor, whatever the scheme: this covers migration, plain reads and the encoding of a put.
//!
//! The planner does not retry or exclude nodes (the job does), and it remembers no earlier plans.

mod arborescence;
mod assemble;
mod auto;
mod bound;
mod candidates;
mod chain;
mod crr;
mod cuts;
mod dealt;
mod echelon;
mod error;
#[cfg(test)]
mod exact;
mod explain;
mod helper_order;
mod inputs;
mod network;
mod packed;
mod packing;
mod partial_sums;
mod path;
mod placement;
mod ppr;
mod routed;
mod routes;
mod scatter;
mod scheme;
mod shape;
mod slicing;
#[cfg(test)]
mod small_networks;
mod trees;

use std::collections::BTreeSet;
use std::ops::Range;

use codes::BlockIndex;

pub use bound::{Bound, Limit};
pub use dealt::Stretch;
pub use error::{Missing, PacingProblem, PlanError};
pub use explain::{Explanation, explain};
pub use scheme::{Scheme, UnknownScheme};

use crate::{Geometry, NodeId, Pacing, Plan, SliceSet, Stripe, Topology};
use inputs::Inputs;
use placement::Placement;

/// A block to deliver, and its requestor. An available block is read instead of decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The block.
    pub block: BlockIndex,
    /// The node that receives it.
    pub requestor: NodeId,
}

/// The options of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The scheme, which decides the shape.
    pub scheme: Scheme,
    /// Bytes of a slice; chosen by the planner if `None`.
    pub slice_bytes: Option<u32>,
    /// How nodes overlap their work on slices; the scheme's own pacing if `None`.
    pub pacing: Option<Pacing>,
    /// Nodes whose blocks are not read.
    pub avoid: BTreeSet<NodeId>,
    /// Nodes whose blocks are read in preference to others, best first; set by the scheduler of many repairs.
    pub prefer: Vec<NodeId>,
    /// Chains of helpers, each for a range of offsets, assigned by the scheduler of many repairs, which
    /// balances the load of the nodes. If the planner may choose which blocks to read, the chains replace the
    /// scheme's shape; each chain carries slices in proportion to the length of its range.
    pub stretches: Vec<Stretch>,
    /// The nodes that may replace a failed requestor.
    pub replacements: Replacements,
}

/// The nodes that may replace a failed requestor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replacements {
    /// Whether a node that already holds blocks of the stripe may be chosen, as long as no node gets more than
    /// an even share of the stripe's blocks.
    pub shares_nodes: bool,
    /// The only nodes that may be chosen; if empty, any node may.
    pub only: Vec<NodeId>,
    /// Nodes that must not be chosen.
    pub never: Vec<NodeId>,
}

/// A request for blocks of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// The blocks and their requestors.
    pub wanted: Vec<Wanted>,
    /// The wanted offsets in each sub-block.
    pub window: Range<u64>,
    /// The wanted sub-blocks of the wanted blocks; all if `None`.
    pub sub_blocks: Option<Range<u16>>,
    /// Set to continue an earlier repair: the geometry of that repair, which replaces `window` and the
    /// policy's slice size, and the slices still missing.
    pub resume: Option<(Geometry, SliceSet)>,
    /// The options.
    pub policy: Policy,
}

/// Makes a plan.
///
/// Blocks are read from nodes that are alive in `topology` and not on the avoid list. The order of preference
/// is: blocks on the requestors, blocks on nodes that the policy prefers, blocks on nodes with the least
/// bandwidth reserved by other plans, blocks on less loaded nodes, and lower indices.
///
/// # Errors
///
/// [`PlanError`] if the request is inconsistent or cannot be met.
pub fn plan(stripe: &Stripe, request: &PlanRequest, topology: &Topology) -> Result<Plan, PlanError> {
    with_inputs(stripe, request, topology, |inputs| match (dealt::plan(inputs), request.policy.scheme) {
        (Some(dealt), _) => dealt,
        (None, Scheme::Auto) => Ok(auto::weighed(inputs)?.0),
        (None, scheme) => inputs.plan(scheme),
    })
}

/// Checks a request and gathers the inputs of planning.
fn with_inputs<T>(
    stripe: &Stripe,
    request: &PlanRequest,
    topology: &Topology,
    make: impl FnOnce(&Inputs) -> Result<T, PlanError>,
) -> Result<T, PlanError> {
    check_requestors(request, topology)?;
    slicing::check(stripe, request)?;
    let available = inputs::available(stripe, request, topology);
    let recipe = inputs::recipe(stripe, request, &available, topology)?;
    let placement = Placement::new(stripe, &recipe, &request.wanted);
    make(&Inputs { placement, available: &available, request, topology })
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
