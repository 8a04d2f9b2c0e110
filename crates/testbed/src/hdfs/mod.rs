//! An HDFS cluster of Hadoop's unmodified jars: a NameNode and DataNodes on a [`Ground`](crate::Ground), each
//! in its own JVM. `scripts/hdfs` installs the jars, and Mend's own jar, which DataNodes may load.
//!
//! A program calls [`inside_namespace`](crate::inside_namespace) before it boots a [`Cluster`].

mod attach;
mod cluster;
mod console;
mod fsck;
mod install;
mod jvm;

pub use attach::{Attaching, issue_plugin};
pub use cluster::{Cluster, ClusterOptions, DataNode, Plugin};
pub use console::{Console, Said};
pub use fsck::{FsckBlock, FsckFile};
pub use install::Hadoop;
