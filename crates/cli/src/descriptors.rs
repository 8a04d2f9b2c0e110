//! Raises a daemon's limit of open descriptors as far as the system allows.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// With fewer, a busy daemon may run out.
const ENOUGH: u64 = 4096;
/// What there is if the system does not say.
const USUAL: u64 = 1024;

/// Raises this process's limit as far as it may, says what that is, and returns it.
pub fn raise() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return USUAL };
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    };
    if limit < ENOUGH {
        tracing::warn!(
            limit,
            "few file descriptors; raise the hard limit (`ulimit -Hn`, LimitNOFILE=) to {ENOUGH}"
        );
    } else {
        tracing::info!(limit, "file descriptors");
    }
    limit
}
