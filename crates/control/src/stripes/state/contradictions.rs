//! Stripes whose blocks contradict each other: some block is wrong although its own checksums hold.
//!
//! A contradiction is recorded, so it survives a restart. It ends when the stripe is removed, or when a
//! parity check passes over every block of which a healthy copy is recorded. A check that omits a block, or
//! cannot read it, proves nothing about that block. As long as the contradiction lasts, `status` does not
//! report the cluster as safe, and each block decoded from the stripe is checked against every survivor.
//!
//! A check leaves out lost blocks, and one of them may be the wrong one. An older copy of a block that was rebuilt or
//! moved meanwhile may be wrong too, and may return. So the record of an ended contradiction is kept with these blocks
//! and, for each, the copy that the check has read or that a job has made since. The contradiction is opened again if
//! Mend would read another copy.

use std::collections::{BTreeMap, BTreeSet};

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use serde::{Deserialize, Serialize};

use views::FoundBy;

/// The stripes with contradictory blocks.
#[derive(Debug, Default)]
pub(crate) struct Contradictions {
    pub(crate) open: BTreeMap<StripeId, Contradiction>,
    /// The contradictions that ended although some copies were not checked. No stripe has an open one too.
    pub(in crate::stripes) ended: BTreeMap<StripeId, Contradiction>,
}

/// A contradiction, in memory and in the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Contradiction {
    /// The blocks of the parity equations that failed.
    pub(crate) blocks: BTreeSet<u16>,
    pub(crate) found_by: FoundBy,
    pub(crate) since_unix_ms: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::stripes) has_ended: bool,
    /// The blocks with copies that no check has read since the contradiction was found: blocks that were lost, or that
    /// were rebuilt or moved. Each comes with the node of the copy that the last check has read or a job has made since.
    /// While the contradiction is open, there is none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(in crate::stripes) left_out: BTreeMap<u16, Option<NodeId>>,
}

impl Contradictions {
    /// Whether the blocks of a stripe contradict each other.
    pub(crate) fn has(&self, stripe: &StripeId) -> bool {
        self.open.contains_key(stripe)
    }

    /// Whether the contradiction of a stripe is open, and the stripe has copies that no check has read since.
    pub(crate) fn is_reopened(&self, stripe: &StripeId) -> bool {
        self.open.get(stripe).is_some_and(|open| !open.left_out.is_empty())
    }

    /// Returns the stripes with open contradictions and with copies that no check has read since.
    pub(crate) fn reopened(&self) -> impl Iterator<Item = &StripeId> {
        self.open.iter().filter(|(_, open)| !open.left_out.is_empty()).map(|(stripe, _)| stripe)
    }

    /// Restores a contradiction from the records.
    pub(in crate::stripes) fn restore(&mut self, stripe: StripeId, kept: Contradiction) {
        let of_its_kind = if kept.has_ended { &mut self.ended } else { &mut self.open };
        of_its_kind.insert(stripe, kept);
    }

    /// Adds blocks to a contradiction, or opens an ended one again. Returns the contradiction if it has changed.
    pub(in crate::stripes) fn add(
        &mut self,
        stripe: &StripeId,
        blocks: &BTreeSet<BlockIndex>,
        found_by: FoundBy,
        unix_ms: u64,
    ) -> Option<Contradiction> {
        let blocks: BTreeSet<u16> = blocks.iter().map(|block| block.0).collect();
        match self.open.get_mut(stripe) {
            Some(known) if blocks.is_subset(&known.blocks) => None,
            Some(known) => {
                known.blocks.extend(blocks);
                Some(known.clone())
            }
            None => {
                let ended = self.ended.remove(stripe);
                let left_out = ended.into_iter().flat_map(|ended| ended.left_out.into_keys());
                let contradiction = Contradiction {
                    blocks,
                    found_by,
                    since_unix_ms: unix_ms,
                    has_ended: false,
                    left_out: left_out.map(|index| (index, None)).collect(),
                };
                self.open.insert(stripe.clone(), contradiction.clone());
                Some(contradiction)
            }
        }
    }
}
