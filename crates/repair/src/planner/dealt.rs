//! Plans over chains that somebody else has dealt: whoever starts many repairs sees what all nodes have to do.
//!
//! A node that is gone since, or is to be avoided, is replaced in its chains by the most preferred one that is not in them;
//! a chain that cannot be made whole is left out, and the others carry its slices.

use std::collections::BTreeSet;

use super::candidates::Candidates;
use super::ground::Ground;
use super::routes::Route;
use super::{PlanError, Scheme, routed};
use crate::recovery::Stretch;
use crate::{NodeId, Plan};

/// The plan over the stretches of the policy, if it has some and they can be used.
///
/// They cannot where blocks cannot be chosen freely. They were dealt by what nodes carry: where the links between these
/// would hold such a plan up, the stripe is planned for itself, and all others keep their chains.
pub(super) fn plan(ground: &Ground) -> Option<Result<Plan, PlanError>> {
    let stretches = &ground.request.policy.stretches;
    if stretches.is_empty() {
        return None;
    }
    let candidates = ground.candidates()?;
    let routes = routes(stretches, &candidates);
    if routes.is_empty() {
        return None;
    }
    let stripe = ground.placement.stripe;
    let made = routed::draw(Scheme::Packed, &routes, &candidates, stripe, ground.request, ground.topology);
    let held_up = made.as_ref().is_ok_and(|plan| plan.is_held_up_between(ground.topology));
    (!held_up).then_some(made)
}

fn routes(stretches: &[Stretch], candidates: &Candidates) -> Vec<(Route, f64)> {
    let route =
        |stretch: &Stretch| Some((route(&chain(stretch, candidates)?, candidates), stretch.bytes() as f64));
    stretches.iter().filter_map(route).collect()
}

/// The holders of a chain, in order, each once, whoever dealt it; `None` if too few are there.
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

/// A chain on to the requestor, or to all of several from its last helper.
fn route(chain: &[usize], candidates: &Candidates) -> Route {
    let end = candidates.sole_requestor();
    let mut stations: Vec<usize> = chain.iter().copied().filter(|&holder| Some(holder) != end).collect();
    stations.extend(end);
    let moves = stations.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let mut readers = chain.to_vec();
    readers.sort_unstable();
    Route { readers, moves, root: stations[stations.len() - 1] }
}
