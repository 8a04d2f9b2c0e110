//! Records in the storage which blocks were found good or bad.

use std::collections::BTreeSet;

use codes::BlockIndex;
use repair::{BlockId, NodeId, StripeId};
use store_api::{BlockState, StripeWrite, Write};

use crate::facts::OuterFacts;
use crate::out::Out;
use crate::signal::Signal;
use crate::stripes::Stripes;
use crate::stripes::continuation::StripeThen;

impl Stripes {
    /// Records states of blocks. A bad block counts as bad immediately, even before the write is durable.
    /// Otherwise the last good copy could be removed in the meantime.
    pub(crate) fn store_states(
        &mut self,
        _around: OuterFacts<'_>,
        states: Vec<(StripeId, BlockIndex, NodeId, BlockState)>,
        out: &mut Out,
    ) {
        let write = self.unrecorded.begin_write();
        let (mut copies, mut bad) = (Vec::new(), BTreeSet::new());
        for (stripe, index, node, state) in &states {
            let Ok(record) = self.picture.stripe(stripe) else { continue };
            let Some(block) = record.block(*index) else { continue };
            let copy = (block.id.clone(), *node);
            self.unrecorded.note(write, copy.clone(), *state);
            copies.push(copy);
            if state.is_bad() {
                bad.insert(stripe.clone());
            }
        }
        out.store(Write::Stripes(StripeWrite::SetStates(states)), StripeThen::Known { write, copies, bad });
    }
}

/// Handles the end of a write of states. The scheduler is told, because a finding may end without a change of the record.
pub(crate) fn stored(
    stripes: &mut Stripes,
    write: u64,
    copies: &[(BlockId, NodeId)],
    is_ok: bool,
    out: &mut Out,
) {
    for copy in copies {
        let known = stripes.record_of(&copy.0);
        let recorded = known.as_ref().and_then(|(_, _, record)| record.state_on(copy.1));
        stripes.unrecorded.end_write(write, copy, is_ok, recorded);
        known.into_iter().for_each(|(stripe, ..)| out.tell(Signal::Blocks(stripe)));
    }
}

/// Forgets findings about copies that the store does not count as bad. The store has reported the states of these
/// copies. A later finding whose write is on its way stays: the answer to that write decides.
pub(crate) fn overruled(stripes: &mut Stripes, copies: &[(StripeId, BlockIndex, NodeId)], out: &mut Out) {
    for (stripe, index, node) in copies {
        let Ok(record) = stripes.picture.stripe(stripe) else { continue };
        let Some(block) = record.block(*index) else { continue };
        tracing::info!(block = %block.id, "the store doubts what a block was found bad by");
        stripes.unrecorded.settle(&(block.id.clone(), *node), Some(BlockState::Healthy));
        out.tell(Signal::Blocks(stripe.clone()));
    }
}
