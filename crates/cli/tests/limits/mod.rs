//! Limits by which the kernel refuses what a daemon wants to write.

use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// What a shell does first so that a daemon hears of refused writes by an error.
pub const REFUSALS_ARE_ERRORS: &str = "trap '' XFSZ";

/// A script for `bash -c` that does something first and then becomes the program of its arguments. That logs through a
/// pipe, so that limits on files do not hold for its log.
pub fn script(first: &str) -> String {
    format!("{first}; exec \"$0\" \"$@\" 2> >(exec cat >&2)")
}

/// Has the kernel refuse every write of a process beyond so many bytes of a file, or none.
pub fn limit_files(pid: Option<Pid>, bytes: Option<u64>) -> rustix::io::Result<()> {
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).map(drop)
}
