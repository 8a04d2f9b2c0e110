//! Collective reconstruction read: reductions over a hypercube of helpers.
//!
//! As published, both algorithms hang or overrun unless the number of helpers is a power of two. The forms
//! here are corrected for any number; `docs/reference/schemes.md` lists the corrections.

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

/// CRR-S: the block is divided into one fragment for each corner of the hypercube. Fragment `i` is summed at
/// corner `i`, and then passed down a binomial tree to rank 0.
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

/// CRR-S without the tree: corner `i` sends fragment `i` directly to the requestors.
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

/// Adds ranks for the corners of the cube that have no helper; returns the cube's dimensions.
///
/// An added corner starts without terms, and its first partner, half a cube below, is a helper. This helper
/// acts for both corners, so that the first exchange between them needs no message.
fn fill_cube(ranks: &mut Vec<Rank>) -> u32 {
    let dimensions = dimensions(ranks.len());
    let corners = 1 << dimensions;
    for corner in ranks.len()..corners {
        ranks.push(Rank { node: ranks[corner - corners / 2].node, helper: None });
    }
    dimensions
}

/// The exchanges of the reduce-scatter that concern one fragment. The rounds go from the highest bit down. In
/// the round of bit i, the ranks that still hold a partial sum of the fragment, and differ from the
/// fragment's number in bit i, send it to the ranks that differ from them only in bit i.
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

/// The ranks on the way from rank `fragment` to rank 0; each step clears the lowest set bit.
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
