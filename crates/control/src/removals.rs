//! What helpers shall remove, and what comes of it.

use std::time::Duration;

use repair::wire::control::{StoreProblem, ToNode};
use repair::{BlockId, NodeId};
use stores::{FileWrite, Write};

use super::Control;
use super::inventory::Holdings;
use super::storing::Then;
use crate::facts::Facts;
use crate::jobs::Jobs;

/// Removals that one helper is asked for at a time.
const REMOVALS_AT_ONCE: usize = 256;
/// What a helper could not remove is asked for again after this time.
const REMOVE_AGAIN: Duration = Duration::from_secs(30);

impl Control {
    /// Tells a node to remove what it shall not hold any more, except what a running job may bring there anew.
    pub(crate) fn remove_discards(&mut self, node: NodeId) {
        // Until all helpers have said what they hold, an old catalog passes for the newest.
        if !self.nodes.settled || !self.facts().may_remove() {
            return;
        }
        let Some(Holdings { removing, stuck, .. }) = self.stripes.holdings.get_mut(&node) else { return };
        let (mut removing, stuck) = (std::mem::take(removing), stuck.clone());
        let mut told = 0;
        for block in self.stripes.picture.files().discards(node).cloned().collect::<Vec<_>>() {
            if removing.len() + told >= REMOVALS_AT_ONCE {
                break;
            }
            let goes = !stuck.contains_key(&block)
                && !self.jobs.is_worked_on(facts!(self), &block)
                && self.facts().may_go(node, &block);
            if !goes || removing.contains(&block) {
                continue;
            }
            match self.stripes.record_of(&block) {
                // It is a copy of a block that has another home.
                Some((stripe, index, _)) => {
                    told += 1;
                    self.tell_surplus(node, &stripe, index);
                }
                None => {
                    removing.insert(block.clone());
                    self.nodes.send(node, ToNode::Remove { block }, &mut self.out);
                }
            }
        }
        if let Some(Holdings { removing: kept, .. }) = self.stripes.holdings.get_mut(&node) {
            *kept = removing;
        }
    }

    /// Removes a copy of a block whose stripe is whole without it, if it is still one too many.
    pub(crate) fn remove_copy(&mut self, node: NodeId, block: BlockId) {
        let goes = self.stripes.picture.files().discards(node).any(|other| *other == block)
            && !self.jobs.is_worked_on(facts!(self), &block)
            && self.facts().may_go(node, &block);
        let Some(Holdings { removing, stuck, .. }) = self.stripes.holdings.get_mut(&node) else { return };
        // What is too much at once is told again when these are gone.
        if goes
            && !stuck.contains_key(&block)
            && removing.len() < REMOVALS_AT_ONCE
            && removing.insert(block.clone())
        {
            self.nodes.send(node, ToNode::Remove { block }, &mut self.out);
        }
    }

    pub(crate) fn note_removed(&mut self, node: NodeId, block: &BlockId) {
        // It counts as being removed until that is stored, so that it is not asked for again.
        let Some(Holdings { removing, .. }) = self.stripes.holdings.get_mut(&node) else { return };
        if removing.contains(block) {
            let write = FileWrite::Discarded(node, block.clone());
            self.out.store(Write::Files(write), Then::Discarded { node, block: block.clone() });
        }
    }

    /// That a node has removed a block is stored, or could not be: then it is asked again.
    pub(crate) fn block_discarded(&mut self, node: NodeId, block: &BlockId) {
        let Some(Holdings { removing, .. }) = self.stripes.holdings.get_mut(&node) else { return };
        removing.remove(block);
        let last = removing.is_empty();
        self.drop_orphan(node, block);
        if last {
            self.remove_discards(node); // There may be more than were asked for at once.
        }
    }

    /// A node cannot remove a block. It is asked again later, and not before.
    pub(crate) fn note_stuck(&mut self, node: NodeId, block: BlockId, problem: &StoreProblem) {
        let again = self.base.now + REMOVE_AGAIN;
        let Some(Holdings { removing, stuck, .. }) = self.stripes.holdings.get_mut(&node) else { return };
        if !removing.remove(&block) {
            return;
        }
        let (first, empty) = (stuck.is_empty(), removing.is_empty());
        stuck.insert(block.clone(), again);
        if first {
            let node = self.nodes.name(node);
            tracing::warn!(%block, %node, %problem, "cannot remove a block; trying again later");
        }
        if empty {
            self.remove_discards(node);
        }
    }

    /// Asks again for removals that failed some time ago.
    pub(crate) fn retry_removals(&mut self) {
        if self.base.now >= self.stripes.removals_due {
            // Some waited for another copy to be readable.
            self.stripes.removals_due = self.base.now + REMOVE_AGAIN;
            self.nodes
                .live_helpers()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|node| self.remove_discards(node));
        }
        let now = self.base.now;
        let due = |held: &Holdings| held.stuck.values().any(|&at| at <= now);
        let nodes: Vec<NodeId> =
            self.stripes.holdings.iter().filter(|(_, held)| due(held)).map(|(&node, _)| node).collect();
        for node in nodes {
            if let Some(Holdings { stuck, .. }) = self.stripes.holdings.get_mut(&node) {
                stuck.retain(|_, at| *at > now);
            }
            self.remove_discards(node);
        }
    }
}

impl Jobs {
    /// Whether a running job publishes blocks of the stripe that this block is named after, or somebody still reads it.
    pub(crate) fn is_worked_on(&self, facts: Facts<'_>, block: &BlockId) -> bool {
        facts.stripes.readers.hold(block)
            || self.running.values().any(|running| {
                !running.targets.is_empty()
                    && running.job.stripe().blocks.iter().any(|other| other.id == *block)
            })
    }
}
