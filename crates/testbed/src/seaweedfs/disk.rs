//! A disk in memory, for machines whose own disk is too full.

use std::fs;
use std::path::Path;

use crate::run;
use tempfile::TempDir;

/// A temporary folder on a tmpfs, which disappears with the mount namespace. SeaweedFS encodes no volume on a
/// disk that is 90% full, as the disk of a build machine may be.
///
/// # Panics
/// If the file system cannot be mounted.
pub fn memory_disk(mount: &Path, size: &str) -> TempDir {
    fs::create_dir_all(mount).expect("made");
    run(&format!("mount -t tmpfs -o size={size} tmpfs {}", mount.display()));
    tempfile::tempdir_in(mount).expect("a temporary folder")
}
