//! Plans over routes of chosen nodes: each lane reads its own blocks and so has its own recipe.

use std::collections::{BTreeMap, BTreeSet};

use codes::{BlockIndex, Recipe};

use super::candidates::Candidates;
use super::placement::Placement;
use super::routes::Route;
use super::shape::{Rank, Shape, TreeShape};
use super::{PlanError, PlanRequest, Scheme, assemble, inputs};
use crate::plan::PlanBuilder;
use crate::{NodeId, Plan, Stripe, Topology};

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
    let broken = topology.relays(&request.policy.avoid);
    for ((route, _), &recipe) in routes.iter().zip(&recipe_of) {
        builder.follow(&recipes[recipe]);
        let nodes = &candidates.network.nodes;
        let detours =
            route.detours.iter().map(|(&(from, to), &over)| ((nodes[from], nodes[to]), nodes[over]));
        builder.set_relays(broken.clone().into_iter().chain(detours).collect());
        Shape::Trees(trees(route, nodes, &placements[recipe])).draw(0, &placements[recipe], &mut builder);
    }
    let shares: Vec<f64> = routes.iter().map(|&(_, share)| share).collect();
    assemble::finish(builder, &shares, scheme, request, topology)
}

/// Numbers the nodes of a route as ranks.
fn trees(route: &Route, nodes: &[NodeId], placement: &Placement) -> TreeShape {
    let of_trees = route
        .trees
        .iter()
        .flat_map(|(&requestor, moves)| moves.iter().flat_map(|&(from, to)| [from, to]).chain([requestor]));
    let of_moves = route.moves.iter().flat_map(|&(from, to)| [from, to]);
    let taking_part: BTreeSet<usize> =
        of_trees.chain(of_moves).chain(route.readers.iter().copied()).collect();
    let ranks: BTreeMap<usize, usize> = taking_part.iter().copied().zip(0..).collect();
    let moves = |moves: &[(usize, usize)]| moves.iter().map(|(from, to)| (ranks[from], ranks[to])).collect();
    let rank = |&number: &usize| Rank { node: nodes[number], helper: placement.helper_at(nodes[number]) };
    TreeShape {
        ranks: taking_part.iter().map(rank).collect(),
        moves: moves(&route.moves),
        trees: route.trees.iter().map(|(requestor, tree)| (ranks[requestor], moves(tree))).collect(),
    }
}
