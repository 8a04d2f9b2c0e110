//! Translates a store's errors into reports to the coordinator.

use std::io;

use block_files::is_of_medium;
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
        BlockError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            BlockProblem::Unavailable(format!("{error}; give the user that runs this helper access to it"))
        }
        BlockError::Io { source, .. } if is_of_the_machine(source) || is_of_the_helper(source) => {
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

/// Whether an I/O error may be transient, such as a lack of memory or descriptors, and so proves nothing
/// about the file.
fn is_of_the_machine(error: &io::Error) -> bool {
    let passing =
        [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN, libc::EINTR, libc::ESTALE];
    error.raw_os_error().is_some_and(|code| passing.contains(&code))
        || is_of_medium(error)
        || matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted)
}

/// Whether this helper may not read the file, or cannot use it, for example because of its version. That proves
/// nothing about the bytes, but lasts until an operator or another program acts.
pub(crate) fn is_of_the_helper(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(source: io::Error) -> BlockProblem {
        block_problem(&BlockError::Io { path: "17.3.crc".to_owned(), source })
    }

    #[test]
    fn a_file_that_the_helper_may_not_read_or_does_not_know_is_not_corrupt() {
        for code in [libc::EACCES, libc::EPERM] {
            let BlockProblem::Unavailable(text) = problem(io::Error::from_raw_os_error(code)) else {
                panic!("{code} says something about the block")
            };
            assert!(text.contains("17.3.crc") && text.contains("access"), "{text}");
        }
        let newer = io::Error::new(io::ErrorKind::Unsupported, "version 9: run another mend");
        let told = BlockProblem::Unavailable("17.3.crc: version 9: run another mend".to_owned());
        assert_eq!(problem(newer), told);
        assert!(matches!(problem(io::Error::from_raw_os_error(libc::ELOOP)), BlockProblem::Unreadable(_)));
    }
}
