//! What helpers shall remove, and what comes of it.

use std::time::Duration;

use codes::BlockIndex;
use repair::wire::control::{StoreProblem, ToNode};
use repair::{BlockId, NodeId, StripeId};
use store_api::{RecordWrite, Write};

use crate::facts::Around;
use crate::facts::Facts;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::Stripes;
use crate::stripes::continuation::StripeThen;
use crate::stripes::state::holdings::Holdings;

/// Removals that one helper is asked for at a time.
const REMOVALS_AT_ONCE: usize = 256;
/// What a helper could not remove is asked for again after this time.
const REMOVE_AGAIN: Duration = Duration::from_secs(30);

impl Stripes {
    /// Tells a node to remove what it shall not hold any more, except what a running job may bring there
    /// anew.
    pub(crate) fn remove_discards(&mut self, around: Around<'_>, jobs: &Jobs, node: NodeId, out: &mut Out) {
        // Until all helpers have said what they hold, an old catalog passes for the newest.
        if !around.nodes.settled || !around.with(self).may_remove() {
            return;
        }
        let Some(Holdings { removing, stuck, .. }) = self.holdings.get_mut(&node) else { return };
        let (mut removing, stuck) = (std::mem::take(removing), stuck.clone());
        let mut told = 0;
        for block in self.picture.files().discards(node).cloned().collect::<Vec<_>>() {
            if removing.len() + told >= REMOVALS_AT_ONCE {
                break;
            }
            let goes = !stuck.contains_key(&block)
                && !jobs.is_worked_on(around.with(self), &block)
                && around.with(self).may_go(node, &block);
            if !goes || removing.contains(&block) {
                continue;
            }
            match self.record_of(&block) {
                // It is a copy of a block that has another home.
                Some((stripe, index, _)) => {
                    told += 1;
                    out.tell(Signal::Surplus { node, stripe, index });
                }
                None => {
                    removing.insert(block.clone());
                    around.nodes.send(node, ToNode::Remove { block }, out);
                }
            }
        }
        if let Some(Holdings { removing: kept, .. }) = self.holdings.get_mut(&node) {
            *kept = removing;
        }
    }

    /// Removes a copy of a block whose stripe is whole without it, if it is still one too many.
    pub(crate) fn remove_copy(
        &mut self,
        around: Around<'_>,
        jobs: &Jobs,
        node: NodeId,
        block: BlockId,
        out: &mut Out,
    ) {
        let goes = self.picture.files().discards(node).any(|other| *other == block)
            && !jobs.is_worked_on(around.with(self), &block)
            && around.with(self).may_go(node, &block);
        let Some(Holdings { removing, stuck, .. }) = self.holdings.get_mut(&node) else { return };
        // What is too much at once is told again when these are gone.
        if goes
            && !stuck.contains_key(&block)
            && removing.len() < REMOVALS_AT_ONCE
            && removing.insert(block.clone())
        {
            around.nodes.send(node, ToNode::Remove { block }, out);
        }
    }

    /// The scheduler needs a copy of a block no more: removes it, unless the stripe would survive less
    /// without it.
    pub(crate) fn drop_surplus(
        &mut self,
        around: Around<'_>,
        jobs: &Jobs,
        (stripe, index, node): (&StripeId, BlockIndex, NodeId),
        out: &mut Out,
    ) {
        let Ok(record) = self.picture.stripe(stripe) else { return };
        let block = record.blocks[usize::from(index.0)].id.clone();
        if around.with(self).survives_without(&record, index, node) {
            self.remove_copy(around, jobs, node, block, out);
        }
    }

    pub(crate) fn note_removed(&mut self, node: NodeId, block: &BlockId, out: &mut Out) {
        // It counts as being removed until that is stored, so that it is not asked for again.
        let Some(Holdings { removing, .. }) = self.holdings.get_mut(&node) else { return };
        if removing.contains(block) {
            let write = RecordWrite::Discarded(node, block.clone());
            out.store(Write::Records(write), StripeThen::Discarded { node, block: block.clone() });
        }
    }

    /// That a node has removed a block is stored, or could not be: then it is asked again.
    pub(crate) fn block_discarded(
        &mut self,
        around: Around<'_>,
        jobs: &Jobs,
        node: NodeId,
        block: &BlockId,
        out: &mut Out,
    ) {
        let Some(Holdings { removing, .. }) = self.holdings.get_mut(&node) else { return };
        removing.remove(block);
        let last = removing.is_empty();
        self.drop_orphan(node, block);
        if last {
            self.remove_discards(around, jobs, node, out); // There may be more than were asked for at once.
        }
    }

    /// A node cannot remove a block. It is asked again later, and not before.
    pub(crate) fn note_stuck(
        &mut self,
        around: Around<'_>,
        jobs: &Jobs,
        node: NodeId,
        block: BlockId,
        problem: &StoreProblem,
        out: &mut Out,
    ) {
        let again = around.base.now + REMOVE_AGAIN;
        let Some(Holdings { removing, stuck, .. }) = self.holdings.get_mut(&node) else { return };
        if !removing.remove(&block) {
            return;
        }
        let (first, empty) = (stuck.is_empty(), removing.is_empty());
        stuck.insert(block.clone(), again);
        if first {
            let node = around.nodes.name(node);
            tracing::warn!(%block, %node, %problem, "cannot remove a block; trying again later");
        }
        if empty {
            self.remove_discards(around, jobs, node, out);
        }
    }

    /// Asks again for removals that failed some time ago.
    pub(crate) fn retry_removals(&mut self, around: Around<'_>, jobs: &Jobs, out: &mut Out) {
        if around.base.now >= self.removals_due {
            // Some waited for another copy to be readable.
            self.removals_due = around.base.now + REMOVE_AGAIN;
            around
                .nodes
                .live_helpers()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|node| self.remove_discards(around, jobs, node, out));
        }
        let now = around.base.now;
        let due = |held: &Holdings| held.stuck.values().any(|&at| at <= now);
        let nodes: Vec<NodeId> =
            self.holdings.iter().filter(|(_, held)| due(held)).map(|(&node, _)| node).collect();
        for node in nodes {
            if let Some(Holdings { stuck, .. }) = self.holdings.get_mut(&node) {
                stuck.retain(|_, at| *at > now);
            }
            self.remove_discards(around, jobs, node, out);
        }
    }
}

impl Jobs {
    /// Whether a running job publishes blocks of the stripe that this block is named after, or somebody still
    /// reads it.
    pub(crate) fn is_worked_on(&self, facts: Facts<'_>, block: &BlockId) -> bool {
        facts.stripes.readers.hold(block)
            || self.running.values().any(|running| {
                !running.targets.is_empty()
                    && running.job.stripe().blocks.iter().any(|other| other.id == *block)
            })
    }
}
