//! The inputs of planning: the placed recipe, the readable blocks, the request and the topology. A block is
//! readable if its holder is alive, is not avoided, and has a route to a requestor.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::{BlockIndex, Recipe};

use super::candidates::Candidates;
use super::error::Missing;
use super::placement::Placement;
use super::routes::Route;
use super::{PlanError, PlanRequest, Scheme, assemble, packed, path, routed};
use crate::{NodeId, Plan, Stripe, Topology};

/// The inputs that all schemes share.
pub(super) struct Inputs<'a> {
    pub placement: Placement<'a>,
    /// The readable blocks, preferred ones first.
    pub available: &'a [BlockIndex],
    pub request: &'a PlanRequest,
    pub topology: &'a Topology,
}

impl Inputs<'_> {
    /// Makes a plan with the given scheme.
    pub fn plan(&self, scheme: Scheme) -> Result<Plan, PlanError> {
        // If blocks cannot be chosen, a scheme that chooses routes falls back to a shape over all blocks that
        // the code reads.
        let otherwise = match scheme {
            Scheme::Packed => Scheme::Scatter,
            Scheme::Weighted | Scheme::RackAware => Scheme::Pipelined,
            scheme => return self.draw(scheme, scheme),
        };
        match self.candidates() {
            Some(candidates) if scheme == Scheme::Packed => {
                self.plan_among(scheme, &candidates.with_relays(self.request, self.topology))
            }
            Some(candidates) => self.plan_among(scheme, &candidates),
            None => self.draw(scheme, otherwise),
        }
    }

    /// Makes a plan with a scheme that chooses its routes.
    pub fn plan_among(&self, scheme: Scheme, candidates: &Candidates) -> Result<Plan, PlanError> {
        let routes = match scheme {
            Scheme::Packed => packed::routes(candidates, self.topology),
            Scheme::Weighted => alone(path::weighted(candidates)),
            _ => alone(Some(path::rack_aware(candidates, self.topology))),
        };
        if routes.is_empty() {
            let missing = Box::new(missing(self.placement.stripe, self.request, self.topology));
            return Err(PlanError::NoWay { stripe: self.placement.stripe.id.clone(), scheme, missing });
        }
        routed::draw(scheme, &routes, candidates, self.placement.stripe, self.request, self.topology)
    }

    /// The candidate helpers, if blocks can be chosen.
    pub fn candidates(&self) -> Option<Candidates> {
        let mut sources: Vec<BlockIndex> =
            self.placement.recipe.sources().iter().map(|source| source.block).collect();
        sources.dedup();
        Candidates::new(self.placement.stripe, self.request, self.available, &sources, self.topology)
    }

    fn draw(&self, scheme: Scheme, shape: Scheme) -> Result<Plan, PlanError> {
        assemble::draw(scheme, shape, &self.placement, self.request, self.topology)
    }
}

/// A list of one route, which carries all slices; empty without a route.
fn alone(route: Option<Route>) -> Vec<(Route, f64)> {
    route.map(|route| (route, 1.0)).into_iter().collect()
}

/// The blocks to read and the sums to make.
pub(super) fn recipe(
    stripe: &Stripe,
    request: &PlanRequest,
    available: &[BlockIndex],
    topology: &Topology,
) -> Result<Recipe, PlanError> {
    let wanted: Vec<BlockIndex> = request.wanted.iter().map(|wanted| wanted.block).collect();
    if request.policy.scheme == Scheme::Migration
        && let Some(&block) = wanted.iter().find(|block| !available.contains(block))
    {
        let missing = Box::new(missing(stripe, request, topology));
        return Err(PlanError::NothingToMigrate { stripe: stripe.id.clone(), block, missing });
    }
    let recipe = stripe.code.repair(&wanted, available).map_err(|source| {
        let missing = Box::new(missing(stripe, request, topology));
        PlanError::Decode { stripe: stripe.id.clone(), source, missing }
    })?;
    Ok(match &request.sub_blocks {
        None => recipe,
        Some(sub_blocks) => recipe.only(|output| sub_blocks.contains(&output.sub)),
    })
}

/// The readable blocks, preferred ones first.
pub(super) fn available(stripe: &Stripe, request: &PlanRequest, topology: &Topology) -> Vec<BlockIndex> {
    let prefer = &request.policy.prefer;
    let rank = |node| prefer.iter().position(|&other| other == node).unwrap_or(prefer.len());
    let heard = heard(stripe, request, topology);
    let mut available: Vec<(bool, usize, Duration, u32, BlockIndex)> = stripe
        .held()
        .filter(|(_, holder)| !request.policy.avoid.contains(holder))
        .filter_map(|(block, holder)| {
            let view = topology.get(holder).filter(|view| view.alive)?;
            if heard.as_ref().is_some_and(|heard| !heard.contains(&holder)) {
                return None;
            }
            let elsewhere = request.wanted.iter().all(|wanted| wanted.requestor != holder);
            Some((elsewhere, rank(holder), topology.busy(holder), view.load, block))
        })
        .collect();
    available.sort_unstable();
    available.into_iter().map(|(.., block)| block).collect()
}

/// Sorts the unreadable blocks by reason.
fn missing(stripe: &Stripe, request: &PlanRequest, topology: &Topology) -> Missing {
    let heard = heard(stripe, request, topology);
    let mut missing = Missing::default();
    for block in stripe.indices() {
        match stripe.block(block).holder {
            None => missing.lost.push(block),
            Some(holder) if !topology.is_alive(holder) => missing.unreachable.push((block, holder)),
            Some(holder) if request.policy.avoid.contains(&holder) => missing.avoided.push((block, holder)),
            Some(holder) if heard.as_ref().is_some_and(|heard| !heard.contains(&holder)) => {
                missing.cut_off.push((block, holder));
            }
            Some(_) => {}
        }
    }
    missing
}

/// Returns the holders with a route to a requestor, directly or through other holders or requestors. If no
/// links are known and all holders' uplinks have positive rates, every holder has such a route, and the
/// function returns `None`.
fn heard(stripe: &Stripe, request: &PlanRequest, topology: &Topology) -> Option<BTreeSet<NodeId>> {
    let silent = |node: NodeId| topology.rates(node).up <= 0.0;
    if !topology.has_links() && !stripe.held().any(|(_, holder)| silent(holder)) {
        return None;
    }
    let mut apart: BTreeSet<NodeId> = stripe.held().map(|(_, holder)| holder).collect();
    let mut heard: BTreeSet<NodeId> = BTreeSet::new();
    let mut waiting: Vec<NodeId> = request.wanted.iter().map(|wanted| wanted.requestor).collect();
    while let Some(to) = waiting.pop() {
        apart.remove(&to);
        heard.insert(to);
        let more = apart.extract_if(.., |&from| topology.link_rate(from, to) > 0.0);
        waiting.extend(more);
    }
    Some(heard)
}
