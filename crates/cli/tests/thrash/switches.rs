//! Which faults are left out.

use std::path::PathBuf;

use crate::cluster::Cluster;
use crate::report::say;

/// What is known not to hold yet is left out unless `MEND_THRASH_FAULTS` names it, or is `all`; whoever mends one of
/// these takes it out of here.
const NOT_YET: [(&str, &str); 4] = [
    ("pairs", "pairs of block and checksums that agree, in the place of others"),
    ("descriptors", "helpers that cannot open files"),
    ("old-catalog", "an old catalog restored, at the end"),
    ("exits", "that helpers which end by themselves are wrong; they are counted"),
];

/// Which faults there are in this run.
#[derive(Clone, Debug)]
pub struct Switches {
    /// Pairs of block and checksums that agree, and are not those that belong there.
    pub pairs: bool,
    /// Hardly any descriptors.
    pub descriptors: bool,
    /// An old catalog restored.
    pub old_catalog: bool,
    /// Whether a helper that ends by itself is wrong.
    pub exits: bool,
    /// Full disks.
    pub full_disks: bool,
    /// Clocks that jump: the library that makes them.
    pub clocks: Option<PathBuf>,
}

impl Switches {
    /// What was asked for and this machine can do; says what is left out.
    pub fn choose(cluster: &Cluster) -> Self {
        let asked = std::env::var("MEND_THRASH_FAULTS").unwrap_or_default();
        let has = |name: &str| asked.split(',').any(|word| word == name || word == "all");
        for (name, what) in NOT_YET.iter().filter(|(name, _)| !has(name)) {
            say(&format!("thrash: left out, as it is known not to hold: {what} (MEND_THRASH_FAULTS={name})"));
        }
        if !cluster.has_disks() {
            say("thrash: left out: full disks, since mounting a tmpfs needs root");
        }
        let clocks = clock_library();
        if clocks.is_none() {
            say("thrash: left out: clocks that jump, since libfaketime is not installed");
        }
        Self {
            pairs: has("pairs"),
            descriptors: has("descriptors"),
            old_catalog: has("old-catalog"),
            exits: has("exits"),
            full_disks: cluster.has_disks(),
            clocks,
        }
    }
}

/// Where Debian and its kin have libfaketime.
fn clock_library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.is_file())
}
