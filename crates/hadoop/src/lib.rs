//! A real HDFS cluster, of Hadoop's own jars, for tests and measurements: a NameNode and DataNodes in JVMs of their own,
//! in a network namespace that goes when they do.
//!
//! `scripts/hdfs` gets the jars, unmodified. [`inside_namespace`] comes first in a program that wants a [`Cluster`];
//! everything dies with that program, however it ends. Of Mend there is nothing in here but the
//! jar that DataNodes may load.

#![forbid(unsafe_code)]

mod cluster;
mod console;
mod fsck;
mod install;
mod jvm;

pub use apart::{eventually, inside_namespace};
pub use cluster::{Cluster, ClusterOptions, DataNode, Plugin};
pub use console::{Console, Said};
pub use fsck::{FsckBlock, FsckFile};
pub use install::Hadoop;
