//! Selects the faults of a run.

use std::path::PathBuf;

use crate::cluster::Cluster;
use crate::faults;
use crate::report::say;

/// The faults enabled in this run.
#[derive(Clone, Debug)]
pub struct Switches {
    /// Whether disks can be filled.
    pub full_disks: bool,
    /// The library with which clocks are changed; `None` if it is not installed.
    pub clocks: Option<PathBuf>,
    /// Whether links can fail in one direction.
    pub links: bool,
    /// Names of fault kinds, taken from the environment. If `only` is not empty, only the faults in it are
    /// enabled. Faults in `without` are disabled.
    only: Vec<String>,
    without: Vec<String>,
}

impl Switches {
    /// Enables the faults that this machine supports, and prints those that it leaves out.
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

    /// Whether faults of this kind are enabled.
    pub fn has(&self, name: &str) -> bool {
        let is_among = |names: &[String]| names.iter().any(|other| other == name);
        (self.only.is_empty() || is_among(&self.only)) && !is_among(&self.without)
    }
}

/// Returns the path of libfaketime on Debian and its derivatives.
fn clock_library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.is_file())
}
