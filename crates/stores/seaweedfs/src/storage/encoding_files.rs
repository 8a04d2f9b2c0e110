//! The parsed `.vif` and `.ecsum` files of the encodings. Pure: this module calls no server and stores
//! nothing.

use std::collections::BTreeMap;

use repair::Digest;
use serde::{Deserialize, Serialize};

use super::side_files::{Checksums, Copies};
use crate::blocks::{Encoding, Ratio, VolumeInfo};
use crate::volumes::Volumes;

/// Facts from an encoding's `.vif` file, and from its `.ecsum` file if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub ratio: Ratio,
    pub shard_bytes: u64,
    /// One digest per shard; empty for a volume without `.ecsum`, if servers have different ones, or while too few
    /// servers have answered.
    pub digests: Vec<Digest>,
}

impl Known {
    /// Combines the description of an encoding, the `.ecsum` files of its servers, and the length with which
    /// the master lists its shards. Returns `None` if the length is unknown.
    pub fn of(info: &VolumeInfo, ecsum: &Copies, listed: Option<u64>) -> Option<Self> {
        let by_sums = match ecsum.checksums(info.encoding, info.ratio, None) {
            Checksums::Agreed(sums) => sums.shard_bytes(),
            _ => None,
        };
        let shard_bytes = most_credible([info.shard_bytes, by_sums, listed])?;
        // While it depends on servers that have not answered, there are none: a single outdated file would make good
        // shards count as corrupt. The next comparison of these files adds them.
        let digests = ecsum.checksums(info.encoding, info.ratio, Some(shard_bytes)).digests();
        Some(Self { ratio: info.ratio, shard_bytes, digests: digests.unwrap_or_default() })
    }
}

/// Returns the length that two of the sources report, or else the length that the first source reports.
fn most_credible(said: [Option<u64>; 3]) -> Option<u64> {
    let said: Vec<u64> = said.into_iter().flatten().filter(|&bytes| bytes > 0).collect();
    let twice = said.iter().enumerate().find(|&(at, bytes)| said[at + 1..].contains(bytes));
    twice.map(|(_, &bytes)| bytes).or_else(|| said.first().copied())
}

/// The facts from the `.vif` and `.ecsum` files of all encodings.
#[derive(Default)]
pub(super) struct EncodingFiles {
    known: BTreeMap<(u32, Encoding), Known>,
    /// Encodings whose files could not be read, with the error.
    unread: BTreeMap<(u32, Encoding), String>,
    /// Encodings whose checksums are not used, because they contradict too many shards.
    doubted: BTreeMap<(u32, Encoding), Doubted>,
}

/// Checksums that are not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Doubted {
    /// The digests that they give.
    digests: Vec<Digest>,
    /// When the newest file with them was modified, in nanoseconds since 1970, at the first comparison since
    /// the doubt began.
    newest_ns: Option<i64>,
}

impl EncodingFiles {
    /// Returns the facts from the files of an encoding, if they were read.
    pub fn get(&self, volume: u32, encoding: Encoding) -> Option<&Known> {
        self.known.get(&(volume, encoding))
    }

    /// Returns why the files of an encoding cannot be read.
    pub fn why_unread(&self, volume: u32, encoding: Encoding) -> Option<&str> {
        self.unread.get(&(volume, encoding)).map(String::as_str)
    }

    /// Stores the facts read from an encoding's files.
    pub fn learn(&mut self, volume: u32, encoding: Encoding, known: Known) {
        self.unread.remove(&(volume, encoding));
        let digests = self.undoubted(volume, encoding, known.digests);
        self.known.insert((volume, encoding), Known { digests, ..known });
    }

    /// Replaces the digests of an encoding's shards. Returns whether they have changed.
    pub fn set_digests(&mut self, volume: u32, encoding: Encoding, digests: Vec<Digest>) -> bool {
        let digests = self.undoubted(volume, encoding, digests);
        let Some(known) = self.known.get_mut(&(volume, encoding)) else { return false };
        let before = std::mem::replace(&mut known.digests, digests);
        before != known.digests
    }

    fn undoubted(&self, volume: u32, encoding: Encoding, digests: Vec<Digest>) -> Vec<Digest> {
        match self.doubted.get(&(volume, encoding)) {
            Some(doubted) if doubted.digests == digests => Vec::new(),
            _ => digests,
        }
    }

    /// Stops using the checksums of an encoding.
    pub fn doubt(&mut self, volume: u32, encoding: Encoding) {
        let known = self.known.get_mut(&(volume, encoding));
        let digests = known.map(|known| std::mem::take(&mut known.digests)).unwrap_or_default();
        self.doubted.insert((volume, encoding), Doubted { digests, newest_ns: None });
    }

    /// Ends the doubt of an encoding's checksums if its servers now agree on others, have none, or have
    /// written the same ones again. `modified_ns` are the times at which the oldest and the newest file with
    /// the agreed checksums were modified.
    pub fn end_doubt(
        &mut self,
        volume: u32,
        encoding: Encoding,
        agreed: &[Digest],
        modified_ns: Option<(i64, i64)>,
    ) {
        let Some(doubted) = self.doubted.get_mut(&(volume, encoding)) else { return };
        let is_other = agreed.is_empty() || doubted.digests != agreed;
        let times = modified_ns.zip(doubted.newest_ns);
        let is_written_again = times.is_some_and(|((oldest_ns, _), before_ns)| oldest_ns > before_ns);
        if is_other || is_written_again {
            self.doubted.remove(&(volume, encoding));
        } else {
            doubted.newest_ns = doubted.newest_ns.or(modified_ns.map(|(_, newest_ns)| newest_ns));
        }
    }

    /// Loads a doubt that an earlier coordinator recorded.
    pub fn recall_doubt(&mut self, volume: u32, encoding: Encoding, doubted: Doubted) {
        self.doubted.insert((volume, encoding), doubted);
    }

    /// Returns all doubted checksums.
    pub fn doubts(&self) -> &BTreeMap<(u32, Encoding), Doubted> {
        &self.doubted
    }

    /// Forgets the doubts about checksums of encodings that no longer exist.
    pub fn forget_doubts(&mut self, is_gone: impl Fn(u32, Encoding) -> bool) {
        self.doubted.retain(|&(volume, encoding), _| !is_gone(volume, encoding));
    }

    /// Whether the checksums of an encoding are not used because they contradict too many shards.
    pub fn is_doubted(&self, volume: u32, encoding: Encoding) -> bool {
        self.doubted.contains_key(&(volume, encoding))
    }

    /// Records why the files of an encoding cannot be read; returns whether the reason is new.
    pub fn note_unread(&mut self, volume: u32, encoding: Encoding, why: String) -> bool {
        self.unread.insert((volume, encoding), why.clone()).is_none_or(|before| before != why)
    }

    /// Returns the listed encodings whose files were not read yet.
    pub fn unknown(&self, volumes: &Volumes) -> Vec<(u32, Encoding)> {
        let all = volumes.iter().flat_map(|(id, volume)| {
            let listed = volume.generations.iter().filter(|(_, generation)| !generation.homes.is_empty());
            listed.map(move |(&encoding, _)| (id, encoding))
        });
        all.filter(|key| !self.known.contains_key(key)).collect()
    }

    /// Forgets encodings that no longer exist.
    pub fn retain_listed(&mut self, volumes: &Volumes) {
        let exists = |(volume, encoding): &(u32, Encoding)| {
            volumes.get(*volume).is_some_and(|volume| volume.generations.contains_key(encoding))
        };
        self.known.retain(|key, _| exists(key));
        self.unread.retain(|key, _| exists(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sources_outvote_a_third_one() {
        for (said, found) in [
            ([Some(1), Some(2), Some(2)], Some(2)),
            ([Some(1), Some(2), Some(1)], Some(1)),
            ([Some(1), Some(2), Some(3)], Some(1)),
            ([None, Some(2), Some(3)], Some(2)),
            ([None, None, Some(0)], None),
        ] {
            assert_eq!(most_credible(said), found, "{said:?}");
        }
    }
}
