//! Scheme choice when the policy names none: the scheme with the least predicted time.

use std::time::Duration;

use super::bound::single_bound;
use super::candidates::Candidates;
use super::inputs::Inputs;
use super::{PlanError, Scheme};
use crate::{Geometry, Plan};

/// The largest window that counts as short. In a larger one, a chain over equal links has so many slices that
/// no scheme beats it.
const SHORT_WINDOW_BYTES: u64 = 8 << 20;
/// Schemes with one lane per helper are tried only if their lanes have at most this many terms together,
/// because drawing more terms makes planning slow.
const REPEATABLE_TERMS: usize = 1 << 12;
/// `packed` is tried only if one lane per node would have at most this many terms. It may gain much where
/// other schemes are far from the bound.
const PACKABLE_TERMS: usize = 1 << 15;
/// The weighted chain is tried only with at most this many helpers, for which the search is fast.
const SEARCHABLE_HELPERS: usize = 128;
/// Predictions within this factor of the least one are treated as equal, because they are no more exact than
/// that. Among equal plans, the one that sends the fewest bytes leaves the most bandwidth to other repairs.
const TIE: f64 = 1.015;

/// Returns the fastest plan, and the predictions that were compared. Ties go to fewer bytes on the network,
/// then fewer connections, then fewer hops.
pub(super) fn weighed(inputs: &Inputs) -> Result<(Plan, Vec<(Scheme, Duration)>), PlanError> {
    if inputs.placement.decoded.is_empty() {
        let copies = inputs.placement.only_copies();
        let scheme = if copies { Scheme::Migration } else { Scheme::Conventional };
        return Ok((inputs.plan(scheme)?, Vec::new()));
    }
    let candidates =
        inputs.candidates().map(|candidates| candidates.with_relays(inputs.request, inputs.topology));
    let mut tried: Vec<Result<Plan, PlanError>> =
        fast_to_plan(inputs, candidates.as_ref()).into_iter().map(|scheme| inputs.plan(scheme)).collect();
    if tried.len() > 1 && !suffices(&tried, inputs, candidates.as_ref()) {
        tried.extend(slow_to_plan(inputs, candidates.as_ref()).into_iter().map(|scheme| inputs.plan(scheme)));
    }
    choose(tried, inputs)
}

/// Chooses among plans by their predicted times.
fn choose(
    mut tried: Vec<Result<Plan, PlanError>>,
    inputs: &Inputs,
) -> Result<(Plan, Vec<(Scheme, Duration)>), PlanError> {
    if tried.len() == 1 {
        return Ok((tried.remove(0)?, Vec::new()));
    }
    let (plans, refused): (Vec<_>, Vec<_>) = tried.into_iter().partition(Result::is_ok);
    let timed: Vec<(Duration, Plan)> =
        plans.into_iter().flatten().map(|plan| (plan.predict(inputs.topology), plan)).collect();
    let Some(least) = timed.iter().map(|&(time, _)| time).min() else {
        let refused = refused.into_iter().find_map(Result::err);
        return Err(refused.expect("at least one scheme was tried"));
    };
    let weighed = timed.iter().map(|(time, plan)| (plan.scheme(), *time)).collect();
    let equal = timed.into_iter().filter(|&(time, _)| time.as_secs_f64() <= least.as_secs_f64() * TIE);
    let weight = |plan: &Plan| (plan.network_bytes(), plan.edges().len(), plan.hops());
    let best = equal.map(|(_, plan)| plan).min_by_key(weight);
    Ok((best.expect("the fastest scheme is within any tolerance of itself"), weighed))
}

/// Whether one of the plans takes hardly longer than every plan must.
fn suffices(tried: &[Result<Plan, PlanError>], inputs: &Inputs, candidates: Option<&Candidates>) -> bool {
    let window = &inputs.request.window;
    candidates.is_some_and(|candidates| {
        let least = single_bound(candidates, window.end - window.start, inputs.topology).time.as_secs_f64();
        let mut times = tried.iter().flatten().map(|plan| plan.predict(inputs.topology).as_secs_f64());
        times.any(|time| time <= least * TIE)
    })
}

/// The schemes that may be the fastest and are planned fast. If there is only one, it is the fastest.
fn fast_to_plan(inputs: &Inputs, candidates: Option<&Candidates>) -> Vec<Scheme> {
    let helpers = inputs.placement.helpers.len();
    if is_uniform(candidates) && inputs.placement.decoded.len() == 1 && !is_short(inputs) && helpers > 2 {
        return vec![Scheme::Pipelined]; // No plan is faster: the requestor must receive every wanted byte.
    }
    let mut schemes = vec![Scheme::Conventional, Scheme::Pipelined, Scheme::Ppr, Scheme::CrrR];
    schemes.extend(inputs.topology.has_links().then_some(Scheme::RackAware));
    schemes
}

/// The other schemes that may be the fastest.
fn slow_to_plan(inputs: &Inputs, candidates: Option<&Candidates>) -> Vec<Scheme> {
    let placement = &inputs.placement;
    let (terms, helpers) = (placement.terms(), placement.helpers.len());
    let mut schemes = Vec::new();
    if candidates.is_some() && is_uniform(candidates) && placement.decoded.len() == 1 && is_one_slice(inputs)
    {
        return schemes; // A single slice takes only one lane, which is a star, a chain or a tree.
    }
    if !is_uniform(candidates) && helpers <= SEARCHABLE_HELPERS {
        schemes.push(Scheme::Weighted);
    }
    if candidates.is_some_and(|candidates| terms * candidates.network.nodes.len() <= PACKABLE_TERMS) {
        schemes.push(Scheme::Packed);
    }
    if terms * helpers <= REPEATABLE_TERMS {
        schemes.push(Scheme::Scatter);
        let for_one = [Scheme::Cyclic, Scheme::CrrS, Scheme::CrrSDirect];
        schemes.extend((placement.decoded.len() == 1).then_some(for_one).into_iter().flatten());
    }
    schemes
}

/// Whether all links are equal, or none can be chosen.
fn is_uniform(candidates: Option<&Candidates>) -> bool {
    candidates.is_none_or(|candidates| candidates.network.is_uniform())
}

/// Whether the window is a single slice, whatever the scheme.
fn is_one_slice(inputs: &Inputs) -> bool {
    let request = inputs.request;
    let slice_bytes = request.policy.slice_bytes.unwrap_or(Geometry::MIN_SLICE_BYTES);
    request.resume.is_none() && request.window.end - request.window.start <= u64::from(slice_bytes)
}

fn is_short(inputs: &Inputs) -> bool {
    let window = &inputs.request.window;
    window.end - window.start <= SHORT_WINDOW_BYTES
}
