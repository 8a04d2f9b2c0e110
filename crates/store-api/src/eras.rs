//! [`Eras`]: a catalog's record of its eras. An [`Era`] is a random number that each coordinator draws when
//! it starts; it becomes part of the name of every stripe that this coordinator creates.
//!
//! The record serves to classify a block that belongs to no stripe in the catalog:
//!
//! - A coordinator of this catalog assigned its name: the block is left over from a file that was removed or
//!   never committed. There is one exception: the blocks of a put that was open when a coordinator started.
//!   If the catalog is an old copy, that put may have been committed in the original.
//! - No coordinator of this catalog assigned its name: the block is *newer* than the catalog. It may belong
//!   to a file that was lost when an older copy of the catalog was restored. This does not change when this
//!   catalog assigns the same counts in its own eras.
//!
//! A copy of the catalog contains the record as it was before the first put that was open, because this put
//! may be committed after the copy was taken.

use std::collections::{BTreeMap, BTreeSet};

use repair::BlockId;
use serde::{Deserialize, Serialize};

use crate::names::{Era, FAR, Key};

/// The current era and the earlier eras of a catalog; see the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eras {
    /// The current era and the count of its first stripe.
    now: Option<(u64, u64)>,
    /// The counts of the stripes that were named in each earlier era: the first count, and the count after
    /// the last.
    past: BTreeMap<u64, (u64, u64)>,
    /// Eras of which an earlier version of Mend has accepted all stripes as lost.
    disclaimed: BTreeSet<u64>,
    /// For each era, the counts of the stripes that the operator has accepted as lost.
    #[serde(default)]
    given_up: BTreeMap<u64, Counts>,
    /// The counts of stripes whose put was open when a coordinator started.
    #[serde(default)]
    left: Counts,
    /// The first count that was assigned after the catalog began to record eras. Smaller counts are never
    /// newer than the catalog. `None` before the first era.
    #[serde(default)]
    since: Option<u64>,
    /// For each era, the counts of the stripes that helpers reported when the catalog was rebuilt.
    #[serde(default)]
    heard: BTreeMap<u64, Counts>,
}

/// A set of counts, as ranges: maps the first count of a range to the count after the last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Counts(BTreeMap<u64, u64>);

impl Counts {
    fn contains(&self, count: u64) -> bool {
        self.0.range(..=count).next_back().is_some_and(|(_, &end)| count < end)
    }

    fn insert(&mut self, count: u64) {
        if self.contains(count) {
            return;
        }
        let end = self.0.remove(&(count + 1)).unwrap_or(count + 1);
        match self.0.range_mut(..count).next_back().filter(|(_, before)| **before == count) {
            Some((_, before)) => *before = end,
            None => drop(self.0.insert(count, end)),
        }
    }
}

impl Eras {
    /// Returns the record of a catalog that was rebuilt when helpers reported blocks of these stripes. No
    /// coordinator of this catalog has assigned their names. All other stripes are newer.
    pub fn of_rebuild(heard: impl IntoIterator<Item = Key>) -> Self {
        let mut eras = Self { since: Some(1), ..Self::default() };
        for key in heard {
            eras.heard.entry(key.era()).or_default().insert(key.count());
        }
        eras
    }

    /// Returns the record for a copy of the catalog. `end` is the lowest count whose stripe may belong to a
    /// file that the copy does not contain.
    #[must_use]
    pub fn for_copy(mut self, end: u64) -> Self {
        if let Some((era, first)) = self.now.take().filter(|&(_, first)| first < end) {
            self.past.insert(era, (first, end));
        }
        self
    }

    /// Starts an era; does nothing if the era is already the current one. `next` is the count of the era's
    /// first stripe.
    pub fn begin(&mut self, era: Era, next: u64) {
        self.since.get_or_insert(next);
        let era = era.number();
        if let Some((before, first)) = self.now.filter(|&(now, _)| now != era)
            && first < next
        {
            self.past.insert(before, (first, next));
        }
        if self.now.is_none_or(|(now, _)| now != era) {
            self.now = Some((era, next));
        }
    }

    /// Accepts the loss of the stripes of these blocks. From now on, [`are_newer`](Self::are_newer) returns
    /// `false` for their names. Other stripes of the same era may be on helpers that are down, so they stay
    /// newer.
    pub fn disclaim(&mut self, blocks: &BTreeSet<BlockId>) {
        for (key, _) in blocks.iter().filter_map(Key::of_block) {
            self.given_up.entry(key.era()).or_default().insert(key.count());
        }
    }

    /// Records a stripe whose put was open when a coordinator started. The put may have been committed in a
    /// newer copy of the catalog.
    pub fn leave(&mut self, stripe: Key) {
        self.left.insert(stripe.count());
    }

    /// Returns `true` if the block may belong to a stripe that this catalog has lost. Returns `false` if a
    /// coordinator of this catalog assigned its name, if the operator has accepted the loss, and if the count
    /// is too far ahead of `next`, the count of the next stripe.
    pub fn are_newer(&self, block: &BlockId, next: u64) -> bool {
        let Some((key, _)) = Key::of_block(block) else { return false };
        let (era, count) = (key.era(), key.count());
        (self.since.unwrap_or(next)..next + FAR).contains(&count)
            && self.now.is_none_or(|(now, _)| now != era)
            && !self.past.get(&era).is_some_and(|&(first, end)| (first..end).contains(&count))
            && !self.heard.get(&era).is_some_and(|heard| heard.contains(count))
            && !self.given_up.get(&era).is_some_and(|given_up| given_up.contains(count))
            && !self.disclaimed.contains(&era)
    }

    /// Returns `true` if a coordinator of this catalog assigned this block's name. Returns `false` for blocks
    /// of puts that were open when a coordinator started, because such a put may have been committed in
    /// another copy of the catalog. `next` is the count of the next stripe.
    pub fn were_given(&self, block: &BlockId, next: u64) -> bool {
        let Some((key, _)) = Key::of_block(block).filter(|(key, _)| !self.left.contains(key.count())) else {
            return false;
        };
        let given = match self.now {
            Some((now, first)) if now == key.era() => Some((first, next)),
            _ => self.past.get(&key.era()).copied(),
        };
        given.is_some_and(|(first, end)| (first..end).contains(&key.count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(name: &str) -> BlockId {
        BlockId(name.to_owned())
    }

    #[test]
    fn stripes_of_open_puts_are_not_known_to_be_unused() {
        let key = |count: u64| Key::of_block(&block(&format!("{count}-aaaaab.0"))).expect("a name").0;
        let mut eras = Eras::default();
        eras.begin(Era::of_number(key(1).era()), 1);
        [4, 2, 3, 7, 3].into_iter().for_each(|count| eras.leave(key(count)));
        assert_eq!(eras.left.0, BTreeMap::from([(2, 5), (7, 8)]));
        let given = |count: u64| eras.were_given(&block(&format!("{count}-aaaaab.0")), 9);
        assert_eq!((1..9).filter(|&count| given(count)).collect::<Vec<_>>(), [1, 5, 6, 8]);
    }

    #[test]
    fn each_era_covers_a_range_of_counts() {
        let (first, second) = (Key::of_block(&block("1-aaaaab.0")), Key::of_block(&block("1-bbbbbb.0")));
        let era = |key: Option<(Key, _)>| Era::of_number(key.expect("a name").0.era());
        let mut eras = Eras::default();
        assert!(eras.are_newer(&block("5-aaaaab.0"), 3) && !eras.are_newer(&block("2-aaaaab.0"), 3));
        eras.begin(era(first), 3);
        eras.begin(era(first), 5); // The same coordinator begins another term.
        assert!(!eras.are_newer(&block("900-aaaaab.0"), 7), "nobody else gives names in this era");
        assert!(eras.were_given(&block("3-aaaaab.0"), 7) && eras.were_given(&block("6-aaaaab.2"), 7));
        assert!(!eras.were_given(&block("2-aaaaab.0"), 7) && !eras.were_given(&block("7-aaaaab.0"), 7));
        eras.begin(era(second), 7);
        assert!(eras.were_given(&block("6-aaaaab.2"), 9) && !eras.were_given(&block("7-aaaaab.2"), 9));
        assert!(eras.were_given(&block("8-bbbbbb.2"), 9) && !eras.were_given(&block("6-bbbbbb.2"), 9));
        assert!(!eras.were_given(&block("8-cccccc.2"), 9) && !eras.were_given(&block("somebody's"), 9));
        assert!(!eras.are_newer(&block("6-aaaaab.2"), 9));
        assert!(
            eras.are_newer(&block("7-aaaaab.2"), 9),
            "a copy may have been taken in the middle of the era"
        );
    }

    /// The count of the next stripe grows, but what was newer stays newer.
    #[test]
    fn counts_that_are_assigned_again_hide_no_newer_stripe() {
        let era = |text: &str| Era::of_number(Key::of_block(&block(text)).expect("a name").0.era());
        let mut eras = Eras::default();
        eras.begin(era("1-aaaaab.0"), 1);
        let copy = eras.for_copy(5);
        for (mut eras, newer) in [(copy, 5), (Eras::of_rebuild([]), 1), (Eras::default(), 6)] {
            eras.begin(era("1-bbbbbb.0"), 6);
            for next in [6, 7, 1000] {
                for count in 1..9 {
                    let (old, own) = (format!("{count}-aaaaab.0"), format!("{count}-bbbbbb.0"));
                    assert_eq!(eras.are_newer(&block(&old), next), count >= newer, "{old} {next}");
                    assert!(!eras.are_newer(&block(&own), next));
                }
            }
        }
    }

    #[test]
    fn only_stripes_that_were_reported_are_not_newer_than_a_rebuilt_catalog() {
        let key = |text: &str| Key::of_block(&block(text)).expect("a name").0;
        let eras = Eras::of_rebuild(["3-aaaaab.0", "4-aaaaab.1", "9-bbbbbb.0"].map(key));
        let newer = ["2-aaaaab.0", "9-aaaaab.0", "3-bbbbbb.0"];
        assert!(newer.iter().all(|name| eras.are_newer(&block(name), 10)));
        let heard = ["3-aaaaab.7", "4-aaaaab.0", "9-bbbbbb.2"];
        assert!(!heard.iter().any(|name| eras.are_newer(&block(name), 10)));
        assert!(!heard.iter().any(|name| eras.were_given(&block(name), 10)));
    }
}
