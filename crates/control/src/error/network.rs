//! Refusals of cap changes and of link measurements.

use crate::error::{ErrorKind, list};

/// The reason that links are not measured or caps not changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each is told by its message")]
pub enum NetworkError {
    #[error("there is no rack `{rack}`; those known are {}", list(.known))]
    NoSuchRack { rack: String, known: Vec<String> },
    #[error("links are being measured already")]
    ProbesRun,
    #[error("no links were measured since the coordinator was started")]
    NoProbes,
    #[error("a link has two ends, and {0} helpers are there to be measured")]
    TooFewToProbe(usize),
    #[error("{links} links are to be measured, and {most} are the most at once")]
    TooManyLinks { links: usize, most: usize },
    #[error("helper {0} is down")]
    NodeDown(String),
}

impl NetworkError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchRack { .. } | Self::NoProbes => ErrorKind::NotFound,
            Self::ProbesRun | Self::NodeDown(_) => ErrorKind::Conflict,
            Self::TooFewToProbe(_) | Self::TooManyLinks { .. } => ErrorKind::Invalid,
        }
    }

    pub(crate) fn next_step(&self) -> String {
        match self {
            Self::NoSuchRack { .. } => {
                "see `mend node list` for the racks; a helper's rack is set in mend.toml".into()
            }
            Self::ProbesRun => "wait for their end (`mend bench links --show`), or end it with --stop".into(),
            Self::NoProbes => "measure them with `mend bench links`".into(),
            Self::TooFewToProbe(_) => "name two helpers at least, or start more of them".into(),
            Self::TooManyLinks { .. } => "name fewer helpers, or leave --pairs out".into(),
            Self::NodeDown(_) => "start it, or leave it out".into(),
        }
    }
}
