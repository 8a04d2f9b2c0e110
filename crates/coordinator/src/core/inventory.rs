//! What helpers hold against what the catalog places on them.
//!
//! A block that a helper holds may be its own; its own and back after it was bad; one that the catalog places on somebody
//! who does not have it, and then it is verified and *adopted*; one that no stripe knows, an *orphan*; or one of a
//! stripe that this catalog has yet to count, and then the catalog is an old one that was put back, and nothing is
//! changed until somebody decides what to do about that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use codes::BlockIndex;
use repair::wire::control::{Description, HeldBlock, ToNode};
use repair::{BlockId, Digest, NodeId, StripeId};
use stores::{BlockRecord, BlockState, Catalog, CatalogError};

use super::nodes::{ANSWER_LIMIT, PeerKind, Subject};
use super::{Core, log_error};
use crate::error::RequestError;
use views::{AcceptedView, NewerBlocks, OrphansView};

impl Core {
    /// Holds what a node has against what the catalog thinks it has.
    pub(super) fn compare(&mut self, node: NodeId, blocks: &[HeldBlock]) -> Result<(), CatalogError> {
        let held: BTreeMap<&BlockId, u64> = blocks.iter().map(|block| (&block.id, block.bytes)).collect();
        let (mut news, mut again) = (Vec::new(), VecDeque::new());
        for (stripe, index) in self.catalog.blocks_of(node) {
            let record = self.catalog.stripe(&stripe)?;
            let block = &record.blocks[usize::from(index.0)];
            let state = match held.get(&block.id) {
                None => BlockState::Missing,
                Some(&bytes) if bytes != block.bytes => BlockState::Corrupt,
                Some(_) if block.state == BlockState::Healthy => continue,
                Some(_) => {
                    again.push_back((stripe, index));
                    continue;
                }
            };
            if block.state != state {
                self.note_loss(node, &block.id, state);
                news.push((stripe, index, state));
            }
        }
        self.catalog.set_states(&news)?;
        for (stripe, index, state) in &news {
            self.tell_block(stripe, *index, node, *state);
        }
        if let Some(PeerKind::Helper { rechecks, .. }) = self.kind_mut(node) {
            *rechecks = again;
        }
        self.note_orphans(node, blocks)
    }

    /// Remembers the blocks that the catalog does not place on this node. They are never removed by themselves: who
    /// knows whose they are.
    pub(super) fn note_orphans(&mut self, node: NodeId, blocks: &[HeldBlock]) -> Result<(), CatalogError> {
        let mut leaving: BTreeSet<BlockId> = self.catalog.discards(node)?.into_iter().collect();
        leaving.retain(|block| self.may_go(node, block));
        let (mut found, mut newer) = (BTreeSet::new(), BTreeSet::new());
        for block in blocks.iter().filter(|block| !leaving.contains(&block.id)) {
            if self.record_of(&block.id)?.is_some_and(|(_, _, record)| record.node == Some(node)) {
                continue;
            }
            if self.catalog.is_from_the_future(&block.id)? {
                newer.insert(block.id.clone());
            }
            found.insert(block.id.clone());
        }
        if let Some(PeerKind::Helper { orphans, .. }) = self.kind_mut(node) {
            *orphans = found;
        }
        self.note_newer(node, newer);
        if self.settled {
            self.find_homes(node);
        }
        Ok(())
    }

    /// Whether a node's copy of a block is one too many: no stripe knows it, or it can be read on another node. A note
    /// that it shall go may be an old one.
    pub(super) fn may_go(&self, node: NodeId, block: &BlockId) -> bool {
        match self.record_of(block) {
            Ok(None) => true,
            Ok(Some((_, _, record))) => {
                record.node != Some(node) && self.readable_at(&record).is_some_and(|other| other != node)
            }
            Err(_) => false,
        }
    }

    fn note_newer(&mut self, node: NodeId, newer: BTreeSet<BlockId>) {
        if newer.is_empty() {
            if self.newer.remove(&node).is_some() && !self.is_behind() {
                self.after_settling();
            }
            return;
        }
        let (name, blocks) = (self.name(node), newer.len());
        tracing::error!(
            node = %name, blocks, "the catalog is older than blocks on this helper: nothing is stored, removed or \
             repaired until somebody decides; see mend status"
        );
        self.newer.insert(node, newer);
    }

    /// Whether some helper holds blocks of stripes that the catalog has yet to count.
    pub(super) fn is_behind(&self) -> bool {
        !self.newer.is_empty()
    }

    /// Refuses to change anything while the catalog is an old one.
    pub(super) fn check_not_behind(&self) -> Result<(), RequestError> {
        if !self.is_behind() {
            return Ok(());
        }
        Err(RequestError::CatalogBehind {
            nodes: self.newer.keys().map(|&node| self.name(node)).collect(),
            blocks: self.newer.values().map(|blocks| blocks.len() as u64).sum(),
        })
    }

    pub(super) fn newer_views(&self) -> Vec<NewerBlocks> {
        let view = |(&node, blocks): (&NodeId, &BTreeSet<BlockId>)| NewerBlocks {
            node: self.name(node),
            blocks: blocks.len() as u64,
        };
        self.newer.iter().map(view).collect()
    }

    /// Goes on without the blocks that are newer than the catalog; they are orphans from now on.
    pub(super) fn accept_catalog(&mut self) -> Result<AcceptedView, RequestError> {
        let blocks: BTreeSet<BlockId> = self.newer.values().flatten().cloned().collect();
        self.catalog.count_beyond(&blocks)?;
        self.newer.clear();
        tracing::warn!(blocks = blocks.len(), "going on without the blocks that are newer than the catalog");
        self.after_settling();
        self.recount_blocks();
        Ok(AcceptedView { blocks: blocks.len() as u64 })
    }

    /// All helpers have come that are expected: what was put off is done now.
    pub(super) fn after_settling(&mut self) {
        for node in self.live_helpers().collect::<Vec<_>>() {
            self.find_homes(node);
            self.remove_discards(node);
        }
    }

    /// Has the orphans of a node verified that the catalog places on somebody who does not have them.
    fn find_homes(&mut self, node: NodeId) {
        let Some(PeerKind::Helper { orphans, .. }) = self.kind_mut(node) else { return };
        let orphans: Vec<BlockId> = orphans.iter().cloned().collect();
        let homeless: Vec<(StripeId, BlockIndex)> = orphans
            .iter()
            .filter_map(|block| log_error(self.record_of(block))?)
            .filter(|(_, _, record)| self.is_wanted_from(node, record))
            .map(|(stripe, index, _)| (stripe, index))
            .collect();
        let Some(PeerKind::Helper { rechecks, .. }) = self.kind_mut(node) else { return };
        let idle = rechecks.is_empty();
        rechecks.extend(homeless);
        if idle {
            self.recheck_next(node);
        }
    }

    /// Where the catalog has a block of exactly this name.
    fn record_of(
        &self,
        block: &BlockId,
    ) -> Result<Option<(StripeId, BlockIndex, BlockRecord)>, CatalogError> {
        let (stripe, index) = match self.catalog.find_block(block) {
            Ok(found) => found,
            Err(CatalogError::NoSuchBlock(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let record = self.catalog.stripe(&stripe)?.blocks.swap_remove(usize::from(index.0));
        Ok((record.id == *block).then_some((stripe, index, record)))
    }

    /// Whether a node's copy of a block is worth verifying: it was bad there, or nobody has it who should.
    fn is_wanted_from(&self, node: NodeId, block: &BlockRecord) -> bool {
        match block.node {
            Some(home) if home == node => block.state != BlockState::Healthy,
            _ => self.settled && !self.is_behind() && self.readable_at(block).is_none(),
        }
    }

    /// Has the next block verified that was bad and is there again, or that is somebody else's who lost it.
    pub(super) fn recheck_next(&mut self, node: NodeId) {
        while let Some(PeerKind::Helper { rechecks, .. }) = self.kind_mut(node)
            && let Some((stripe, index)) = rechecks.pop_front()
        {
            let record = self.catalog.stripe(&stripe).ok();
            let known = record.and_then(|record| record.blocks.into_iter().nth(usize::from(index.0)));
            if let Some(known) = known.filter(|known| self.is_wanted_from(node, known)) {
                self.ask_for_block(node, stripe, index, known, false);
                return;
            }
        }
    }

    /// Records that a block is on a node that the catalog did not place it on, which has just read all of it.
    pub(super) fn adopt(
        &mut self,
        node: NodeId,
        stripe: &StripeId,
        index: BlockIndex,
        known: &BlockRecord,
        digest: Option<Digest>,
    ) {
        // Without a digest, any block of the name will do, unless two of them contradicted each other.
        let is_it =
            known.digest.map_or(known.state == BlockState::Missing, |recorded| Some(recorded) == digest)
                && !self.is_removing(node, &known.id);
        if !is_it
            || !self.is_wanted_from(node, known)
            || !matches!(self.catalog.is_pending(stripe), Ok(false))
        {
            return;
        }
        if log_error(self.catalog.publish(stripe, index, node, digest)).is_none() {
            return;
        }
        tracing::info!(block = %known.id, node = %self.name(node), "found a block that was lost");
        self.tell_blocks(stripe);
        if let Some(PeerKind::Helper { orphans, .. }) = self.kind_mut(node) {
            orphans.remove(&known.id);
        }
        self.census = None;
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.blocks += 1;
        }
        if let Some(home) = known.node {
            self.remove_discards(home);
        }
    }

    /// Begins to remove the orphans of all helpers that are up: those of which it can be shown that nothing refers to
    /// them. How many there are.
    pub(super) fn remove_orphans(&mut self) -> Result<OrphansView, RequestError> {
        self.check_not_behind()?;
        if !self.settled {
            return Err(RequestError::Settling);
        }
        let mut orphans = 0;
        for node in self.live_helpers().collect::<Vec<_>>() {
            let Some(PeerKind::Helper { orphans: held, .. }) = self.kind_mut(node) else { continue };
            if !held.is_empty() {
                orphans += held.len() as u64;
                let ask = self.ask(node, Subject::Orphans);
                self.send(node, ToNode::Describe { ask });
            }
        }
        Ok(OrphansView { orphans })
    }

    /// Removes the orphans among these blocks of which their own labels and the catalog prove that they may go.
    pub(super) fn take_described(&mut self, node: NodeId, ask: u64, blocks: &[Description], last: bool) {
        if !self.asks.get(&ask).is_some_and(|ask| ask.node == node && matches!(ask.subject, Subject::Orphans))
        {
            return tracing::warn!(node = %self.name(node), "an answer that nobody asked for");
        }
        if last {
            self.asks.remove(&ask);
        } else if let Some(ask) = self.asks.get_mut(&ask) {
            ask.until = self.now + ANSWER_LIMIT; // Each part is an answer.
        }
        for block in blocks {
            if matches!(self.is_needless(node, block), Ok(true))
                && log_error(self.catalog.discard(node, &block.id)).is_some()
            {
                tracing::info!(block = %block.id, node = %self.name(node), "removing a block that nothing refers to");
                let Some(PeerKind::Helper { orphans, .. }) = self.kind_mut(node) else { return };
                orphans.remove(&block.id);
            }
        }
        self.remove_discards(node);
    }

    /// Whether a block is this cluster's, an orphan here, not newer than the catalog, and either of no stripe or whole
    /// on another helper that is up.
    fn is_needless(&self, node: NodeId, block: &Description) -> Result<bool, CatalogError> {
        let ours = block.label.as_ref().is_some_and(|(_, label)| label.cluster == self.settings.cluster_id);
        let kind = self.peers.get(&node).map(|peer| &peer.kind);
        let orphan = matches!(kind, Some(PeerKind::Helper { orphans, .. }) if orphans.contains(&block.id));
        if !ours || !orphan || self.is_behind() || self.catalog.is_from_the_future(&block.id)? {
            return Ok(false);
        }
        let record = self.record_of(&block.id)?;
        Ok(record.is_none_or(|(_, _, record)| {
            record.digest == block.digest && self.readable_at(&record).is_some_and(|other| other != node)
        }))
    }

    /// Forgets helpers that are no longer in mend.toml, once the catalog places nothing on them.
    pub(super) fn forget_retired(&mut self) {
        let empty = |node: &NodeId| {
            !self.peers.contains_key(node) && self.catalog.block_count(*node) == 0 && !self.is_target(*node)
        };
        for node in self.retired.iter().copied().filter(empty).collect::<Vec<_>>() {
            self.retired.remove(&node);
            if log_error(self.catalog.forget_node(node)).is_some() {
                tracing::info!(node = %self.name(node), "forgot a helper that is no longer in mend.toml");
                self.names.remove(&node);
                self.topology.remove(node);
            }
        }
    }

    fn is_target(&self, node: NodeId) -> bool {
        self.jobs.values().any(|running| running.targets.contains(&node))
    }
}
