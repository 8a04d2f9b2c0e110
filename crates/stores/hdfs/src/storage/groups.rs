//! The block groups as the NameNode lists them, and the last homes of their blocks. Pure, as [`view`](super::view) is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};

use crate::blocks::{BlockGroup, GroupBlock};
use crate::listing::{FileRef, Phase};

/// A block that was never listed is missing if it is not listed so long after its file was first seen closed.
pub(super) const SETTLING: Duration = Duration::from_secs(10);
/// The same in a file that is open, from when the group was first seen: the writer is at a later one.
pub(super) const OPEN_SETTLING: Duration = Duration::from_secs(60);
/// A group that this many listings in a row leave out is gone: a folder that is moved during a listing is left out once.
const MISSED_LISTINGS: u8 = 2;

/// A group as it is listed, its DataNodes by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub file: FileRef,
    pub phase: Phase,
    pub start: u64,
    pub group: BlockGroup,
    /// Index in the group, and who has it.
    pub homes: Vec<(u8, NodeId)>,
}

/// A group, and what is remembered of it.
pub(super) struct Held {
    pub listed: Listed,
    /// When this was asked for.
    asked: Duration,
    /// Answers to questions asked from then on list all blocks that exist.
    pub settles: Duration,
    /// The last homes of blocks that nobody has, and since when nobody has them.
    former: Vec<(u8, NodeId, Duration)>,
    /// Listings in a row that did not have it.
    missed: u8,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Groups {
    groups: BTreeMap<i64, Held>,
    /// Whether a complete listing was taken in.
    is_listed: bool,
}

impl Held {
    fn new(listed: Listed, asked: Duration, is_first: bool) -> Self {
        let settles = asked
            + match listed.phase {
                Phase::Old if is_first => Duration::ZERO,
                Phase::Old | Phase::New => SETTLING,
                Phase::Open => OPEN_SETTLING,
            };
        Self { listed, asked, settles, former: Vec::new(), missed: 0 }
    }

    /// Whether each block was listed once, or had the time to be.
    pub fn is_settled(&self, blocks: &[GroupBlock]) -> bool {
        let has = |index: u8| self.listed.homes.iter().any(|&(other, _)| other == index);
        let mut indices = blocks.iter().map(|block| block.index.0 as u8);
        self.asked >= self.settles || indices.all(|index| has(index) || self.last_home(index).is_some())
    }

    /// Who had a block that nobody has, and since when nobody has it.
    pub fn last_home(&self, index: u8) -> Option<(NodeId, Duration)> {
        self.former.iter().find(|&&(other, ..)| other == index).map(|&(_, node, since)| (node, since))
    }

    /// Takes in a later listing of the same group; returns whether it differs.
    fn take(&mut self, now: Duration, asked: Duration, listed: Listed) -> bool {
        (self.asked, self.missed) = (asked, 0);
        if self.listed.phase == Phase::Open && listed.phase != Phase::Open {
            self.settles = asked + SETTLING;
        }
        if self.listed == listed {
            return false;
        }
        if self.listed.group != listed.group {
            *self = Self::new(listed, asked, false);
            return true;
        }
        let has = |homes: &[(u8, NodeId)], index: u8| homes.iter().any(|&(other, _)| other == index);
        self.former.retain(|&(index, ..)| !has(&listed.homes, index));
        for &(index, node) in &self.listed.homes {
            if !has(&listed.homes, index) && !self.former.iter().any(|&(other, ..)| other == index) {
                self.former.push((index, node, now));
            }
        }
        self.listed = listed;
        true
    }
}

impl Groups {
    /// Takes in groups, all that there are or some, which were asked for at `asked`. `all_reported` says whether the NameNode
    /// knows the blocks of all DataNodes. Returns the groups that differ.
    pub fn take(
        &mut self,
        now: Duration,
        asked: Duration,
        listed: Vec<Listed>,
        all: bool,
        all_reported: bool,
    ) -> BTreeSet<i64> {
        let mut changed = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let is_first = !self.is_listed && all_reported;
        for listed in listed {
            let number = listed.group.number;
            // A file that was moved is in a folder and in a snapshot, and the folder, which is listed first, lasts.
            if !seen.insert(number) && listed.file.held_at.is_some() {
                continue;
            }
            if self.take_group(now, asked, listed, is_first) {
                changed.insert(number);
            }
        }
        if all {
            changed.extend(self.drop_unlisted(asked, &seen));
            self.is_listed = true;
        }
        changed
    }

    fn take_group(&mut self, now: Duration, asked: Duration, listed: Listed, is_first: bool) -> bool {
        match self.groups.get_mut(&listed.group.number) {
            Some(held) => asked >= held.asked && held.take(now, asked, listed),
            None => {
                self.groups.insert(listed.group.number, Held::new(listed, asked, is_first));
                true
            }
        }
    }

    fn drop_unlisted(&mut self, asked: Duration, seen: &BTreeSet<i64>) -> Vec<i64> {
        let mut gone = Vec::new();
        for (&number, held) in &mut self.groups {
            if !seen.contains(&number) && held.asked <= asked {
                held.missed += 1;
                if held.missed >= MISSED_LISTINGS {
                    gone.push(number);
                }
            }
        }
        gone.iter().for_each(|number| drop(self.groups.remove(number)));
        gone
    }

    /// Forgets a group that no longer exists.
    pub fn remove(&mut self, number: i64) {
        self.groups.remove(&number);
    }

    /// The numbers of all groups.
    pub fn numbers(&self) -> Vec<i64> {
        self.groups.keys().copied().collect()
    }

    /// A group by its number.
    pub fn get(&self, number: i64) -> Option<&Held> {
        self.groups.get(&number)
    }

    /// What a stripe's group was listed as.
    pub fn listed(&self, stripe: &StripeId) -> Option<&Listed> {
        let listed = &self.get(group_number(stripe)?)?.listed;
        (listed.group.stripe_id() == *stripe).then_some(listed)
    }

    /// A group, if this or something newer is known of it since `asked`.
    pub fn fresh(&self, number: i64, asked: Duration) -> Option<&Listed> {
        self.get(number).filter(|held| held.asked >= asked).map(|held| &held.listed)
    }

    /// The number of blocks with which each DataNode is listed.
    pub fn block_counts(&self) -> BTreeMap<NodeId, usize> {
        let mut counts = BTreeMap::new();
        for &(_, node) in self.groups.values().flat_map(|held| &held.listed.homes) {
            *counts.entry(node).or_default() += 1;
        }
        counts
    }

    /// The index in its group of a stripe's block.
    pub fn index_in_group(&self, stripe: &StripeId, at: BlockIndex) -> Option<u8> {
        let shape = self.listed(stripe)?.group.stripe()?;
        Some(shape.blocks.get(usize::from(at.0))?.index.0 as u8)
    }
}

/// The number of the group that a stripe is.
pub(super) fn group_number(stripe: &StripeId) -> Option<i64> {
    stripe.0.strip_prefix("group_")?.split_once('_')?.0.parse().ok()
}
