//! An HDFS cluster of Hadoop's unmodified jars: a NameNode and DataNodes on a [`Ground`](crate::Ground), each
//! in its own JVM. `scripts/hdfs` installs the jars, and Mend's own jar, which DataNodes may load.
//!
//! A program must call [`inside_namespace`](crate::inside_namespace) before it boots a [`Cluster`].

mod attach;
mod cases;
mod cluster;
mod console;
mod data_node;
mod files;
mod fsck;
mod install;
mod launcher;

pub use attach::{Attaching, issue_plugin};
pub use cases::run_hdfs_cases;
pub use cluster::{Cluster, ClusterOptions, Pace, Plugin};
pub use console::{Console, Said};
pub use data_node::DataNode;
pub use files::{StoredFiles, passes_check};
pub use fsck::{FsckBlock, FsckFile};
pub use install::Hadoop;
