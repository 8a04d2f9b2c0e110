//! A set of byte ranges, merged where they touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// The byte ranges of a block that were written. Ranges are kept disjoint, non-adjacent and non-empty.
#[derive(Debug, Default)]
pub struct Extents(BTreeMap<u64, u64>);

impl Extents {
    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut merged = range;
        while let Some((start, end)) = self.touching(&merged) {
            self.0.remove(&start);
            merged = merged.start.min(start)..merged.end.max(end);
        }
        self.0.insert(merged.start, merged.end);
    }

    fn touching(&self, range: &Range<u64>) -> Option<(u64, u64)> {
        let (&start, &end) = self.0.range(..=range.end).next_back()?;
        (end >= range.start).then_some((start, end))
    }

    /// Returns the ranges in ascending order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    /// Returns the first range below `bytes` that is not in the set.
    pub fn first_gap(&self, bytes: u64) -> Option<Range<u64>> {
        let mut ranges = self.0.iter();
        let covered = match ranges.next() {
            Some((&0, &end)) => end,
            Some((&start, _)) => return Some(0..start.min(bytes)).filter(|gap| !gap.is_empty()),
            None => 0,
        };
        let next = ranges.next().map_or(bytes, |(&start, _)| start.min(bytes));
        (covered < next).then_some(covered..next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_list_of_flags(ranges in prop::collection::vec((0u64..64, 0u64..16), 0..12)) {
            let mut extents = Extents::default();
            let mut flags = [false; 80];
            for (start, length) in ranges {
                extents.insert(start..start + length);
                flags[start as usize..(start + length) as usize].fill(true);
            }
            let listed: Vec<u64> = extents.ranges().flatten().collect();
            let flagged = (0..flags.len()).filter(|&at| flags[at]).map(|at| at as u64);
            prop_assert!(flagged.eq(listed));
            for bytes in 0..=flags.len() {
                let flags = &flags[..bytes];
                let start = flags.iter().position(|written| !written);
                let gap = start.map(|start| {
                    let length = flags[start..].iter().position(|&written| written);
                    start as u64..length.map_or(bytes, |length| start + length) as u64
                });
                prop_assert_eq!(extents.first_gap(bytes as u64), gap);
            }
        }
    }
}
