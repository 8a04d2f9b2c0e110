//! The eras in which the coordinators of a catalog have named stripes. [`Era`] explains the term.
//!
//! A block with a name from a recorded era that belongs to no stripe is left over from a file that was
//! removed or never committed. A block from an unknown era may belong to a stripe that was lost when an older
//! copy of the catalog was restored. Copies of the catalog omit this record, because a put that was open when
//! the copy was taken may have been committed since.

use std::collections::{BTreeMap, BTreeSet};

use repair::BlockId;
use serde::{Deserialize, Serialize};

use crate::names::{Era, Key};

/// The current era and the earlier eras of a catalog; see the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eras {
    /// The current era and the first count used in it.
    now: Option<(u64, u64)>,
    /// Each earlier era with the range of counts used in it, as (first, end).
    past: BTreeMap<u64, (u64, u64)>,
    /// Eras whose lost stripes the operator has written off.
    disclaimed: BTreeSet<u64>,
}

impl Eras {
    /// Starts an era, unless it is the current one; `next` is the first count in it.
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

    /// Writes off the eras of these blocks: their stripes no longer count as possibly lost.
    pub fn disclaim(&mut self, blocks: &BTreeSet<BlockId>) {
        self.disclaimed.extend(blocks.iter().filter_map(|block| Some(Key::of_block(block)?.0.era())));
    }

    /// Whether the block may belong to a stripe of a lost catalog. Never true for the current era, whose
    /// stripes are all recorded.
    pub fn may_be_lost(&self, block: &BlockId) -> bool {
        let era = Key::of_block(block).map(|(key, _)| key.era());
        era.is_some_and(|era| self.now.is_none_or(|(now, _)| now != era) && !self.disclaimed.contains(&era))
    }

    /// Whether a coordinator of this catalog has assigned this block's name. `next` is the count of the next
    /// stripe.
    pub fn were_given(&self, block: &BlockId, next: u64) -> bool {
        let Some((key, _)) = Key::of_block(block) else { return false };
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
