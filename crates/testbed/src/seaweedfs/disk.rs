//! A file system in memory, for machines whose disk is too full for SeaweedFS.

use std::fs;
use std::path::Path;

use crate::run;
use tempfile::TempDir;

/// Mounts a tmpfs and returns a temporary folder on it. The tmpfs disappears with the mount namespace. It is
/// needed because SeaweedFS does not erasure-code volumes on a disk that is 90% full, as the disk of a build
/// machine may be.
///
/// # Panics
/// If the file system cannot be mounted.
pub fn memory_disk(mount: &Path, size: &str) -> TempDir {
    fs::create_dir_all(mount).expect("made");
    run(&format!("mount -t tmpfs -o size={size} tmpfs {}", mount.display()));
    tempfile::tempdir_in(mount).expect("a temporary folder")
}
