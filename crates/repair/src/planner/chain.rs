//! Chains of partial sums: repair pipelining, basic and cyclic, and its baselines.

use super::helper_order::HelperOrder;
use super::placement::Placement;
use super::shape::{Rank, Route, SumShape};

/// One chain through all helpers.
pub(super) fn chain(placement: &Placement, order: &HelperOrder) -> SumShape {
    let (ranks, helpers) = ranks(placement, order);
    let stations: Vec<usize> = (0..helpers).collect();
    let route = route(&stations, &ranks);
    SumShape { ranks, routes: vec![route] }
}

/// Rotated chains, one fewer than there are helpers; each starts one helper further on than the previous one.
pub(super) fn cyclic(placement: &Placement, order: &HelperOrder) -> SumShape {
    let (ranks, helpers) = ranks(placement, order);
    if helpers <= 2 {
        return chain(placement, order);
    }
    let routes = (0..helpers - 1)
        .map(|start| {
            let order: Vec<usize> = (start..start + helpers).map(|position| position % helpers).collect();
            route(&order, &ranks)
        })
        .collect();
    SumShape { ranks, routes }
}

/// Returns the helpers in chain order, followed by the requestor if there is only one; and the number of
/// helpers.
///
/// A helper that is also a requestor comes last: its own output is then complete there and need not be sent.
fn ranks(placement: &Placement, order: &HelperOrder) -> (Vec<Rank>, usize) {
    let end = placement.sole_requestor();
    let mut helpers: Vec<usize> =
        order.helpers.iter().copied().filter(|&h| Some(placement.helpers[h].node) != end).collect();
    helpers.sort_by_key(|&h| placement.is_requestor(placement.helpers[h].node));
    let mut ranks: Vec<Rank> = helpers.iter().map(|&helper| placement.rank_of(helper)).collect();
    ranks.extend(end.map(|node| Rank { node, helper: placement.helper_at(node) }));
    (ranks, helpers.len())
}

/// The route along the helpers in this order, and on to the requestor if there is only one.
fn route(order: &[usize], ranks: &[Rank]) -> Route {
    let end = (order.len() < ranks.len()).then_some(order.len());
    let stations: Vec<usize> = order.iter().copied().chain(end).collect();
    let moves = stations.windows(2).map(|pair| (pair[0], pair[1])).collect();
    Route::new(moves, stations[stations.len() - 1])
}
