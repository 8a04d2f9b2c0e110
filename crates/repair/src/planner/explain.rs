//! A plan with what speaks for it: what holds it up, what no plan can beat, and what else was weighed.

use std::fmt::Write;
use std::time::Duration;

use super::bound::{Bound, Limit, bound};
use super::ground::Ground;
use super::{PlanError, PlanRequest, Scheme, auto, on_ground};
use crate::{Forecast, Plan, Stripe, Topology};

/// A plan, explained.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The plan.
    pub plan: Plan,
    /// When it should be done, and what holds it up.
    pub forecast: Forecast,
    /// What no plan over these nodes can beat; `None` where the code does not let blocks be chosen.
    pub bound: Option<Bound>,
    /// What [`Scheme::Auto`] weighed, with predictions; empty if the scheme was given.
    pub weighed: Vec<(Scheme, Duration)>,
}

/// Makes the plan that [`plan`](super::plan()) makes, and says what speaks for it.
///
/// # Errors
/// As [`plan`](super::plan()).
pub fn explain(
    stripe: &Stripe,
    request: &PlanRequest,
    topology: &Topology,
) -> Result<Explanation, PlanError> {
    on_ground(stripe, request, topology, |ground| {
        let (plan, weighed) = match request.policy.scheme {
            Scheme::Auto => auto::weighed(ground)?,
            scheme => (ground.plan(scheme)?, Vec::new()),
        };
        let forecast = plan.forecast(topology);
        Ok(Explanation { forecast, bound: least(ground), weighed, plan })
    })
}

fn least(ground: &Ground) -> Option<Bound> {
    let bytes = ground.request.window.end - ground.request.window.start;
    let candidates = ground.candidates()?.with_relays(ground.request, ground.topology);
    Some(bound(&candidates, bytes, ground.topology))
}

impl Explanation {
    /// What speaks for the plan, in words.
    pub fn text(&self, topology: &Topology) -> String {
        let Forecast { time, bottleneck, busy } = &self.forecast;
        let mut text =
            format!("bottleneck: {}, busy for {} of {}\n", bottleneck.named(topology), ms(*busy), ms(*time));
        if let Some(Bound { time: least, limit }) = &self.bound {
            let ratio = time.as_secs_f64() / least.as_secs_f64();
            let limit = limit.text(topology);
            writeln!(text, "bound: {}, as {limit}; this plan takes {ratio:.3} of it", ms(*least))
                .expect("a string");
        }
        if !self.weighed.is_empty() {
            let weighed: Vec<String> =
                self.weighed.iter().map(|(scheme, time)| format!("{scheme} {}", ms(*time))).collect();
            writeln!(text, "weighed: {}", weighed.join(", ")).expect("a string");
        }
        text
    }
}

impl Limit {
    fn text(&self, topology: &Topology) -> String {
        match self {
            Self::Into(node) => format!("what is wanted has to come to {}", topology.name(*node)),
            Self::Uplinks => "enough helpers have to send".to_owned(),
            Self::OutOf(domain) => format!("something has to leave {domain}"),
            Self::IntoDomain(domain) => format!("something has to come into {domain}"),
        }
    }
}

/// Milliseconds, or that it never ends.
fn ms(time: Duration) -> String {
    if time == Duration::MAX { "never".to_owned() } else { format!("{:.1} ms", time.as_secs_f64() * 1e3) }
}
