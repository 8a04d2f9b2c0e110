//! A SeaweedFS cluster of the unmodified program: a master, a filer with S3, and volume servers on a
//! [`Ground`](crate::Ground). `scripts/seaweedfs` installs the program.

mod attach;
mod cluster;
mod disk;
mod http;
mod shell;
mod volume_server;
mod weed;

pub use attach::Attaching;
pub use cluster::{Cluster, Options};
pub use disk::memory_disk;
pub use http::http;
pub use shell::Shell;
pub use volume_server::VolumeProcess;
pub use weed::Weed;

use std::path::PathBuf;

/// Installs the program unless it is already installed, and returns its path.
///
/// # Errors
/// The reason for the failure, as text for users.
pub fn install() -> Result<PathBuf, String> {
    crate::installed("scripts/seaweedfs", "MEND_WEED", "target/seaweedfs").map(|folder| folder.join("weed"))
}
