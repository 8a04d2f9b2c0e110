//! Reads and writes the internal blocks of a DataNode, in the DataNode's own folders.
//!
//! HDFS owns the blocks and their checksum files, and the NameNode's metadata is authoritative.
//! [`HdfsBlocks`] returns only bytes that match their checksums. It writes a rebuilt block, with its
//! checksums, under temporary names that the DataNode ignores until the block is complete. [`Policy`] and
//! [`BlockGroup`] describe a block group as a stripe. Queries to the NameNode are not part of this module.
//! `docs/reference/hdfs.md` documents the files and HDFS's behaviour.

mod datanode;
mod hdfs_blocks;
mod meta;
mod name;
mod policy;
mod push;
mod reader;
mod terms;
#[cfg(test)]
mod tests;
mod transfer;
mod volumes;
mod writer;

/// Decoders of on-disk formats and of DataNodes' answers, for `crates/fuzz`.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use super::meta::{ChecksumFormat, HEADER_BYTES};
    pub use super::transfer::is_answer as datanode_answer;

    /// Decodes the header of a checksum file. Returns whether it is valid.
    pub fn meta_header(bytes: &[u8]) -> bool {
        let Some(header) = bytes.first_chunk::<{ HEADER_BYTES as usize }>() else { return false };
        let Ok(format) = ChecksumFormat::decode(header, bytes.len() as u64) else { return false };
        assert_eq!(format.encode(), *header, "it is written as something else");
        true
    }

    /// Whether this is the name of a replica.
    pub fn is_replica_name(name: &str) -> bool {
        name.parse::<super::ReplicaName>().is_ok_and(|replica| replica.to_string() == name)
    }

    /// Whether this is the name of a policy, ignoring case and leading zeros.
    pub fn is_policy_name(name: &str) -> bool {
        let Ok(policy) = name.parse::<super::Policy>() else { return false };
        assert_eq!(policy.to_string().parse(), Ok(policy), "it reads back");
        true
    }
}

pub use hdfs_blocks::HdfsBlocks;
pub use meta::{ChecksumFormat, ChecksumKind, MetaError, NoChecksumFormat};
pub use name::{MAX_BLOCKS_IN_GROUP, NotAReplica, ReplicaName};
pub use policy::{BlockGroup, Codec, GroupBlock, GroupStripe, Policy, PolicyError};
pub use terms::BlockTerms;
