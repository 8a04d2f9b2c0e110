//! A real HDFS cluster, of Hadoop's own jars, for tests and measurements: a NameNode and DataNodes in JVMs of their own,
//! wherever a [`Ground`](apart::Ground) puts them.
//!
//! `scripts/hdfs` gets the jars, unmodified. [`inside_namespace`] comes first in a program that wants a [`Cluster`];
//! everything dies with that program, however it ends. Of Mend there is nothing in here but the
//! jar that DataNodes may load, and how it is attached.

#![forbid(unsafe_code)]

mod attach;
mod cluster;
mod console;
mod fsck;
mod install;
mod jvm;

pub use apart::{eventually, inside_namespace};
pub use attach::{Attaching, issue_plugin};
pub use cluster::{Cluster, ClusterOptions, DataNode, Plugin};
pub use console::{Console, Said};
pub use fsck::{FsckBlock, FsckFile};
pub use install::Hadoop;
