//! Scheme choice when the policy names none: the scheme with the least predicted time.

use std::time::Duration;

use super::inputs::Inputs;
use super::{PlanError, Scheme};
use crate::{Geometry, Plan};

/// The largest window that counts as short. In a larger one, a chain over equal links has so many slices that
/// no scheme beats it.
const SHORT_WINDOW_BYTES: u64 = 8 << 20;
/// Schemes with one lane per helper are tried only if their lanes have at most this many terms together,
/// because drawing more terms makes planning slow.
const REPEATABLE_TERMS: usize = 1 << 12;
/// The weighted chain is tried only with at most this many helpers, for which the search is fast.
const SEARCHABLE_HELPERS: usize = 64;
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
    let schemes = worth_trying(inputs);
    if let [only] = schemes[..] {
        return Ok((inputs.plan(only)?, Vec::new()));
    }
    let (plans, refused): (Vec<_>, Vec<_>) =
        schemes.into_iter().map(|scheme| inputs.plan(scheme)).partition(Result::is_ok);
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

/// Whether the window is a single slice, whatever the scheme.
fn is_one_slice(inputs: &Inputs) -> bool {
    let request = inputs.request;
    let slice_bytes = request.policy.slice_bytes.unwrap_or(Geometry::MIN_SLICE_BYTES);
    request.resume.is_none() && request.window.end - request.window.start <= u64::from(slice_bytes)
}

/// The schemes that may be the fastest.
fn worth_trying(inputs: &Inputs) -> Vec<Scheme> {
    let placement = &inputs.placement;
    let window = &inputs.request.window;
    let short = window.end - window.start <= SHORT_WINDOW_BYTES;
    let candidates = inputs.candidates();
    let uniform = candidates.as_ref().is_none_or(|candidates| candidates.network.is_uniform());
    let one = placement.decoded.len() == 1;
    if uniform && one && !short && placement.helpers.len() > 2 {
        return vec![Scheme::Pipelined]; // No plan is faster: the requestor must receive every wanted byte.
    }
    let mut schemes = vec![Scheme::Conventional, Scheme::Pipelined, Scheme::Ppr, Scheme::CrrR];
    if candidates.is_some() && uniform && one && is_one_slice(inputs) {
        return schemes; // A single slice takes only one lane, which is a star, a chain or a tree.
    }
    if !uniform && placement.helpers.len() <= SEARCHABLE_HELPERS {
        schemes.push(Scheme::Weighted);
    }
    if inputs.topology.has_links() {
        schemes.push(Scheme::RackAware);
    }
    if placement.terms() * placement.helpers.len() <= REPEATABLE_TERMS {
        schemes.extend([Scheme::Scatter, Scheme::Packed]);
        schemes
            .extend(one.then_some([Scheme::Cyclic, Scheme::CrrS, Scheme::CrrSDirect]).into_iter().flatten());
    }
    schemes
}
