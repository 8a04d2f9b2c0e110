//! Records in the storage which blocks were found good or bad.

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockState, StripeWrite, Write};

use crate::facts::OuterFacts;
use crate::out::Out;
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
        let mut good = Vec::new();
        for (stripe, index, node, state) in &states {
            let Ok(record) = self.picture.stripe(stripe) else { continue };
            let block = (record.blocks[usize::from(index.0)].id.clone(), *node);
            match state {
                BlockState::Healthy => good.push(block),
                &state => drop(self.doubted.insert(block, state)),
            }
        }
        out.store(Write::Stripes(StripeWrite::SetStates(states)), StripeThen::Known { good });
    }
}
