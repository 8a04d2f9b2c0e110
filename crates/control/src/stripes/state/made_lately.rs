//! Recently rebuilt blocks, in stores that others run. A copy that displaces one of them is verified.
//!
//! A server that returns has old copies of blocks that were rebuilt elsewhere in the meantime. The store may
//! keep the old copy, which may be bad, and remove the new one.

use std::collections::{BTreeMap, VecDeque};

use codes::BlockIndex;
use repair::{NodeId, StripeId};
use store_api::{BlockState, StripeRecord};

use crate::stripes::indices::{indexed, indices_of};

/// The maximum number of blocks that are remembered.
const REMEMBERED: usize = 4096;

/// The nodes of recently rebuilt blocks, and the order in which they were rebuilt.
#[derive(Debug, Default)]
pub(crate) struct MadeLately {
    pub(in crate::stripes) homes: BTreeMap<(StripeId, BlockIndex), NodeId>,
    pub(in crate::stripes) oldest_first: VecDeque<(StripeId, BlockIndex)>,
}

impl MadeLately {
    pub(in crate::stripes) fn note(&mut self, stripe: &StripeId, block: BlockIndex, home: NodeId) {
        let key = (stripe.clone(), block);
        if self.homes.insert(key.clone(), home).is_none() {
            self.oldest_first.push_back(key);
        }
        while self.oldest_first.len() > REMEMBERED {
            let oldest = self.oldest_first.pop_front().expect("the queue is not empty");
            self.homes.remove(&oldest);
        }
    }

    /// Drops the blocks of a stripe that was removed.
    pub(in crate::stripes) fn forget_stripe(&mut self, stripe: &StripeId) {
        if self.homes.extract_if(indices_of(stripe), |_, _| true).count() > 0 {
            self.oldest_first.retain(|(of, _)| of != stripe);
        }
    }

    /// Removes and returns the blocks of a stripe that the store now lists as healthy on another node than
    /// the one on which they were rebuilt. Each comes with the listed node.
    pub(in crate::stripes) fn displaced(&mut self, now: &StripeRecord) -> Vec<(BlockIndex, NodeId)> {
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
    fn a_displacing_copy_is_verified_once() {
        let mut made = MadeLately::default();
        made.note(&StripeId("s".into()), BlockIndex(1), NodeId(7));
        assert_eq!(made.displaced(&stripe([3, 7], BlockState::Healthy)), []);
        assert_eq!(made.displaced(&stripe([4, 5], BlockState::Missing)), []);
        assert_eq!(made.displaced(&stripe([4, 5], BlockState::Healthy)), [(BlockIndex(1), NodeId(5))]);
        assert_eq!(made.displaced(&stripe([4, 5], BlockState::Healthy)), []);
    }

    #[test]
    fn the_oldest_blocks_are_forgotten_beyond_the_limit() {
        let mut made = MadeLately::default();
        for at in 0..=REMEMBERED {
            made.note(&StripeId(at.to_string()), BlockIndex(0), NodeId(1));
        }
        assert_eq!((made.homes.len(), made.oldest_first.len()), (REMEMBERED, REMEMBERED));
        assert!(!made.homes.contains_key(&(StripeId("0".into()), BlockIndex(0))));
    }
}
