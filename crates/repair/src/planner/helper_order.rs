//! The order of helpers in a shape.
//!
//! A helper forwards the sums that it adds to, one stream per output it feeds, unless its own raw sub-blocks
//! are fewer and can travel unchanged. Only helpers in early positions can send raw sub-blocks, since later
//! ones have already received one stream per sum. There are few early positions, so they go to the helpers
//! that gain most: those that read little for the outputs they feed.

use super::placement::{Helper, Placement};

/// An order of the helpers.
pub(super) struct HelperOrder {
    /// The order, as positions in the placement's list of helpers.
    pub helpers: Vec<usize>,
    /// Whether the order is sorted such that helpers that should send first are at the front.
    pub sorted: bool,
}

/// The orders worth trying: the recipe's own, and, if there are several sums and the helpers differ, by gain
/// and by outputs fed.
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

    /// Compares the ratio of own streams to outputs fed.
    fn streams_for_outputs(&self, other: &Self) -> std::cmp::Ordering {
        (self.streams * other.outputs).cmp(&(other.streams * self.outputs))
    }
}
