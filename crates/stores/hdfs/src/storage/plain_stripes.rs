//! [`PlainStripes`]: all stripes without damage, in little memory.

use std::sync::Arc;
use std::time::Duration;

use codes::CodeSpec;

use super::coded::{Coded, is_raid};
use super::groups::Listed;
use super::pages::{Pages, Record as _};
use super::plain::Plain;
use super::plain_raid::PlainRaid;

/// Block groups and stripes of raided files that are plain.
#[derive(Default)]
pub(super) struct PlainStripes {
    groups: Pages<Plain>,
    raid: Pages<PlainRaid>,
    /// The codes of raided files: those of codecs, and shortened ones.
    codes: Vec<Arc<CodeSpec>>,
}

impl PlainStripes {
    /// Inserts a stripe, or replaces the one with the same number, if it is plain. Returns whether it is.
    pub fn insert(&mut self, listed: &Listed, asked: Duration) -> bool {
        match &listed.group {
            Coded::Group(_) => {
                let plain = Plain::of(listed, asked);
                plain.map(|plain| self.groups.insert(plain)).is_some()
            }
            Coded::Raid(stripe) => {
                let code = self.number_code(&stripe.code);
                let plain = PlainRaid::of(listed, stripe, code, asked);
                plain.map(|plain| self.raid.insert(plain)).is_some()
            }
        }
    }

    fn number_code(&mut self, code: &Arc<CodeSpec>) -> u64 {
        let known = self.codes.iter().position(|known| known == code);
        known.unwrap_or_else(|| {
            self.codes.push(Arc::clone(code));
            self.codes.len() - 1
        }) as u64
    }

    /// Returns the stripe with this number as it was listed, and when the query for the last answer was sent.
    pub fn get(&self, number: i64) -> Option<(Listed, Duration)> {
        if is_raid(number) {
            let plain = self.raid.get(number)?;
            let code = Arc::clone(&self.codes[plain.code() as usize]);
            return Some((plain.listed(code), plain.asked()));
        }
        self.groups.get(number).map(|plain| (plain.listed(), plain.asked()))
    }

    /// Removes the stripe with this number.
    pub fn remove(&mut self, number: i64) {
        match is_raid(number) {
            true => drop(self.raid.remove(number)),
            false => drop(self.groups.remove(number)),
        }
    }

    /// Returns the inode number of a stripe's file.
    pub fn inode(&self, number: i64) -> Option<u64> {
        match is_raid(number) {
            true => self.raid.get(number).map(|plain| plain.inode()),
            false => self.groups.get(number).map(|plain| plain.inode()),
        }
    }

    /// Returns the numbers of all stripes.
    pub fn numbers(&self) -> Vec<i64> {
        let groups = self.groups.iter().map(|plain| plain.key());
        groups.chain(self.raid.iter().map(|plain| plain.key())).collect()
    }

    /// Returns the numbers of the stripes whose last answer was asked for before this time.
    pub fn asked_before(&self, asked: Duration) -> Vec<i64> {
        let groups = self.groups.iter().filter(|plain| plain.asked() < asked).map(|plain| plain.key());
        let raid = self.raid.iter().filter(|plain| plain.asked() < asked).map(|plain| plain.key());
        groups.chain(raid).collect()
    }
}
