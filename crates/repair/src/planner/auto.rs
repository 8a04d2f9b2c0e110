//! Which scheme when the policy does not say: the one with the least predicted time.

use std::time::Duration;

use super::placement::Placement;
use super::{PlanError, PlanRequest, Scheme, draw};
use crate::{Plan, Topology};

/// Above this a chain has so many slices that a tree cannot beat it.
const SHORT_WINDOW_BYTES: u64 = 1 << 20;
/// A recipe that can be repeated in several lanes without making plans slow.
const REPEATABLE_TERMS: usize = 1 << 15;
/// Predictions closer than this are equal: they are no more exact, and bytes that are not sent leave room for other
/// repairs.
const TIE: f64 = 1.03;

/// The fastest plan; among equals, that with the fewest bytes over the network, then the fewest hops.
pub(super) fn fastest(
    placement: &Placement,
    request: &PlanRequest,
    topology: &Topology,
) -> Result<Plan, PlanError> {
    if placement.decoded.is_empty() {
        let scheme = if placement.only_copies() { Scheme::Migration } else { Scheme::Conventional };
        return draw(scheme, placement, request, topology);
    }
    let mut best = Candidate::new(draw(Scheme::Conventional, placement, request, topology)?, topology);
    let trees = request.window.end - request.window.start <= SHORT_WINDOW_BYTES;
    // For one sum a chain moves as little, over fewer connections.
    let scatter = placement.decoded.len() > 1 && placement.terms() <= REPEATABLE_TERMS;
    let others = scatter.then_some(Scheme::Scatter).into_iter().chain(trees.then_some(Scheme::Ppr));
    for scheme in [Scheme::Pipelined].into_iter().chain(others) {
        let plan = draw(scheme, placement, request, topology)?;
        best = best.or(Candidate::new(plan, topology));
    }
    Ok(best.plan)
}

struct Candidate {
    plan: Plan,
    time: Duration,
}

impl Candidate {
    fn new(plan: Plan, topology: &Topology) -> Self {
        let time = plan.predict(topology);
        Self { plan, time }
    }

    fn or(self, other: Self) -> Self {
        if is_shorter(self.time, other.time) {
            self
        } else if is_shorter(other.time, self.time) || other.is_lighter(&self) {
            other
        } else {
            self
        }
    }

    fn is_lighter(&self, other: &Self) -> bool {
        let weight = |plan: &Plan| (plan.network_bytes(), plan.hops());
        weight(&self.plan) < weight(&other.plan)
    }
}

fn is_shorter(time: Duration, than: Duration) -> bool {
    time.as_secs_f64() * TIE < than.as_secs_f64()
}
