//! Block groups as stripes. Derives what to report about each group from the NameNode's listings, the states
//! of DataNodes, and copies that were found bad.
//!
//! Pure: it sends no queries and stores nothing. Time is an argument, counted from the opening of the
//! storage.
//!
//! The NameNode lists only healthy replicas, not the former places of lost ones. The view therefore remembers
//! the last holder of each block. If a block is no longer listed, it is missing if that DataNode is live;
//! otherwise the whole DataNode is down.
//!
//! A block that was never listed may just be unreported: a client closes its file once k blocks of each group
//! are reported. A group that lacks such a block is *unsettled*, and is reported only after a later answer
//! lacks the block too.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::blocks::{BlockGroup, GroupBlock};
use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockRecord, BlockState, StoreChange, StripeRecord};

use crate::listing::{FileRef, Phase, Service, Standing};

/// A block of a live DataNode counts as missing after being unlisted for this long, because a block report
/// consists of several messages.
const PATIENCE: Duration = Duration::from_secs(5);
/// A block that was never listed counts as missing this long after its file was first seen closed.
const SETTLING: Duration = Duration::from_secs(10);
/// The same for an open file, from the time at which the group was first seen. By then the writer has moved
/// on to a later group.
const OPEN_SETTLING: Duration = Duration::from_secs(60);
/// A group counts as removed after this many consecutive listings without it. A single listing may omit a
/// group whose folder is renamed during the listing.
const MISSED_LISTINGS: u8 = 2;

/// A group as listed, with DataNodes by number.
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
struct Held {
    listed: Listed,
    /// The time at which the query was sent.
    asked: Duration,
    /// Answers to queries sent from this time on list all blocks that exist.
    settles: Duration,
    /// The last holders of blocks that are no longer listed, and since when.
    former: Vec<(u8, NodeId, Duration)>,
    /// Number of consecutive listings without this group.
    missed: u8,
}

/// The last report about a group.
struct Told {
    stripe: StripeId,
    /// A hash of the holders and states of the blocks.
    fingerprint: u64,
}

/// A DataNode.
struct Node {
    standing: Option<Standing>,
    /// The time from which the DataNode is live and its blocks are known.
    up_since: Option<Duration>,
    /// The time of its last block report when it was last seen down.
    reported: u64,
}

/// The view; see the module's documentation.
#[derive(Default)]
pub(super) struct View {
    groups: BTreeMap<i64, Held>,
    nodes: BTreeMap<NodeId, Node>,
    /// The nodes in service, as last reported.
    serving: BTreeSet<NodeId>,
    /// Copies that were found bad, by the block's index in the stripe.
    bad: BTreeMap<StripeId, BTreeMap<(u16, NodeId), BlockState>>,
    /// The last report about each group, by the group's number.
    told: BTreeMap<i64, Told>,
    /// Records of bad copies that no longer exist.
    pointless: Vec<(StripeId, u16, NodeId)>,
    /// Groups whose state may change without a new listing: when time passes, or when a DataNode returns.
    unsure: BTreeSet<i64>,
    /// Groups that are not reported yet, because some of their blocks may be unreported.
    unsettled: BTreeSet<i64>,
    /// Whether a full listing was recorded.
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

    /// Whether every block was listed at some time, or has had enough time to be.
    fn is_settled(&self, blocks: &[GroupBlock]) -> bool {
        let has = |index: u8| self.listed.homes.iter().any(|&(other, _)| other == index);
        let had = |index: u8| self.former.iter().any(|&(other, ..)| other == index);
        let mut indices = blocks.iter().map(|block| block.index.0 as u8);
        self.asked >= self.settles || indices.all(|index| has(index) || had(index))
    }
}

impl View {
    /// Records the states of DataNodes. DataNodes that are not in the list are down.
    pub fn take_nodes(&mut self, now: Duration, standings: Vec<(NodeId, Standing)>) {
        let mut all: BTreeMap<NodeId, Standing> = BTreeMap::new();
        for (id, standing) in standings {
            // A DataNode that was reinstalled under its old address is listed twice; the live entry wins.
            if all.get(&id).is_none_or(|other| !other.live) {
                all.insert(id, standing);
            }
        }
        for (id, node) in &mut self.nodes {
            if !all.contains_key(id) {
                (node.standing, node.up_since) = (None, None);
            }
        }
        for (id, standing) in all {
            let node = self.nodes.entry(id).or_insert(Node { standing: None, up_since: None, reported: 0 });
            node.take(now, standing);
        }
    }

    /// Records groups, either all (`all`) or some, as answered to a query sent at `asked`. Returns the groups
    /// whose state may have changed.
    pub fn take_groups(
        &mut self,
        now: Duration,
        asked: Duration,
        listed: Vec<Listed>,
        all: bool,
    ) -> BTreeSet<i64> {
        let mut changed = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let is_first = !self.is_listed && self.all_have_reported();
        for listed in listed {
            let number = listed.group.number;
            // A renamed file may be listed in its folder and in a snapshot. The folder is listed first, and
            // its path is kept.
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
        changed.extend(std::mem::take(&mut self.unsure));
        changed
    }

    fn take_group(&mut self, now: Duration, asked: Duration, listed: Listed, is_first: bool) -> bool {
        let number = listed.group.number;
        let Some(held) = self.groups.get_mut(&number) else {
            self.groups.insert(number, Held::new(listed, asked, is_first));
            return true;
        };
        if asked < held.asked {
            return false;
        }
        (held.asked, held.missed) = (asked, 0);
        if held.listed.phase == Phase::Open && listed.phase != Phase::Open {
            held.settles = asked + SETTLING;
        }
        if held.listed == listed {
            return false;
        }
        if held.listed.group != listed.group {
            *held = Held::new(listed, asked, false);
            return true;
        }
        let has = |homes: &[(u8, NodeId)], index: u8| homes.iter().any(|&(other, _)| other == index);
        held.former.retain(|&(index, ..)| !has(&listed.homes, index));
        for &(index, node) in &held.listed.homes {
            if !has(&listed.homes, index) && !held.former.iter().any(|&(other, ..)| other == index) {
                held.former.push((index, node, now));
            }
        }
        held.listed = listed;
        true
    }

    /// Whether all live DataNodes have reported their blocks. After a restart of the NameNode, some have not.
    fn all_have_reported(&self) -> bool {
        let mut standings = self.nodes.values().filter_map(|node| node.standing.as_ref());
        standings.all(|standing| !standing.live || standing.reported != 0)
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

    /// Removes a group that no longer exists.
    pub fn drop_group(&mut self, number: i64) {
        self.groups.remove(&number);
    }

    /// The last listing of a stripe's group.
    pub fn listed(&self, stripe: &StripeId) -> Option<&Listed> {
        let number = group_number(stripe)?;
        let listed = &self.groups.get(&number)?.listed;
        (listed.group.stripe_id() == *stripe).then_some(listed)
    }

    /// A group, if it was queried at `asked` or later.
    pub fn fresh(&self, number: i64, asked: Duration) -> Option<&Listed> {
        self.groups.get(&number).filter(|held| held.asked >= asked).map(|held| &held.listed)
    }

    /// Number of groups that are not reported yet.
    pub fn unsettled(&self) -> usize {
        self.unsettled.len()
    }

    /// Unsettled groups to be queried again, because their DataNodes have had time to report.
    pub fn due(&self, now: Duration, most: usize) -> Vec<Listed> {
        let held = self.unsettled.iter().filter_map(|number| self.groups.get(number));
        let due = held.filter(|held| held.settles <= now);
        due.take(most).map(|held| held.listed.clone()).collect()
    }

    /// Whether a copy was found bad.
    pub fn is_bad(&self, stripe: &StripeId, at: u16, node: NodeId) -> bool {
        self.bad.get(stripe).is_some_and(|bad| bad.contains_key(&(at, node)))
    }

    /// Whether a DataNode can receive blocks.
    pub fn may_take(&self, node: NodeId) -> bool {
        self.standing(node).is_some_and(|standing| standing.live && standing.service == Service::Normal)
    }

    /// The state of a DataNode; `None` if the NameNode does not list it.
    pub fn standing(&self, node: NodeId) -> Option<&Standing> {
        self.nodes.get(&node)?.standing.as_ref()
    }

    /// Whether the blocks on a DataNode count as in service. As in HDFS, they do during maintenance.
    fn serves(&self, node: NodeId) -> bool {
        self.standing(node).is_some_and(|standing| standing.live || standing.service == Service::Maintenance)
    }

    /// Removes a node that was forgotten.
    pub fn forget_node(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.serving.remove(&node);
    }

    /// Assumes that a node is in service if it registers before the first listing.
    pub fn assume_service(&mut self, node: NodeId) -> Option<StoreChange> {
        (self.nodes.is_empty() && self.serving.insert(node)).then_some(StoreChange::Service(node, true))
    }

    /// The changes of service since the last report.
    pub fn tell_service(&mut self) -> Vec<StoreChange> {
        let now: BTreeSet<NodeId> = self.nodes.keys().copied().filter(|&node| self.serves(node)).collect();
        let came = now.difference(&self.serving).map(|&node| StoreChange::Service(node, true));
        let went = self.serving.difference(&now).map(|&node| StoreChange::Service(node, false));
        let changes = came.chain(went).collect();
        self.serving = now;
        changes
    }

    /// A group as a stripe; `None` if the group is empty or unsettled.
    fn stripe(&mut self, now: Duration, number: i64) -> Option<StripeRecord> {
        self.unsettled.remove(&number);
        let held = self.groups.get(&number)?;
        let shape = held.listed.group.stripe()?;
        if !held.is_settled(&shape.blocks) {
            self.unsettled.insert(number);
            self.unsure.insert(number);
            return None;
        }
        let id = held.listed.group.stripe_id();
        let mut is_unsure = false;
        let blocks = shape.blocks.iter().zip(0..).map(|(block, at)| {
            let (holder, unsure) = self.holder(now, held, &id, block, at);
            is_unsure |= unsure;
            BlockRecord {
                id: block.name.block_id(),
                bytes: block.bytes,
                node: holder.map(|(node, _)| node),
                state: holder.map_or(BlockState::Missing, |(_, state)| state),
                replicas: Vec::new(), // HDFS removes surplus replicas by its own rules.
                digest: None,
            }
        });
        let blocks = blocks.collect();
        if is_unsure {
            self.unsure.insert(number);
        }
        Some(StripeRecord {
            id,
            code: shape.code,
            block_bytes: shape.block_bytes,
            chunk_bytes: None,
            blocks,
            file: None,
        })
    }

    /// The holder of a block, or its last holder, and the block's state there. The flag is true if this may
    /// change without a new listing.
    fn holder(
        &self,
        now: Duration,
        held: &Held,
        stripe: &StripeId,
        block: &GroupBlock,
        at: u16,
    ) -> (Option<(NodeId, BlockState)>, bool) {
        let index = block.index.0 as u8;
        let bad = self.bad.get(stripe);
        let state = |node| bad.and_then(|bad| bad.get(&(at, node))).copied().unwrap_or(BlockState::Healthy);
        let homes = held.listed.homes.iter().filter(|(other, _)| *other == index);
        let best = homes
            .map(|&(_, node)| (node, state(node)))
            .min_by_key(|&(node, state)| (state != BlockState::Healthy, !self.may_take(node), node));
        if best.is_some() {
            return (best, false);
        }
        let Some(&(_, node, since)) = held.former.iter().find(|(other, ..)| *other == index) else {
            return (None, false);
        };
        if !self.serves(node) {
            return (Some((node, BlockState::Healthy)), true); // The node is down, with the block.
        }
        // After a DataNode comes up, the NameNode lists it as live before its blocks are reported.
        let known = self.nodes.get(&node).and_then(|node| node.up_since).map(|up| up.max(since));
        let is_certain = known.is_some_and(|known| now >= known + PATIENCE);
        let state = if is_certain { BlockState::Missing } else { BlockState::Healthy };
        (Some((node, state)), true)
    }

    /// Returns the states of these groups that differ from the last report.
    pub fn tell(&mut self, now: Duration, groups: impl IntoIterator<Item = i64>) -> Vec<StoreChange> {
        let mut changes = Vec::new();
        for number in groups {
            let stripe = self.stripe(now, number);
            // Also if the report is unchanged: the listed copy may be another one.
            stripe.iter().for_each(|stripe| self.forget_marks(stripe, number));
            let before = self.told.get(&number);
            let is_same = |(before, stripe): (&Told, &StripeRecord)| {
                before.stripe == stripe.id && before.fingerprint == fingerprint(stripe)
            };
            if before.zip(stripe.as_ref()).is_some_and(is_same) {
                continue;
            }
            if let Some(before) = before.map(|before| before.stripe.clone())
                && stripe.as_ref().is_none_or(|now| now.id != before)
            {
                let marks = self.bad.remove(&before).unwrap_or_default().into_keys();
                self.pointless.extend(marks.map(|(index, node)| (before.clone(), index, node)));
                changes.push(StoreChange::StripeGone(before));
                self.told.remove(&number);
            }
            if let Some(stripe) = stripe {
                let told = Told { stripe: stripe.id.clone(), fingerprint: fingerprint(&stripe) };
                self.told.insert(number, told);
                changes.push(StoreChange::Stripe(stripe, false));
            }
        }
        changes
    }

    /// Forgets the states of bad copies that are no longer listed.
    fn forget_marks(&mut self, stripe: &StripeRecord, number: i64) {
        let (Some(held), Some(bad)) = (self.groups.get(&number), self.bad.get_mut(&stripe.id)) else {
            return;
        };
        let Some(shape) = held.listed.group.stripe() else { return };
        let is_listed = |at: u16, node: NodeId| {
            let block = shape.blocks.get(usize::from(at));
            block.is_some_and(|block| held.listed.homes.contains(&(block.index.0 as u8, node)))
        };
        let gone: Vec<(u16, NodeId)> =
            bad.keys().copied().filter(|&(at, node)| !is_listed(at, node)).collect();
        for key in gone {
            bad.remove(&key);
            self.pointless.push((stripe.id.clone(), key.0, key.1));
        }
    }

    /// The complete current state, for a new listener.
    pub fn everything(&mut self, now: Duration) -> Vec<StoreChange> {
        self.told.clear();
        let assumed: Vec<NodeId> = match self.nodes.is_empty() {
            true => self.serving.iter().copied().collect(),
            false => {
                self.serving.clear();
                Vec::new()
            }
        };
        let mut changes: Vec<_> = assumed.into_iter().map(|node| StoreChange::Service(node, true)).collect();
        if !self.nodes.is_empty() {
            changes.extend(self.tell_service());
        }
        let all: Vec<i64> = self.groups.keys().copied().collect();
        changes.extend(self.tell(now, all));
        changes
    }

    /// All stripes.
    pub fn stripes(&mut self, now: Duration) -> Vec<StripeRecord> {
        let all: Vec<i64> = self.groups.keys().copied().collect();
        all.into_iter().filter_map(|number| self.stripe(now, number)).collect()
    }

    /// Records the state of a copy. Returns the number of its group.
    pub fn set_state(&mut self, stripe: &StripeId, at: u16, node: NodeId, state: BlockState) -> Option<i64> {
        match state {
            BlockState::Healthy => {
                if let Some(bad) = self.bad.get_mut(stripe) {
                    bad.remove(&(at, node));
                }
            }
            bad => drop(self.bad.entry(stripe.clone()).or_default().insert((at, node), bad)),
        }
        group_number(stripe)
    }

    /// Takes the records of bad copies that no longer exist.
    pub fn pointless_marks(&mut self) -> Vec<(StripeId, u16, NodeId)> {
        std::mem::take(&mut self.pointless)
    }

    /// Number of blocks on each DataNode.
    pub fn block_counts(&self) -> BTreeMap<NodeId, usize> {
        let mut counts = BTreeMap::new();
        for &(_, node) in self.groups.values().flat_map(|held| &held.listed.homes) {
            *counts.entry(node).or_default() += 1;
        }
        counts
    }

    /// The index in the group of a stripe's block.
    pub fn index_in_group(&self, stripe: &StripeId, at: BlockIndex) -> Option<u8> {
        let shape = self.listed(stripe)?.group.stripe()?;
        Some(shape.blocks.get(usize::from(at.0))?.index.0 as u8)
    }
}

impl Node {
    fn take(&mut self, now: Duration, standing: Standing) {
        if !standing.live {
            (self.up_since, self.reported) = (None, standing.reported);
        } else if standing.reported == 0 {
            self.up_since = None; // The NameNode was restarted and waits for block reports.
        } else if self.up_since.is_none() {
            // After a DataNode comes up, it is live before its blocks are reported.
            self.up_since = (standing.reported != self.reported).then_some(now);
        }
        self.standing = Some(standing);
    }
}

fn fingerprint(stripe: &StripeRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    for block in &stripe.blocks {
        (block.bytes, block.node.map(|node| node.0), block.state as u8).hash(&mut hasher);
    }
    hasher.finish()
}

/// The number of a stripe's group.
pub(super) fn group_number(stripe: &StripeId) -> Option<i64> {
    stripe.0.strip_prefix("group_")?.split_once('_')?.0.parse().ok()
}

#[cfg(test)]
#[path = "view/tests.rs"]
mod tests;
