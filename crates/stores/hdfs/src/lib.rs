//! HDFS 3: the replicas of a DataNode beside a helper, and the NameNode beside the coordinator.
//!
//! [`HdfsBlocks`] reads and writes replicas. [`NameNode`] lists block groups, their holders and the DataNodes in service,
//! through Hadoop's own client in a JVM that it starts and restarts (`docs/decisions/0027`); [`open`] makes a coordinator's
//! storage of that. `docs/reference/hdfs.md` has the facts.

#![forbid(unsafe_code)]

mod attach;
mod blocks;
mod config;
mod kind;
mod listing;
mod namenode;
mod storage;

#[cfg(feature = "fuzzing")]
pub use blocks::fuzzing;
pub use blocks::{
    BlockGroup, ChecksumFormat, ChecksumKind, Codec, GroupBlock, GroupStripe, HdfsBlocks,
    MAX_BLOCKS_IN_GROUP, MetaError, NotAReplica, Policy, PolicyError, ReplicaName,
};
pub use kind::Hdfs;
pub use listing::{
    BadLine, DataNode, FileRef, Group, Listing, Phase, Progress, Service, Snapshots, Standing,
};
pub use namenode::{AskError, NameNode, NameNodeSettings};
pub use storage::{AttachError, Attachment, POLICY, POLICY_WITHOUT_NAMENODE, open};
