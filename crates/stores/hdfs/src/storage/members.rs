//! [`Members`]: the stripes of raided files by their blocks. The NameNode's lists of losses name only blocks.

use super::coded::Coded;
use super::pages::{Pages, Record, get_difference, put_difference};

/// The stripes of raided files by the numbers of their blocks.
#[derive(Debug, Default)]
pub(super) struct Members(Pages<Member>);

/// A block, and the number of its stripe.
#[derive(Clone, Copy, Debug)]
struct Member {
    block: i64,
    stripe: i64,
}

impl Record for Member {
    type Key = i64;

    fn key(&self) -> i64 {
        self.block
    }

    fn encode(&self, before: Option<&Self>, bytes: &mut Vec<u8>) {
        let of = |value: fn(&Self) -> i64| before.map_or(0, value) as u64;
        put_difference(self.block as u64, of(|it| it.block), bytes);
        put_difference(self.stripe as u64, of(|it| it.stripe), bytes);
    }

    fn decode(before: Option<&Self>, bytes: &mut &[u8]) -> Self {
        let of = |value: fn(&Self) -> i64| before.map_or(0, value) as u64;
        let block = get_difference(of(|it| it.block), bytes) as i64;
        Self { block, stripe: get_difference(of(|it| it.stripe), bytes) as i64 }
    }
}

fn members(coded: &Coded) -> impl Iterator<Item = Member> {
    let (blocks, stripe) = (coded.raid().map(|stripe| &stripe.blocks), coded.number());
    blocks.into_iter().flatten().map(move |block| Member { block: block.number, stripe })
}

impl Members {
    /// Returns the number of the stripe that contains a block.
    pub fn stripe_of(&self, block: i64) -> Option<i64> {
        self.0.get(block).map(|member| member.stripe)
    }

    /// Replaces the blocks of a stripe. Block groups are ignored: their numbers tell which blocks they have.
    pub fn replace(&mut self, before: Option<&Coded>, now: Option<&Coded>) {
        if before == now {
            return;
        }
        for block in before.into_iter().flat_map(members) {
            // Another stripe may have the block now.
            if self.stripe_of(block.block) == Some(block.stripe) {
                self.0.remove(block.block);
            }
        }
        now.into_iter().flat_map(members).for_each(|member| self.0.insert(member));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::coded::{RaidBlock, RaidStripe};
    use super::*;

    fn stripe(numbers: &[i64]) -> Coded {
        let block = |&number: &i64| RaidBlock { number, stamp: 1001, bytes: 9 };
        Coded::Raid(Arc::new(RaidStripe {
            code: Arc::new("xor-3-2".parse().expect("a code")),
            block_bytes: 9,
            source: 16,
            start: 0,
            parity: 17,
            parity_start: 0,
            blocks: numbers.iter().map(block).collect(),
        }))
    }

    #[test]
    fn stripes_are_found_by_their_blocks() {
        let mut members = Members::default();
        // The numbers of consecutive blocks share their high bits, as those of a block group do.
        let (one, other) = (stripe(&[32, 33, 90]), stripe(&[34, 35, 91]));
        members.replace(None, Some(&one));
        members.replace(None, Some(&other));
        let found = [32, 33, 34, 35, 36, 90, 91].map(|block| members.stripe_of(block));
        assert_eq!(found, [Some(32), Some(32), Some(34), Some(34), None, Some(32), Some(34)]);
        // The file was appended to and encoded again: a block of one stripe belongs to the other one now.
        let later = stripe(&[34, 33, 92]);
        members.replace(Some(&other), Some(&later));
        members.replace(Some(&one), None);
        let found = [32, 33, 34, 35, 90, 91, 92].map(|block| members.stripe_of(block));
        assert_eq!(found, [None, Some(34), Some(34), None, None, None, Some(34)]);
    }
}
