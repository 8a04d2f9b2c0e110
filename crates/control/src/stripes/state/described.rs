//! Described stripes: a plug-in of another system describes a stripe to the coordinator, then has it read or
//! repaired by name. They are also called given stripes.
//!
//! The plug-in is responsible for the description: it states which node has which block, and **which blocks
//! are lost**. A block without a node is not readable and is not searched for. Findings about the stripe's
//! blocks (bad, moved) are kept here until the stripe is described again or forgotten. The storage records
//! such a stripe only as a part of its unfinished repair, so that the next coordinator can continue the
//! repair.
//!
//! In a store that others change, a plug-in may describe a stripe that the storage has also listed. The
//! description takes precedence for a short time, for reads and for repairs that plug-ins request. Other
//! repairs take the stripe as the storage lists it, and until they have ended, so do the reads of plug-ins.
//! Description and listing have the same name, so there is only one repair of the stripe at a time.
//!
//! **Invariant:** a description never makes a copy good that was found to have wrong bytes. Plug-ins know
//! neither the results of reads nor those of parity checks.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use store_api::{BlockState, StripeRecord};

use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::described_bytes::DescribedBytes;

/// The stripes that plug-ins have described.
#[derive(Default)]
pub(crate) struct DescribedStripes {
    pub(in crate::stripes) stripes: BTreeMap<StripeId, StripeRecord>,
    /// The time at which each stripe is dropped. For a stripe that is in use then, the time is extended.
    pub(in crate::stripes) until: BTreeMap<StripeId, Duration>,
    pub(in crate::stripes) bytes: DescribedBytes,
    /// The described stripes that plug-ins read as the storage lists them, each with the time until which they may.
    pub(in crate::stripes) as_listed: BTreeMap<StripeId, Duration>,
}

impl DescribedStripes {
    /// Records the blocks of a described stripe that a job has stored.
    pub(crate) fn note_stored(&mut self, stripe: &StripeId, blocks: &[(BlockIndex, NodeId)], out: &mut Out) {
        for &(block, node) in blocks {
            self.set(stripe, block, node, BlockState::Healthy);
        }
        out.tell(Signal::Blocks(stripe.clone()));
    }

    /// Records that a block of a described stripe was found bad on a node. A finding about another node than the
    /// described one is ignored: it is older than the description.
    pub(crate) fn note_lost(
        &mut self,
        stripe: &StripeId,
        index: BlockIndex,
        node: NodeId,
        state: BlockState,
        out: &mut Out,
    ) {
        let described = self.stripes.get(stripe).and_then(|record| record.block(index));
        if described.is_some_and(|block| block.node == Some(node)) && self.set(stripe, index, node, state) {
            out.tell(Signal::Blocks(stripe.clone()));
        }
    }

    /// Marks the described copies that were found to have wrong bytes since the storage last listed the stripe.
    pub(in crate::stripes) fn note_listed(&mut self, before: Option<&StripeRecord>, now: &StripeRecord) {
        let Some(record) = self.stripes.get_mut(&now.id) else { return };
        let state_in = |listed: &StripeRecord, block: &BlockId, node: NodeId| {
            listed.blocks.iter().find(|known| known.id == *block)?.state_on(node)
        };
        for block in &mut record.blocks {
            let Some(node) = block.node else { continue };
            let before = before.and_then(|before| state_in(before, &block.id, node));
            let found = state_in(now, &block.id, node).filter(|&state| has_wrong_bytes(state));
            if let Some(state) = found.filter(|_| before != found) {
                block.state = state;
            }
        }
    }

    pub(crate) fn get(&self, stripe: &StripeId) -> Option<&StripeRecord> {
        self.stripes.get(stripe)
    }

    /// Whether plug-ins may read a stripe, because one has described it.
    pub(crate) fn may_be_read(&self, stripe: &StripeId) -> bool {
        self.stripes.contains_key(stripe) || self.is_read_as_listed(stripe)
    }

    /// Whether plug-ins read a described stripe as the storage lists it.
    pub(crate) fn is_read_as_listed(&self, stripe: &StripeId) -> bool {
        !self.stripes.contains_key(stripe) && self.as_listed.contains_key(stripe)
    }

    /// Returns the number of stripes that plug-ins may read.
    pub(in crate::stripes) fn readable(&self) -> usize {
        self.stripes.len() + self.as_listed.len()
    }

    /// Returns the names of all described stripes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &StripeId> {
        self.stripes.keys()
    }

    /// Sets the node and the state of a block. Returns `false` if nothing changes or the stripe was not
    /// described.
    pub(in crate::stripes) fn set(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        state: BlockState,
    ) -> bool {
        let record = self.stripes.get_mut(stripe);
        let Some(block) = record.and_then(|record| record.blocks.get_mut(usize::from(block.0))) else {
            return false;
        };
        let changed = (block.node, block.state) != (Some(node), state);
        (block.node, block.state) = (Some(node), state);
        changed
    }

    /// Drops the description of a stripe at this time at the latest, if it is not used before.
    pub(crate) fn limit(&mut self, stripe: &StripeId, until: Duration) {
        if let Some(kept) = self.until.get_mut(stripe) {
            *kept = until.min(*kept);
        }
    }

    pub(in crate::stripes) fn insert(&mut self, record: StripeRecord, until: Duration) {
        self.until.insert(record.id.clone(), until);
        self.stripes.insert(record.id.clone(), record);
    }

    pub(in crate::stripes) fn remove(&mut self, stripe: &StripeId) {
        self.bytes.free(stripe);
        self.until.remove(stripe);
        self.stripes.remove(stripe);
    }
}

/// Whether a copy in this state was read and found wrong or unreadable. A description says where copies are, which
/// overrules a listing that misses them; it says nothing about their bytes.
pub(in crate::stripes) fn has_wrong_bytes(state: BlockState) -> bool {
    matches!(state, BlockState::Corrupt | BlockState::Unreadable)
}
