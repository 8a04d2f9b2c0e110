//! The block groups as the NameNode lists them, and the last holders of their blocks. Pure: this module sends
//! no queries and stores nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};

use crate::blocks::{BlockGroup, GroupBlock};
use crate::listing::{FileRef, Phase};

/// A block that was never listed is treated as missing this long after its file was first seen closed.
pub(super) const SETTLING: Duration = Duration::from_secs(10);
/// In a file that is still open, a block that was never listed is treated as missing this long after its
/// group was first seen. By then, the writer has moved on to a later group.
pub(super) const OPEN_SETTLING: Duration = Duration::from_secs(60);
/// A group is dropped after this many consecutive listings without it. One is not enough, because a listing
/// misses a folder that is moved at the same time.
const MISSED_LISTINGS: u8 = 2;

/// A group as listed, with DataNodes as Mend's node numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub file: FileRef,
    pub phase: Phase,
    pub start: u64,
    pub group: BlockGroup,
    /// The healthy replicas: index in the group and holder.
    pub homes: Vec<(u8, NodeId)>,
}

/// A group with its history.
pub(super) struct Held {
    pub listed: Listed,
    /// The time at which the query for the last answer was sent.
    asked: Duration,
    /// If a query for the group was sent at this time or later, the answer lists all blocks that exist.
    pub settles: Duration,
    /// Blocks that are no longer listed: index in the group, last holder, and the time at which the loss was
    /// seen.
    former: Vec<(u8, NodeId, Duration)>,
    /// Number of consecutive listings without this group.
    missed: u8,
}

/// All listed block groups, by number.
#[derive(Default)]
pub(super) struct Groups {
    groups: BTreeMap<i64, Held>,
    /// Whether a complete listing was recorded.
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

    /// Whether every block was listed at some time, or DataNodes have had enough time to report the blocks.
    pub fn is_settled(&self, blocks: &[GroupBlock]) -> bool {
        let has = |index: u8| self.listed.homes.iter().any(|&(other, _)| other == index);
        let mut indices = blocks.iter().map(|block| block.index.0 as u8);
        self.asked >= self.settles || indices.all(|index| has(index) || self.last_home(index).is_some())
    }

    /// Returns the last DataNode that held a lost block, and the time since which the block is lost.
    pub fn last_home(&self, index: u8) -> Option<(NodeId, Duration)> {
        self.former.iter().find(|&&(other, ..)| other == index).map(|&(_, node, since)| (node, since))
    }

    /// Records a later listing of the same group; returns whether it differs from the previous one.
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
    /// Records the groups that an answer lists. The query was sent at `asked`. `all` is true if the answer
    /// lists all groups, `all_reported` if the NameNode knows the blocks of all DataNodes. Returns the groups
    /// that have changed.
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
            // A renamed file may be listed in its folder and in a snapshot. The path in the folder is listed
            // first, and is kept.
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

    /// Returns the numbers of all groups.
    pub fn numbers(&self) -> Vec<i64> {
        self.groups.keys().copied().collect()
    }

    /// Returns the group with this number.
    pub fn get(&self, number: i64) -> Option<&Held> {
        self.groups.get(&number)
    }

    /// Returns the last listing of a stripe's group.
    pub fn listed(&self, stripe: &StripeId) -> Option<&Listed> {
        let listed = &self.get(group_number(stripe)?)?.listed;
        (listed.group.stripe_id() == *stripe).then_some(listed)
    }

    /// Returns a group if the query for its last listing was sent at `asked` or later.
    pub fn fresh(&self, number: i64, asked: Duration) -> Option<&Listed> {
        self.get(number).filter(|held| held.asked >= asked).map(|held| &held.listed)
    }

    /// Returns the number of listed blocks of each DataNode.
    pub fn block_counts(&self) -> BTreeMap<NodeId, usize> {
        let mut counts = BTreeMap::new();
        for &(_, node) in self.groups.values().flat_map(|held| &held.listed.homes) {
            *counts.entry(node).or_default() += 1;
        }
        counts
    }

    /// Converts a block's index in the stripe into its index in the HDFS group.
    pub fn index_in_group(&self, stripe: &StripeId, at: BlockIndex) -> Option<u8> {
        let shape = self.listed(stripe)?.group.stripe()?;
        Some(shape.blocks.get(usize::from(at.0))?.index.0 as u8)
    }
}

/// Parses the group's number from the stripe's name.
pub(super) fn group_number(stripe: &StripeId) -> Option<i64> {
    stripe.0.strip_prefix("group_")?.split_once('_')?.0.parse().ok()
}
