//! Partial parallel repair: a binomial tree of partial sums whose root is the requestor.

use super::helper_order::HelperOrder;
use super::placement::Placement;
use super::shape::{Rank, Route, SumShape};

/// In every round, neighbours in the list pair up; the left one sends to the right one and leaves. The
/// requestor is last in the list and remains.
pub(super) fn tree(placement: &Placement, order: &HelperOrder) -> SumShape {
    let root = placement.requestors[placement.decoded[0]];
    let helpers = order.helpers.iter().copied().filter(|&h| placement.helpers[h].node != root);
    let mut ranks: Vec<Rank> = helpers.map(|helper| placement.rank_of(helper)).collect();
    ranks.push(Rank { node: root, helper: placement.helper_at(root) });
    let route = Route::new(rounds(ranks.len()), ranks.len() - 1);
    if order.sorted {
        route.seat_by_leaving(&mut ranks);
    }
    SumShape { ranks, routes: vec![route] }
}

fn rounds(ranks: usize) -> Vec<(usize, usize)> {
    let mut list: Vec<usize> = (0..ranks).collect();
    let mut moves = Vec::with_capacity(ranks);
    while list.len() > 1 {
        moves.extend(list.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        // The right rank of each pair remains; an unpaired last rank waits for the next round.
        list = list.chunks(2).map(|pair| pair[pair.len() - 1]).collect();
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aggregators_are_those_of_the_paper() {
        assert_eq!(rounds(7), [(0, 1), (2, 3), (4, 5), (1, 3), (5, 6), (3, 6)]);
        assert_eq!(rounds(5), [(0, 1), (2, 3), (1, 3), (3, 4)]);
        assert_eq!(rounds(1), []);
    }
}
