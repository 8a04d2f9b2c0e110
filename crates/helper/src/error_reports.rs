//! Translates a store's errors into reports to the coordinator.

use std::io;

use repair::{BlockId, BlockProblem, Report, SinkProblem};
use store_api::{BlockError, ProcessError};

/// Classifies the error of a block that cannot be read.
pub(crate) fn block_problem(error: &BlockError) -> BlockProblem {
    match error {
        BlockError::Missing { .. } => BlockProblem::Missing,
        BlockError::Corrupt { detail, .. } | BlockError::Other { detail, .. } => {
            BlockProblem::Corrupt(detail.clone())
        }
        // The check was abandoned, or the disk is unmounted or hangs, which proves nothing about the block.
        BlockError::GivenUp(_) | BlockError::Unmounted { .. } | BlockError::Hangs { .. } => {
            BlockProblem::Unavailable(error.to_string())
        }
        BlockError::Io { source, .. } if is_of_the_machine(source) => {
            BlockProblem::Unavailable(error.to_string())
        }
        BlockError::Process {
            error:
                ProcessError::Unreachable { .. } | ProcessError::TimedOut { .. } | ProcessError::NotNow { .. },
            ..
        } => BlockProblem::Unavailable(error.to_string()),
        other => BlockProblem::Unreadable(other.to_string()),
    }
}

/// The errors of a failing medium, or of the connection to it.
pub(crate) const MEDIUM: [i32; 5] = [libc::EIO, libc::ENODATA, libc::EUCLEAN, libc::ETIMEDOUT, libc::ENOLINK];

/// Whether an I/O error may be transient, such as a lack of memory or descriptors, and so proves nothing
/// about the file.
fn is_of_the_machine(error: &io::Error) -> bool {
    let passing =
        [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN, libc::EINTR, libc::ESTALE];
    error.raw_os_error().is_some_and(|code| passing.contains(&code) || MEDIUM.contains(&code))
        || matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted)
}

/// Returns the report for a sink that cannot be opened, written or committed.
pub(crate) fn sink_report(block: BlockId, error: &BlockError) -> Report {
    let problem = match error {
        BlockError::NoSpace { .. } => SinkProblem::NoSpace,
        BlockError::Process { error: ProcessError::NotNow { why }, .. } => SinkProblem::NotNow(why.clone()),
        BlockError::Process { error, .. } => SinkProblem::Process(error.to_string()),
        other => SinkProblem::Io(other.to_string()),
    };
    Report::SinkFailed { block, problem }
}
