//! [`Members`]: the stripes of raided files by their blocks. The NameNode's lists of losses name only blocks.

use super::coded::Coded;
use super::pages::{Pages, Record, get, get_difference, put, put_difference};

/// The stripes of raided files by the numbers of their blocks. The blocks of a file that one client has
/// written have consecutive numbers, so they are kept as runs.
#[derive(Debug, Default)]
pub(super) struct Members(Pages<Run>);

/// Blocks with consecutive numbers, and the number of their stripe.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: i64,
    blocks: u64,
    stripe: i64,
}

impl Record for Run {
    type Key = i64;

    fn key(&self) -> i64 {
        self.first
    }

    fn encode(&self, before: Option<&Self>, bytes: &mut Vec<u8>) {
        let of = |value: fn(&Self) -> i64| before.map_or(0, value) as u64;
        put_difference(self.first as u64, of(|it| it.first), bytes);
        put_difference(self.stripe as u64, of(|it| it.stripe), bytes);
        put(self.blocks, bytes);
    }

    fn decode(before: Option<&Self>, bytes: &mut &[u8]) -> Self {
        let of = |value: fn(&Self) -> i64| before.map_or(0, value) as u64;
        let first = get_difference(of(|it| it.first), bytes) as i64;
        let stripe = get_difference(of(|it| it.stripe), bytes) as i64;
        Self { first, stripe, blocks: get(bytes) }
    }
}

/// Returns the blocks of a stripe as runs; none for a block group.
fn runs(coded: &Coded) -> Vec<Run> {
    let (mut runs, stripe) = (Vec::<Run>::new(), coded.number());
    for block in coded.raid().into_iter().flat_map(|stripe| &stripe.blocks) {
        match runs.last_mut() {
            Some(run) if run.first + run.blocks as i64 == block.number => run.blocks += 1,
            _ => runs.push(Run { first: block.number, blocks: 1, stripe }),
        }
    }
    runs
}

impl Members {
    /// Returns the number of the stripe that contains a block.
    pub fn stripe_of(&self, block: i64) -> Option<i64> {
        let run = self.0.at_or_before(block)?;
        (block - run.first < run.blocks as i64).then_some(run.stripe)
    }

    /// Replaces the blocks of a stripe. Block groups are ignored: their numbers tell which blocks they have.
    pub fn replace(&mut self, before: Option<&Coded>, now: Option<&Coded>) {
        if before == now {
            return;
        }
        for run in before.map(runs).unwrap_or_default() {
            // Another stripe may have the blocks now.
            if self.0.get(run.first).is_some_and(|known| known.stripe == run.stripe) {
                self.0.remove(run.first);
            }
        }
        now.map(runs).unwrap_or_default().into_iter().for_each(|run| self.0.insert(run));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::coded::{Extent, RaidBlock, RaidStripe};
    use super::*;

    fn stripe(numbers: &[i64]) -> Coded {
        let block = |&number: &i64| RaidBlock { number, stamp: 1001, bytes: 9 };
        Coded::Raid(Arc::new(RaidStripe {
            code: Arc::new("xor-3-2".parse().expect("a code")),
            block_bytes: 9,
            source: 16,
            data: vec![Extent { inode: 16, start: 0, blocks: numbers.len() - 1 }],
            parity: Extent { inode: 17, start: 0, blocks: 1 },
            blocks: numbers.iter().map(block).collect(),
        }))
    }

    #[test]
    fn stripes_are_found_by_their_blocks() {
        let mut members = Members::default();
        let (one, other) = (stripe(&[32, 33, 90]), stripe(&[34, 36, 91]));
        members.replace(None, Some(&one));
        members.replace(None, Some(&other));
        let stripes = |members: &Members| {
            let blocks = [31, 32, 33, 34, 35, 36, 37, 90, 91, 92];
            blocks.map(|block| members.stripe_of(block).unwrap_or_default())
        };
        assert_eq!(stripes(&members), [0, 32, 32, 34, 0, 34, 0, 32, 34, 0]);
        // The file was encoded again: one of the parity blocks is another one.
        let again = stripe(&[34, 36, 92]);
        members.replace(Some(&other), Some(&again));
        assert_eq!(stripes(&members), [0, 32, 32, 34, 0, 34, 0, 32, 0, 34]);
        // A block belongs to another stripe now, and the old one is dropped later.
        let taken = stripe(&[34, 36, 90]);
        members.replace(Some(&again), Some(&taken));
        members.replace(Some(&one), None);
        assert_eq!(stripes(&members), [0, 0, 0, 34, 0, 34, 0, 34, 0, 0]);
    }
}
