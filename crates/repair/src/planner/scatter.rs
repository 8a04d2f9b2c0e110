//! Scatter: helpers take turns as the node that sums a slice.
//!
//! If one node summed everything, it would also receive everything. Here the summing node changes with every
//! slice: as many raw sub-blocks travel as in the star, but the incoming load is shared and the requestor
//! receives only the blocks it wants.

use std::cmp::Reverse;

use super::helper_order::HelperOrder;
use super::placement::Placement;
use super::shape::{Rank, Route, SumShape};

/// One lane per helper that takes a turn: all other helpers send to it, and it sends to the requestors.
pub(super) fn scatter(placement: &Placement, order: &HelperOrder) -> SumShape {
    let end = placement.sole_requestor();
    let mut helpers: Vec<usize> =
        order.helpers.iter().copied().filter(|&h| Some(placement.helpers[h].node) != end).collect();
    // The summing helper's own streams need not be sent, so the helpers with the most streams take the turns.
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

/// The maximum number of terms in all lanes together. A lane repeats the whole recipe, which for several lost
/// blocks of a code with many sub-blocks has 100,000 terms of some 20 bytes each on the wire.
const MOST_TERMS: usize = 1 << 18;

/// The number of helpers that take turns: enough that none of them receives more than a requestor does, but
/// no more than [`MOST_TERMS`] allows. More turns would enlarge the plan without making it faster.
fn turns(placement: &Placement, helpers: &[usize]) -> usize {
    let raw: usize = helpers.iter().map(|&helper| placement.helpers[helper].streams()).sum();
    let requestors = placement.decoded.iter().map(|&output| placement.requestors[output]);
    let wanted_by = |node| requestors.clone().filter(|&requestor| requestor == node).count();
    let wanted = requestors.clone().map(wanted_by).max().unwrap_or(1);
    raw.div_ceil(wanted).min(MOST_TERMS / placement.terms()).clamp(1, helpers.len())
}
