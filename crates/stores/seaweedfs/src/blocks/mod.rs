//! The shard files of a volume server, read and made beside it.
//!
//! Mend owns nothing here: shards and their checksums (`.ecsum`) belong to SeaweedFS, and the master's view is authoritative.
//! [`ShardBlocks`] returns only bytes that matched `.ecsum`, where the volume has one, and names a rebuilt shard only when
//! all of it matches. Servers are called elsewhere (`crate::server`). `docs/seaweedfs.md` has the files and the facts.

mod blocks;
mod ecsum;
mod folders;
mod learned;
mod name;
mod reader;
#[cfg(test)]
mod tests;
mod vif;
mod writer;

/// Decoders of what is on disks, for `crates/fuzz`.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    /// Decodes an `.ecsum` file; whether it is one.
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

    /// Decodes a `.vif` file; whether it is one.
    pub fn vif(bytes: &[u8]) -> bool {
        super::VolumeInfo::decode(bytes).is_ok()
    }

    /// Whether a file of this name is a shard.
    pub fn is_shard_name(name: &str) -> bool {
        name.parse::<super::ShardName>().is_ok_and(|shard| shard.to_string() == name)
    }
}

pub use blocks::{Protection, ShardBlocks, ShardFacts};
pub use ecsum::{Ecsum, EcsumError, ShardSums};
pub use name::{MAX_SHARDS, NotAShard, ShardName, VolumeName};
pub use vif::{Encoding, Ratio, VifError, VolumeInfo};
