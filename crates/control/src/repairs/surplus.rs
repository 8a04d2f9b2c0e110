//! Nodes that come back while their blocks are being rebuilt, and the copies that are then one too many.
//!
//! What a node says that it has is held against the recorded digests, by its checksum files and without reading the blocks.
//! Until then nothing starts that might be needless, and nothing ends as needless that might be wanted after all. Copies whose block has another home since are told
//! to the scheduler, and go once it says that all blocks of their stripe can be read without them.

use std::collections::BTreeSet;
use std::time::Duration;

use codes::BlockIndex;
use repair::recovery::BlockFacts;
use repair::{BlockId, NodeId, StripeId};
use stores::BlockState;

use crate::facts::Around;
use crate::facts::Facts;
use crate::out::Out;
use crate::repairs::Repairs;
use crate::stripes::Stripes;

/// How long stripes wait for what a node says of its blocks.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

impl Stripes {
    /// Has the blocks of a helper verified that have not described themselves.
    pub(crate) fn look_at_silent(
        &mut self,
        around: Around<'_>,
        node: NodeId,
        described: &BTreeSet<BlockId>,
        out: &mut Out,
    ) {
        for (stripe, index) in self.picture.blocks_of(node) {
            let Ok(record) = self.picture.stripe(&stripe) else { continue };
            let known = record.blocks[usize::from(index.0)].clone();
            if known.state == BlockState::Healthy && !described.contains(&known.id) {
                self.look_again(around, node, stripe, index, known, out);
            }
        }
    }
}

impl Repairs {
    /// A helper has a copy of a block that has another home: the scheduler says when it may go.
    pub(crate) fn tell_surplus(
        &mut self,
        facts: Facts<'_>,
        node: NodeId,
        stripe: &StripeId,
        index: BlockIndex,
    ) {
        let Ok(record) = facts.stripes.picture.stripe(stripe) else { return };
        let facts: Vec<BlockFacts> = record.blocks.iter().map(|block| facts.block_facts(block)).collect();
        self.scheduler.handle_surplus(stripe, index, node, &facts);
    }
}
