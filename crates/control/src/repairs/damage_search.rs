//! Searches for damaged stripes whose automatic repair may be due. One check considers a bounded number of stripes,
//! because an absent helper may damage millions of them. The next check continues with the following ones, so
//! stripes that are not due hide no others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use store_api::StripeRecord;

use crate::facts::Facts;
use crate::repairs::grace::shortened;
use crate::stripes::Stripes;
use crate::stripes::picture::Slot;

/// Each check considers at most this many stripes with corrupt or missing blocks, and at most this many of the other
/// stripes of each [`Class`].
const LOOK_AT: usize = 2048;

/// The stripes at which the last check stopped.
#[derive(Clone, Default)]
pub(crate) struct DamageSearch {
    rotten: Slot,
    others: BTreeMap<Class, Slot>,
}

/// Readable damaged stripes that can lose the same number of further blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    /// The number of blocks that the stripes can still lose.
    left: u32,
    /// Whether their grace period is shorter than that of an absent helper.
    is_shortened: bool,
}

/// The stripes that one check considers.
pub(crate) struct Considered {
    pub(crate) stripes: Vec<StripeRecord>,
    /// How many other stripes have a shortened grace period, by the number of blocks that they can still lose.
    pub(crate) left_out: BTreeMap<u32, u64>,
}

impl DamageSearch {
    /// Returns the next damaged stripes: stripes with blocks recorded as corrupt or missing, and stripes that the
    /// recovery of their absent helpers does not repair in time. In Mend's own stores, these are the stripes with a
    /// shortened grace period, and those that cannot lose another block.
    pub(crate) fn next(&mut self, facts: Facts<'_>) -> Considered {
        let Stripes { picture, .. } = facts.stripes;
        let pressing = pressing(facts);
        self.others.retain(|class, _| pressing.contains_key(class));
        let mut slots: BTreeSet<Slot> = next_of(&[picture.rotten()], &mut self.rotten).into_iter().collect();
        let mut left_out = BTreeMap::new();
        for (class, kinds) in &pressing {
            let next = next_of(kinds, self.others.entry(*class).or_default());
            let all: usize = kinds.iter().map(|slots| slots.len()).sum();
            if class.is_shortened && all > next.len() {
                left_out.insert(class.left, (all - next.len()) as u64);
            }
            slots.extend(next);
        }
        Considered { stripes: slots.into_iter().map(|slot| picture.stripe_in(slot)).collect(), left_out }
    }

    /// Whether the last check has considered only some of the stripes.
    pub(crate) fn is_partial(&self) -> bool {
        self.others.values().chain([&self.rotten]).any(|&stopped_at| stopped_at != Slot::default())
    }
}

/// Returns the readable damaged stripes that may have to be repaired before the recovery of a helper.
fn pressing(facts: Facts<'_>) -> BTreeMap<Class, Vec<&BTreeSet<Slot>>> {
    let grace = facts.nodes.repair_after(facts.base).time().unwrap_or_default();
    let Stripes { picture, codes, .. } = facts.stripes;
    let mut pressing: BTreeMap<Class, Vec<&BTreeSet<Slot>>> = BTreeMap::new();
    for kind in picture.kinds().filter(|kind| !kind.lost.is_empty() && !kind.slots.is_empty()) {
        let Ok(code) = codes.get(kind.code) else { continue };
        let left = codes.survives(&*code, &kind.lost);
        let Some((left, full)) = left.zip(codes.survives(&*code, &[])) else { continue };
        let is_shortened = shortened(grace, left, full) < grace;
        // Corrupt blocks of stripes without redundancy must not wait for the turn of all other corrupt blocks.
        if left == 0 || facts.base.store.reports_service() || is_shortened {
            pressing.entry(Class { left, is_shortened }).or_default().push(kind.slots);
        }
    }
    pressing
}

/// Returns at most `LOOK_AT` of the stripes in these disjoint sets: first those after `stopped_at`, then those from the
/// start. Moves `stopped_at` on.
fn next_of(sets: &[&BTreeSet<Slot>], stopped_at: &mut Slot) -> Vec<Slot> {
    let after = *stopped_at;
    let of_set = |set: &&BTreeSet<Slot>| -> Vec<(bool, Slot)> {
        let later = set.range((Excluded(after), Unbounded)).map(|&slot| (false, slot));
        later.chain(set.range(..=after).map(|&slot| (true, slot))).take(LOOK_AT).collect()
    };
    let mut found: Vec<(bool, Slot)> = sets.iter().flat_map(of_set).collect();
    found.sort_unstable();
    let is_cut = found.len() >= LOOK_AT;
    found.truncate(LOOK_AT);
    *stopped_at = found.last().filter(|_| is_cut).map(|&(_, slot)| slot).unwrap_or_default();
    found.into_iter().map(|(_, slot)| slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one place for all sets, the larger set would hide the smaller one: its stripes come first at each stop.
    #[test]
    fn every_stripe_is_reached_whatever_the_sizes_of_the_sets() {
        let many: BTreeSet<Slot> = (0..9000).filter(|slot| slot % 100 != 7).collect();
        let few: BTreeSet<Slot> = (0..9000).filter(|slot| slot % 100 == 7).collect();
        for sets in [vec![&many, &few], vec![&many]] {
            let (mut stopped_at, mut seen) = (Slot::default(), BTreeSet::new());
            for _ in 0..5 {
                let next = next_of(&sets, &mut stopped_at);
                assert!(next.len() <= LOOK_AT);
                seen.extend(next);
            }
            assert_eq!(seen.len(), sets.iter().map(|set| set.len()).sum::<usize>());
        }
    }

    #[test]
    fn few_stripes_are_all_considered_each_time() {
        let all: BTreeSet<Slot> = (0..50).collect();
        let mut stopped_at = 20;
        for _ in 0..3 {
            assert_eq!(next_of(&[&all], &mut stopped_at).len(), 50);
        }
    }
}
