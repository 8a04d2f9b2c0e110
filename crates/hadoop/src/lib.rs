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
mod namespace;

pub use cluster::{Cluster, ClusterOptions, DataNode, Plugin};
pub use console::{Console, Said};
pub use fsck::{FsckBlock, FsckFile};
pub use install::Hadoop;
pub use namespace::inside_namespace;

use std::time::{Duration, Instant};

/// Nothing takes so long; a machine that is busy with other things may make it seem so.
const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until something is there.
///
/// # Panics
/// If it does not come within three minutes.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
