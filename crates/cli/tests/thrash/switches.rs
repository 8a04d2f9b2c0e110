//! Which faults are left out.

use std::path::PathBuf;

use crate::cluster::Cluster;
use crate::report::say;

/// Which faults there are in this run.
#[derive(Clone, Debug)]
pub struct Switches {
    /// Full disks.
    pub full_disks: bool,
    /// Clocks that jump: the library that makes them.
    pub clocks: Option<PathBuf>,
}

impl Switches {
    /// What this machine can do; says what is left out.
    pub fn choose(cluster: &Cluster) -> Self {
        if !cluster.has_disks() {
            say("thrash: left out: full disks, since mounting a tmpfs needs root");
        }
        let clocks = clock_library();
        if clocks.is_none() {
            say("thrash: left out: clocks that jump, since libfaketime is not installed");
        }
        Self { full_disks: cluster.has_disks(), clocks }
    }
}

/// Where Debian and its kin have libfaketime.
fn clock_library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.is_file())
}
