//! Block groups as stripes. Derives what to report about each group from the NameNode's listings, the states
//! of DataNodes, and copies that were found missing or corrupt.
//!
//! Pure: it sends no queries and stores nothing. Time is an argument, counted from the opening of the
//! storage.
//!
//! The NameNode lists only healthy replicas, not the former holders of lost replicas. The view therefore
//! remembers the last holder of each block. A block that is no longer listed is reported as missing if its
//! last holder is in service. If the last holder is not in service, that whole node is down, and the block is
//! reported as healthy on it.
//!
//! A block that was never listed may just be unreported: a client closes its file once k blocks of each group
//! are reported. A group with such a block is *unsettled*. It is reported to the coordinator only once the
//! block is listed, or a later answer lacks the block too.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use attached::{BadCopies, CopyId};
use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockRecord, BlockState, StoreChange, StripeRecord};

use super::datanodes::{DataNodes, PATIENCE};
use super::groups::{Groups, Held, Listed, group_number};
use crate::blocks::GroupBlock;
use crate::listing::Standing;

/// The last report about a group.
struct Told {
    stripe: StripeId,
    /// A hash of the holders and states of the blocks.
    fingerprint: u64,
}

/// The groups and DataNodes as the NameNode last listed them, and findings about copies.
#[derive(Default)]
pub(super) struct View {
    groups: Groups,
    nodes: DataNodes,
    /// Copies that were found missing or corrupt, by the block's index in the stripe.
    bad: BadCopies,
    /// The last report about each group, by the group's number.
    told: BTreeMap<i64, Told>,
    /// Groups whose state may change without a new listing: when time passes, or when a DataNode returns.
    unsure: BTreeSet<i64>,
    /// Groups that were not reported to the coordinator yet, because DataNodes may not have reported some of
    /// their blocks.
    unsettled: BTreeSet<i64>,
}

impl View {
    /// Returns the block groups.
    pub fn groups(&self) -> &Groups {
        &self.groups
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
        let mut changed = self.groups.take(now, asked, listed, all, self.nodes.all_have_reported());
        changed.extend(std::mem::take(&mut self.unsure));
        changed
    }

    /// Returns the number of groups that were not reported to the coordinator yet.
    pub fn unsettled(&self) -> usize {
        self.unsettled.len()
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

    /// Returns a group as a stripe; `None` if the group is empty or unsettled (DataNodes may not have
    /// reported some of its blocks).
    fn stripe(&mut self, now: Duration, number: i64) -> Option<StripeRecord> {
        self.unsettled.remove(&number);
        let held = self.groups.get(number)?;
        let shape = held.listed.group.stripe()?;
        if !held.is_settled(&shape.blocks) {
            self.unsettled.insert(number);
            self.unsure.insert(number);
            return None;
        }
        let id = held.listed.group.stripe_id();
        let mut is_unsure = false;
        let blocks = shape.blocks.iter().zip((0..).map(BlockIndex)).map(|(block, at)| {
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

    /// Returns the holder of a block, or its last holder, and the block's state there. The flag is true if
    /// the result may change without a new listing.
    fn holder(
        &self,
        now: Duration,
        held: &Held,
        stripe: &StripeId,
        block: &GroupBlock,
        at: BlockIndex,
    ) -> (Option<(NodeId, BlockState)>, bool) {
        let index = block.index.0 as u8;
        let state = |node| self.bad.state(stripe, at, node);
        let homes = held.listed.homes.iter().filter(|(other, _)| *other == index);
        let best = homes
            .map(|&(_, node)| (node, state(node)))
            .min_by_key(|&(node, state)| (state != BlockState::Healthy, !self.nodes.may_take(node), node));
        if best.is_some() {
            return (best, false);
        }
        let Some((node, since)) = held.last_home(index) else { return (None, false) };
        // Blocks on a node that is down are not listed, nor are blocks on a node in maintenance.
        if !self.nodes.serves(node) || self.nodes.is_in_maintenance(node) {
            return (Some((node, BlockState::Healthy)), true);
        }
        // After a DataNode comes up, the NameNode lists it as live before its blocks are reported. The wait
        // therefore begins only when its blocks are known.
        let known = self.nodes.up_since(node).map(|up| up.max(since));
        let is_certain = known.is_some_and(|known| now >= known + PATIENCE);
        let state = if is_certain { BlockState::Missing } else { BlockState::Healthy };
        (Some((node, state)), true)
    }

    /// Returns the states of these groups that differ from the last report.
    pub fn tell(&mut self, now: Duration, groups: impl IntoIterator<Item = i64>) -> Vec<StoreChange> {
        let mut changes = Vec::new();
        for number in groups {
            let stripe = self.stripe(now, number);
            // Do this even if the report is unchanged, because a copy other than the reported one may have
            // disappeared.
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
                self.bad.remove_stripe(&before);
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
        let Some(held) = self.groups.get(number) else { return };
        let Some(shape) = held.listed.group.stripe() else { return };
        self.bad.retain(&stripe.id, |at, node| {
            let block = shape.blocks.get(usize::from(at.0));
            block.is_some_and(|block| held.listed.homes.contains(&(block.index.0 as u8, node)))
        });
    }

    /// Returns the complete current state, for a new listener.
    pub fn everything(&mut self, now: Duration) -> Vec<StoreChange> {
        self.told.clear();
        let mut changes = self.nodes.everything();
        changes.extend(self.tell(now, self.groups.numbers()));
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
        group_number(stripe)
    }

    /// See [`BadCopies::take_gone`].
    pub fn take_gone(&mut self) -> Vec<CopyId> {
        self.bad.take_gone()
    }
}

fn fingerprint(stripe: &StripeRecord) -> u64 {
    let mut hasher = DefaultHasher::new();
    for block in &stripe.blocks {
        (block.bytes, block.node.map(|node| node.0), block.state as u8).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
#[path = "view/tests.rs"]
mod tests;
