//! Kernel limits on the files that a daemon writes.

use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// A shell command after which a write beyond the file size limit returns an error instead of raising
/// SIGXFSZ.
pub const REFUSALS_ARE_ERRORS: &str = "trap '' XFSZ";

/// Returns a script for `bash -c` that runs `first` and then executes the program in its arguments. The
/// program logs through a pipe, so that file size limits do not affect its log.
pub fn script(first: &str) -> String {
    format!("{first}; exec \"$0\" \"$@\" 2> >(exec cat >&2)")
}

/// Limits the size in bytes of the files that a process writes, or removes the limit.
pub fn limit_files(pid: Option<Pid>, bytes: Option<u64>) -> rustix::io::Result<()> {
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).map(drop)
}
