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
use stores::{BlockRecord, BlockState, FileWrite, RecordWrite, StripeWrite, Write};

use super::Core;
use super::commands::Reply;
use super::nodes::PeerKind;
use super::questions::{ANSWER_LIMIT, Subject};
use super::storing::Then;
use crate::error::RequestError;
use views::{AcceptedView, NewerBlocks, OrphansView};

impl Core {
    /// Holds what a node has against what the catalog thinks it has.
    pub(super) fn compare(&mut self, node: NodeId, blocks: &[HeldBlock]) {
        let held: BTreeMap<&BlockId, u64> = blocks.iter().map(|block| (&block.id, block.bytes)).collect();
        let (mut news, mut again, mut missing) = (Vec::new(), VecDeque::new(), 0);
        for (stripe, index) in self.picture.blocks_of(node) {
            let record = self.picture.stripe(&stripe).expect("it holds blocks of stripes");
            let block = &record.blocks[usize::from(index.0)];
            let known = block.state_on(node).unwrap_or(block.state);
            let state = match held.get(&block.id) {
                None if !self.nature.trusts_lists => {
                    again.push_back((stripe, index));
                    continue;
                }
                None => {
                    missing += 1;
                    BlockState::Missing
                }
                Some(&bytes) if bytes != block.bytes => BlockState::Corrupt,
                Some(_) if known == BlockState::Healthy => continue,
                Some(_) => {
                    again.push_back((stripe, index));
                    continue;
                }
            };
            if known != state {
                self.note_loss(node, &block.id, state);
                news.push((stripe, index, node, state));
            }
        }
        if !news.is_empty() {
            self.store_states(news);
        }
        self.healing.note_hollow(node, 2 * missing > self.picture.block_count(node), self.now);
        if let Some(PeerKind::Helper { rechecks, .. }) = self.kind_mut(node) {
            *rechecks = again;
        }
        self.note_orphans(node, blocks);
    }

    /// Remembers the blocks that the catalog does not place on this node. They are never removed by themselves: who
    /// knows whose they are.
    pub(super) fn note_orphans(&mut self, node: NodeId, blocks: &[HeldBlock]) {
        if !self.nature.trusts_lists {
            return;
        }
        let mut leaving: BTreeSet<BlockId> = self.picture.files().discards(node).cloned().collect();
        leaving.retain(|block| self.may_go(node, block));
        let (mut found, mut newer) = (BTreeSet::new(), BTreeSet::new());
        for block in blocks.iter().filter(|block| !leaving.contains(&block.id)) {
            let is_its_own =
                self.record_of(&block.id).is_some_and(|(_, _, record)| record.state_on(node).is_some());
            if is_its_own || self.unjudged.have(&block.id) {
                continue;
            }
            if self.picture.is_from_the_future(&block.id) {
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
    }

    /// Whether a node's copy of a block is one too many: no stripe knows it, or it can be read on another node. A note
    /// that it shall go may be an old one.
    pub(super) fn may_go(&self, node: NodeId, block: &BlockId) -> bool {
        let Some((_, _, record)) = self.record_of(block) else {
            // In a store that others change, a volume that is not told at the moment is no reason to remove its blocks.
            return !self.nature.claims;
        };
        record.node != Some(node) && self.proven_readers(&record).any(|other| other != node)
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
    /// Whether anything may be repaired or removed: the catalog is as new as the blocks, and takes writes.
    pub(super) fn may_change(&self) -> bool {
        !self.is_behind() && !self.storing.write_path.is_failing()
    }

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

    /// Goes on without the blocks that are newer than the catalog; they are orphans from then on.
    pub(super) fn accept_catalog(&mut self, reply: Reply<AcceptedView>) {
        let beyond: BTreeSet<BlockId> = self.newer.values().flatten().cloned().collect();
        let blocks = beyond.len() as u64;
        self.store(Write::Files(FileWrite::CountBeyond(beyond)), Then::Accepted { blocks, reply });
    }

    pub(super) fn catalog_accepted(&mut self, blocks: u64) -> AcceptedView {
        // What came meanwhile and is newer still is asked about again.
        let Self { newer, picture, .. } = self;
        newer.values_mut().for_each(|blocks| blocks.retain(|block| picture.is_from_the_future(block)));
        newer.retain(|_, blocks| !blocks.is_empty());
        if !self.is_behind() {
            tracing::warn!(blocks, "going on without the blocks that are newer than the catalog");
            self.after_settling();
        }
        AcceptedView { blocks }
    }

    /// All helpers have come that are expected: what was put off is done now.
    pub(super) fn after_settling(&mut self) {
        for node in self.live_helpers().collect::<Vec<_>>() {
            self.find_homes(node);
            self.remove_discards(node);
        }
    }

    /// Something was found to be bad: whether anybody else has it.
    pub(super) fn find_all_homes(&mut self) {
        if self.settled && !self.is_behind() {
            self.live_helpers().collect::<Vec<_>>().into_iter().for_each(|node| self.find_homes(node));
        }
    }

    /// Has the orphans of a node verified that the catalog places on somebody who does not have them.
    fn find_homes(&mut self, node: NodeId) {
        let Some(PeerKind::Helper { orphans, .. }) = self.kind_mut(node) else { return };
        let orphans: Vec<BlockId> = orphans.iter().cloned().collect();
        let homeless: Vec<(StripeId, BlockIndex)> = orphans
            .iter()
            .filter_map(|block| self.record_of(block))
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
    pub(super) fn record_of(&self, block: &BlockId) -> Option<(StripeId, BlockIndex, BlockRecord)> {
        let (stripe, index) = self.picture.find_block(block).ok()?;
        let record = self.picture.stripe(&stripe).ok()?.blocks.swap_remove(usize::from(index.0));
        (record.id == *block).then_some((stripe, index, record))
    }

    /// Whether a node's copy of a block is worth verifying: it was bad there, or nobody has it who should.
    fn is_wanted_from(&self, node: NodeId, block: &BlockRecord) -> bool {
        match block.state_on(node) {
            // What is only not listed is looked at as well.
            Some(state) => state != BlockState::Healthy || !self.nature.trusts_lists,
            None => self.settled && self.may_change() && self.is_lost(block),
        }
    }

    /// Has the next block verified that was bad and is there again, or that is somebody else's who lost it.
    pub(super) fn recheck_next(&mut self, node: NodeId) {
        while let Some(PeerKind::Helper { rechecks, .. }) = self.kind_mut(node)
            && let Some((stripe, index)) = rechecks.pop_front()
        {
            let record = self.picture.stripe(&stripe).ok();
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
                && !self.is_removing(node, &known.id)
                && !self.condemned.has(&known.id);
        if !is_it || !self.is_wanted_from(node, known) || self.picture.is_pending(stripe) != Some(false) {
            return;
        }
        let (stripe, blocks) = (stripe.clone(), vec![(index, node, digest)]);
        let then = Then::Adopted { node, block: known.id.clone() };
        self.store(Write::Stripes(StripeWrite::Publish { stripe, blocks }), then);
    }

    /// A block that was found is recorded where it is.
    pub(super) fn adopted(&mut self, node: NodeId, block: &BlockId) {
        tracing::info!(%block, node = %self.name(node), "found a block that was lost");
        self.drop_orphan(node, block);
    }

    /// A block on a node is one that nobody knows no more.
    pub(super) fn drop_orphan(&mut self, node: NodeId, block: &BlockId) {
        if let Some(PeerKind::Helper { orphans, .. }) = self.kind_mut(node) {
            orphans.remove(block);
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
        let asked = self.asks.get(&ask).filter(|ask| ask.node == node);
        let returned = match asked.map(|ask| &ask.subject) {
            Some(Subject::Orphans) => false,
            Some(Subject::Returned) => true,
            _ => return tracing::warn!(node = %self.name(node), "an answer that nobody asked for"),
        };
        if last {
            self.asks.remove(&ask);
        } else if let Some(ask) = self.asks.get_mut(&ask) {
            ask.until = self.now + ANSWER_LIMIT; // Each part is an answer.
        }
        if returned {
            return self.take_returned(node, blocks, last);
        }
        for block in blocks {
            if self.is_needless(node, block) {
                tracing::info!(block = %block.id, node = %self.name(node), "removing a block that nothing refers to");
                let then = Then::Needless { node, block: block.id.clone() };
                self.store(Write::Files(FileWrite::Discard(node, block.id.clone())), then);
            }
        }
    }

    /// Whether a block is this cluster's, an orphan here, not newer than the catalog, and either of no stripe or whole
    /// on another helper that is up.
    fn is_needless(&self, node: NodeId, block: &Description) -> bool {
        let ours = block.label.as_ref().is_some_and(|(_, label)| label.cluster == self.settings.cluster_id);
        let kind = self.peers.get(&node).map(|peer| &peer.kind);
        let orphan = matches!(kind, Some(PeerKind::Helper { orphans, .. }) if orphans.contains(&block.id));
        if !ours || !orphan || !self.may_change() || self.picture.is_from_the_future(&block.id) {
            return false;
        }
        self.record_of(&block.id).is_none_or(|(_, _, record)| {
            record.digest == block.digest && self.proven_readers(&record).any(|other| other != node)
        })
    }

    /// Forgets helpers that are no longer in mend.toml, once the catalog places nothing on them.
    pub(super) fn forget_retired(&mut self) {
        let empty = |node: &NodeId| {
            !self.peers.contains_key(node)
                && self.picture.block_count(*node) == 0
                && !self.is_target(*node)
                && !self.storing.adopts_on(*node)
        };
        for node in self.retired.iter().copied().filter(empty).collect::<Vec<_>>() {
            self.retired.remove(&node);
            self.storing.forgetting.insert(node);
            self.store(Write::Records(RecordWrite::ForgetNode(node)), Then::Forgotten { node });
        }
    }

    pub(super) fn node_forgotten(&mut self, node: NodeId, done: bool) {
        self.storing.forgetting.remove(&node);
        if !done {
            self.retired.insert(node); // It is tried again.
            return;
        }
        tracing::info!(node = %self.name(node), "forgot a helper that is no longer in mend.toml");
        self.drop_node(node);
    }

    pub(super) fn is_target(&self, node: NodeId) -> bool {
        self.jobs.values().any(|running| running.targets.contains(&node))
    }
}
