//! Collective reconstruction read: reductions over a hypercube of helpers.
//!
//! Both printed algorithms hang or overrun unless the number of helpers is a power of two; the forms here
//! are corrected for any number. `docs/schemes.md` lists the corrections.

use super::placement::Placement;
use super::shape::{Rank, Route, SumShape};

/// CRR-R: in round i every rank whose lowest set bit is i sends all it has to the rank without that bit.
pub(super) fn halving(placement: &Placement) -> SumShape {
    let ranks = ranks(placement);
    let mut moves = Vec::with_capacity(ranks.len());
    for round in 0..dimensions(ranks.len()) {
        let bit = 1 << round;
        moves.extend((0..ranks.len()).filter(|id| id % (2 * bit) == bit).map(|id| (id, id ^ bit)));
    }
    SumShape { ranks, routes: vec![Route { moves, root: 0 }] }
}

/// CRR-S: as many fragments as the hypercube has corners, each reduced to the corner of its number; then,
/// if `gather`, passed down a binomial tree to rank 0, or else sent to the requestors from there.
///
/// Corners beyond the helpers start with nothing and are played by the helper half a cube below, which is
/// their first partner: so their first, empty exchange is no message at all.
pub(super) fn splitting(placement: &Placement, gather: bool) -> SumShape {
    let mut ranks = ranks(placement);
    let dimensions = dimensions(ranks.len());
    let corners = 1 << dimensions;
    for corner in ranks.len()..corners {
        ranks.push(Rank { node: ranks[corner - corners / 2].node, helper: None });
    }
    let routes = (0..corners)
        .map(|fragment| {
            let mut moves = reduction(fragment, dimensions);
            let root = if gather { gathering(fragment, &mut moves) } else { fragment };
            Route { moves, root }
        })
        .collect();
    SumShape { ranks, routes }
}

/// The exchanges of the reduce-scatter that concern one fragment: in the round of bit i, from the highest
/// down, each rank that still has a share of it and differs from its number in bit i sends across bit i.
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

/// From the rank of the fragment's number to rank 0, clearing the lowest bit in every round.
fn gathering(fragment: usize, moves: &mut Vec<(usize, usize)>) -> usize {
    let mut at = fragment;
    while at != 0 {
        moves.push((at, at & (at - 1)));
        at &= at - 1;
    }
    at
}

/// The helpers; the requestor first, where sums end, if it is one of them and the only requestor.
fn ranks(placement: &Placement) -> Vec<Rank> {
    let end = placement.sole_requestor().and_then(|node| placement.helper_at(node));
    let others = (0..placement.helpers.len()).filter(|&helper| Some(helper) != end);
    end.into_iter().chain(others).map(|h| Rank { node: placement.helpers[h].node, helper: Some(h) }).collect()
}

/// ⌈log2 ranks⌉
fn dimensions(ranks: usize) -> u32 {
    ranks.next_power_of_two().trailing_zeros()
}
