//! HDFS 3. A helper works with the replicas of a DataNode on the same machine; the coordinator queries the
//! NameNode.
//!
//! [`HdfsBlocks`] reads and writes replicas. [`NameNode`] lists block groups, their holders and the DataNodes
//! in service. `NameNode` uses Hadoop's own client in a JVM, which it starts and restarts
//! (`docs/decisions/0027`). [`open`] builds a coordinator's storage from these. `docs/reference/hdfs.md`
//! documents the HDFS internals that Mend relies on.

#![forbid(unsafe_code)]

mod attach;
mod blocks;
mod config;
mod kind;
mod listing;
mod namenode;
mod raid;
mod storage;

#[cfg(feature = "fuzzing")]
pub use blocks::fuzzing;
pub use blocks::{
    BlockGroup, BlockTerms, ChecksumFormat, ChecksumKind, Codec, GroupBlock, GroupStripe, HdfsBlocks,
    MAX_BLOCKS_IN_GROUP, MetaError, NoChecksumFormat, NotAReplica, Policy, PolicyError, ReplicaName,
};
pub use kind::Hdfs;
pub use listing::{
    Attribute, BadLine, DataNode, Edit, Edits, ExistingInodes, FileRef, Group, Listing, LossCounts,
    OtherLists, Phase, Progress, SeenFile, SeenFiles, SeenPlace, Service, Shortage, Snapshots, Standing,
};
pub use namenode::{AskError, NameNode, NameNodeSettings};
pub use raid::{
    Covered, Deeds, Driver, Errand, HelperParity, Outcome, Pace, ParityMaker, Pending, RaidFile,
    RaidNameNode, Unpaced, check_codecs, drive_all, settled_after, term,
};
pub use storage::{AttachError, Attachment, EncodingSettings, POLICY, POLICY_WITHOUT_NAMENODE, open};
