//! A real SeaweedFS cluster, of the unmodified program, for tests, measurements and the demo: a master, a filer with S3 and
//! volume servers, wherever a [`Ground`](apart::Ground) puts them.
//!
//! `scripts/seaweedfs` gets the program. Everything dies with whoever started it, however that ends. A step that fails
//! panics and says what the processes said.

#![forbid(unsafe_code)]

mod attach;
mod cluster;
mod content;
mod disk;
mod http;
mod shell;
mod volume_server;

pub use apart::{Process, eventually, inside_namespace, run};
pub use attach::Attaching;
pub use cluster::{Cluster, Options};
pub use content::content;
pub use disk::memory_disk;
pub use http::http;
pub use shell::Shell;
pub use volume_server::VolumeProcess;

use std::path::PathBuf;

/// The program, installed now if it was not.
///
/// # Errors
/// Why it is not there, for people.
pub fn install() -> Result<PathBuf, String> {
    apart::installed("scripts/seaweedfs", "MEND_WEED", "target/seaweedfs").map(|folder| folder.join("weed"))
}
