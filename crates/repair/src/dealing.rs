//! Deals slices to a plan's lanes, in turns and by weight.
//!
//! A *round* deals as many slices as the sum of the weights, and rounds repeat. A lane of weight `w` gets `w`
//! slices of a round, evenly spaced: its slice `j`, counted from 0, is due at `(j + ½) / w` of the round. The
//! slices of a round are dealt in the order of their due times; ties go to the lower lane. So at every moment
//! the number of slices that a lane has had differs from its exact share by about one slice at most: links
//! are evenly busy, and no lane's buffers pile up.

use serde::{Deserialize, Serialize};

use crate::SliceSet;

/// The assignment of slices to lanes. On the wire it is the list of weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u32>", into = "Vec<u32>")]
pub struct Dealing {
    /// The positions of each lane in a round, ascending; never empty.
    positions: Vec<Vec<u32>>,
    /// The lane of each position in a round.
    round: Vec<u16>,
}

/// Why a list of weights is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DealingError {
    /// There is no lane.
    #[error("there are no lanes to deal slices to")]
    NoLane,
    /// A lane has weight zero, so it would get no slice.
    #[error("lane {0} has no weight, so it gets no slice")]
    NoWeight(usize),
    /// The sum of the weights, the length of a round, is too large.
    #[error("the sum of the weights is {0}, but a round has at most {max} slices", max = Dealing::MAX_ROUND)]
    Round(u64),
}

impl Dealing {
    /// The maximum number of slices in a round.
    pub const MAX_ROUND: u32 = 1 << 16;

    /// Deals the same number of slices to each of `lanes` lanes.
    ///
    /// # Panics
    /// If there are no lanes, or more than [`MAX_ROUND`](Self::MAX_ROUND).
    pub fn even(lanes: usize) -> Self {
        assert!(
            lanes > 0 && lanes <= Self::MAX_ROUND as usize,
            "slices are dealt to lanes that can be numbered"
        );
        Self {
            positions: (0..lanes as u32).map(|lane| vec![lane]).collect(),
            round: (0..lanes).map(|lane| lane as u16).collect(),
        }
    }

    /// Deals slices to lane `i` in proportion to `weights[i]`.
    ///
    /// # Errors
    /// [`DealingError`] if there is no weight, if a weight is zero, or if the sum of the weights, divided by
    /// their greatest common divisor, exceeds [`MAX_ROUND`](Self::MAX_ROUND).
    pub fn weighted(weights: &[u32]) -> Result<Self, DealingError> {
        if let Some(lane) = weights.iter().position(|&weight| weight == 0) {
            return Err(DealingError::NoWeight(lane));
        }
        let factor = weights.iter().copied().reduce(gcd).ok_or(DealingError::NoLane)?;
        let round: u64 = weights.iter().map(|&weight| u64::from(weight / factor)).sum();
        if round > u64::from(Self::MAX_ROUND) {
            return Err(DealingError::Round(round));
        }
        let mut due: Vec<(u64, u16)> = Vec::with_capacity(round as usize);
        for (&weight, lane) in weights.iter().zip(0..) {
            let weight = u64::from(weight / factor);
            due.extend((0..weight).map(|j| (((2 * j + 1) << 32) / weight, lane)));
        }
        due.sort_unstable();
        let mut positions = vec![Vec::new(); weights.len()];
        (0..).zip(&due).for_each(|(position, &(_, lane))| positions[usize::from(lane)].push(position));
        Ok(Self { positions, round: due.into_iter().map(|(_, lane)| lane).collect() })
    }

    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        self.positions.len()
    }

    /// Number of slices in a round.
    pub fn round(&self) -> u32 {
        self.round.len() as u32
    }

    /// The number of slices that a lane gets in a round.
    ///
    /// # Panics
    /// If there is no such lane. The other methods that take a lane panic as well.
    pub fn weight(&self, lane: u16) -> u32 {
        self.positions[usize::from(lane)].len() as u32
    }

    /// The positions of a lane in a round, ascending: the numbers of its slices modulo the length of a round.
    pub fn positions(&self, lane: u16) -> &[u32] {
        &self.positions[usize::from(lane)]
    }

    /// The lane that carries slice `slice`.
    pub fn lane_of(&self, slice: u32) -> u16 {
        self.round[slice as usize % self.round.len()]
    }

    /// The number of slices among `0..end` that a lane carries.
    pub fn count(&self, lane: u16, end: u32) -> u32 {
        let positions = self.positions(lane);
        let (rounds, rest) = (end / self.round(), end % self.round());
        rounds * positions.len() as u32 + positions.partition_point(|&position| position < rest) as u32
    }

    /// The `nth` slice, counted from 0, that a lane carries; `None` if its number would overflow.
    pub fn nth(&self, lane: u16, nth: u32) -> Option<u32> {
        let positions = self.positions(lane);
        let (rounds, position) = (nth / positions.len() as u32, nth as usize % positions.len());
        rounds.checked_mul(self.round())?.checked_add(positions[position])
    }

    /// The number of `slices` that a lane carries.
    pub fn count_in(&self, lane: u16, slices: &SliceSet) -> u32 {
        slices.ranges().iter().map(|range| self.count(lane, range.end) - self.count(lane, range.start)).sum()
    }

    /// Whether a lane carries any of `slices`.
    pub fn uses(&self, lane: u16, slices: &SliceSet) -> bool {
        slices.ranges().iter().any(|range| self.count(lane, range.end) > self.count(lane, range.start))
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl TryFrom<Vec<u32>> for Dealing {
    type Error = DealingError;

    fn try_from(weights: Vec<u32>) -> Result<Self, DealingError> {
        Self::weighted(&weights)
    }
}

impl From<Dealing> for Vec<u32> {
    fn from(dealing: Dealing) -> Self {
        dealing.positions.iter().map(|positions| positions.len() as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_slice_has_its_number_in_its_lane(weights in prop::collection::vec(1u32..40, 1..9), slices in 0u32..600) {
            let dealing = Dealing::weighted(&weights).expect("small weights");
            let sum: u32 = weights.iter().sum();
            prop_assert_eq!(sum % dealing.round(), 0);
            let mut counts = vec![0u32; weights.len()];
            for slice in 0..slices {
                for (lane, &weight) in (0..).zip(&weights) {
                    let had = counts[usize::from(lane)];
                    prop_assert_eq!(dealing.count(lane, slice), had);
                    let share = f64::from(weight) / f64::from(sum);
                    // The slices of a lane deviate from its exact share by at most half a slice, plus `share`
                    // times half a slice per lane.
                    let most = 0.5 + 0.5 * share * weights.len() as f64 + 1e-9;
                    prop_assert!((f64::from(had) - share * f64::from(slice)).abs() <= most);
                }
                let lane = dealing.lane_of(slice);
                prop_assert_eq!(dealing.nth(lane, counts[usize::from(lane)]), Some(slice));
                counts[usize::from(lane)] += 1;
            }
        }

        #[test]
        fn sets_are_counted_by_range(
            weights in prop::collection::vec(1u32..9, 1..5),
            ranges in prop::collection::vec((0u32..90, 0u32..20), 0..5),
        ) {
            let dealing = Dealing::weighted(&weights).expect("small weights");
            let mut slices = SliceSet::new();
            ranges.iter().for_each(|&(start, count)| slices.insert(start..start + count));
            for lane in 0..weights.len() as u16 {
                let counted = slices.iter().filter(|&slice| dealing.lane_of(slice) == lane).count();
                prop_assert_eq!(dealing.count_in(lane, &slices) as usize, counted);
                prop_assert_eq!(dealing.uses(lane, &slices), counted > 0);
            }
        }
    }

    #[test]
    fn common_factors_are_removed_and_lanes_alternate() {
        let dealing = Dealing::weighted(&[6, 2, 2]).expect("small weights");
        assert_eq!(dealing, Dealing::weighted(&[3, 1, 1]).expect("small weights"));
        assert_eq!((0..5).map(|slice| dealing.lane_of(slice)).collect::<Vec<_>>(), [0, 0, 1, 2, 0]);
        assert_eq!(Dealing::weighted(&[7, 7]).expect("small weights"), Dealing::even(2));
    }

    #[test]
    fn serializes_as_its_weights() {
        let dealing = Dealing::weighted(&[3, 1]).expect("small weights");
        assert_eq!(serde_json::to_string(&dealing).expect("numbers"), "[3,1]");
        assert_eq!(serde_json::from_str::<Dealing>("[3,1]").expect("weights"), dealing);
        let refused = |text: &str| serde_json::from_str::<Dealing>(text).expect_err(text).to_string();
        assert!(refused("[]").starts_with("there are no lanes"));
        assert!(refused("[1,0]").starts_with("lane 1 has no weight"));
        assert!(refused("[4294967295,4294967294]").starts_with("the sum of the weights is 8589934589"));
    }

    #[test]
    fn numbers_beyond_the_last_slice_yield_none() {
        let dealing = Dealing::weighted(&[1, 65_535]).expect("the longest round");
        assert_eq!(dealing.nth(0, u32::MAX), None);
    }
}
