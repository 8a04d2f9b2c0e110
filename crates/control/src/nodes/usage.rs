//! How clients use a helper, as the helper reports it: the user load, and the blocks that are in memory or read
//! often. m-PPR chooses sources by it.

use std::collections::BTreeMap;

use repair::wire::control::BlockHeat;
use repair::{BlockId, Heat};

/// The maximum number of blocks whose heat is kept for one helper. A helper lists fewer.
const MOST_BLOCKS: usize = 4096;

/// The use of a connected helper. It begins empty with each connection.
#[derive(Default)]
pub(crate) struct Usage {
    /// Bytes per second that clients read from the helper.
    pub user_bytes_per_s: u64,
    /// The blocks that are not cold.
    heats: BTreeMap<BlockId, Heat>,
}

impl Usage {
    /// Records the heat of a block. Returns whether it is kept.
    pub(crate) fn note(&mut self, change: &BlockHeat) -> bool {
        match change.heat {
            Heat::Cold => drop(self.heats.remove(&change.id)),
            _ if self.heats.len() >= MOST_BLOCKS && !self.heats.contains_key(&change.id) => return false,
            heat => drop(self.heats.insert(change.id.clone(), heat)),
        }
        true
    }

    /// Returns the heat of a block.
    pub(crate) fn heat(&self, block: &BlockId) -> Heat {
        self.heats.get(block).copied().unwrap_or_default()
    }

    /// Returns the number of blocks with this heat.
    pub(crate) fn blocks(&self, heat: Heat) -> u64 {
        self.heats.values().filter(|&&of| of == heat).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_cannot_fill_the_memory_with_names() {
        let mut usage = Usage::default();
        let change = |number: usize, heat| BlockHeat { id: BlockId(number.to_string()), heat };
        assert!((0..MOST_BLOCKS).all(|number| usage.note(&change(number, Heat::Hot))));
        assert!(!usage.note(&change(MOST_BLOCKS, Heat::Hot)));
        assert!(usage.note(&change(1, Heat::VeryHot)) && usage.note(&change(2, Heat::Cold)));
        let counts = [Heat::Hot, Heat::VeryHot].map(|heat| usage.blocks(heat));
        assert_eq!(counts, [MOST_BLOCKS as u64 - 2, 1]);
        assert_eq!(
            [1, 2, 3].map(|number: u32| usage.heat(&BlockId(number.to_string()))),
            [Heat::VeryHot, Heat::Cold, Heat::Hot]
        );
    }
}
