//! The shard files of a volume server, read and made beside it.
//!
//! Mend owns nothing here. The shards, their checksums (`.ecsum`) and all else are SeaweedFS's; what the master knows
//! is the truth. [`ShardBlocks`] reads shards and never hands out a byte that was not held against `.ecsum`, where the
//! volume has one, and gives a rebuilt shard its name only when every block of it agrees. Mounting it, and everything
//! else that is asked of servers, is in the crate `mend-seaweedfs`. `docs/reference/seaweedfs.md` has the
//! files and the facts.

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

pub use ecsum::{Ecsum, EcsumError, ShardSums};
pub use name::{MAX_SHARDS, NotAShard, ShardName, VolumeName};
pub use shard_blocks::{Protection, ShardBlocks, ShardFacts};
pub use vif::{Encoding, Ratio, VifError, VolumeInfo};
