//! What Mend asks of a running HDFS: of its NameNode, which block groups there are, who has their blocks, and which DataNodes
//! serve them.
//!
//! [`NameNode`] asks through Hadoop's own client, in a JVM that it runs and starts again (`docs/decisions/0027`).
//! [`AttachedStorage`] makes of the answers the storage of a coordinator. The blocks themselves are in `stores::hdfs`;
//! `docs/reference/hdfs.md` has the facts.

#![forbid(unsafe_code)]

mod listing;
mod namenode;
mod storage;

pub use listing::{
    BadLine, DataNode, FileRef, Group, Listing, Phase, Progress, Service, Snapshots, Standing,
};
pub use namenode::{AskError, NameNode, NameNodeSettings};
pub use storage::{AttachError, AttachedStorage, Attachment, open};
