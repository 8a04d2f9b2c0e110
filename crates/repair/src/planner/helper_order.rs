//! The order of helpers in a shape.
//!
//! A helper normally sends one partial sum for each output that it contributes to. If it reads fewer
//! sub-blocks than there are such outputs, sending the sub-blocks themselves is cheaper. This pays only near
//! the start of the shape, because a helper that has received partial sums must pass on one stream for each
//! of them anyway. There are few positions near the start, so the helpers that gain most get them: those that
//! read few sub-blocks compared to the number of outputs that they contribute to.

use super::placement::{Helper, Placement};

/// An order of the helpers.
pub(super) struct HelperOrder {
    /// The order, as positions in the placement's list of helpers.
    pub helpers: Vec<usize>,
    /// Whether the helpers are sorted such that those at the front should send first.
    pub sorted: bool,
}

/// Returns the orders worth trying: always the recipe's own order. If there are several outputs and the
/// helpers differ, also two sorted orders: by a helper's own streams divided by the number of outputs that
/// the helper contributes to, and by this number alone.
pub(super) fn orders(placement: &Placement) -> Vec<HelperOrder> {
    let recipe: Vec<usize> = (0..placement.helpers.len()).collect();
    if placement.decoded.len() == 1 {
        return vec![HelperOrder { helpers: recipe, sorted: false }];
    }
    let weights: Vec<Weight> = placement.helpers.iter().map(Weight::of).collect();
    let mut orders = Vec::new();
    if weights.windows(2).any(|pair| pair[0] != pair[1]) {
        let (mut gain, mut outputs) = (recipe.clone(), recipe.clone());
        gain.sort_by(|&a, &b| weights[a].streams_for_outputs(&weights[b]));
        outputs.sort_by_key(|&helper| weights[helper].outputs);
        orders.extend([gain, outputs].map(|helpers| HelperOrder { helpers, sorted: true }));
    }
    orders.push(HelperOrder { helpers: recipe, sorted: false });
    orders
}

#[derive(PartialEq, Eq)]
struct Weight {
    streams: usize,
    outputs: usize,
}

impl Weight {
    fn of(helper: &Helper) -> Self {
        Self { streams: helper.streams(), outputs: helper.rows() }
    }

    /// Compares two helpers by their own streams divided by the number of outputs that they contribute to.
    fn streams_for_outputs(&self, other: &Self) -> std::cmp::Ordering {
        (self.streams * other.outputs).cmp(&(other.streams * self.outputs))
    }
}
