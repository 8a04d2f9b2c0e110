//! Scatter: helpers take turns as the place where a slice is summed.
//!
//! One node that sums everything receives everything. Here each slice has such a node, and the next slice
//! another: sub-blocks travel raw, as in the star and as few, while what comes in is shared out and the
//! requestor receives no more than what it wanted.

use std::cmp::Reverse;

use super::placement::Placement;
use super::seating::Seating;
use super::shape::{Rank, Route, SumShape};

/// One lane for each helper that takes a turn: all others send to it, and it sends to the requestors.
pub(super) fn scatter(placement: &Placement, seating: &Seating) -> SumShape {
    let end = placement.sole_requestor();
    let mut helpers: Vec<usize> =
        seating.helpers.iter().copied().filter(|&h| Some(placement.helpers[h].node) != end).collect();
    // What a summing helper has itself need not travel.
    helpers.sort_by_key(|&helper| Reverse(placement.helpers[helper].streams()));
    let (last, turns) = (helpers.len(), turns(placement, &helpers));
    let mut ranks: Vec<Rank> = helpers.iter().map(|&helper| placement.rank_of(helper)).collect();
    ranks.extend(end.map(|node| Rank { node, helper: placement.helper_at(node) }));
    let routes = (0..turns).map(|turn| {
        let mut moves: Vec<_> = (0..last).filter(|&rank| rank != turn).map(|rank| (rank, turn)).collect();
        moves.extend(end.map(|_| (turn, last)));
        Route::new(moves, end.map_or(turn, |_| last))
    });
    SumShape { routes: routes.collect(), ranks }
}

/// What all lanes together may sum. A lane repeats the whole recipe, which for several lost blocks of a
/// code with many sub-blocks has 100,000 terms; as messages, a term is some 20 bytes.
const MOST_TERMS: usize = 1 << 18;

/// How many helpers take turns: so many that none receives more than a requestor does, if the plan does
/// not become too large. More would make it larger and nothing faster.
fn turns(placement: &Placement, helpers: &[usize]) -> usize {
    let raw: usize = helpers.iter().map(|&helper| placement.helpers[helper].streams()).sum();
    let requestors = placement.decoded.iter().map(|&output| placement.requestors[output]);
    let wanted_by = |node| requestors.clone().filter(|&requestor| requestor == node).count();
    let wanted = requestors.clone().map(wanted_by).max().unwrap_or(1);
    raw.div_ceil(wanted).min(MOST_TERMS / placement.terms()).clamp(1, helpers.len())
}
