//! Why the lab could not do what it was asked to.

use std::io;
use std::path::PathBuf;

use crate::network::NetworkError;
use crate::scenario::ScenarioError;
use crate::shell::ScriptError;
use crate::topology::TopologyError;

/// Why the lab could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The topology makes no sense.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The scenario makes no sense.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A system's tool failed.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A file cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The cluster in the lab cannot be made.
    #[error("cannot make the lab's cluster: {0}")]
    Cluster(String),
    /// There is nothing to measure.
    #[error(
        "there is no `mend` beside this program or on PATH; build it with `cargo build --release -p cli`, or name one in MEND_BINARY"
    )]
    NoMend,
    /// A process in the lab did not start.
    #[error("{name} did not start in the lab ({program}): {said}")]
    NotReady {
        /// Who.
        name: String,
        /// Which program was to be it.
        program: String,
        /// What it said last.
        said: String,
    },
    /// A process in the lab did not do what it should.
    #[error("{who} in the lab: {reason}")]
    Agent {
        /// Who.
        who: String,
        /// What happened.
        reason: String,
    },
    /// A repaired block is wrong: nothing else of the run counts.
    #[error("WRONG BYTES after {what}: {reason}")]
    WrongBytes {
        /// What was done.
        what: String,
        /// What differs.
        reason: String,
    },
    /// There is no disk to read.
    #[error("cold = true, and {} is on no disk of its own: set TMPDIR to a folder that is", path.display())]
    NoDevice {
        /// Where the lab's blocks are.
        path: PathBuf,
    },
    /// No such figure.
    #[error("there is no figure `{name}`; `mend lab figures` lists them")]
    NoFigure {
        /// As asked for.
        name: String,
    },
    /// A drawing failed.
    #[error("cannot draw {}: {reason}", path.display())]
    Draw {
        /// The file.
        path: PathBuf,
        /// What the drawing library says.
        reason: String,
    },
    /// Another system cannot be had.
    #[error("no {system}: {reason}")]
    NoSystem {
        /// Which.
        system: &'static str,
        /// Why.
        reason: String,
    },
    /// Stopped by the user.
    #[error("stopped; the lab was removed")]
    Interrupted,
}

impl LabError {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
