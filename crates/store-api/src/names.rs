//! Names of Mend's own stripes and blocks. Names are never reused.
//!
//! A stripe's name consists of a count and an *era*: 30 random bits that each coordinator draws when it
//! starts. When an old copy of the catalog is restored, the counter returns to an earlier value, so a second
//! stripe may get the count 17. Without the era, both stripes would have the same name, and leftover blocks
//! of the first would be mistaken for blocks of the second.

use std::ops::RangeInclusive;

use codes::BlockIndex;
use repair::{BlockId, StripeId};

use crate::CatalogError;

/// Number of bits of an era.
pub const ERA_BITS: u32 = 30;
/// The maximum number of stripes by which a restored catalog is assumed to lag behind the original. A block
/// whose count is further ahead of the catalog's next count was not named by Mend.
pub const FAR: u64 = 1 << 32;
const ERA_DIGITS: usize = 6;
/// The alphabet of eras, without letters that are easily mistaken for others.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The highest count that fits into a key.
pub const MAX_COUNT: u64 = u64::MAX >> ERA_BITS;

/// The era of a name: a random number that identifies one run of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Era(u32);

impl Era {
    /// The era of names without an era part, such as `17`. Mend itself never assigns such names; tests do.
    pub const NONE: Self = Self(0);

    /// Returns the era as a number, from 0 to 2^30 − 1.
    pub fn number(self) -> u64 {
        self.0.into()
    }

    /// Converts a number from 1 to 2^30 − 1 into an era.
    ///
    /// # Panics
    /// If the number is out of range.
    pub fn of_number(number: u64) -> Self {
        assert!((1..1 << ERA_BITS).contains(&number), "the number of an era must be from 1 to 2^30 - 1");
        Self(number as u32)
    }
}

/// The key of a stripe: the count in the high bits and the era in the low bits, so that keys sort by count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Key(pub u64);

impl Key {
    /// Returns the key of a new stripe, after checking that the count fits into a key.
    ///
    /// # Errors
    /// [`CatalogError::NumbersUsedUp`] after 2^34 stripes.
    pub fn counted(count: u64, era: Era) -> Result<Self, CatalogError> {
        if count > MAX_COUNT {
            return Err(CatalogError::NumbersUsedUp);
        }
        Ok(Self::new(count, era))
    }

    /// Combines a count and an era into a key.
    ///
    /// # Panics
    /// If the count is above [`MAX_COUNT`].
    pub fn new(count: u64, era: Era) -> Self {
        assert!(
            count <= MAX_COUNT,
            "counts are checked when they are read and bounded when they are allocated"
        );
        Self(count << ERA_BITS | u64::from(era.0))
    }

    /// Returns the key of a stripe whose name has no era.
    pub fn without_era(count: u64) -> Self {
        Self::new(count, Era::NONE)
    }

    /// Returns the key's count.
    pub fn count(self) -> u64 {
        self.0 >> ERA_BITS
    }

    /// Returns the number of the key's era.
    pub fn era(self) -> u64 {
        self.0 & ((1 << ERA_BITS) - 1)
    }

    /// Returns the stripe's name, such as `17-k3f9x2`.
    pub fn stripe(self) -> StripeId {
        if self.era() == 0 {
            return StripeId(self.count().to_string());
        }
        let digit = |at: usize| DIGITS[(self.era() >> (5 * at)) as usize % 32] as char;
        let era: String = (0..ERA_DIGITS).rev().map(digit).collect();
        StripeId(format!("{}-{era}", self.count()))
    }

    /// Returns the name of one block of the stripe, such as `17-k3f9x2.3`.
    pub fn block(self, index: BlockIndex) -> BlockId {
        BlockId(format!("{}.{}", self.stripe(), index.0))
    }

    /// Parses a stripe's name. Returns `None` for a spelling that Mend does not write, such as `017`.
    pub fn of(stripe: &StripeId) -> Option<Self> {
        let key = match stripe.0.split_once('-') {
            None => Self::without_era(parse_count(&stripe.0)?),
            Some((count, era)) => Self::new(parse_count(count)?, parse_era(era)?),
        };
        (key.stripe() == *stripe).then_some(key)
    }

    /// Parses a block's name into key and index. Returns `None` for a spelling that Mend does not write.
    pub fn of_block(block: &BlockId) -> Option<(Self, BlockIndex)> {
        let (stripe, index) = split_block(block)?;
        let key = Self::of(&stripe)?;
        (key.block(index) == *block).then_some((key, index))
    }

    /// Returns the range of keys of all stripes with this count. Used when a user omits the era.
    pub fn all_of(count: u64) -> RangeInclusive<u64> {
        let first = Self::without_era(count).0;
        first..=first | ((1 << ERA_BITS) - 1)
    }
}

/// Parses a stripe's name that consists of the count alone, without an era.
pub fn parse_count(text: &str) -> Option<u64> {
    let count: u64 = text.parse().ok()?;
    (count <= MAX_COUNT && count.to_string() == text).then_some(count)
}

/// Splits a block's name into its stripe and index, for any kind of stripe name.
pub fn split_block(block: &BlockId) -> Option<(StripeId, BlockIndex)> {
    let (stripe, index) = block.0.rsplit_once('.')?;
    let number: u16 = index.parse().ok()?;
    (number.to_string() == index).then(|| (StripeId(stripe.to_owned()), BlockIndex(number)))
}

fn parse_era(text: &str) -> Option<Era> {
    let digit = |byte: u8| DIGITS.iter().position(|&digit| digit == byte);
    let era = text.bytes().try_fold(0, |era: u64, byte| Some(era << 5 | digit(byte)? as u64))?;
    (text.len() == ERA_DIGITS && era > 0).then_some(Era(era as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<Key> {
        Key::of(&StripeId(text.to_owned()))
    }

    #[test]
    fn only_canonical_names_are_parsed() {
        for (count, era) in [(1, 1), (17, 0x2fff_ffff), (MAX_COUNT, 0x3fff_ffff)] {
            let written = Key::new(count, Era(era));
            assert_eq!(key(&written.stripe().0), Some(written));
            assert_eq!(Key::of_block(&written.block(BlockIndex(3))), Some((written, BlockIndex(3))));
            assert_eq!((written.count(), written.era()), (count, u64::from(era)));
        }
        assert_eq!(key("17"), Some(Key(17 << 30)));
        for text in
            ["", "017", "17-", "17-k3f9x", "17-k3f9xu", "17-K3F9X2", "17-000000", "-k3f9x2", "17-k3f9x2-1"]
        {
            assert_eq!(key(text), None, "{text}");
        }
        for text in ["17-k3f9x2", "17-k3f9x2.03", "17-k3f9x2.70000", "17.k3f9x2"] {
            assert_eq!(Key::of_block(&BlockId(text.to_owned())), None, "{text}");
        }
    }

    #[test]
    fn keys_sort_by_count() {
        let mut keys = [Key::new(2, Era(1)), Key::new(1, Era(9)), Key::new(10, Era(3))];
        keys.sort();
        assert_eq!(keys.map(Key::count), [1, 2, 10]);
        assert!(Key::all_of(2).contains(&Key::new(2, Era(1)).0) && !Key::all_of(2).contains(&keys[2].0));
    }
}
