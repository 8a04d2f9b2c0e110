//! Stripes whose blocks contradict each other: some block is wrong although its own checksums hold.
//!
//! A contradiction is recorded, so it survives a restart. It ends when the stripe is removed, or when a
//! parity check passes over every block of which a healthy copy is recorded. A check that omits a block, or
//! cannot read it, proves nothing about that block. As long as the contradiction lasts, `status` does not
//! report the cluster as safe, and each block decoded from the stripe is checked against every survivor.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::StripeId;
use serde::{Deserialize, Serialize};

use views::FoundBy;

/// The stripes with contradictory blocks.
#[derive(Debug, Default)]
pub(crate) struct Contradictions(pub(crate) BTreeMap<StripeId, Contradiction>);

/// A contradiction, in memory and in the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contradiction {
    /// The blocks of the parity equations that failed.
    pub(crate) blocks: BTreeSet<u16>,
    pub(crate) found_by: FoundBy,
    pub(crate) since_unix_ms: u64,
}

impl Contradictions {
    /// Whether the blocks of a stripe contradict each other.
    pub(crate) fn has(&self, stripe: &StripeId) -> bool {
        self.0.contains_key(stripe)
    }

    /// Adds blocks to a contradiction. Returns the contradiction if it has changed.
    pub(in crate::stripes) fn add(
        &mut self,
        stripe: &StripeId,
        blocks: &BTreeSet<BlockIndex>,
        found_by: FoundBy,
        unix_ms: u64,
    ) -> Option<Contradiction> {
        let blocks: BTreeSet<u16> = blocks.iter().map(|block| block.0).collect();
        match self.0.get_mut(stripe) {
            Some(known) if blocks.is_subset(&known.blocks) => None,
            Some(known) => {
                known.blocks.extend(blocks);
                Some(known.clone())
            }
            None => {
                let contradiction = Contradiction { blocks, found_by, since_unix_ms: unix_ms };
                self.0.insert(stripe.clone(), contradiction.clone());
                Some(contradiction)
            }
        }
    }
}
