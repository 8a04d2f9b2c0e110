//! Collective reconstruction read: reductions over a hypercube of helpers.
//!
//! Both algorithms, as printed, hang or overrun unless the number of helpers is a power of two. These forms
//! are corrected for any number; `docs/reference/schemes.md` lists the corrections.

use super::helper_order::HelperOrder;
use super::placement::Placement;
use super::shape::{Rank, Route, SumShape};

/// CRR-R: in round i, every rank whose lowest set bit is i sends its sums to the rank without that bit. Rank
/// 0 sends the total to the requestor.
pub(super) fn halving(placement: &Placement, order: &HelperOrder) -> SumShape {
    let mut ranks = ranks(placement, order);
    let mut moves = Vec::with_capacity(ranks.len());
    for round in 0..dimensions(ranks.len()) {
        let bit = 1 << round;
        moves.extend((0..ranks.len()).filter(|id| id % (2 * bit) == bit).map(|id| (id, id ^ bit)));
    }
    let end = placement.sole_requestor().filter(|&node| node != ranks[0].node);
    moves.extend(end.map(|_| (0, ranks.len())));
    ranks.extend(end.map(|node| Rank { node, helper: None }));
    let route = Route::new(moves, end.map_or(0, |_| ranks.len() - 1));
    if order.sorted {
        route.seat_by_leaving(&mut ranks);
    }
    SumShape { ranks, routes: vec![route] }
}

/// CRR-S: as many fragments as the hypercube has corners, each reduced to the corner of its number and then
/// passed down a binomial tree to rank 0.
pub(super) fn splitting(placement: &Placement, order: &HelperOrder) -> SumShape {
    let mut ranks = ranks(placement, order);
    let dimensions = fill_cube(&mut ranks);
    let corners = ranks.len();
    let end = placement.sole_requestor().filter(|&node| node != ranks[0].node);
    ranks.extend(end.map(|node| Rank { node, helper: None }));
    let root = end.map_or(0, |_| corners);
    let routes = (0..corners).map(|fragment| {
        let moves = reduction(fragment, dimensions);
        Route { gather: gathering(fragment).collect(), ..Route::new(moves, root) }
    });
    SumShape { routes: routes.collect(), ranks }
}

/// CRR-S without the tree: each fragment goes to the requestors from the corner of its number.
pub(super) fn splitting_direct(placement: &Placement, order: &HelperOrder) -> SumShape {
    let end = placement.sole_requestor();
    let helpers = order.helpers.iter().filter(|&&h| Some(placement.helpers[h].node) != end);
    let mut ranks: Vec<Rank> = helpers.map(|&h| placement.rank_of(h)).collect();
    let dimensions = fill_cube(&mut ranks);
    let corners = ranks.len();
    ranks.extend(end.map(|node| Rank { node, helper: placement.helper_at(node) }));
    let routes = (0..corners).map(|fragment| {
        let mut moves = reduction(fragment, dimensions);
        moves.extend(end.map(|_| (fragment, corners)));
        Route::new(moves, end.map_or(fragment, |_| corners))
    });
    SumShape { routes: routes.collect(), ranks }
}

/// Adds the cube's corners beyond the helpers; returns the cube's dimensions.
///
/// Such a corner starts empty. The helper half a cube below, which is the corner's first partner, plays the
/// corner's role as well, so their first exchange, which would be empty, needs no message.
fn fill_cube(ranks: &mut Vec<Rank>) -> u32 {
    let dimensions = dimensions(ranks.len());
    let corners = 1 << dimensions;
    for corner in ranks.len()..corners {
        ranks.push(Rank { node: ranks[corner - corners / 2].node, helper: None });
    }
    dimensions
}

/// The exchanges of the reduce-scatter that concern one fragment. In the round of bit i, from the highest
/// down, each rank that still holds a share and differs from the fragment's number in bit i sends across bit
/// i.
fn reduction(fragment: usize, dimensions: u32) -> Vec<(usize, usize)> {
    let mut moves = Vec::with_capacity(1 << dimensions);
    for round in (0..dimensions).rev() {
        let bit = 1 << round;
        let shared = fragment & !(2 * bit - 1);
        let sender = shared | (!fragment & bit);
        moves.extend((sender..sender + bit).map(|rank| (rank, rank ^ bit)));
    }
    moves
}

/// The ranks from that of the fragment's number to rank 0, clearing the lowest bit in every round.
fn gathering(fragment: usize) -> impl Iterator<Item = usize> {
    let clear = |&at: &usize| (at != 0).then(|| at & (at - 1));
    std::iter::successors(Some(fragment), clear)
}

/// The helpers as ranks. If the only requestor is one of them, it comes first, because rank 0 collects the
/// sums.
fn ranks(placement: &Placement, order: &HelperOrder) -> Vec<Rank> {
    let end = placement.sole_requestor().and_then(|node| placement.helper_at(node));
    let others = order.helpers.iter().copied().filter(|&helper| Some(helper) != end);
    end.into_iter().chain(others).map(|helper| placement.rank_of(helper)).collect()
}

/// The dimensions of the smallest hypercube with a corner for every rank: ⌈log2 ranks⌉.
fn dimensions(ranks: usize) -> u32 {
    ranks.next_power_of_two().trailing_zeros()
}
