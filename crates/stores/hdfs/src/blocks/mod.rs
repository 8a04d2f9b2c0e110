//! The internal blocks of a DataNode, read and made beside it.
//!
//! Mend owns nothing here. The blocks and their files of checksums are HDFS's; what the NameNode knows is the truth.
//! [`HdfsBlocks`] hands out no byte that was not held against its checksum, and makes a rebuilt block with checksums
//! under names that the DataNode does not look at until all is there. [`Policy`] and [`BlockGroup`] say what a block
//! group is as a stripe. Asking the NameNode is not in here. `docs/reference/hdfs.md` has the files
//! and the facts.

mod datanode;
mod hdfs_blocks;
mod meta;
mod name;
mod policy;
mod push;
mod reader;
#[cfg(test)]
mod tests;
mod transfer;
mod volumes;
mod writer;

/// Decoders of what is on disks, and of what DataNodes say, for `crates/fuzz`.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use super::meta::{ChecksumFormat, HEADER_BYTES};
    pub use super::transfer::is_answer as datanode_answer;

    /// Decodes the header of a file of checksums; whether it is one.
    pub fn meta_header(bytes: &[u8]) -> bool {
        let Some(header) = bytes.first_chunk::<{ HEADER_BYTES as usize }>() else { return false };
        let Ok(format) = ChecksumFormat::decode(header, bytes.len() as u64) else { return false };
        assert_eq!(format.encode(), *header, "it is written as something else");
        true
    }

    /// Whether a replica has this name.
    pub fn is_replica_name(name: &str) -> bool {
        name.parse::<super::ReplicaName>().is_ok_and(|replica| replica.to_string() == name)
    }

    /// Whether a policy has this name, capitals and leading zeros aside.
    pub fn is_policy_name(name: &str) -> bool {
        let Ok(policy) = name.parse::<super::Policy>() else { return false };
        assert_eq!(policy.to_string().parse(), Ok(policy), "it reads back");
        true
    }
}

pub use hdfs_blocks::HdfsBlocks;
pub use meta::{ChecksumFormat, ChecksumKind, MetaError};
pub use name::{MAX_BLOCKS_IN_GROUP, NotAReplica, ReplicaName};
pub use policy::{BlockGroup, Codec, GroupBlock, GroupStripe, Policy, PolicyError};
