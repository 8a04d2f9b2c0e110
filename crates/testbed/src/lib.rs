//! Real systems for tests, measurements and demos: SeaweedFS and HDFS clusters, and Mend attached to them.
//!
//! - [`Ground`] decides where processes run: on one address, on several addresses in one network namespace,
//!   or on a [`Network`] of namespaces between which packets can be dropped. [`Process`] is a child process
//!   that is killed with the program that started it.
//! - [`seaweedfs`] and [`hdfs`] each boot a cluster of the unmodified system on a [`Ground`].
//! - [`Mend`] is a coordinator with one helper per storage server, attached to such a cluster.
//! - [`run_cases`] runs the tests of a program that share one booted system.
//!
//! If a step fails, it panics and prints the end of the processes' logs.
//!
//! **Dependency rule:** the testbed knows Mend only as a binary. It starts `mend` and reads its output; it
//! imports none of Mend's daemons, planner or client. The only exception is the crate `seaweedfs`, which
//! implements SeaweedFS's protocol: the cluster of SeaweedFS uses it to call masters and volume servers and
//! to name their files.

#![forbid(unsafe_code)]

mod cases;
mod content;
mod ground;
pub mod hdfs;
mod install;
mod mend;
mod namespace;
mod network;
mod process;
pub mod seaweedfs;
mod skip;

pub use cases::{Case, Cases, run_cases};
pub use content::content;
pub use ground::{Ground, OneAddress, OneNamespace, Seat};
pub use install::installed;
pub use mend::{AttachCommand, Mend};
pub use namespace::inside_namespace;
pub use network::Network;
pub use process::{Piped, Process, signal_process};
pub use skip::is_skipped;

use std::path::Path;
use std::time::{Duration, Instant};

/// The timeout of [`eventually`]. It is generous, because the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Polls until `look` finds something, and returns it.
///
/// # Panics
/// After three minutes.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, what, look)
}

/// Like [`eventually`], but waits at most `limit`, which should allow for delays on a busy machine.
///
/// # Panics
/// After `limit`.
pub fn eventually_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {limit:?} for {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Replaces a file that running programs read, for example their configuration: they never see a part of it.
///
/// # Panics
/// If the file cannot be written.
pub fn replace_file(path: &Path, content: impl AsRef<[u8]>) {
    let new = path.with_extension("new");
    std::fs::write(&new, content).and_then(|()| std::fs::rename(&new, path)).expect("written");
}

/// Runs a command, which is split at spaces.
///
/// # Panics
/// If the command fails.
pub fn run(command: &str) {
    let mut words = command.split(' ');
    let status = std::process::Command::new(words.next().expect("a program")).args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "{command}");
}
