//! Errors of the lab.

use std::io;
use std::path::PathBuf;

use crate::checkout::PublishError;
use crate::network::NetworkError;
use crate::scenario::ScenarioError;
use crate::shell::ScriptError;
use crate::topology::TopologyError;

/// An error of the lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The network could not be created, changed or removed.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The topology is invalid.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A system tool failed.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The cluster in the lab could not be created.
    #[error("cannot create the lab's cluster: {0}")]
    Cluster(String),
    /// The `mend` binary was not found.
    #[error(
        "the program `mend` is neither next to mend-lab nor on PATH; build it with `cargo build --release -p \
         cli`, or name it in MEND_BINARY"
    )]
    NoMend,
    /// A process in the lab failed to start.
    #[error("{name} did not start in the lab ({program}): {said}")]
    NotReady {
        /// The process.
        name: String,
        /// The program that was started.
        program: String,
        /// The end of the process's log.
        said: String,
    },
    /// A process in the lab failed.
    #[error("{who} in the lab: {reason}")]
    Agent {
        /// The process.
        who: String,
        /// The cause.
        reason: String,
    },
    /// A repaired block is wrong, which invalidates the whole run.
    #[error("WRONG BYTES after {what}: {reason}")]
    WrongBytes {
        /// The operation.
        what: String,
        /// The difference.
        reason: String,
    },
    /// The scenario measures cold disks, but the blocks are not on a block device whose reads can be counted.
    #[error(
        "cold = true needs a folder on a block device, and {} is on none: set TMPDIR to a folder on a disk",
        path.display()
    )]
    NoDevice {
        /// The folder with the lab's blocks.
        path: PathBuf,
    },
    /// The disks of helpers cannot be limited on this machine.
    #[error(
        "disk = … needs the control group controller blkio (cgroups v1, CONFIG_BLK_DEV_THROTTLING) at \
         /sys/fs/cgroup/blkio, and {} on a block device: mount the controller, or set TMPDIR to a folder on \
         a disk",
        path.display()
    )]
    NoDiskLimits {
        /// The folder with the lab's blocks.
        path: PathBuf,
    },
    /// The figure does not exist.
    #[error("there is no figure `{name}`; `mend lab figures --list` lists them")]
    NoFigure {
        /// The requested name.
        name: String,
    },
    /// Pages in the repository's folder would state a commit that does not describe what was measured.
    #[error("cannot write pages to docs/results: {0} (--out selects another folder)")]
    Publish(#[from] PublishError),
    /// A trial would write into the folders of complete measurements.
    #[error(
        "with {option}, this is a trial, whose results must not mix with those of complete measurements: give it \
         folders of its own, such as --out target/trial --reports target/trial"
    )]
    Trial {
        /// The option whose value is not the usual one.
        option: &'static str,
    },
    /// The measurement is finished, but its figures are not reliable.
    #[error("not reliable: {doubt} (report: {})", report.display())]
    Unreliable {
        /// The reason.
        doubt: String,
        /// The file with the report.
        report: PathBuf,
    },
    /// A measurement panicked.
    #[error("the measurement panicked")]
    Panicked,
    /// A drawing failed.
    #[error("cannot draw {}: {reason}", path.display())]
    Draw {
        /// The file.
        path: PathBuf,
        /// The drawing library's message.
        reason: String,
    },
    /// The storage system to measure is unavailable.
    #[error("cannot start {system}: {reason}")]
    NoSystem {
        /// The system.
        system: &'static str,
        /// The cause.
        reason: String,
    },
    /// The user interrupted the lab.
    #[error("stopped; the lab was removed")]
    Interrupted,
}

impl LabError {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
