//! The block groups as the NameNode lists them, and the last holders of their blocks. The stripes of raided
//! files are kept like groups. Pure: this module sends no queries and stores nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::BlockState;

use super::coded::{Coded, is_raid, number_of};
use super::members::Members;
use super::names::{FolderId, Names, Place};
use super::plain_stripes::PlainStripes;
use super::recounts::Count;
use crate::blocks::GroupBlock;
use crate::listing::{FileRef, Phase};

/// A block that was never listed is treated as missing this long after its file was first seen closed.
pub(super) const SETTLING: Duration = Duration::from_secs(10);
/// In a file that is still open, a block that was never listed is treated as missing this long after its
/// group was first seen. By then, the writer has moved on to a later group.
pub(super) const OPEN_SETTLING: Duration = Duration::from_secs(60);
/// A block that was listed before counts as missing if answers lack it for this long. While a DataNode moves a
/// block from one disk to another, the NameNode may list neither for a moment.
pub(super) const CONFIRMING: Duration = Duration::from_secs(1);
/// A group is dropped after this many consecutive listings without it. One is not enough, because a listing
/// misses a folder that is moved at the same time.
const MISSED_LISTINGS: u8 = 2;

/// A group as listed, with DataNodes as Mend's node numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub file: FileRef,
    /// The file's folder and name; `None` if the answer lacks them.
    pub place: Option<Place>,
    pub phase: Phase,
    pub start: u64,
    pub group: Coded,
    /// The healthy replicas: index in the group and holder.
    pub homes: Vec<(u8, NodeId)>,
}

impl Listed {
    /// Whether a DataNode has another block of the group, but none of these. The NameNode lists only one block of a
    /// group on each DataNode, so the DataNode must not get one of these blocks.
    pub fn is_beside(&self, indices: &[u8], node: NodeId) -> bool {
        let there = || self.homes.iter().filter(|&&(_, home)| home == node);
        there().next().is_some() && !there().any(|(index, _)| indices.contains(index))
    }

    /// Whether the block of a raided file has several replicas, so that it survives the loss of a DataNode.
    pub fn has_spare(&self, index: u8) -> bool {
        self.group.raid().is_some()
            && self.homes.iter().filter(|&&(other, _)| other == index).nth(1).is_some()
    }

    /// Compares the listed replicas of a group's blocks, which should have one each. HDFS may keep others on DataNodes
    /// for which `counts` returns false.
    pub fn count(&self, counts: impl Fn(NodeId) -> bool) -> Count {
        let is_another = |index: u8, node: NodeId| {
            let mut others = self.homes.iter().filter(|&&(other, home)| other == index && home != node);
            others.any(|&(_, home)| counts(home) && counts(node))
        };
        match self.homes.iter().any(|&(index, node)| is_another(index, node)) {
            true => Count::Surplus,
            false => Count::Agreed,
        }
    }

    /// Whether all of these blocks are listed.
    pub fn has_all(&self, blocks: &[GroupBlock]) -> bool {
        blocks.iter().all(|block| self.homes.iter().any(|&(other, _)| other == block.index.0 as u8))
    }

    /// Whether a DataNode has a block of the group other than this one.
    pub fn has_other(&self, index: u8, node: NodeId) -> bool {
        self.homes.iter().any(|&(other, home)| home == node && other != index)
    }
}

/// The last report about a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub stripe: StripeId,
    /// A hash of the holders and states of the blocks.
    pub fingerprint: u64,
}

/// A group with its history.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub listed: Listed,
    /// The time at which the query for the last answer was sent.
    asked: Duration,
    /// The time since which all answers list the same replicas; zero if the group has had no history.
    moved: Duration,
    /// If a query for the group was sent at this time or later, the answer lists all blocks that exist.
    pub settles: Duration,
    /// Blocks that are no longer listed: index in the group, last holder, and the time at which the loss was
    /// seen.
    former: Vec<(u8, NodeId, Duration)>,
    /// Number of consecutive listings without this group.
    missed: u8,
    /// The last report about the group.
    pub told: Option<Told>,
}

/// All listed block groups. Nearly all are plain, and were reported as such.
#[derive(Default)]
pub(super) struct Groups {
    plain: PlainStripes,
    /// The other groups: with damage, or not reported yet.
    held: BTreeMap<i64, Held>,
    names: Names,
    /// The blocks of raided files.
    members: Members,
    /// The number of listed blocks of each DataNode.
    block_counts: BTreeMap<NodeId, usize>,
    /// Groups of files that exist only in snapshots, with their files.
    in_snapshots: BTreeMap<i64, u64>,
    /// Groups that were removed since the last complete listing, and when. Answers to earlier queries may
    /// still list them.
    removed: BTreeMap<i64, Duration>,
    /// Groups that were removed, with the last report about each, for the next report.
    gone: Vec<(i64, Option<Told>)>,
    /// Groups that a complete listing lacked for the first time, with their files.
    missed: Vec<(i64, u64)>,
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
        Self { listed, asked, moved: asked, settles, former: Vec::new(), missed: 0, told: None }
    }

    /// Returns a plain group with its history: nothing was lost, and it was reported.
    fn of((listed, asked): (Listed, Duration)) -> Self {
        let blocks = listed.group.stripe().map(|shape| shape.blocks).unwrap_or_default();
        let homes = blocks.iter().zip(&listed.homes);
        let fingerprint =
            fingerprint(homes.map(|(block, &(_, node))| (block.bytes, Some(node), BlockState::Healthy)));
        let told = Some(Told { stripe: listed.group.stripe_id(), fingerprint });
        let (moved, settles) = (Duration::ZERO, Duration::ZERO);
        Self { listed, asked, moved, settles, former: Vec::new(), missed: 0, told }
    }

    /// Whether the group is settled and has no history.
    fn is_quiet(&self) -> bool {
        let is_quiet = self.former.is_empty() && self.missed == 0 && self.told.is_some();
        is_quiet && self.listed.phase != Phase::Open
    }

    /// Whether every block was listed at some time, or DataNodes have had enough time to report the blocks.
    pub fn is_settled(&self, blocks: &[GroupBlock]) -> bool {
        let has = |index: u8| self.listed.homes.iter().any(|&(other, _)| other == index);
        let mut indices = blocks.iter().map(|block| block.index.0 as u8);
        self.asked >= self.settles || indices.all(|index| has(index) || self.last_home(index).is_some())
    }

    /// Returns the time at which the query for the last answer was sent.
    pub fn asked(&self) -> Duration {
        self.asked
    }

    /// Returns the time since which all answers list the same replicas.
    pub fn moved(&self) -> Duration {
        self.moved
    }

    /// Whether a DataNode has a block of the group, or had one before this block was lost.
    pub fn has_had(&self, node: NodeId) -> bool {
        let is_listed = self.listed.homes.iter().any(|&(_, home)| home == node);
        is_listed || self.former.iter().any(|&(_, home, _)| home == node)
    }

    /// Returns the last DataNode that held a lost block, and the time since which the block is lost.
    pub fn last_home(&self, index: u8) -> Option<(NodeId, Duration)> {
        self.former.iter().find(|&&(other, ..)| other == index).map(|&(_, node, since)| (node, since))
    }

    /// Whether an answer that was asked for long enough after `since` still lacks the block that was first seen
    /// unlisted at that time.
    pub fn is_confirmed(&self, since: Duration) -> bool {
        self.asked >= since + CONFIRMING
    }

    /// Returns the last time at which a block was first seen unlisted; `None` if all known blocks are listed.
    pub fn missing_since(&self) -> Option<Duration> {
        self.former.iter().map(|&(.., since)| since).max()
    }

    /// Records a later listing of the same group; returns whether it differs from the previous one.
    fn take(&mut self, now: Duration, asked: Duration, mut listed: Listed) -> bool {
        listed.place = listed.place.or(self.listed.place);
        (self.asked, self.missed) = (asked, 0);
        // A group that was reported stays reported: if it were gone for a moment, the coordinator would forget which of
        // its blocks are wrong.
        if self.listed.phase == Phase::Open && listed.phase != Phase::Open && self.told.is_none() {
            self.settles = asked + SETTLING;
        }
        if self.listed == listed {
            return false;
        }
        if self.listed.group != listed.group {
            *self = Self { told: self.told.take(), ..Self::new(listed, asked, false) };
            return true;
        }
        if self.listed.homes != listed.homes {
            self.moved = now;
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
        let asked = Duration::from_millis(asked.as_millis() as u64); // As precise as it is kept.
        let mut changed = BTreeSet::new();
        let is_first = !self.is_listed && all_reported;
        for listed in listed {
            let number = listed.group.number();
            if self.take_group(now, asked, listed, is_first) {
                changed.insert(number);
            }
        }
        if all {
            self.drop_unlisted(asked);
            self.is_listed = true;
        }
        changed
    }

    fn take_group(&mut self, now: Duration, asked: Duration, mut listed: Listed, is_first: bool) -> bool {
        let number = listed.group.number();
        // One millisecond more, since the time of the query was rounded down.
        if self.removed.get(&number).is_some_and(|removed| asked + Duration::from_millis(1) <= *removed) {
            return false;
        }
        let before = self.get(number).map(Cow::into_owned);
        let was_plain = before.is_some() && !self.is_held(number);
        if let Some(before) = &before {
            // A renamed file may be listed in its folder and in a snapshot. The path in the folder is listed
            // first, and is kept.
            let is_twice = before.asked == asked && before.listed.file.held_at.is_none();
            if asked < before.asked || (is_twice && listed.file.held_at.is_some()) {
                return false;
            }
        }
        listed.homes.sort_unstable();
        let place_before = before.as_ref().and_then(|before| before.listed.place);
        let homes_before = before.as_ref().map(|before| before.listed.homes.clone()).unwrap_or_default();
        let group_before = before.as_ref().map(|before| before.listed.group.clone());
        let (held, is_changed) = match before {
            Some(mut held) => {
                let is_changed = held.take(now, asked, listed);
                (held, is_changed)
            }
            None => (Held::new(listed, asked, is_first), true),
        };
        self.note_place(number, place_before, held.listed.place);
        self.members.replace(group_before.as_ref(), Some(&held.listed.group));
        self.count(&homes_before, &held.listed.homes);
        match held.listed.file.held_at {
            Some(_) => self.in_snapshots.insert(number, held.listed.file.inode),
            None => self.in_snapshots.remove(&number),
        };
        let stays_plain = was_plain && !is_changed && held.is_quiet();
        if !stays_plain || !self.plain.insert(&held.listed, held.asked) {
            self.hold(number, held, was_plain);
        }
        is_changed
    }

    /// Keeps a group with its history.
    fn hold(&mut self, number: i64, held: Held, was_plain: bool) {
        self.held.insert(number, held);
        if was_plain {
            self.plain.remove(number);
        }
    }

    fn note_place(&mut self, number: i64, before: Option<Place>, place: Option<Place>) {
        if before != place {
            before.iter().for_each(|before| self.names.remove(*before, number));
            place.iter().for_each(|place| self.names.insert(*place, number));
        }
    }

    fn count(&mut self, before: &[(u8, NodeId)], homes: &[(u8, NodeId)]) {
        if before == homes {
            return;
        }
        for (_, node) in homes {
            *self.block_counts.entry(*node).or_default() += 1;
        }
        for (_, node) in before {
            *self.block_counts.entry(*node).or_default() -= 1;
        }
    }

    /// Returns a group with its history, to be changed; `None` if it is unknown.
    pub fn held_mut(&mut self, number: i64) -> Option<&mut Held> {
        if !self.is_held(number)
            && let Some(plain) = self.plain.get(number)
        {
            self.hold(number, Held::of(plain), true);
        }
        self.held.get_mut(&number)
    }

    /// Whether a group has a history, or was not reported as it is.
    pub fn is_held(&self, number: i64) -> bool {
        self.held.contains_key(&number)
    }

    /// Drops the history of a group if it is plain and was reported as it is.
    pub fn settle(&mut self, number: i64) {
        let quiet = self.held.get(&number).filter(|held| held.is_quiet());
        if quiet.is_some_and(|held| self.plain.insert(&held.listed, held.asked)) {
            self.held.remove(&number);
        }
    }

    /// Removes groups if they belong to these files.
    pub fn remove(&mut self, now: Duration, gone: &[(i64, u64)]) {
        for &(number, inode) in gone {
            if self.inode(number) == Some(inode) {
                self.forget(number);
                self.removed.insert(number, now);
            }
        }
    }

    /// Returns the groups that complete listings have lacked for the first time since the last call, with their files.
    pub fn take_missed(&mut self) -> Vec<(i64, u64)> {
        std::mem::take(&mut self.missed)
    }

    /// Returns the groups that were removed since the last call, with the last report about each.
    pub fn take_gone(&mut self) -> Vec<(i64, Option<Told>)> {
        std::mem::take(&mut self.gone)
    }

    /// Returns the inode number of a group's file.
    pub fn inode(&self, number: i64) -> Option<u64> {
        match self.held.get(&number) {
            Some(held) => Some(held.listed.file.inode),
            None => self.plain.inode(number),
        }
    }

    fn forget(&mut self, number: i64) {
        let Some(held) = self.get(number).map(Cow::into_owned) else { return };
        if self.held.remove(&number).is_none() {
            self.plain.remove(number);
        }
        self.in_snapshots.remove(&number);
        self.note_place(number, held.listed.place, None);
        self.members.replace(Some(&held.listed.group), None);
        self.count(&held.listed.homes, &[]);
        self.gone.push((number, held.told));
    }

    /// Returns the known groups of the file at this place that a query sent at `asked` did not list.
    pub fn older_at(&self, place: Place, asked: Duration) -> Vec<(i64, u64)> {
        let asked = Duration::from_millis(asked.as_millis() as u64);
        let older = |number| {
            let held = self.get(number).filter(|held| held.asked < asked)?;
            Some((number, held.listed.file.inode))
        };
        self.names.of_file(place).filter_map(older).collect()
    }

    /// Returns the groups of files that exist only in snapshots, with their files.
    pub fn in_snapshots(&self) -> &BTreeMap<i64, u64> {
        &self.in_snapshots
    }

    /// Returns the folders and names of files.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the number of a folder.
    pub fn folder(&mut self, path: &str) -> FolderId {
        self.names.folder(path)
    }

    /// Records that a file or folder was renamed.
    pub fn rename(&mut self, from: &str, to: &str) {
        let Some((place, numbers)) = self.names.rename(from, to) else { return };
        for number in numbers {
            let Some(mut held) = self.get(number).map(Cow::into_owned) else { continue };
            let before = held.listed.place.replace(place);
            self.note_place(number, before, Some(place));
            let stays_plain = !self.is_held(number) && held.is_quiet();
            if !stays_plain || !self.plain.insert(&held.listed, held.asked) {
                self.held.insert(number, held);
            }
        }
    }

    fn drop_unlisted(&mut self, asked: Duration) {
        for number in self.plain.asked_before(asked) {
            self.held_mut(number);
        }
        let mut gone = Vec::new();
        for (&number, held) in &mut self.held {
            if held.asked < asked {
                held.missed += 1;
                if held.missed >= MISSED_LISTINGS {
                    gone.push(number);
                } else {
                    self.missed.push((number, held.listed.file.inode));
                }
            }
        }
        gone.into_iter().for_each(|number| self.forget(number));
        self.removed.retain(|_, removed| *removed > asked);
        self.names.prune();
    }

    /// Returns the numbers of all groups.
    pub fn numbers(&self) -> Vec<i64> {
        let mut numbers = self.plain.numbers();
        numbers.extend(self.held.keys());
        numbers.sort_unstable();
        numbers
    }

    /// Returns the group with this number.
    pub fn get(&self, number: i64) -> Option<Cow<'_, Held>> {
        match self.held.get(&number) {
            Some(held) => Some(Cow::Borrowed(held)),
            None => self.plain.get(number).map(|plain| Cow::Owned(Held::of(plain))),
        }
    }

    /// Returns the last listing of a stripe's group.
    pub fn listed(&self, stripe: &StripeId) -> Option<Listed> {
        let listed = self.get(number_of(stripe)?)?.into_owned().listed;
        (listed.group.stripe_id() == *stripe).then_some(listed)
    }

    /// Returns the number of the stripe to which the NameNode's lists refer by this number: that of a group,
    /// or of a block of a raided file.
    pub fn stripe_of(&self, number: i64) -> Option<i64> {
        if is_raid(number) { self.members.stripe_of(number) } else { Some(number) }
    }

    /// Returns the number of listed blocks of each DataNode.
    pub fn block_counts(&self) -> &BTreeMap<NodeId, usize> {
        &self.block_counts
    }

    /// Converts a block's index in the stripe into its index in the HDFS group.
    pub fn index_in_group(&self, stripe: &StripeId, at: BlockIndex) -> Option<u8> {
        let shape = self.listed(stripe)?.group.stripe()?;
        Some(shape.blocks.get(usize::from(at.0))?.index.0 as u8)
    }
}

/// Returns a hash of the lengths, holders and states of a group's blocks.
pub(super) fn fingerprint(blocks: impl Iterator<Item = (u64, Option<NodeId>, BlockState)>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (bytes, node, state) in blocks {
        (bytes, node.map(|node| node.0), state as u8).hash(&mut hasher);
    }
    hasher.finish()
}
