//! Slices: the division of a window of a sub-block, and sets of slice numbers.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The window of offsets that a plan covers in every sub-block, and its division into slices.
///
/// All sub-blocks of a stripe have the same length and are coded offset by offset, so one window and one
/// numbering of slices serve every stream of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// The wanted offsets inside each sub-block, in bytes.
    pub window: Range<u64>,
    /// Bytes of every slice but the last, which may be shorter.
    pub slice_bytes: u32,
}

impl Geometry {
    /// Smallest slice size that a plan may use, in bytes. A smaller window is a single slice.
    pub const MIN_SLICE_BYTES: u32 = 4 << 10;
    /// Largest slice size that a plan may use, in bytes.
    pub const MAX_SLICE_BYTES: u32 = 4 << 20;

    /// Number of slices in the window.
    pub fn slices(&self) -> u32 {
        (self.window.end - self.window.start).div_ceil(u64::from(self.slice_bytes)) as u32
    }

    /// The offsets inside a sub-block that slice `slice` covers.
    pub fn span(&self, slice: u32) -> Range<u64> {
        let start = self.window.start + u64::from(slice) * u64::from(self.slice_bytes);
        start..(start + u64::from(self.slice_bytes)).min(self.window.end)
    }

    /// Bytes in slice `slice`.
    pub fn bytes_of(&self, slice: u32) -> usize {
        let span = self.span(slice);
        (span.end - span.start) as usize
    }
}

/// A set of slice numbers, kept as ascending, disjoint, non-adjacent ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct SliceSet {
    ranges: Vec<Range<u32>>,
}

impl SliceSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// All slices `0..count`.
    pub fn all(count: u32) -> Self {
        let mut set = Self::new();
        set.insert(0..count);
        set
    }

    /// Number of slices in the set.
    pub fn len(&self) -> u32 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// Whether `slice` is in the set.
    pub fn contains(&self, slice: u32) -> bool {
        let after = self.ranges.partition_point(|range| range.end <= slice);
        self.ranges.get(after).is_some_and(|range| range.contains(&slice))
    }

    /// The smallest slice of the set that is at least `from`.
    pub fn next(&self, from: u32) -> Option<u32> {
        let after = self.ranges.partition_point(|range| range.end <= from);
        self.ranges.get(after).map(|range| range.start.max(from))
    }

    /// All slices, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(Clone::clone)
    }

    /// Adds the slices of `range`.
    pub fn insert(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = self.ranges.partition_point(|r| r.start <= range.end);
        let merged = match self.ranges.get(first..last) {
            Some([]) | None => range,
            Some(touching) => {
                range.start.min(touching[0].start)..range.end.max(touching[touching.len() - 1].end)
            }
        };
        self.ranges.splice(first..last, [merged]);
    }

    /// The slices of both sets.
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        other.ranges.iter().for_each(|range| union.insert(range.clone()));
        union
    }

    /// The slices of this set that are not in `other`.
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = Self::new();
        for range in &self.ranges {
            let mut start = range.start;
            for gone in other.ranges.iter().filter(|gone| gone.end > range.start && gone.start < range.end) {
                left.insert(start..gone.start.max(start));
                start = start.max(gone.end);
            }
            left.insert(start..range.end.max(start));
        }
        left
    }
}

impl From<Vec<(u32, u32)>> for SliceSet {
    fn from(pairs: Vec<(u32, u32)>) -> Self {
        let mut set = Self::new();
        pairs.into_iter().for_each(|(start, end)| set.insert(start..end));
        set
    }
}

impl From<SliceSet> for Vec<(u32, u32)> {
    fn from(set: SliceSet) -> Self {
        set.ranges.into_iter().map(|range| (range.start, range.end)).collect()
    }
}

impl fmt::Display for SliceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranges.is_empty() {
            return f.write_str("none");
        }
        for (position, range) in self.ranges.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{}", range.start)?;
            if range.end > range.start + 1 {
                write!(f, "-{}", range.end - 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set_of(ranges: &[(u32, u32)]) -> (SliceSet, BTreeSet<u32>) {
        let mut set = SliceSet::new();
        let mut reference = BTreeSet::new();
        for &(start, count) in ranges {
            set.insert(start..start + count);
            reference.extend(start..start + count);
        }
        (set, reference)
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(
            a in prop::collection::vec((0u32..60, 0u32..12), 0..8),
            b in prop::collection::vec((0u32..60, 0u32..12), 0..8),
        ) {
            let (a, a_reference) = set_of(&a);
            let (b, b_reference) = set_of(&b);
            prop_assert_eq!(a.iter().collect::<BTreeSet<_>>(), a_reference.clone());
            prop_assert_eq!(a.len() as usize, a_reference.len());
            prop_assert_eq!(a.union(&b).iter().collect::<BTreeSet<_>>(), &a_reference | &b_reference);
            prop_assert_eq!(a.minus(&b).iter().collect::<BTreeSet<_>>(), &a_reference - &b_reference);
            for slice in 0..80 {
                prop_assert_eq!(a.contains(slice), a_reference.contains(&slice));
                prop_assert_eq!(a.next(slice), a_reference.range(slice..).next().copied());
            }
        }
    }

    #[test]
    fn the_last_slice_may_be_short() {
        let geometry = Geometry { window: 100..1100, slice_bytes: 300 };
        assert_eq!(geometry.slices(), 4);
        assert_eq!(geometry.span(3), 1000..1100);
        assert_eq!(geometry.bytes_of(0), 300);
    }
}
