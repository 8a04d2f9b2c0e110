//! Plans over routes of chosen nodes: each lane reads its own blocks and so has its own recipe.

use std::collections::BTreeMap;

use codes::{BlockIndex, Recipe};

use super::candidates::Candidates;
use super::placement::Placement;
use super::routes::Route;
use super::shape::{self, Rank, Shape, SumShape};
use super::{PlanError, PlanRequest, Scheme, assemble, inputs};
use crate::plan::PlanBuilder;
use crate::{Plan, Stripe, Topology};

/// Makes the plan whose lanes are these routes, each with its share of the slices.
pub(super) fn draw(
    scheme: Scheme,
    routes: &[(Route, f64)],
    candidates: &Candidates,
    stripe: &Stripe,
    request: &PlanRequest,
    topology: &Topology,
) -> Result<Plan, PlanError> {
    let mut numbers: BTreeMap<Vec<BlockIndex>, usize> = BTreeMap::new();
    let mut recipes: Vec<Recipe> = Vec::new();
    let mut recipe_of = Vec::with_capacity(routes.len());
    for (route, _) in routes {
        let blocks: Vec<BlockIndex> = route.readers.iter().map(|&reader| candidates.blocks[reader]).collect();
        if !numbers.contains_key(&blocks) {
            recipes.push(inputs::recipe(stripe, request, &blocks, topology)?);
            numbers.insert(blocks.clone(), recipes.len() - 1);
        }
        recipe_of.push(numbers[&blocks]);
    }
    let placements: Vec<Placement> =
        recipes.iter().map(|recipe| Placement::new(stripe, recipe, &request.wanted)).collect();
    let mut builder = PlanBuilder::new(stripe, &recipes[0], &placements[0].requestors);
    builder.set_relays(topology.relays(&request.policy.avoid));
    for ((route, _), &recipe) in routes.iter().zip(&recipe_of) {
        builder.follow(&recipes[recipe]);
        Shape::Sums(sums(route, candidates, &placements[recipe])).draw(0, &placements[recipe], &mut builder);
    }
    let shares: Vec<f64> = routes.iter().map(|&(_, share)| share).collect();
    assemble::finish(builder, &shares, scheme, request, topology)
}

/// Converts a route into ranks and moves.
fn sums(route: &Route, candidates: &Candidates, placement: &Placement) -> SumShape {
    let nodes = &candidates.network.nodes;
    let mut taking_part: Vec<usize> = route.moves.iter().map(|&(from, _)| from).collect();
    taking_part.extend(route.moves.iter().map(|&(_, to)| to).chain([route.root]));
    taking_part.sort_unstable();
    taking_part.dedup();
    let rank = |&number: &usize| Rank { node: nodes[number], helper: placement.helper_at(nodes[number]) };
    let at = |number: usize| {
        taking_part.binary_search(&number).expect("the number is in the list of participants")
    };
    let moves = route.moves.iter().map(|&(from, to)| (at(from), at(to))).collect();
    let relays =
        (0..taking_part.len()).filter(|&position| candidates.is_relay(taking_part[position])).collect();
    SumShape {
        ranks: taking_part.iter().map(rank).collect(),
        routes: vec![shape::Route { relays, ..shape::Route::new(moves, at(route.root)) }],
    }
}
