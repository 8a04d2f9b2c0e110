//! Other people's systems, run for a test apart from this machine: in namespaces of their own, and gone with whoever
//! started them, however that ends. Of any one system, and of Mend, there is nothing in here.

#![forbid(unsafe_code)]

mod cases;
mod ground;
mod install;
mod namespace;
mod network;
mod process;
mod skip;

pub use cases::{Case, run_cases};
pub use ground::{Ground, OneAddress, OneNamespace, Seat};
pub use install::installed;
pub use namespace::inside_namespace;
pub use network::Network;
pub use process::{Piped, Process};
pub use skip::is_skipped;

use std::time::{Duration, Instant};

/// Nothing takes so long; a machine that is busy with other things may make it seem so.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits until something is there.
///
/// # Panics
/// If it does not come within three minutes.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Runs a command of words without spaces in them.
///
/// # Panics
/// If it does not succeed.
pub fn run(command: &str) {
    let mut words = command.split(' ');
    let status = std::process::Command::new(words.next().expect("a program")).args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "{command}");
}
