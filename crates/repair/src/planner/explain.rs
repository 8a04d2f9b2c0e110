//! A plan with its justification: its bottleneck, the lower bound, and the alternatives considered.

use std::fmt::Write;
use std::time::Duration;

use super::bound::{Bound, Limit, bound};
use super::inputs::Inputs;
use super::{PlanError, PlanRequest, Scheme, auto, with_inputs};
use crate::{Forecast, Plan, Stripe, Topology};

/// A plan with its explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The plan.
    pub plan: Plan,
    /// The predicted time and the bottleneck.
    pub forecast: Forecast,
    /// The lower bound on the time of any plan over these nodes; `None` if the code leaves no choice of
    /// blocks.
    pub bound: Option<Bound>,
    /// The predictions that [`Scheme::Auto`] compared; empty if the policy named the scheme.
    pub weighed: Vec<(Scheme, Duration)>,
}

/// Makes the same plan as [`plan`](super::plan()) and explains it.
///
/// # Errors
/// The errors of [`plan`](super::plan()).
pub fn explain(
    stripe: &Stripe,
    request: &PlanRequest,
    topology: &Topology,
) -> Result<Explanation, PlanError> {
    with_inputs(stripe, request, topology, |inputs| {
        let (plan, weighed) = match request.policy.scheme {
            Scheme::Auto => auto::weighed(inputs)?,
            scheme => (inputs.plan(scheme)?, Vec::new()),
        };
        let forecast = plan.forecast(topology);
        Ok(Explanation { forecast, bound: least(inputs), weighed, plan })
    })
}

fn least(inputs: &Inputs) -> Option<Bound> {
    let bytes = inputs.request.window.end - inputs.request.window.start;
    let candidates = inputs.candidates()?.with_relays(inputs.request, inputs.topology);
    Some(bound(&candidates, bytes, inputs.topology))
}

impl Explanation {
    /// The explanation as text.
    pub fn text(&self, topology: &Topology) -> String {
        let Forecast { time, bottleneck, busy } = &self.forecast;
        let mut text =
            format!("bottleneck: {}, busy for {} of {}\n", bottleneck.named(topology), ms(*busy), ms(*time));
        if let Some(Bound { time: least, limit }) = &self.bound {
            let ratio = time.as_secs_f64() / least.as_secs_f64();
            let limit = limit.text(topology);
            writeln!(
                text,
                "lower bound: {}, set by {limit}; this plan takes {ratio:.3} times as long",
                ms(*least)
            )
            .expect("a string");
        }
        if !self.weighed.is_empty() {
            let weighed: Vec<String> =
                self.weighed.iter().map(|(scheme, time)| format!("{scheme} {}", ms(*time))).collect();
            writeln!(text, "compared: {}", weighed.join(", ")).expect("a string");
        }
        text
    }
}

impl Limit {
    fn text(&self, topology: &Topology) -> String {
        match self {
            Self::Into(node) => format!("the downlink of {}", topology.name(*node)),
            Self::Disk(node) => format!("the disk of {}", topology.name(*node)),
            Self::Uplinks => "the uplinks of the helpers".to_owned(),
            Self::OutOf(domain) => format!("the bandwidth out of {domain}"),
            Self::IntoDomain(domain) => format!("the bandwidth into {domain}"),
            Self::Together => "several links together".to_owned(),
        }
    }
}

/// The time in milliseconds as text, or "never".
fn ms(time: Duration) -> String {
    if time == Duration::MAX { "never".to_owned() } else { format!("{:.1} ms", time.as_secs_f64() * 1e3) }
}
