//! Queries the NameNode for a group or a stripe of a raided file before one of its blocks is rebuilt, and
//! again afterwards, until the NameNode lists the block.

use std::sync::Arc;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, Permit, StripeId};
use store_api::{BlockState, CatalogError, StoreError, Term};
use tokio::time::Instant;

use super::coded::{Coded, RaidStripe};
use super::following::failed;
use super::groups::Listed;
use super::state::HdfsSystem;
use super::terms;
use crate::namenode::{AskError, NameNode};

/// Timeout for the NameNode to list a block after its DataNode has accepted the block. Usually this takes a
/// moment.
const LISTED_LIMIT: Duration = Duration::from_secs(20);
/// The first and the longest pause between queries for a block. The pauses double.
const LOOK_FIRST: Duration = Duration::from_millis(5);
const LOOK_LAST: Duration = Duration::from_millis(500);
/// A block that is not listed after this time is recorded, in case the coordinator is restarted meanwhile.
const RECORD_AFTER: Duration = Duration::from_secs(1);
/// When a DataNode replaces its own replica, the NameNode may learn of the removal after it has listed the new
/// replica, and forget both. The pauses before the queries that notice this: DataNodes report removals with their
/// heartbeats, by default every 3 s.
const FORGOTTEN_AFTER: [Duration; 2] = [Duration::from_secs(4), Duration::from_secs(15)];
/// The interval between queries while the NameNode does not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The error for a group that the NameNode no longer lists.
const GONE: &str = "its file was removed or changed, or is being written";

impl HdfsSystem {
    /// Checks that a group is unchanged, and that these nodes can receive these blocks. Returns the
    /// [terms](crate::BlockTerms) of the blocks. Also records the NameNode's current answer about the group.
    pub async fn claim(
        self: &Arc<Self>,
        stripe: &StripeId,
        nodes: &[NodeId],
        blocks: &[BlockIndex],
    ) -> Result<Vec<(BlockIndex, Permit)>, StoreError> {
        let known = self.state().view.groups().listed(stripe);
        let known = known.ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        let taken = |why: String| StoreError::Taken { stripe: stripe.clone(), why };
        let group = async { self.look_up(&known).await.map_err(taken) };
        let checksums = async { Ok::<_, StoreError>(terms::checksums(self, &known, blocks).await) };
        let (found, checksums) = tokio::try_join!(group, checksums)?;
        let found = found.ok_or_else(|| taken(GONE.to_owned()))?;
        if found.group != known.group {
            return Err(taken("its generation stamp in HDFS has changed".to_owned()));
        }
        self.check_lost(stripe, &found, blocks).map_err(taken)?;
        self.check_targets(stripe, &found, (nodes, blocks))?;
        terms::permits(self, stripe, &found, blocks, &checksums).await.map_err(taken)
    }

    /// Checks that these blocks are lost. HDFS would remove a second copy, possibly the new one.
    fn check_lost(&self, stripe: &StripeId, found: &Listed, blocks: &[BlockIndex]) -> Result<(), String> {
        let state = self.state();
        let view = &state.view;
        let is_good = |(at, index): (BlockIndex, u8)| {
            let mut homes = homes_of(found, index);
            homes.any(|node| view.is_good_home(stripe, at, node))
        };
        match claimed(found, blocks).into_iter().any(is_good) {
            true => Err(
                "a block is not lost any more, and HDFS would remove an extra copy, possibly the new one: to \
                 empty a DataNode, decommission it first (hdfs dfsadmin -refreshNodes)"
                    .to_owned(),
            ),
            false => Ok(()),
        }
    }

    /// Checks that these nodes can receive these blocks. The error names one that cannot, so that another one takes
    /// its place, and the other blocks need not wait.
    fn check_targets(
        &self,
        stripe: &StripeId,
        found: &Listed,
        (nodes, blocks): (&[NodeId], &[BlockIndex]),
    ) -> Result<(), StoreError> {
        let indices: Vec<u8> = claimed(found, blocks).into_iter().map(|(_, index)| index).collect();
        let unfit = |node: NodeId, why: &str| {
            let server = self.address_of(node).unwrap_or_else(|| node.to_string());
            let server = format!("DataNode {server}");
            StoreError::Unfit { stripe: stripe.clone(), node, server, why: why.to_owned() }
        };
        for &node in nodes {
            if !self.state().view.nodes().may_take(node) {
                return Err(unfit(node, "it is down or being taken out of service"));
            }
            if found.is_beside(&indices, node) {
                let why = match found.group {
                    Coded::Group(_) => "it has another block of the group; HDFS lists only one of them",
                    Coded::Raid(_) => {
                        "it has another block of the stripe; both would be lost with the DataNode"
                    }
                };
                return Err(unfit(node, why));
            }
        }
        Ok(())
    }

    /// Queries the NameNode for a group and records the answer; `None` if the file no longer contains the group.
    /// The group may still exist in another file, into which this file was concatenated, or in a snapshot. So
    /// only further queries decide whether it is dropped.
    pub(super) async fn look_up(&self, known: &Listed) -> Result<Option<Listed>, String> {
        let asked = self.now();
        let namenode = self.namenode.as_ref().ok_or("no NameNode is configured")?;
        if let Some(stripe) = known.group.raid() {
            return self.look_up_raided(namenode, known, stripe).await.map_err(|error| error.to_string());
        }
        let listing = namenode.group(&known.file, known.start).await.map_err(|error| error.to_string())?;
        if listing.safe_mode {
            return Err("the NameNode is in safe mode".to_owned());
        }
        let number = known.group.number();
        let is_listed = listing.groups.iter().any(|group| group.group.number == number);
        self.take_groups(asked, listing, false).map_err(|error| error.to_string())?;
        let found = is_listed.then(|| self.known([number]).pop()).flatten();
        if found.is_none() {
            self.state().doubted.insert(number, known.file.inode);
            self.look.notify_one();
        }
        Ok(found)
    }

    /// Queries the NameNode for a stripe of a raided file, by its two files, and records the answer; `None`
    /// if the parity does not protect these blocks any more.
    async fn look_up_raided(
        &self,
        namenode: &NameNode,
        known: &Listed,
        stripe: &RaidStripe,
    ) -> Result<Option<Listed>, AskError> {
        let asked = self.now();
        let listing = namenode.blocks(&stripe.ranges()).await?;
        let found = stripe.homes_in(&listing.raid.files);
        let is_valid = found.is_some();
        self.take_stripe(asked, known, &listing, found).map_err(failed)?;
        Ok(is_valid.then(|| self.known([known.group.number()]).pop()).flatten())
    }

    /// Waits until the NameNode lists a block that a DataNode has accepted, then records the copy as healthy.
    pub async fn publish(
        self: &Arc<Self>,
        term: Term,
        stripe: &StripeId,
        at: BlockIndex,
        node: NodeId,
    ) -> Result<(), StoreError> {
        let (known, index, replaces) = {
            let state = self.state();
            let groups = state.view.groups();
            (groups.listed(stripe), groups.index_in_group(stripe, at), state.view.is_bad(stripe, at, node))
        };
        let (Some(known), Some(index)) = (known, index) else {
            return Err(CatalogError::NoSuchStripe(stripe.clone()).into());
        };
        let listed = self.wait_until_listed(&known, (stripe, at, index), node).await;
        match replaces && listed.is_ok() {
            true => self.watch_replaced(known.clone(), index, node),
            false => self.state().settle_unlisted(node, known.group.block_number(index)),
        }
        if let Err(why) = listed {
            let block = known
                .group
                .stripe()
                .and_then(|shape| Some(shape.blocks.get(usize::from(at.0))?.name.block_id()));
            let block = block.unwrap_or_else(|| BlockId(stripe.0.clone()));
            return Err(StoreError::NotServed { block, node, server: node.to_string(), why });
        }
        let now = self.now();
        let mut state = self.state();
        if state.view.is_bad(stripe, at, node) {
            // The new copy has replaced the bad one. Healthy copies have no record.
            let mended = (stripe.clone(), at, node, BlockState::Healthy);
            state.ledger.note(term, &[mended])?;
        }
        let group = state.view.set_state(stripe, at, node, BlockState::Healthy);
        let changes = state.view.tell(now, group);
        state.tell(changes);
        Ok(())
    }

    /// Has a DataNode report its blocks if the NameNode forgets a replica that has replaced a bad one there.
    fn watch_replaced(self: &Arc<Self>, known: Listed, index: u8, node: NodeId) {
        self.state().record_unlisted(node, known.group.block_number(index));
        let storage = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut is_answered = false;
            for pause in FORGOTTEN_AFTER {
                tokio::time::sleep(pause).await;
                let Some(shared) = storage.upgrade() else { return };
                let found = shared.look_up(&known).await;
                is_answered = found.is_ok();
                let is_forgotten = |found: Listed| homes_of(&found, index).all(|home| home != node);
                if found.is_ok_and(|found| found.is_some_and(is_forgotten)) {
                    shared.want_report(&known.group, index, node);
                    break;
                }
            }
            // Without an answer, the record stays, and the next coordinator has the block reported.
            if let Some(shared) = storage.upgrade().filter(|_| is_answered) {
                shared.state().settle_unlisted(node, known.group.block_number(index));
            }
        });
    }

    async fn wait_until_listed(
        self: &Arc<Self>,
        known: &Listed,
        (stripe, at, index): (&StripeId, BlockIndex, u8),
        node: NodeId,
    ) -> Result<(), String> {
        let (began, mut pause) = (Instant::now(), LOOK_FIRST);
        let until = began + LISTED_LIMIT;
        loop {
            let found = match self.look_up(known).await {
                Ok(found) => found.ok_or_else(|| GONE.to_owned())?,
                // The NameNode may be restarting. After the restart, the DataNode reports its blocks again.
                Err(_) if Instant::now() < until => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    continue;
                }
                Err(why) => return Err(why),
            };
            if found.group != known.group {
                return Err("the generation stamp of its group has changed meanwhile".to_owned());
            }
            if homes_of(&found, index).any(|home| home == node) {
                return Ok(());
            }
            if Instant::now() >= until {
                let is_elsewhere = {
                    let state = self.state();
                    homes_of(&found, index).any(|home| state.view.is_good_home(stripe, at, home))
                };
                return match is_elsewhere {
                    // HDFS rebuilt the block itself on another DataNode and removed this copy. The copy that this one
                    // was to replace does not count.
                    true => Ok(()),
                    false => {
                        self.want_report(&known.group, index, node);
                        Err(format!("the NameNode did not list it within {} s", LISTED_LIMIT.as_secs()))
                    }
                };
            }
            if began.elapsed() >= RECORD_AFTER {
                self.state().record_unlisted(node, known.group.block_number(index));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_LAST);
        }
    }
}

/// Returns the DataNodes that the NameNode lists for a block of a group.
fn homes_of(found: &Listed, index: u8) -> impl Iterator<Item = NodeId> {
    found.homes.iter().filter(move |(other, _)| *other == index).map(|&(_, node)| node)
}

/// Returns these blocks of a group, each with its index in the group.
fn claimed(found: &Listed, blocks: &[BlockIndex]) -> Vec<(BlockIndex, u8)> {
    let shape = found.group.stripe().map(|shape| shape.blocks).unwrap_or_default();
    let indices = shape.iter().zip(0..).map(|(block, at)| (BlockIndex(at), block.index.0 as u8));
    indices.filter(|(at, _)| blocks.contains(at)).collect()
}
