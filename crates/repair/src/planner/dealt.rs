//! Plans over chains assigned by the scheduler, which sees the load of all nodes.
//!
//! In each chain, a dead or avoided node is replaced by the most preferred node that is not in the chain.
//! Chains that remain incomplete are dropped; their slices go to the other chains.

use std::collections::BTreeSet;
use std::ops::Range;

use super::candidates::Candidates;
use super::inputs::Inputs;
use super::routes::Route;
use super::{PlanError, Scheme, routed};
use crate::{NodeId, Plan};

/// A range of offsets in a block and the chain of helpers that rebuilds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Offsets in the block.
    pub offsets: Range<u64>,
    /// The helpers, in the order in which they pass on partial sums; the first receives nothing.
    pub helpers: Vec<NodeId>,
}

impl Stretch {
    /// The length of the range in bytes.
    pub fn bytes(&self) -> u64 {
        self.offsets.end - self.offsets.start
    }
}

/// Makes the plan over the policy's stretches. Returns `None` if there are none, if blocks cannot be chosen
/// freely, or if no chain is complete.
///
/// The scheduler considers only the capacity of nodes. If the links between the nodes would slow this plan
/// down, this also returns `None`: the stripe is planned on its own, and all other stripes keep their chains.
pub(super) fn plan(inputs: &Inputs) -> Option<Result<Plan, PlanError>> {
    let stretches = &inputs.request.policy.stretches;
    if stretches.is_empty() {
        return None;
    }
    let candidates = inputs.candidates()?;
    let routes = routes(stretches, &candidates);
    if routes.is_empty() {
        return None;
    }
    let stripe = inputs.placement.stripe;
    let made = routed::draw(Scheme::Packed, &routes, &candidates, stripe, inputs.request, inputs.topology);
    let held_up = made.as_ref().is_ok_and(|plan| plan.is_held_up_between(inputs.topology));
    (!held_up).then_some(made)
}

fn routes(stretches: &[Stretch], candidates: &Candidates) -> Vec<(Route, f64)> {
    let route =
        |stretch: &Stretch| Some((candidates.chain(&chain(stretch, candidates)?), stretch.bytes() as f64));
    stretches.iter().filter_map(route).collect()
}

/// The holders of a chain in order, each once; `None` if too few are available.
fn chain(stretch: &Stretch, candidates: &Candidates) -> Option<Vec<usize>> {
    let holders = &candidates.network.nodes[..candidates.blocks.len()];
    let mut seen = BTreeSet::new();
    let mut find = |helper: &NodeId| {
        holders.iter().position(|holder| holder == helper).filter(|&holder| seen.insert(holder))
    };
    let dealt: Vec<Option<usize>> = stretch.helpers.iter().map(&mut find).collect();
    let mut spare = (0..holders.len()).filter(|&holder| !dealt.contains(&Some(holder)));
    let chain: Vec<usize> = dealt.iter().map_while(|&holder| holder.or_else(|| spare.next())).collect();
    (chain.len() == candidates.needed && chain.len() == dealt.len()).then_some(chain)
}
