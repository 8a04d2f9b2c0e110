//! [`Eras`]: a catalog's record of its eras. An [`Era`] is a random number that each coordinator draws when
//! it starts; it becomes part of the name of every stripe that this coordinator creates.
//!
//! The record serves to classify a block that belongs to no stripe in the catalog. If the era in the block's
//! name is recorded, the block is left over from a file that was removed or never committed. There is one
//! exception: the blocks of a put that was open when a coordinator started. If the catalog is an old copy,
//! that put may have been committed in the original. If the era is not recorded, the block may belong to a
//! stripe that was lost when an older copy of the catalog was restored.
//!
//! Copies of the catalog omit this record. Otherwise the blocks of a put that was open when the copy was
//! taken would look like leftovers after a restore, although the put may have been committed in the meantime.

use std::collections::{BTreeMap, BTreeSet};

use repair::BlockId;
use serde::{Deserialize, Serialize};

use crate::names::{Era, Key};

/// The current era and the earlier eras of a catalog; see the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eras {
    /// The current era and the count of its first stripe.
    now: Option<(u64, u64)>,
    /// The counts of the stripes that were named in each earlier era: the first count, and the count after
    /// the last.
    past: BTreeMap<u64, (u64, u64)>,
    /// Eras whose stripes the operator has accepted as lost.
    disclaimed: BTreeSet<u64>,
    /// Counts of stripes whose put was open when a coordinator started, as ranges: maps the first count of a
    /// range to the count after the last.
    #[serde(default)]
    left: BTreeMap<u64, u64>,
}

impl Eras {
    /// Starts an era; does nothing if the era is already the current one. `next` is the count of the era's
    /// first stripe.
    pub fn begin(&mut self, era: Era, next: u64) {
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

    /// Accepts the loss of every stripe whose name was issued in the same era as the name of one of these
    /// blocks. From now on, [`may_be_lost`](Self::may_be_lost) returns `false` for all names from these eras.
    pub fn disclaim(&mut self, blocks: &BTreeSet<BlockId>) {
        self.disclaimed.extend(blocks.iter().filter_map(|block| Some(Key::of_block(block)?.0.era())));
    }

    /// Records a stripe whose put was open when a coordinator started. The put may have been committed in a
    /// newer copy of the catalog.
    pub fn leave(&mut self, stripe: Key) {
        let count = stripe.count();
        if self.is_left(count) {
            return;
        }
        let end = self.left.remove(&(count + 1)).unwrap_or(count + 1);
        match self.left.range_mut(..count).next_back().filter(|(_, before)| **before == count) {
            Some((_, before)) => *before = end,
            None => drop(self.left.insert(count, end)),
        }
    }

    fn is_left(&self, count: u64) -> bool {
        self.left.range(..=count).next_back().is_some_and(|(_, &end)| count < end)
    }

    /// Whether the block may belong to a stripe that this catalog has lost. Never true for the current era,
    /// whose stripes are all recorded.
    pub fn may_be_lost(&self, block: &BlockId) -> bool {
        let era = Key::of_block(block).map(|(key, _)| key.era());
        era.is_some_and(|era| self.now.is_none_or(|(now, _)| now != era) && !self.disclaimed.contains(&era))
    }

    /// Returns `true` if a coordinator of this catalog assigned this block's name. Returns `false` for blocks
    /// of puts that were open when a coordinator started, because such a put may have been committed in
    /// another copy of the catalog. `next` is the count of the next stripe.
    pub fn were_given(&self, block: &BlockId, next: u64) -> bool {
        let Some((key, _)) = Key::of_block(block).filter(|(key, _)| !self.is_left(key.count())) else {
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
        assert_eq!(eras.left, BTreeMap::from([(2, 5), (7, 8)]));
        let given = |count: u64| eras.were_given(&block(&format!("{count}-aaaaab.0")), 9);
        assert_eq!((1..9).filter(|&count| given(count)).collect::<Vec<_>>(), [1, 5, 6, 8]);
    }

    #[test]
    fn each_era_covers_a_range_of_counts() {
        let (first, second) = (Key::of_block(&block("1-aaaaab.0")), Key::of_block(&block("1-bbbbbb.0")));
        let era = |key: Option<(Key, _)>| Era::of_number(key.expect("a name").0.era());
        let mut eras = Eras::default();
        assert!(eras.may_be_lost(&block("5-aaaaab.0")));
        eras.begin(era(first), 3);
        eras.begin(era(first), 5); // The same coordinator begins another term.
        assert!(!eras.may_be_lost(&block("900-aaaaab.0")), "nobody else gives names in this era");
        assert!(eras.were_given(&block("3-aaaaab.0"), 7) && eras.were_given(&block("6-aaaaab.2"), 7));
        assert!(!eras.were_given(&block("2-aaaaab.0"), 7) && !eras.were_given(&block("7-aaaaab.0"), 7));
        eras.begin(era(second), 7);
        assert!(eras.were_given(&block("6-aaaaab.2"), 9) && !eras.were_given(&block("7-aaaaab.2"), 9));
        assert!(eras.were_given(&block("8-bbbbbb.2"), 9) && !eras.were_given(&block("6-bbbbbb.2"), 9));
        assert!(!eras.were_given(&block("8-cccccc.2"), 9) && !eras.were_given(&block("somebody's"), 9));
        assert!(
            eras.may_be_lost(&block("7-aaaaab.2")),
            "a copy may have been taken in the middle of the era"
        );
    }
}
