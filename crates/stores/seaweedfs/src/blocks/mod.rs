//! Reads and writes the shard files of a volume server on the same machine.
//!
//! The files belong to SeaweedFS: shards, their checksums (`.ecsum`) and all others. The master is
//! authoritative for their locations. [`ShardBlocks`] checks every byte that it returns against `.ecsum`, if
//! the volume has that file. A rebuilt shard gets its final name only after every block has matched its
//! checksum. Mounting a shard and all other calls to servers are in the module `storage`.
//! `docs/reference/seaweedfs.md` describes the files.

mod ecsum;
mod folders;
mod learned;
mod name;
mod reader;
mod shard_blocks;
#[cfg(test)]
mod tests;
mod vif;
mod writer;

/// Decoders of files on disk, exported for the crate `fuzz`.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Decodes an `.ecsum` file. Returns whether the bytes are valid.
    pub fn ecsum(bytes: &[u8]) -> bool {
        let Ok(ecsum) = super::Ecsum::decode(bytes) else { return false };
        for shard in 0..ecsum.ratio().total() {
            let sums = ecsum.shard(shard).expect("every shard of its ratio is there");
            let covered: u64 =
                (0..sums.blocks().len()).map(|block| sums.range(block)).map(|r| r.end - r.start).sum();
            assert_eq!(covered, sums.bytes(), "its blocks are the shard");
        }
        true
    }

    /// Decodes a `.vif` file. Returns whether the bytes are valid.
    pub fn vif(bytes: &[u8]) -> bool {
        super::VolumeInfo::decode(bytes).is_ok()
    }

    /// Returns whether a file of this name is a shard.
    pub fn is_shard_name(name: &str) -> bool {
        name.parse::<super::ShardName>().is_ok_and(|shard| shard.to_string() == name)
    }
}

#[cfg(test)]
pub(crate) use ecsum::made;
pub(crate) use ecsum::predates;
pub use ecsum::{Ecsum, EcsumError, ShardSums};
pub use name::{EncodedVolume, MAX_SHARDS, NotAShard, NotAnEncoding, ShardName, VolumeName};
pub use shard_blocks::{Protection, ShardBlocks, ShardFacts};
pub use vif::{Encoding, Ratio, VifError, VolumeInfo};
