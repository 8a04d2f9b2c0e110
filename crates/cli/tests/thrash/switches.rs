//! Which faults are left out.

use std::path::PathBuf;

use crate::cluster::Cluster;
use crate::faults;
use crate::report::say;

/// Which faults there are in this run.
#[derive(Clone, Debug)]
pub struct Switches {
    /// Full disks.
    pub full_disks: bool,
    /// Clocks that jump: the library that makes them.
    pub clocks: Option<PathBuf>,
    /// Links that are broken in one direction.
    pub links: bool,
    /// Kinds of faults by their names, as the environment has them: those that there are, if any is named, and those that
    /// there are not.
    only: Vec<String>,
    without: Vec<String>,
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
        if let Err(why) = cluster.network() {
            say(&format!("thrash: left out: links broken in one direction: {why}"));
        }
        let named = |variable: &str| -> Vec<String> {
            let names = std::env::var(variable).unwrap_or_default();
            names.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let (only, without) = (named("MEND_THRASH_ONLY"), named("MEND_THRASH_WITHOUT"));
        for name in only.iter().chain(&without) {
            assert!(faults::names().any(|known| known == name), "there is no kind of fault `{name}`");
        }
        Self { full_disks: cluster.has_disks(), clocks, links: cluster.network().is_ok(), only, without }
    }

    /// Whether there are faults of this kind.
    pub fn has(&self, name: &str) -> bool {
        let is_among = |names: &[String]| names.iter().any(|other| other == name);
        (self.only.is_empty() || is_among(&self.only)) && !is_among(&self.without)
    }
}

/// Where Debian and its kin have libfaketime.
fn clock_library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.is_file())
}
