//! Compares the blocks that helpers hold with the blocks that the catalog places on them.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::wire::control::{Description, HeldBlock, ToNode};
use repair::{BlockId, Digest, NodeId, StripeId};
use store_api::{BlockRecord, BlockState, Origin, StorePolicy, StripeWrite, Write};

use crate::error::RequestError;
use crate::facts::Facts;
use crate::facts::OuterFacts;
use crate::facts::spare_copies::wanted_copies;
use crate::helper_queries::Subject;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::Stripes;
use crate::stripes::continuation::StripeThen;
use crate::stripes::state::holdings::Holdings;
use views::OrphansView;

impl Stripes {
    /// Searches for lost blocks and removes blocks that helpers must not keep. Call this when the start-up
    /// phase has ended, and when no helper lists blocks newer than the catalog any more.
    pub(crate) fn after_settling(&mut self, outer: OuterFacts<'_>, jobs: &Jobs, out: &mut Out) {
        for node in outer.nodes.live_helpers().collect::<Vec<_>>() {
            self.find_homes(outer, node, out);
            self.remove_discards(outer, jobs, node, out);
        }
    }
}

impl Jobs {
    /// Whether an orphan may be removed. The block must belong to this cluster, must not be newer than the
    /// catalog, and must not be in use. It must belong to no stripe, or its stripe must tolerate as many
    /// losses without this copy as its code allows.
    pub(crate) fn is_needless(&self, facts: Facts<'_>, node: NodeId, block: &Description) -> bool {
        let ours =
            block.label.as_ref().is_some_and(|(_, label)| label.cluster == facts.base.settings.cluster_id);
        let held = facts.stripes.inventory.get(node);
        let orphan = held.is_some_and(|held| held.orphans.contains(&block.id));
        if !ours
            || !orphan
            || self.is_worked_on(facts, &block.id)
            || !facts.may_remove()
            || facts.stripes.picture.is_from_the_future(&block.id)
        {
            return false;
        }
        facts.stripes.record_of(&block.id).is_none_or(|(stripe, index, record)| {
            record.digest == block.digest && facts.is_spare(&stripe, index, node)
        })
    }
}

impl Stripes {
    /// Compares the blocks of a node with those that the catalog places on it.
    pub(crate) fn compare(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        blocks: &[HeldBlock],
        out: &mut Out,
    ) {
        let held: BTreeMap<&BlockId, u64> = blocks.iter().map(|block| (&block.id, block.bytes)).collect();
        let (mut news, mut again, mut missing) = (Vec::new(), BTreeSet::new(), 0);
        let is_complete = outer.base.store.trusts_lists() && !outer.nodes.registry.is_incomplete(node);
        for (stripe, index) in self.picture.blocks_of(node) {
            let record = self.picture.stripe(&stripe).expect("listed stripes exist");
            let block = &record.blocks[usize::from(index.0)];
            let known = self.unrecorded.latest(block, node).unwrap_or(block.state);
            let state = match held.get(&block.id) {
                None if !is_complete => {
                    again.insert((stripe, index));
                    continue;
                }
                None => {
                    missing += 1;
                    BlockState::Missing
                }
                Some(&bytes) if bytes != block.bytes => state_of_wrong_length(&outer.base.store),
                Some(_) if known == BlockState::Healthy => continue,
                Some(_) => {
                    again.insert((stripe, index));
                    continue;
                }
            };
            if known != state {
                self.note_loss(outer, node, &block.id, state, out);
                news.push((stripe, index, node, state));
            }
        }
        if !news.is_empty() {
            self.store_states(outer, news, out);
        }
        if is_complete {
            self.inventory.note_missing(node, missing, self.picture.block_count(node), outer.base.now);
        }
        out.tell(Signal::Node(node));
        if let Some(Holdings { rechecks, .. }) = self.inventory.get_mut(node) {
            *rechecks = again;
        }
        self.note_orphans(outer, node, blocks, out);
    }

    /// Remembers the blocks that the catalog does not place on this node.
    pub(crate) fn note_orphans(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        blocks: &[HeldBlock],
        out: &mut Out,
    ) {
        if !outer.base.store.trusts_lists() {
            return;
        }
        let mut leaving: BTreeSet<BlockId> = self.picture.files().discards(node).cloned().collect();
        leaving.retain(|block| {
            outer.with(self).may_go(node, block) && !self.inventory.is_recording(node, block)
        });
        let (mut found, mut newer) = (BTreeSet::new(), BTreeSet::new());
        for block in blocks.iter().filter(|block| !leaving.contains(&block.id)) {
            let is_its_own =
                self.record_of(&block.id).is_some_and(|(_, _, record)| record.state_on(node).is_some());
            if is_its_own || self.unjudged.have(&block.id) {
                continue;
            }
            if let Some(is_back) = self.inventory.recording.get_mut(&(node, block.id.clone())) {
                *is_back = true;
            }
            if self.picture.is_from_the_future(&block.id) {
                newer.insert(block.id.clone());
            }
            found.insert(block.id.clone());
        }
        if let Some(Holdings { orphans, .. }) = self.inventory.get_mut(node) {
            *orphans = found;
        }
        self.orphans.forget(node);
        if outer.nodes.registry.is_incomplete(node) {
            // The blocks that the helper listed before may be in the folders that it could not list now.
            newer.extend(self.newer.claims.get(&node).into_iter().flatten().cloned());
        }
        self.newer.note(outer, node, newer, out);
        if outer.nodes.settled {
            self.find_homes(outer, node, out);
        }
    }

    /// Queues a node's wanted copies of blocks for verification.
    fn find_homes(&mut self, outer: OuterFacts<'_>, node: NodeId, out: &mut Out) {
        if outer.base.is_dry_run() {
            return; // Finding a home mounts shards and changes files beside them.
        }
        let wanted = wanted_copies(outer.with(self), node);
        self.recheck(outer, node, wanted, out);
    }

    /// Queues blocks of a node for verification.
    pub(in crate::stripes) fn recheck(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        blocks: impl IntoIterator<Item = (StripeId, BlockIndex)>,
        out: &mut Out,
    ) {
        let Some(Holdings { rechecks, .. }) = self.inventory.get_mut(node) else { return };
        rechecks.extend(blocks);
        if !rechecks.is_empty() && !out.queries.is_rechecking(node) {
            self.recheck_next(outer, node, out);
        }
    }

    /// Verifies the next queued block of a node.
    pub(crate) fn recheck_next(&mut self, outer: OuterFacts<'_>, node: NodeId, out: &mut Out) {
        while let Some(Holdings { rechecks, .. }) = self.inventory.get_mut(node)
            && let Some((stripe, index)) = rechecks.pop_first()
        {
            if !outer.with(self).is_wanted_from(node, &stripe, index) {
                continue;
            }
            let Ok(record) = self.picture.stripe(&stripe) else { continue };
            let Some(known) = record.block(index).cloned() else { continue };
            if out.queries.is_verifying_block(node, &known.id) {
                continue; // If its record has changed meanwhile, it is verified again after the answer.
            }
            if self.inventory.unadopted.has(node, &known.id) {
                continue; // It was queued again while it was being verified, and this has failed.
            }
            outer.with(self).ask_for_block(node, stripe, index, known, false, out);
            return;
        }
        self.verify_undescribed(outer, node, out);
    }

    /// Records a block on a node where the catalog did not place it. The node has just read the whole block.
    pub(crate) fn adopt(
        &mut self,
        outer: OuterFacts<'_>,
        node: NodeId,
        (stripe, index): (&StripeId, BlockIndex),
        known: &BlockRecord,
        digest: Option<Digest>,
        out: &mut Out,
    ) {
        // If no digest is recorded, the block is accepted by its name, provided that the recorded block is
        // missing; nothing shows that a corrupt block is right now. If a parity check has found a block of this
        // name wrong, no copy of it is accepted.
        let is_it =
            known.digest.map_or(known.state == BlockState::Missing, |recorded| Some(recorded) == digest)
                && !self.condemned.has(known);
        if !is_it {
            return self.inventory.unadopted.is_another(node, known.id.clone());
        }
        // This copy would be recorded after the job's block, and undo the replacement of a wrong digest.
        if self.inventory.is_removing(node, &known.id) || outer.storing.is_publishing(stripe) {
            return self.inventory.unadopted.failed(node, known.id.clone(), outer.base.now);
        }
        if outer.base.is_dry_run() && known.state_on(node).is_some()
            || !outer.with(self).is_wanted_from(node, stripe, index)
            || self.picture.is_pending(stripe) != Some(false)
        {
            return;
        }
        // The record does not show yet which other copy is being recorded. If blocks of the stripe share a helper, both
        // copies could be on the same node. In other stores, a node may have several blocks of a stripe.
        let is_first = self.inventory.adopting.insert(stripe.clone());
        if !is_first && outer.base.store.owns_files() && !outer.with(self).is_lost(known) {
            return;
        }
        let blocks = vec![(index, node, digest)];
        let by_name = is_known_by_name(&outer.base.store, known);
        let then = StripeThen::Adopted { node, stripe: stripe.clone(), block: known.id.clone(), by_name };
        let stripe = stripe.clone();
        let origin = Origin::Found;
        out.store(Write::Stripes(StripeWrite::Publish { stripe, blocks, origin }), then);
    }

    /// Handles the end of the write that records a found block on its node.
    pub(crate) fn adopted(&mut self, outer: OuterFacts<'_>, node: NodeId, block: &BlockId, out: &mut Out) {
        tracing::info!(%block, helper = %outer.nodes.name(node), "found a block that was lost");
        // If the helper has registered again meanwhile, its new list may lack the block.
        let is_listed = self.inventory.get(node).is_some_and(|held| held.orphans.contains(block));
        if !is_listed && let Some((stripe, index, known)) = self.record_of(block) {
            self.look_again(outer, node, stripe, index, known, out);
        }
        self.inventory.drop_orphan(node, block);
        self.inventory.note_adopted(node, out);
        self.removals_due = outer.base.now; // Other copies of its stripe's blocks may have become surplus.
    }

    /// Starts to remove those orphans of connected helpers that are provably unreferenced. Returns the number
    /// of all orphans.
    pub(crate) fn remove_orphans(
        &mut self,
        outer: OuterFacts<'_>,
        out: &mut Out,
    ) -> Result<OrphansView, RequestError> {
        outer.with(self).check_not_doubted()?;
        outer.nodes.check_settled(outer.base)?;
        let mut orphans = 0;
        for node in outer.nodes.live_helpers().collect::<Vec<_>>() {
            let Some(Holdings { orphans: held, .. }) = self.inventory.get_mut(node) else { continue };
            if !held.is_empty() {
                orphans += held.len() as u64;
                let ask = out.queries.open(node, Subject::Orphans, outer.base.now);
                outer.nodes.send(node, ToNode::Describe { ask }, out);
            }
        }
        Ok(OrphansView { orphans })
    }
}

/// The state of a block whose file has the wrong length. If a store has no checksums but the digests, corrupt blocks
/// count as evidence about these, and are not believed while the digests are doubted. The length is neither.
fn state_of_wrong_length(store: &StorePolicy) -> BlockState {
    if store.needs_digests() { BlockState::Unreadable } else { BlockState::Corrupt }
}

/// Whether only its name shows that a missing block belongs to its stripe: a rebuild of the catalog could not read
/// the block, so no digest is recorded.
pub(crate) fn is_known_by_name(store: &StorePolicy, block: &BlockRecord) -> bool {
    store.owns_files() && block.digest.is_none() && block.state == BlockState::Missing
}
