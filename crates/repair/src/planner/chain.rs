//! Chains of partial sums: repair pipelining, basic and cyclic, and its baselines.

use super::placement::Placement;
use super::seating::Seating;
use super::shape::{Rank, Route, SumShape};

/// One chain through all helpers.
pub(super) fn chain(placement: &Placement, seating: &Seating) -> SumShape {
    let (ranks, helpers) = ranks(placement, seating);
    let stations: Vec<usize> = (0..helpers).collect();
    let route = route(&stations, &ranks);
    SumShape { ranks, routes: vec![route] }
}

/// As many chains as there are helpers but one, each starting one helper further on.
pub(super) fn cyclic(placement: &Placement, seating: &Seating) -> SumShape {
    let (ranks, helpers) = ranks(placement, seating);
    if helpers <= 2 {
        return chain(placement, seating);
    }
    let routes = (0..helpers - 1)
        .map(|start| {
            let order: Vec<usize> = (start..start + helpers).map(|place| place % helpers).collect();
            route(&order, &ranks)
        })
        .collect();
    SumShape { ranks, routes }
}

/// The helpers in chain order and, if there is only one requestor, that requestor behind them; also how
/// many helpers there are before it.
///
/// A helper that is itself a requestor comes last, as the output that ends there then saves a stream.
fn ranks(placement: &Placement, seating: &Seating) -> (Vec<Rank>, usize) {
    let end = placement.sole_requestor();
    let mut helpers: Vec<usize> =
        seating.helpers.iter().copied().filter(|&h| Some(placement.helpers[h].node) != end).collect();
    helpers.sort_by_key(|&h| placement.is_requestor(placement.helpers[h].node));
    let mut ranks: Vec<Rank> = helpers.iter().map(|&helper| placement.rank_of(helper)).collect();
    ranks.extend(end.map(|node| Rank { node, helper: placement.helper_at(node) }));
    (ranks, helpers.len())
}

/// The chain in this order, and on to the requestor if there is only one.
fn route(order: &[usize], ranks: &[Rank]) -> Route {
    let end = (order.len() < ranks.len()).then_some(order.len());
    let stations: Vec<usize> = order.iter().copied().chain(end).collect();
    let moves = stations.windows(2).map(|pair| (pair[0], pair[1])).collect();
    Route::new(moves, stations[stations.len() - 1])
}
