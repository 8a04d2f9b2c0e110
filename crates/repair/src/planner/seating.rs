//! In which order helpers take their places in a shape.
//!
//! Whatever a helper adds to, it has to send on: as many streams as the outputs it feeds, unless its own raw
//! sub-blocks are fewer and can go on as they are. Only early places allow that, as later ones have
//! received as many streams as there are sums; and early places are few. They are for the helpers that
//! gain most, those that read little for the outputs they feed.

use super::placement::{Helper, Placement};

/// Helpers in some order.
pub(super) struct Seating {
    /// Positions among the placement's helpers.
    pub helpers: Vec<usize>,
    /// Whether the first are those that should pass on what they have first.
    pub sorted: bool,
}

/// The orders worth trying. If there is one sum or all helpers are alike, it is only the recipe's;
/// otherwise also that by gain, and that by outputs fed.
pub(super) fn seatings(placement: &Placement) -> Vec<Seating> {
    let recipe: Vec<usize> = (0..placement.helpers.len()).collect();
    if placement.decoded.len() == 1 {
        return vec![Seating { helpers: recipe, sorted: false }];
    }
    let weights: Vec<Weight> = placement.helpers.iter().map(Weight::of).collect();
    let mut orders = Vec::new();
    if weights.windows(2).any(|pair| pair[0] != pair[1]) {
        let (mut gain, mut outputs) = (recipe.clone(), recipe.clone());
        gain.sort_by(|&a, &b| weights[a].streams_for_outputs(&weights[b]));
        outputs.sort_by_key(|&helper| weights[helper].outputs);
        orders.extend([gain, outputs].map(|helpers| Seating { helpers, sorted: true }));
    }
    orders.push(Seating { helpers: recipe, sorted: false });
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

    /// Compares streams of its own for each output fed.
    fn streams_for_outputs(&self, other: &Self) -> std::cmp::Ordering {
        (self.streams * other.outputs).cmp(&(other.streams * self.outputs))
    }
}
