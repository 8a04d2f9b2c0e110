//! Raises a daemon's limit of open file descriptors to the hard limit.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// A busy daemon may run out of descriptors if its limit is lower than this.
const ENOUGH: u64 = 4096;
/// The limit to assume if the system does not report one.
const USUAL: u64 = 1024;

/// Raises this process's soft limit to the hard limit. Logs and returns the resulting limit.
pub fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return USUAL };
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    };
    if limit < ENOUGH {
        tracing::warn!(
            limit,
            "the limit of open files is low; raise the hard limit (`ulimit -Hn`, LimitNOFILE=) to {ENOUGH}"
        );
    } else {
        tracing::info!(limit, "limit of open files");
    }
    limit
}
