//! The blocks that a helper probably has in memory: a bounded LRU list, and the deltas that report it to the
//! coordinator.
//!
//! m-PPR prefers sources that have a block in memory. A helper records the blocks that it reads or writes as
//! a whole and evicts the least recently used ones when the list is full. Each heartbeat carries the
//! difference from the last report, with a bounded number of names. A block that is added and evicted between
//! two heartbeats is never reported.
//!
//! The list has only the names of blocks, not their bytes. It is a guess at what the operating system still
//! caches. A wrong guess only affects which sources are preferred.

use std::collections::{BTreeMap, BTreeSet};

use repair::BlockId;
use serde::{Deserialize, Serialize};

/// LRU list of blocks. See the module documentation.
#[derive(Clone, Debug)]
pub struct BlockCache {
    most_bytes: u64,
    bytes: u64,
    uses: u64,
    /// For each block, the number of its last use and its size in bytes.
    blocks: BTreeMap<BlockId, (u64, u64)>,
    by_use: BTreeMap<u64, BlockId>,
    /// The blocks that are in memory according to the reports so far.
    told: BTreeSet<BlockId>,
    /// Blocks whose state may differ from the reported one.
    changed: BTreeSet<BlockId>,
    /// Whether the next delta replaces everything reported before.
    anew: bool,
}

/// Changes since the last heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheDelta {
    /// Whether to discard everything reported before.
    #[serde(default)]
    pub anew: bool,
    /// Blocks that are now in memory.
    #[serde(default)]
    pub added: Vec<BlockId>,
    /// Blocks that are no longer in memory.
    #[serde(default)]
    pub removed: Vec<BlockId>,
}

impl CacheDelta {
    /// Whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        !self.anew && self.added.is_empty() && self.removed.is_empty()
    }
}

impl BlockCache {
    /// Creates an empty list for up to `most_bytes` bytes of blocks.
    pub fn new(most_bytes: u64) -> Self {
        Self {
            most_bytes,
            bytes: 0,
            uses: 0,
            blocks: BTreeMap::new(),
            by_use: BTreeMap::new(),
            told: BTreeSet::new(),
            changed: BTreeSet::new(),
            anew: true,
        }
    }

    /// Records that a whole block was read or written. A block larger than `most_bytes`, the limit of the
    /// whole list, is not recorded.
    pub fn touch(&mut self, block: &BlockId, bytes: u64) {
        self.drop_block(block);
        if bytes > self.most_bytes {
            return;
        }
        self.uses += 1;
        self.bytes += bytes;
        self.blocks.insert(block.clone(), (self.uses, bytes));
        self.by_use.insert(self.uses, block.clone());
        self.changed.insert(block.clone());
        while self.bytes > self.most_bytes {
            let (_, oldest) = self.by_use.first_key_value().expect("something has these bytes");
            self.drop_block(&oldest.clone());
        }
    }

    /// Removes a block, for example because it was deleted from the disk.
    pub fn drop_block(&mut self, block: &BlockId) {
        if let Some((at, bytes)) = self.blocks.remove(block) {
            self.by_use.remove(&at);
            self.bytes -= bytes;
            self.changed.insert(block.clone());
        }
    }

    /// Whether the list contains a block.
    pub fn contains(&self, block: &BlockId) -> bool {
        self.blocks.contains_key(block)
    }

    /// Makes the next delta a full report. Call it when the coordinator has lost its state or may have missed
    /// a delta.
    pub fn say_anew(&mut self) {
        self.anew = true;
        self.told.clear();
        self.changed = self.blocks.keys().cloned().collect();
    }

    /// Returns the next report, with at most `most` names. The rest is left for later heartbeats.
    pub fn delta(&mut self, most: usize) -> CacheDelta {
        let mut delta = CacheDelta { anew: std::mem::take(&mut self.anew), ..CacheDelta::default() };
        while delta.added.len() + delta.removed.len() < most {
            let Some(block) = self.changed.pop_first() else { break };
            match (self.blocks.contains_key(&block), self.told.contains(&block)) {
                (true, false) => {
                    self.told.insert(block.clone());
                    delta.added.push(block);
                }
                (false, true) => {
                    self.told.remove(&block);
                    delta.removed.push(block);
                }
                _ => {}
            }
        }
        delta
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(number: u32) -> BlockId {
        BlockId(format!("b{number}"))
    }

    #[test]
    fn the_least_recently_used_block_is_evicted() {
        let mut cache = BlockCache::new(30);
        (1..=3).for_each(|number| cache.touch(&block(number), 10));
        cache.touch(&block(1), 10);
        cache.touch(&block(4), 20);
        assert_eq!([1, 2, 3, 4].map(|number| cache.contains(&block(number))), [true, false, false, true]);
        cache.touch(&block(5), 31);
        assert!(!cache.contains(&block(5)), "it has no room");
    }

    #[test]
    fn a_block_that_comes_and_goes_is_not_reported() {
        let mut cache = BlockCache::new(10);
        assert!(cache.delta(9).anew);
        cache.touch(&block(1), 10);
        cache.touch(&block(2), 10);
        let delta = cache.delta(9);
        assert_eq!((delta.added, delta.removed), (vec![block(2)], vec![]));
        assert!(cache.delta(9).is_empty());
    }

    #[test]
    fn a_delta_survives_serialization() {
        let delta = CacheDelta { added: vec![block(1)], ..CacheDelta::default() };
        let text = serde_json::to_string(&delta).unwrap();
        assert_eq!(serde_json::from_str::<CacheDelta>(&text).unwrap(), delta);
        assert_eq!(serde_json::from_str::<CacheDelta>("{}").unwrap(), CacheDelta::default());
    }

    proptest! {
        #[test]
        fn deltas_add_up_to_the_list(
            steps in prop::collection::vec((0..4u8, 0..12u32, 1..20u64), 1..60),
            most in 1..4usize,
        ) {
            let mut cache = BlockCache::new(60);
            let mut seen = BTreeSet::new();
            let mut apply = |cache: &mut BlockCache, most| {
                let delta = cache.delta(most);
                assert!(delta.added.len() + delta.removed.len() <= most);
                if delta.anew {
                    seen.clear();
                }
                delta.added.into_iter().for_each(|block| assert!(seen.insert(block), "said twice"));
                delta.removed.into_iter().for_each(|block| assert!(seen.remove(&block), "never said"));
                seen.clone()
            };
            for (step, number, bytes) in steps {
                match step {
                    0 => cache.drop_block(&block(number)),
                    1 => drop(apply(&mut cache, most)),
                    2 if number == 0 => cache.say_anew(),
                    _ => cache.touch(&block(number), bytes),
                }
                prop_assert!(cache.bytes <= 60);
            }
            let all = apply(&mut cache, 1000);
            prop_assert_eq!(all.into_iter().collect::<Vec<_>>(), cache.blocks.keys().cloned().collect::<Vec<_>>());
        }
    }
}
