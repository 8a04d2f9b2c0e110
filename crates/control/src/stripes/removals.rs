//! Removal of blocks that helpers must not keep.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::{StoreProblem, ToNode};
use repair::{BlockId, NodeId, StripeId};
use store_api::{RecordWrite, Write};

use crate::facts::Facts;
use crate::facts::OuterFacts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::Stripes;
use crate::stripes::continuation::StripeThen;
use crate::stripes::state::holdings::Holdings;

/// The maximum number of removals in flight per helper.
const REMOVALS_AT_ONCE: usize = 256;
/// The maximum number of a helper's blocks that a search for the next removals looks at. Millions of blocks
/// may have to stay until their stripes are whole, and a recovery searches after each of its jobs.
const LOOK_AT: usize = 1024;
/// The pause before the search continues with the blocks that it has not looked at.
const LOOK_ON: Duration = Duration::from_secs(5);
/// The time after which a failed removal is retried.
const REMOVE_AGAIN: Duration = Duration::from_secs(30);

impl Stripes {
    /// Tells a node to remove blocks that it must not keep, except blocks that a running job may deliver
    /// there.
    pub(crate) fn remove_discards(
        &mut self,
        outer: OuterFacts<'_>,
        jobs: &Jobs,
        node: NodeId,
        out: &mut Out,
    ) {
        // Until all helpers have listed their blocks, an outdated catalog cannot be detected.
        if !outer.nodes.settled || !outer.with(self).may_remove() {
            return;
        }
        let Some(Holdings { removing, stuck, looked_at, .. }) = self.inventory.get(node) else { return };
        let goes = |block: &BlockId| {
            !stuck.contains_key(block)
                && !self.inventory.is_recording(node, block)
                && !jobs.is_worked_on(outer.with(self), block)
                && outer.with(self).may_go(node, block)
        };
        let discards = self.picture.files().discards_after(node, looked_at.as_ref());
        let (next, stopped_at) = next_removals(discards, removing, goes);
        if stopped_at.is_some() {
            self.removals_due = self.removals_due.min(outer.base.now + LOOK_ON);
            self.inventory.get_mut(node).into_iter().for_each(|held| held.looked_at.clone_from(&stopped_at));
        }
        for block in next {
            match self.record_of(&block) {
                // The block is a copy; its recorded home is another node.
                Some((stripe, index, _)) => out.tell(Signal::Surplus { node, stripe, index }),
                None => {
                    if let Some(Holdings { removing, .. }) = self.inventory.get_mut(node) {
                        removing.insert(block.clone());
                    }
                    outer.nodes.send(node, ToNode::Remove { block }, out);
                }
            }
        }
    }

    /// Removes a node's copy of a block, if the copy is still surplus.
    pub(crate) fn remove_copy(
        &mut self,
        outer: OuterFacts<'_>,
        jobs: &Jobs,
        node: NodeId,
        block: BlockId,
        out: &mut Out,
    ) {
        let goes = self.picture.files().is_discarded(node, &block)
            && !self.inventory.is_recording(node, &block)
            && !jobs.is_worked_on(outer.with(self), &block)
            && outer.with(self).may_go(node, &block);
        let Some(Holdings { removing, stuck, .. }) = self.inventory.get_mut(node) else { return };
        // Removals beyond the limit are sent when earlier ones are done.
        if goes
            && !stuck.contains_key(&block)
            && removing.len() < REMOVALS_AT_ONCE
            && removing.insert(block.clone())
        {
            outer.nodes.send(node, ToNode::Remove { block }, out);
        }
    }

    /// Removes a copy that the scheduler does not need any more, unless the stripe would tolerate fewer
    /// losses without it.
    pub(crate) fn drop_surplus(
        &mut self,
        outer: OuterFacts<'_>,
        jobs: &Jobs,
        (stripe, index, node): (&StripeId, BlockIndex, NodeId),
        out: &mut Out,
    ) {
        let Ok(record) = self.picture.stripe(stripe) else { return };
        let Some(block) = record.block(index).map(|block| block.id.clone()) else { return };
        if outer.with(self).survives_without(&record, index, node) {
            self.remove_copy(outer, jobs, node, block, out);
        }
    }

    pub(crate) fn note_removed(&mut self, node: NodeId, block: &BlockId, out: &mut Out) {
        // The block stays in `removing` until the removal is recorded, so the node is not told twice.
        let Some(Holdings { removing, .. }) = self.inventory.get_mut(node) else { return };
        if removing.contains(block) {
            self.inventory.recording.entry((node, block.clone())).or_default();
            let write = RecordWrite::Discarded(node, block.clone());
            out.store(Write::Records(write), StripeThen::Discarded { node, block: block.clone() });
        }
    }

    /// Handles the end of the write that records a removal. After a failure, the node is told again to remove the
    /// block. If the node has listed the block meanwhile, it is an orphan from now on.
    pub(crate) fn block_discarded(
        &mut self,
        outer: OuterFacts<'_>,
        jobs: &Jobs,
        node: NodeId,
        block: &BlockId,
        out: &mut Out,
    ) {
        let is_back = self.inventory.recording.remove(&(node, block.clone())).unwrap_or_default();
        let Some(Holdings { removing, .. }) = self.inventory.get_mut(node) else { return };
        removing.remove(block);
        let last = removing.is_empty();
        if !is_back {
            self.condemned.forget_copy(block, node, out);
            self.inventory.drop_orphan(node, block);
        }
        if last {
            self.remove_discards(outer, jobs, node, out); // The limit may have delayed further removals.
        }
    }

    /// Records that a node could not remove a block. The removal is retried later.
    pub(crate) fn note_stuck(
        &mut self,
        outer: OuterFacts<'_>,
        jobs: &Jobs,
        node: NodeId,
        block: BlockId,
        problem: &StoreProblem,
        out: &mut Out,
    ) {
        let again = outer.base.now + REMOVE_AGAIN;
        let Some(Holdings { removing, stuck, .. }) = self.inventory.get_mut(node) else { return };
        if !removing.remove(&block) {
            return;
        }
        let (first, empty) = (stuck.is_empty(), removing.is_empty());
        stuck.insert(block.clone(), again);
        if first {
            let node = outer.nodes.name(node);
            tracing::warn!(%block, helper = %node, %problem, "cannot remove a block; trying again later");
        }
        if empty {
            self.remove_discards(outer, jobs, node, out);
        }
    }

    /// Retries removals that failed some time ago.
    pub(crate) fn retry_removals(&mut self, outer: OuterFacts<'_>, jobs: &Jobs, out: &mut Out) {
        if outer.base.now >= self.removals_due {
            // Some removals were waiting until another copy became readable.
            self.removals_due = outer.base.now + REMOVE_AGAIN;
            outer
                .nodes
                .live_helpers()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|node| self.remove_discards(outer, jobs, node, out));
        }
        let now = outer.base.now;
        let due = |held: &Holdings| held.stuck.values().any(|&at| at <= now);
        let nodes: Vec<NodeId> =
            self.inventory.iter().filter(|(_, held)| due(held)).map(|(node, _)| node).collect();
        for node in nodes {
            if let Some(Holdings { stuck, .. }) = self.inventory.get_mut(node) {
                stuck.retain(|_, at| *at > now);
            }
            self.remove_discards(outer, jobs, node, out);
        }
    }
}

/// Returns the blocks to remove next: those for which `goes` is true and that are not being removed, as many
/// as may be in flight besides `removing`. A node may have to remove millions of blocks, so few others are
/// looked at. If there may be more beyond these, also returns the last block that was looked at.
fn next_removals<'b>(
    mut discards: impl Iterator<Item = &'b BlockId>,
    removing: &BTreeSet<BlockId>,
    goes: impl Fn(&BlockId) -> bool,
) -> (Vec<BlockId>, Option<BlockId>) {
    let room = REMOVALS_AT_ONCE.saturating_sub(removing.len());
    let (mut next, mut looks, mut last) = (Vec::new(), 0, None);
    while next.len() < room
        && looks < LOOK_AT
        && let Some(block) = discards.next()
    {
        looks += 1;
        last = Some(block);
        if !removing.contains(block) && goes(block) {
            next.push(block.clone());
        }
    }
    let is_cut = looks == LOOK_AT && next.len() < room;
    (next, last.filter(|_| is_cut).cloned())
}

impl Jobs {
    /// Whether a running job publishes blocks of this block's stripe, or a reader has a lease on the stripe.
    pub(crate) fn is_worked_on(&self, facts: Facts<'_>, block: &BlockId) -> bool {
        facts.stripes.readers.hold(block)
            || self.running.values().any(|running| {
                running.job.publishes() && running.job.stripe().blocks.iter().any(|other| other.id == *block)
            })
    }
}

#[cfg(test)]
mod tests {
    use store_api::StoreChange;

    use super::*;
    use crate::stripes::picture::Picture;

    #[test]
    fn few_of_millions_of_blocks_are_looked_at_for_the_next_removals() {
        let blocks: Vec<BlockId> = (0..100_000).map(|number| BlockId(format!("{number:06}.0"))).collect();
        let looked_at = std::cell::Cell::new(0);
        let next = |removing: usize| {
            looked_at.set(0);
            let discards = blocks.iter().inspect(|_| looked_at.set(looked_at.get() + 1));
            let removing = blocks[..removing].iter().cloned().collect();
            (next_removals(discards, &removing, |_| true).0, looked_at.get())
        };
        let (first, looked) = next(0);
        assert_eq!((first.len(), looked), (REMOVALS_AT_ONCE, REMOVALS_AT_ONCE));
        let (more, looked) = next(200);
        assert_eq!((&more[..], looked), (&blocks[200..REMOVALS_AT_ONCE], REMOVALS_AT_ONCE));
        assert_eq!(next(REMOVALS_AT_ONCE), (Vec::new(), 0));
    }

    /// The stripes of all blocks but one have lost blocks, so their copies stay.
    #[test]
    fn blocks_that_must_stay_are_passed_over_some_at_a_time() {
        let node = NodeId(1);
        let name = |number: usize| BlockId(format!("{number:06}.0"));
        let mut picture = Picture::default();
        (0..10_000).for_each(|number| picture.apply(StoreChange::Discard(node, name(number))));
        let (mut found, mut stopped_at) = (Vec::new(), None);
        for _ in 0..10 {
            let looks = std::cell::Cell::new(0);
            let goes = |block: &BlockId| {
                looks.set(looks.get() + 1);
                *block == name(9999)
            };
            let discards = picture.files().discards_after(node, stopped_at.as_ref());
            let (next, stop) = next_removals(discards, &BTreeSet::new(), goes);
            assert!(looks.get() <= LOOK_AT);
            found.extend(next);
            stopped_at = stop;
        }
        assert_eq!(found, [name(9999)]);
    }
}
