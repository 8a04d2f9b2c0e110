//! Blocks that repairs made lately, in stores that others run: a copy that takes the place of one is read.
//!
//! A server that comes back has its old copies of blocks that were rebuilt elsewhere meanwhile. The store may keep
//! the old one, which may be rotten, and remove the new one.

use std::collections::{BTreeMap, VecDeque};

use codes::BlockIndex;
use repair::{JobId, NodeId, StripeId};
use store_api::{BlockState, StripeRecord};

use crate::facts::Around;
use crate::jobs::Jobs;
use crate::out::Out;
use crate::stripes::Stripes;
use crate::stripes::indexed;

/// Blocks that are remembered.
const REMEMBERED: usize = 4096;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct MadeLately {
    homes: BTreeMap<(StripeId, BlockIndex), NodeId>,
    oldest_first: VecDeque<(StripeId, BlockIndex)>,
}

impl MadeLately {
    fn note(&mut self, stripe: &StripeId, block: BlockIndex, home: NodeId) {
        let key = (stripe.clone(), block);
        if self.homes.insert(key.clone(), home).is_none() {
            self.oldest_first.push_back(key);
        }
        while self.oldest_first.len() > REMEMBERED {
            let oldest = self.oldest_first.pop_front().expect("there are some");
            self.homes.remove(&oldest);
        }
    }

    /// Takes out the blocks of a stripe that are on another node now than they were made on, with that node.
    fn displaced(&mut self, now: &StripeRecord) -> Vec<(BlockIndex, NodeId)> {
        let mut displaced = Vec::new();
        for (index, block) in indexed(now) {
            let key = (now.id.clone(), index);
            let Some(&home) = self.homes.get(&key) else { continue };
            if let Some(other) = block.node.filter(|&node| node != home && block.state == BlockState::Healthy)
            {
                self.homes.remove(&key);
                self.oldest_first.retain(|known| *known != key);
                displaced.push((index, other));
            }
        }
        displaced
    }
}

impl Stripes {
    /// Blocks of a stripe were made and recorded. The store may list an older copy by now.
    pub(crate) fn note_made(
        &mut self,
        around: Around<'_>,
        jobs: &Jobs,
        job: JobId,
        stripe: &StripeId,
        blocks: &[BlockIndex],
        out: &mut Out,
    ) {
        let (Some(running), Ok(record)) = (jobs.running.get(&job), self.picture.stripe(stripe)) else {
            return;
        };
        if !around.base.store.claims_stripes() {
            return;
        }
        for &block in blocks {
            let listed = record.blocks[usize::from(block.0)].node;
            let made_on = listed.filter(|node| running.targets.contains(node));
            if let Some(home) = made_on.or(running.targets.first().copied()) {
                self.made_lately.note(stripe, block, home);
            }
        }
        self.read_displaced(around, &record, out);
    }

    /// The store has told of a stripe: a copy that took the place of a block that was made lately is read.
    pub(crate) fn read_displaced(&mut self, around: Around<'_>, now: &StripeRecord, out: &mut Out) {
        for (index, node) in self.made_lately.displaced(now) {
            let block = now.blocks[usize::from(index.0)].clone();
            tracing::info!(block = %block.id, node = %around.nodes.name(node), "an older copy took the place of a rebuilt block: reading it");
            if around.nodes.is_helper(node) {
                around.with(self).ask_for_block(node, now.id.clone(), index, block, false, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use repair::BlockId;
    use store_api::BlockRecord;

    use super::*;

    fn stripe(homes: [u32; 2], state: BlockState) -> StripeRecord {
        let block = |(at, home): (usize, u32)| BlockRecord {
            id: BlockId(format!("s.{at}")),
            bytes: 1,
            node: Some(NodeId(home)),
            state,
            replicas: Vec::new(),
            digest: None,
        };
        StripeRecord {
            id: StripeId("s".into()),
            code: "rs-2-1".parse().expect("a code"),
            block_bytes: 1,
            chunk_bytes: None,
            blocks: homes.into_iter().enumerate().map(block).collect(),
            file: None,
        }
    }

    #[test]
    fn a_copy_elsewhere_is_looked_at_once() {
        let mut made = MadeLately::default();
        made.note(&StripeId("s".into()), BlockIndex(1), NodeId(7));
        assert_eq!(made.displaced(&stripe([3, 7], BlockState::Healthy)), []);
        assert_eq!(made.displaced(&stripe([4, 5], BlockState::Missing)), []);
        assert_eq!(made.displaced(&stripe([4, 5], BlockState::Healthy)), [(BlockIndex(1), NodeId(5))]);
        assert_eq!(made.displaced(&stripe([4, 5], BlockState::Healthy)), []);
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let mut made = MadeLately::default();
        for at in 0..=REMEMBERED {
            made.note(&StripeId(at.to_string()), BlockIndex(0), NodeId(1));
        }
        assert_eq!((made.homes.len(), made.oldest_first.len()), (REMEMBERED, REMEMBERED));
        assert!(!made.homes.contains_key(&(StripeId("0".into()), BlockIndex(0))));
    }
}
