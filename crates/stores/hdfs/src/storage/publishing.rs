//! Before a block is made the NameNode is asked for its group anew, and afterwards until it lists the block.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, Permit, StripeId};
use store_api::{BlockState, CatalogError, StoreError, Term};
use tokio::time::Instant;

use super::groups::Listed;
use super::state::Shared;

use crate::listing::Service;

/// The NameNode lists a block a moment after its DataNode has taken it, and has this long if it is busy.
const LISTED_LIMIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The same while the NameNode does not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Of a group that the NameNode does not list any more.
const GONE: &str = "its file was removed, or somebody writes to it";

impl Shared {
    /// Makes sure that a group is still the one that is known, and that these nodes can have these blocks of it; what
    /// DataNodes want to see before they take what is pushed. What is known of the group is as new as the claim when this returns.
    pub async fn claim(
        self: &Arc<Self>,
        stripe: &StripeId,
        nodes: &[NodeId],
        blocks: &[BlockIndex],
    ) -> Result<Vec<(BlockIndex, Permit)>, StoreError> {
        let known = self.state().view.groups().listed(stripe).cloned();
        let known = known.ok_or_else(|| CatalogError::NoSuchStripe(stripe.clone()))?;
        let taken = |why: String| StoreError::Taken { stripe: stripe.clone(), why };
        let found = self.look_up(&known).await.map_err(taken)?;
        let found = found.ok_or_else(|| taken(GONE.to_owned()))?;
        if found.group != known.group {
            return Err(taken("HDFS has another generation of it".to_owned()));
        }
        self.check_targets(stripe, &found, nodes).map_err(taken)?;
        self.permits(stripe, &found, blocks).await.map_err(taken)
    }

    /// A block token for each of these blocks, if it may be pushed and HDFS wants tokens. They are made anew for each claim,
    /// since keys change and a NameNode that is restarted has others. Where a block is made may change later, so nobody asks
    /// for which DataNode they are.
    async fn permits(
        &self,
        stripe: &StripeId,
        found: &Listed,
        blocks: &[BlockIndex],
    ) -> Result<Vec<(BlockIndex, Permit)>, String> {
        let Some(namenode) = self.namenode.as_ref().filter(|_| self.attachment.pushes) else {
            return Ok(Vec::new());
        };
        let indices: BTreeMap<u8, BlockIndex> = {
            let state = self.state();
            let index = |&at: &BlockIndex| Some((state.view.groups().index_in_group(stripe, at)?, at));
            blocks.iter().filter_map(index).collect()
        };
        let asked: Vec<u8> = indices.keys().copied().collect();
        let made = namenode.tokens(&found.file, found.start, &asked).await;
        let made = made.map_err(|error| format!("no block tokens can be made for what is pushed: {error}"));
        self.state().note_troubles("tokens", made.as_ref().err().cloned().into_iter().collect());
        let permit = |(index, token)| Some((*indices.get(&index)?, token));
        Ok(made?.into_iter().filter_map(permit).collect())
    }

    fn check_targets(&self, stripe: &StripeId, found: &Listed, nodes: &[NodeId]) -> Result<(), String> {
        let state = self.state();
        let view = &state.view;
        for &node in nodes {
            if !view.nodes().may_take(node) {
                return Err(format!("DataNode {node} does not serve, or is to serve no more"));
            }
        }
        let shape = found.group.stripe().ok_or("it holds no bytes")?;
        let is_good = |(at, index): (BlockIndex, u8)| {
            let homes = found.homes.iter().filter(|(other, _)| *other == index);
            let mut homes = homes.map(|&(_, node)| node);
            homes.any(|node| {
                !view.is_bad(stripe, at, node)
                    && view.nodes().standing(node).is_none_or(|it| it.service == Service::Normal)
            })
        };
        let mut indices =
            shape.blocks.iter().zip(0..).map(|(block, at)| (BlockIndex(at), block.index.0 as u8));
        if indices.all(is_good) {
            return Err(
                "all its blocks are there, and HDFS removes one that is too many, whichever: to empty a DataNode, \
                 decommission it first (hdfs dfsadmin -refreshNodes)"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Asks the NameNode for a group, and takes in what it says; `None` if the group is there no more.
    pub(super) async fn look_up(&self, known: &Listed) -> Result<Option<Listed>, String> {
        let asked = self.now();
        let namenode = self.namenode.as_ref().ok_or("no NameNode is asked")?;
        let listing = namenode.group(&known.file, known.start).await.map_err(|error| error.to_string())?;
        if listing.safe_mode {
            return Err("the NameNode is in safe mode".to_owned());
        }
        self.take_groups(asked, listing, false).map_err(|error| error.to_string())?;
        let now = self.now();
        let mut state = self.state();
        let found = state.view.groups().fresh(known.group.number, asked).cloned();
        if found.is_none() {
            state.view.drop_group(known.group.number);
            let changes = state.view.tell(now, [known.group.number]);
            state.tell(changes);
        }
        Ok(found)
    }

    /// Waits until the NameNode lists a block that a DataNode has taken.
    pub async fn publish(
        self: &Arc<Self>,
        term: Term,
        stripe: &StripeId,
        at: BlockIndex,
        node: NodeId,
    ) -> Result<(), StoreError> {
        let (known, index) = {
            let state = self.state();
            (state.view.groups().listed(stripe).cloned(), state.view.groups().index_in_group(stripe, at))
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
        // What was bad there has been replaced.
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
                // The NameNode may be about to come back, and the DataNode tells it again then.
                Err(_) if Instant::now() < until => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    continue;
                }
                Err(why) => return Err(why),
            };
            if found.group != known.group {
                return Err("HDFS has another generation of its group by now".to_owned());
            }
            let mut homes = found.homes.iter().filter(|(other, _)| *other == index);
            if homes.any(|&(_, home)| home == node) {
                return Ok(());
            }
            if Instant::now() >= until {
                return match found.homes.iter().any(|&(other, _)| other == index) {
                    // HDFS made one itself, and has kept that.
                    true => Ok(()),
                    false => Err(format!("the NameNode does not list it after {} s", LISTED_LIMIT.as_secs())),
                };
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
