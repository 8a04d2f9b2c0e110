//! A disk for a cluster whose own one is full.

use std::fs;
use std::path::Path;

use crate::run;
use tempfile::TempDir;

/// A folder on a file system in memory, which goes with the mount namespace: SeaweedFS encodes nothing on a disk that is
/// full to nine tenths, as the one of a machine that builds things may be.
///
/// # Panics
/// If there can be none.
pub fn memory_disk(mount: &Path, size: &str) -> TempDir {
    fs::create_dir_all(mount).expect("made");
    run(&format!("mount -t tmpfs -o size={size} tmpfs {}", mount.display()));
    tempfile::tempdir_in(mount).expect("a temporary folder")
}
