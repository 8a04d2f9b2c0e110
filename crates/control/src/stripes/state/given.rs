//! Stripes that come with a request: a plug-in of another system describes one, then has it read or repaired
//! by its name.
//!
//! Who describes a stripe answers for it: which node has which block, and **which are lost**, since a block
//! without a node is one that can be neither read nor guessed at. What is learned of its blocks meanwhile
//! (rotten, moved) is kept here until the stripe is described anew or forgotten, and nothing of it is in the
//! storage but repairs that are not done, with their stripes in them, so that the next coordinator goes on.
//!
//! In a store that others change, a plug-in may describe a stripe that the storage has told of: then that is
//! what its own system knows of it at this moment, and counts for a while instead. Both have one name, so
//! there is one repair of it.

use std::collections::BTreeMap;
use std::time::Duration;

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockState, StripeRecord};

use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::given_bytes::GivenBytes;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Given {
    pub(in crate::stripes) stripes: BTreeMap<StripeId, StripeRecord>,
    /// When each is looked at again.
    pub(in crate::stripes) until: BTreeMap<StripeId, Duration>,
    pub(in crate::stripes) bytes: GivenBytes,
}

impl Given {
    /// A job has stored blocks of a given stripe.
    pub(crate) fn note_stored(&mut self, stripe: &StripeId, blocks: &[(BlockIndex, NodeId)], out: &mut Out) {
        for &(block, node) in blocks {
            self.set(stripe, block, node, BlockState::Healthy);
        }
        out.tell(Signal::Blocks(stripe.clone()));
    }

    /// A block of a given stripe is not what it should be.
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

    /// Sets what is known of a block; `false` if it was known already, or nobody described the stripe.
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
