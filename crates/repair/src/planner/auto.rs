//! Which scheme when the policy does not say: the one with the least predicted time.

use std::time::Duration;

use super::ground::Ground;
use super::{PlanError, Scheme};
use crate::Plan;

/// Above this a chain over equal links has so many slices that nothing beats it.
const SHORT_WINDOW_BYTES: u64 = 8 << 20;
/// The terms of all lanes, if each helper has a lane, that can be drawn without making plans slow.
const REPEATABLE_TERMS: usize = 1 << 12;
/// Among so many the best chain is quickly found.
const SEARCHABLE_HELPERS: usize = 64;
/// Predictions closer than this are equal: they are no more exact, and bytes that are not sent leave room for other
/// repairs.
const TIE: f64 = 1.015;

/// The fastest plan; among equals, that with the fewest bytes over the network, then the fewest connections, then the fewest
/// hops. Also what was weighed.
pub(super) fn weighed(ground: &Ground) -> Result<(Plan, Vec<(Scheme, Duration)>), PlanError> {
    if ground.placement.decoded.is_empty() {
        let copies = ground.placement.only_copies();
        let scheme = if copies { Scheme::Migration } else { Scheme::Conventional };
        return Ok((ground.plan(scheme)?, Vec::new()));
    }
    let schemes = worth_trying(ground);
    if let [only] = schemes[..] {
        return Ok((ground.plan(only)?, Vec::new()));
    }
    let (plans, refused): (Vec<_>, Vec<_>) =
        schemes.into_iter().map(|scheme| ground.plan(scheme)).partition(Result::is_ok);
    let timed: Vec<(Duration, Plan)> =
        plans.into_iter().flatten().map(|plan| (plan.predict(ground.topology), plan)).collect();
    let Some(least) = timed.iter().map(|&(time, _)| time).min() else {
        let refused = refused.into_iter().find_map(Result::err);
        return Err(refused.expect("something was tried, and none of it was a plan"));
    };
    let weighed = timed.iter().map(|(time, plan)| (plan.scheme(), *time)).collect();
    let equal = timed.into_iter().filter(|&(time, _)| time.as_secs_f64() <= least.as_secs_f64() * TIE);
    let weight = |plan: &Plan| (plan.network_bytes(), plan.edges().len(), plan.hops());
    let best = equal.map(|(_, plan)| plan).min_by_key(weight);
    Ok((best.expect("the fastest is as fast as itself"), weighed))
}

/// The schemes of which one may be the fastest.
fn worth_trying(ground: &Ground) -> Vec<Scheme> {
    let placement = &ground.placement;
    let window = &ground.request.window;
    let short = window.end - window.start <= SHORT_WINDOW_BYTES;
    let uniform = ground.candidates().is_none_or(|candidates| candidates.network.is_uniform());
    let one = placement.decoded.len() == 1;
    if uniform && one && !short && placement.helpers.len() > 2 {
        return vec![Scheme::Pipelined]; // Nothing takes less than a block over every link.
    }
    let mut schemes = vec![Scheme::Conventional, Scheme::Pipelined, Scheme::Ppr, Scheme::CrrR];
    if !uniform && placement.helpers.len() <= SEARCHABLE_HELPERS {
        schemes.push(Scheme::Weighted);
    }
    if ground.topology.has_links() {
        schemes.push(Scheme::RackAware);
    }
    if placement.terms() * placement.helpers.len() <= REPEATABLE_TERMS {
        schemes.extend([Scheme::Scatter, Scheme::Packed]);
        schemes
            .extend(one.then_some([Scheme::Cyclic, Scheme::CrrS, Scheme::CrrSDirect]).into_iter().flatten());
    }
    schemes
}
