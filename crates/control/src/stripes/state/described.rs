//! DescribedStripes stripes: a plug-in of another system describes a stripe, then has it read or repaired by name.
//!
//! The plug-in is responsible for the description: it states which node has which block, and **which blocks
//! are lost**. A block without a node is not readable and is not searched for. Findings about its blocks
//! (bad, moved) are kept here until the stripe is described again or forgotten. The storage has only the
//! unfinished repairs; each contains its stripe, so the next coordinator can continue it.
//!
//! In a store that others change, a plug-in may describe a stripe that the storage has also listed. The
//! description is the system's latest view and takes precedence for a short time. Both have the same name, so
//! there is only one repair of the stripe.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockState, StripeRecord};

use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::described_bytes::DescribedBytes;

/// The given stripes.
#[derive(Default)]
pub(crate) struct DescribedStripes {
    pub(in crate::stripes) stripes: BTreeMap<StripeId, StripeRecord>,
    /// The time at which each stripe is dropped, unless it is in use.
    pub(in crate::stripes) until: BTreeMap<StripeId, Duration>,
    pub(in crate::stripes) bytes: DescribedBytes,
}

impl DescribedStripes {
    /// A job has stored blocks of a given stripe.
    pub(crate) fn note_stored(&mut self, stripe: &StripeId, blocks: &[(BlockIndex, NodeId)], out: &mut Out) {
        for &(block, node) in blocks {
            self.set(stripe, block, node, BlockState::Healthy);
        }
        out.tell(Signal::Blocks(stripe.clone()));
    }

    /// A job found a block of a given stripe to be bad.
    pub(crate) fn note_lost(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        state: BlockState,
        out: &mut Out,
    ) {
        if self.set(stripe, block, node, state) {
            out.tell(Signal::Blocks(stripe.clone()));
        }
    }

    pub(crate) fn get(&self, stripe: &StripeId) -> Option<&StripeRecord> {
        self.stripes.get(stripe)
    }

    /// Sets the node and the state of a block. Returns `false` if nothing changes or the stripe is not a
    /// given one.
    pub(in crate::stripes) fn set(
        &mut self,
        stripe: &StripeId,
        block: BlockIndex,
        node: NodeId,
        state: BlockState,
    ) -> bool {
        let Some(record) = self.stripes.get_mut(stripe) else { return false };
        let block = &mut record.blocks[usize::from(block.0)];
        let changed = (block.node, block.state) != (Some(node), state);
        (block.node, block.state) = (Some(node), state);
        changed
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
