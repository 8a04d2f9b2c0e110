//! Queries the NameNode for a group before one of its blocks is rebuilt, and again afterwards, until the
//! NameNode lists the block.

use std::sync::Arc;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, Permit, StripeId};
use store_api::{BlockState, CatalogError, StoreError, Term};
use tokio::time::Instant;

use super::groups::Listed;
use super::state::Shared;
use super::terms;
use crate::listing::Service;

/// Timeout for the NameNode to list a block after its DataNode has accepted the block. Usually this takes a
/// moment.
const LISTED_LIMIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The interval between queries while the NameNode does not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The error for a group that the NameNode no longer lists.
const GONE: &str = "its file was removed or is being written";

impl Shared {
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
        let found = self.look_up(&known).await.map_err(taken)?;
        let found = found.ok_or_else(|| taken(GONE.to_owned()))?;
        if found.group != known.group {
            return Err(taken("its generation stamp in HDFS has changed".to_owned()));
        }
        self.check_targets(stripe, &found, (nodes, blocks)).map_err(taken)?;
        terms::permits(self, stripe, &found, blocks).await.map_err(taken)
    }

    fn check_targets(
        &self,
        stripe: &StripeId,
        found: &Listed,
        (nodes, blocks): (&[NodeId], &[BlockIndex]),
    ) -> Result<(), String> {
        let state = self.state();
        let view = &state.view;
        for &node in nodes {
            if !view.nodes().may_take(node) {
                return Err(format!("DataNode {node} is down or being taken out of service"));
            }
        }
        let shape = found.group.stripe().ok_or("it is empty")?;
        let is_good = |(at, index): (BlockIndex, u8)| {
            let homes = found.homes.iter().filter(|(other, _)| *other == index);
            let mut homes = homes.map(|&(_, node)| node);
            homes.any(|node| {
                !view.is_bad(stripe, at, node)
                    && view.nodes().standing(node).is_none_or(|it| it.service == Service::Normal)
            })
        };
        let indices = shape.blocks.iter().zip(0..).map(|(block, at)| (BlockIndex(at), block.index.0 as u8));
        let claimed: Vec<(BlockIndex, u8)> = indices.filter(|(at, _)| blocks.contains(at)).collect();
        if claimed.iter().any(|&block| is_good(block)) {
            return Err(
                "a block is not lost any more, and HDFS would remove an extra copy, possibly the new one: to \
                 empty a DataNode, decommission it first (hdfs dfsadmin -refreshNodes)"
                    .to_owned(),
            );
        }
        // The NameNode lists only one block of a group on each storage.
        let is_beside = |&&(index, node): &&(u8, NodeId)| {
            nodes.contains(&node) && !claimed.iter().any(|&(_, other)| other == index)
        };
        if let Some((_, node)) = found.homes.iter().find(is_beside) {
            return Err(format!("DataNode {node} has another block of the group"));
        }
        Ok(())
    }

    /// Queries the NameNode for a group and records the answer; `None` if the file no longer contains the group.
    /// The group may still exist in another file, into which this file was concatenated, or in a snapshot. So
    /// only further queries decide whether it is dropped.
    pub(super) async fn look_up(&self, known: &Listed) -> Result<Option<Listed>, String> {
        let asked = self.now();
        let namenode = self.namenode.as_ref().ok_or("no NameNode is configured")?;
        let listing = namenode.group(&known.file, known.start).await.map_err(|error| error.to_string())?;
        if listing.safe_mode {
            return Err("the NameNode is in safe mode".to_owned());
        }
        let is_listed = listing.groups.iter().any(|group| group.group.number == known.group.number);
        self.take_groups(asked, listing, false).map_err(|error| error.to_string())?;
        let found = is_listed.then(|| self.known([known.group.number]).pop()).flatten();
        if found.is_none() {
            self.state().doubted.insert(known.group.number, known.file.inode);
            self.look.notify_one();
        }
        Ok(found)
    }

    /// Waits until the NameNode lists a block that a DataNode has accepted, then records the copy as healthy.
    pub async fn publish(
        self: &Arc<Self>,
        term: Term,
        stripe: &StripeId,
        at: BlockIndex,
        node: NodeId,
    ) -> Result<(), StoreError> {
        let (known, index) = {
            let state = self.state();
            (state.view.groups().listed(stripe), state.view.groups().index_in_group(stripe, at))
        };
        let (Some(known), Some(index)) = (known, index) else {
            return Err(CatalogError::NoSuchStripe(stripe.clone()).into());
        };
        if let Err(why) = self.wait_until_listed(&known, index, node).await {
            let block = known
                .group
                .stripe()
                .and_then(|shape| Some(shape.blocks.get(usize::from(at.0))?.name.block_id()));
            let block = block.unwrap_or_else(|| BlockId(stripe.0.clone()));
            return Err(StoreError::NotServed { block, node, server: node.to_string(), why });
        }
        // The new copy has replaced any bad copy on this node.
        let mended = (stripe.clone(), at, node, BlockState::Healthy);
        self.state().ledger.note(term, &[mended])?;
        let now = self.now();
        let mut state = self.state();
        let group = state.view.set_state(stripe, at, node, BlockState::Healthy);
        let changes = state.view.tell(now, group);
        state.tell(changes);
        Ok(())
    }

    async fn wait_until_listed(
        self: &Arc<Self>,
        known: &Listed,
        index: u8,
        node: NodeId,
    ) -> Result<(), String> {
        let until = Instant::now() + LISTED_LIMIT;
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
            let mut homes = found.homes.iter().filter(|(other, _)| *other == index);
            if homes.any(|&(_, home)| home == node) {
                return Ok(());
            }
            if Instant::now() >= until {
                return match found.homes.iter().any(|&(other, _)| other == index) {
                    // HDFS rebuilt the block itself on another DataNode and removed this copy.
                    true => Ok(()),
                    false => {
                        self.want_report(known.group.number, node);
                        Err(format!("the NameNode did not list it within {} s", LISTED_LIMIT.as_secs()))
                    }
                };
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
