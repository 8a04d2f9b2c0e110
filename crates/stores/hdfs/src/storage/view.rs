//! Block groups as stripes. Derives what to report about each group from the NameNode's listings, the states
//! of DataNodes, and copies that were found missing or corrupt.
//!
//! Pure: it sends no queries and stores nothing. Time is an argument, counted from the opening of the
//! storage.
//!
//! The NameNode lists only healthy replicas, not the former holders of lost replicas. The view therefore
//! remembers the last holder of each block. A block that is no longer listed is reported as missing if its
//! last holder is in service. If the last holder is not in service, that whole node is down, and the block is
//! reported on it, in the state in which the copy was last found.
//!
//! NameNodes do not list replicas on DataNodes in maintenance. A block that was never listed is therefore reported on such
//! a DataNode if the NameNode's lists of losses, which count these replicas as present, do not name the group. While the
//! lists cannot be read, such a block counts as lost.
//!
//! A block that was never listed may just be unreported: a client closes its file once k blocks of each group
//! are reported. A group with such a block is *unsettled*. It is reported to the coordinator only once the
//! block is listed, or a later answer lacks the block too. Unsettled groups of the first complete listing are *late*:
//! the coordinator must not take them for new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use attached::{BadCopies, CopyId};
use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockRecord, BlockState, OtherData, StoreChange, StripeRecord};

use super::coded::number_of;
use super::datanodes::{DataNodes, PATIENCE};
use super::groups::{CONFIRMING, Groups, Held, Listed, Told, fingerprint};
use crate::blocks::GroupBlock;
use crate::listing::{Service, Standing};

/// HDFS deletes a corrupt copy within this time after all blocks of the group are live. If the NameNode is restarted before,
/// it takes the copy for good.
const DELETING: Duration = Duration::from_secs(600);

/// When the state of a block, or what is known of its bad copies, may change although no answer is different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ends {
    Never,
    /// When a DataNode enters or leaves service, or the NameNode's lists of losses can be read again.
    WithService,
    /// When time passes.
    InTime,
}

/// The groups and DataNodes as the NameNode last listed them, and findings about copies.
#[derive(Default)]
pub(super) struct View {
    groups: Groups,
    nodes: DataNodes,
    /// Copies that were found missing or corrupt, by the block's index in the stripe.
    bad: BadCopies,
    /// Groups whose state may change when DataNodes enter or leave service, or the lists of losses can be read again.
    unsure: BTreeSet<i64>,
    /// Groups whose state may change when time passes.
    waiting: BTreeSet<i64>,
    /// Groups that were not reported to the coordinator yet, because DataNodes may not have reported some of
    /// their blocks.
    unsettled: BTreeSet<i64>,
    /// The groups of the first complete listing that were not settled then. The first one is still unsettled.
    late: BTreeSet<i64>,
    /// Groups with several blocks on one DataNode, and one such DataNode.
    doubled: BTreeMap<i64, NodeId>,
    /// The groups on the NameNode's lists of losses when these were last read; `None` while they cannot be read.
    lacking: Option<BTreeSet<i64>>,
}

impl View {
    /// Returns the block groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Returns the block groups, to record changes of the namespace.
    pub fn groups_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }

    /// Returns the DataNodes.
    pub fn nodes(&self) -> &DataNodes {
        &self.nodes
    }

    /// Records the states of DataNodes. Returns the DataNodes that entered or left service.
    pub fn take_nodes(&mut self, now: Duration, standings: Vec<(NodeId, Standing)>) -> Vec<StoreChange> {
        self.nodes.take(now, standings);
        self.nodes.tell_service()
    }

    /// Returns the DataNodes that entered or left service. Their groups are reported first, so that no block counts
    /// as readable on a DataNode that has come back without it.
    pub fn tell_service(&mut self) -> Vec<StoreChange> {
        self.nodes.tell_service()
    }

    /// See [`DataNodes::recall_needed`].
    pub fn recall_needed(&mut self, needed: BTreeMap<NodeId, OtherData>) {
        self.nodes.recall_needed(needed);
    }

    /// See [`DataNodes::forget`].
    pub fn forget_node(&mut self, node: NodeId) {
        self.nodes.forget(node);
    }

    /// See [`DataNodes::assume_service`].
    pub fn assume_service(&mut self, node: NodeId) -> Option<StoreChange> {
        self.nodes.assume_service(node)
    }

    /// Records the groups that an answer lists. The query was sent at `asked`. `all` is true if the answer
    /// lists all groups. Returns the groups whose state may have changed.
    pub fn take_groups(
        &mut self,
        now: Duration,
        asked: Duration,
        listed: Vec<Listed>,
        all: bool,
    ) -> BTreeSet<i64> {
        if all {
            self.nodes.note_listing(now, asked);
        }
        let waited: Vec<i64> = listed.iter().map(|listed| listed.group.number()).collect();
        let waited = waited.into_iter().filter(|number| self.waiting.contains(number)).collect::<Vec<_>>();
        let mut changed = self.groups.take(now, asked, listed, all, self.nodes.all_have_reported());
        changed.extend(waited);
        if all {
            changed.extend(self.take_unsure());
        }
        changed
    }

    /// Records that all groups that lack blocks are known, by a query that was sent at `asked`: those on the NameNode's
    /// lists. Returns the groups whose state may have changed.
    pub fn note_losses(&mut self, now: Duration, asked: Duration, lacking: BTreeSet<i64>) -> BTreeSet<i64> {
        let mut changed: BTreeSet<i64> = match &self.lacking {
            Some(before) => before.symmetric_difference(&lacking).copied().collect(),
            None => self.take_unsure(),
        };
        self.lacking = Some(lacking);
        if self.nodes.note_listing(now, asked) {
            changed.append(&mut self.take_unsure());
        }
        changed
    }

    /// Records that the NameNode's lists of losses cannot be read. Returns the groups whose state may have changed.
    pub fn forget_losses(&mut self) -> BTreeSet<i64> {
        match self.lacking.take() {
            Some(_) => self.take_unsure(),
            None => BTreeSet::new(),
        }
    }

    /// Returns the groups whose state may have changed because DataNodes entered or left service.
    pub fn take_unsure(&mut self) -> BTreeSet<i64> {
        std::mem::take(&mut self.unsure)
    }

    /// Returns up to `most` groups with blocks that may be lost, and were seen unlisted long enough ago to query
    /// the group again; groups with bad copies that another query may show to be gone; and groups with blocks on
    /// DataNodes whose maintenance has ended since the last query.
    pub fn waiting(&self, now: Duration, most: usize) -> Vec<Listed> {
        let settled = self.waiting.difference(&self.unsettled);
        let held = settled.filter_map(|&number| self.groups.get(number));
        let is_missing = |held: &Held| held.missing_since().is_some_and(|since| now >= since + CONFIRMING);
        let shown_again = self.nodes.shown_again();
        let is_hidden = |held: &Held| held.asked() < shown_again;
        let due = held.filter(|held| is_missing(held) || is_hidden(held) || self.has_due_mark(now, held));
        due.take(most).map(|held| held.listed.clone()).collect()
    }

    /// Whether another query would show if a bad copy still exists.
    fn has_due_mark(&self, now: Duration, held: &Held) -> bool {
        let is_due = |since: Duration| now >= since && held.asked() < since;
        let stripe = held.listed.group.stripe_id();
        self.bad.nodes(&stripe).any(|node| self.mark_shown_since(held, node).is_some_and(is_due))
    }

    /// Returns the number of groups that were not reported to the coordinator yet.
    pub fn unsettled(&self) -> usize {
        self.unsettled.len()
    }

    /// Records that the first complete listing was reported to the coordinator. Returns the report that groups of it
    /// are late, if there are any.
    pub fn note_first_told(&mut self) -> Option<StoreChange> {
        self.late.clone_from(&self.unsettled);
        self.late_stripes()
    }

    /// Returns the report that groups are late, if there are any.
    fn late_stripes(&self) -> Option<StoreChange> {
        (!self.late.is_empty()).then_some(StoreChange::LateStripes(true))
    }

    /// Drops groups that are not late any more. Returns the report that no group is late, if these were the last ones.
    fn drop_late(&mut self) -> Option<StoreChange> {
        let were_late = !self.late.is_empty();
        while self.late.first().is_some_and(|first| !self.unsettled.contains(first)) {
            self.late.pop_first();
        }
        (were_late && self.late.is_empty()).then_some(StoreChange::LateStripes(false))
    }

    /// Returns the groups with several blocks on one DataNode, each with one such DataNode. NameNodes list only one
    /// of these blocks; the others count as lost, and were last listed there.
    pub fn doubled(&self) -> &BTreeMap<i64, NodeId> {
        &self.doubled
    }

    /// Returns up to `most` unsettled groups whose DataNodes have had time to report, so that the caller
    /// queries these groups again.
    pub fn due(&self, now: Duration, most: usize) -> Vec<Listed> {
        let held = self.unsettled.iter().filter_map(|&number| self.groups.get(number));
        let due = held.filter(|held| held.settles <= now);
        due.take(most).map(|held| held.listed.clone()).collect()
    }

    /// Whether a copy was found missing or corrupt.
    pub fn is_bad(&self, stripe: &StripeId, at: BlockIndex, node: NodeId) -> bool {
        self.bad.state(stripe, at, node) != BlockState::Healthy
    }

    /// Whether a DataNode that the NameNode lists for a block has a good copy that stays: the copy is not known to
    /// be bad, and the DataNode is not being taken out of service.
    pub fn is_good_home(&self, stripe: &StripeId, at: BlockIndex, node: NodeId) -> bool {
        let is_in_service = |standing: &Standing| standing.service == Service::Normal;
        !self.is_bad(stripe, at, node) && self.nodes.standing(node).is_none_or(is_in_service)
    }

    /// Returns a group as a stripe; `None` if the group is empty or unsettled (DataNodes may not have
    /// reported some of its blocks).
    fn stripe(&mut self, now: Duration, number: i64) -> Option<StripeRecord> {
        self.unsettled.remove(&number);
        self.unsure.remove(&number);
        self.waiting.remove(&number);
        self.doubled.remove(&number);
        let held = self.groups.get(number)?;
        let held = held.as_ref();
        let shape = held.listed.group.stripe()?;
        if !held.is_settled(&shape.blocks) {
            self.unsettled.insert(number);
            self.waiting.insert(number);
            return None;
        }
        let id = held.listed.group.stripe_id();
        let mut last_end = self.end_of_marks(held, &id);
        let mut unlisted = self.unlisted_homes(held, &id, &shape.blocks);
        if self.lacking.is_none() && !unlisted.is_empty() {
            unlisted.clear();
            last_end = last_end.max(Ends::WithService);
        }
        let blocks = shape.blocks.iter().zip((0..).map(BlockIndex)).map(|(block, at)| {
            let (holder, ends) = match unlisted.get(&at) {
                Some(&node) => (Some((node, BlockState::Healthy)), self.end_of_hiding(node)),
                None => self.holder(now, held, &id, block, at),
            };
            last_end = last_end.max(ends);
            BlockRecord {
                id: block.name.block_id(),
                bytes: block.bytes,
                node: holder.map(|(node, _)| node),
                state: holder.map_or(BlockState::Missing, |(_, state)| state),
                replicas: Vec::new(), // HDFS removes surplus replicas by its own rules.
                digest: None,
            }
        });
        let blocks: Vec<BlockRecord> = blocks.collect();
        let alone: Vec<Option<NodeId>> = (blocks.iter().zip(&shape.blocks))
            .map(|(block, of)| block.node.filter(|_| !held.listed.has_spare(of.index.0 as u8)))
            .collect();
        self.doubled.extend(shared_node(&alone).map(|node| (number, node)));
        if last_end != Ends::Never {
            self.unsure.insert(number);
        }
        if last_end == Ends::InTime {
            self.waiting.insert(number);
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

    /// Returns the holder of a block, or its last holder, and the block's state there; also whether this may
    /// change without a new listing.
    fn holder(
        &self,
        now: Duration,
        held: &Held,
        stripe: &StripeId,
        block: &GroupBlock,
        at: BlockIndex,
    ) -> (Option<(NodeId, BlockState)>, Ends) {
        let index = block.index.0 as u8;
        let state = |node| self.bad.state(stripe, at, node);
        let homes = held.listed.homes.iter().filter(|(other, _)| *other == index);
        let has_choice = homes.clone().nth(1).is_some();
        let best = homes.map(|&(_, node)| (node, state(node))).min_by_key(|&(node, state)| {
            let has_other = held.listed.has_other(index, node);
            (state != BlockState::Healthy, !self.nodes.may_take(node), has_other, node)
        });
        if best.is_some() {
            return (best, if has_choice { Ends::WithService } else { Ends::Never });
        }
        let Some((node, since)) = held.last_home(index) else { return (None, Ends::Never) };
        // Blocks on a node that is down are not listed, nor are blocks on a node in maintenance.
        if !self.nodes.serves(node) || self.nodes.is_hidden(node, held.asked()) {
            return (Some((node, state(node))), self.end_of_hiding(node));
        }
        // After a DataNode comes up, the NameNode lists it as live before its blocks are reported. The wait
        // therefore begins only when its blocks are known.
        let is_known = self.nodes.up_since(node).is_some_and(|up| now >= up + PATIENCE);
        match is_known && held.is_confirmed(since) {
            true => (Some((node, BlockState::Missing)), Ends::WithService),
            false => (Some((node, state(node))), Ends::InTime),
        }
    }

    /// Returns the DataNodes that may have blocks which no answer has listed, because they are in maintenance or were so
    /// at the last answer. There are none if the NameNode says that the group lacks blocks.
    fn unlisted_homes(
        &self,
        held: &Held,
        stripe: &StripeId,
        blocks: &[GroupBlock],
    ) -> BTreeMap<BlockIndex, NodeId> {
        let is_lacking = |lacking: &BTreeSet<i64>| lacking.contains(&held.listed.group.number());
        if held.listed.has_all(blocks) || self.lacking.as_ref().is_some_and(is_lacking) {
            return BTreeMap::new();
        }
        let mut free: Vec<NodeId> =
            self.nodes.hidden(held.asked()).filter(|&node| !held.has_had(node)).collect();
        let is_unlisted = |block: &GroupBlock| {
            !held.listed.has_all(std::slice::from_ref(block)) && held.last_home(block.index.0 as u8).is_none()
        };
        let unlisted = blocks.iter().zip((0..).map(BlockIndex)).filter(|(block, _)| is_unlisted(block));
        let homes = unlisted.filter_map(|(_, at)| {
            let is_good = |&node: &NodeId| !self.is_bad(stripe, at, node);
            Some((at, free.remove(free.iter().position(is_good)?)))
        });
        homes.collect()
    }

    /// Returns when the state of a block may change that answers lack because its DataNode is down or in maintenance. If
    /// the maintenance has ended, another answer shows the block.
    fn end_of_hiding(&self, node: NodeId) -> Ends {
        match self.nodes.serves(node) && !self.nodes.is_in_maintenance(node) {
            true => Ends::InTime,
            false => Ends::WithService,
        }
    }

    /// Returns when it may become known that bad copies no longer exist.
    fn end_of_marks(&self, held: &Held, stripe: &StripeId) -> Ends {
        let end = |node| match self.mark_shown_since(held, node) {
            _ if self.shows_mark(held, node) => Ends::Never,
            Some(_) => Ends::InTime,
            None => Ends::WithService,
        };
        self.bad.nodes(stripe).map(end).max().unwrap_or(Ends::Never)
    }

    /// Whether the last answer shows if a bad copy on a DataNode still exists. A node that was removed has none.
    fn shows_mark(&self, held: &Held, node: NodeId) -> bool {
        let is_shown = |since: Duration| held.asked() >= since;
        self.nodes.is_removed(node) || self.mark_shown_since(held, node).is_some_and(is_shown)
    }

    /// Returns the time since which queries show if a bad copy on a DataNode still exists, provided that all blocks of the
    /// group are listed; `None` while the DataNode is away or in maintenance.
    fn mark_shown_since(&self, held: &Held, node: NodeId) -> Option<Duration> {
        Some(self.nodes.shown_since(node)?.max(held.moved() + DELETING))
    }

    /// Returns the states of these groups that differ from the last report, and the groups that were removed.
    pub fn tell(&mut self, now: Duration, groups: impl IntoIterator<Item = i64>) -> Vec<StoreChange> {
        let mut changes = Vec::new();
        for (number, told) in self.groups.take_gone() {
            for groups in [&mut self.unsettled, &mut self.waiting, &mut self.unsure] {
                groups.remove(&number);
            }
            self.doubled.remove(&number);
            if let Some(Told { stripe, .. }) = told {
                self.bad.remove_stripe(&stripe);
                changes.push(StoreChange::StripeGone(stripe));
            }
        }
        for number in groups {
            if self.groups.is_held(number) || self.is_marked(number) {
                self.tell_group(now, number, &mut changes);
                if !self.is_marked(number) && !self.is_uncertain(number) {
                    self.groups.settle(number);
                }
            }
        }
        changes.extend(self.drop_late());
        changes
    }

    /// Whether a copy of a block of this group was found missing or corrupt.
    fn is_marked(&self, number: i64) -> bool {
        if self.bad.is_empty() {
            return false;
        }
        let group = self.groups.get(number);
        group.is_some_and(|held| self.bad.has_any(&held.listed.group.stripe_id()))
    }

    /// Whether a group's state may change although no answer is different.
    fn is_uncertain(&self, number: i64) -> bool {
        [&self.unsettled, &self.waiting, &self.unsure].into_iter().any(|groups| groups.contains(&number))
    }

    fn tell_group(&mut self, now: Duration, number: i64, changes: &mut Vec<StoreChange>) {
        let stripe = self.stripe(now, number);
        // Do this even if the report is unchanged, because a copy other than the reported one may have
        // disappeared.
        stripe.iter().for_each(|stripe| self.forget_marks(stripe, number));
        let Some(held) = self.groups.held_mut(number) else { return };
        let told = stripe.as_ref().map(told);
        if held.told == told {
            return;
        }
        let before = std::mem::replace(&mut held.told, told);
        if let Some(before) =
            before.filter(|before| stripe.as_ref().is_none_or(|now| now.id != before.stripe))
        {
            self.bad.remove_stripe(&before.stripe);
            changes.push(StoreChange::StripeGone(before.stripe));
        }
        changes.extend(stripe.map(|stripe| StoreChange::Stripe(stripe, false)));
    }

    /// Forgets the states of bad copies that are no longer listed, once HDFS has deleted them: it does so some time after
    /// all blocks of the group are listed. Until then, the NameNode may list a corrupt replica again: after a restart, it
    /// counts all replicas as healthy. So it does when a DataNode returns with one, so the states of its copies are kept
    /// until an answer shows that they are gone.
    fn forget_marks(&mut self, stripe: &StripeRecord, number: i64) {
        let Some(held) = self.groups.get(number) else { return };
        let held = held.as_ref();
        let Some(shape) = held.listed.group.stripe() else { return };
        if !held.listed.has_all(&shape.blocks) {
            return;
        }
        let awaited: BTreeSet<NodeId> =
            self.bad.nodes(&stripe.id).filter(|&node| !self.shows_mark(held, node)).collect();
        self.bad.retain(&stripe.id, |at, node| {
            let Some(block) = shape.blocks.get(usize::from(at.0)) else { return false };
            awaited.contains(&node) || held.listed.homes.contains(&(block.index.0 as u8, node))
        });
    }

    /// Returns the complete current state, for a new listener.
    pub fn everything(&mut self, now: Duration) -> Vec<StoreChange> {
        let mut changes = self.nodes.everything();
        for number in self.groups.numbers() {
            let stripe = self.stripe(now, number);
            if let Some(held) = self.groups.is_held(number).then(|| self.groups.held_mut(number)).flatten() {
                held.told = stripe.as_ref().map(told);
            }
            changes.extend(stripe.map(|stripe| StoreChange::Stripe(stripe, false)));
        }
        changes.extend(self.late_stripes());
        changes
    }

    /// Returns all stripes.
    pub fn stripes(&mut self, now: Duration) -> Vec<StripeRecord> {
        self.groups.numbers().into_iter().filter_map(|number| self.stripe(now, number)).collect()
    }

    /// Records the state of a copy. Returns the number of its group.
    pub fn set_state(
        &mut self,
        stripe: &StripeId,
        at: BlockIndex,
        node: NodeId,
        state: BlockState,
    ) -> Option<i64> {
        self.bad.set(stripe, at, node, state);
        number_of(stripe)
    }

    /// See [`BadCopies::take_gone`].
    pub fn take_gone(&mut self) -> Vec<CopyId> {
        self.bad.take_gone()
    }
}

/// Returns a node that has several of the blocks on these nodes.
fn shared_node(blocks: &[Option<NodeId>]) -> Option<NodeId> {
    let mut nodes = blocks.iter().copied().enumerate();
    let is_shared = |at: usize, node: NodeId| blocks[..at].contains(&Some(node));
    nodes.find_map(|(at, node)| node.filter(|&node| is_shared(at, node)))
}

/// Summarizes a report.
fn told(stripe: &StripeRecord) -> Told {
    let blocks = stripe.blocks.iter().map(|block| (block.bytes, block.node, block.state));
    Told { stripe: stripe.id.clone(), fingerprint: fingerprint(blocks) }
}

#[cfg(test)]
#[path = "view/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "view/memory.rs"]
mod memory;
