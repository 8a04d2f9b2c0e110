//! Refusals of cap changes and of link measurements.

use crate::error::{ErrorKind, list};

/// The reason that links are not measured or caps not changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum NetworkError {
    #[error("there is no rack `{rack}`; the known racks are {}", list(.known))]
    NoSuchRack { rack: String, known: Vec<String> },
    #[error("links are being measured already")]
    ProbesRun,
    #[error("no links have been measured since the coordinator started")]
    NoProbes,
    #[error("measuring links needs at least two helpers, but only {0} can be measured")]
    TooFewToProbe(usize),
    #[error("{links} links are too many for one measurement: the limit is {most}")]
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
            Self::ProbesRun => {
                "wait until it ends (`mend bench links --show`), or stop it with --stop".into()
            }
            Self::NoProbes => "measure them with `mend bench links`".into(),
            Self::TooFewToProbe(_) => "name at least two helpers, or start more of them".into(),
            Self::TooManyLinks { .. } => "name fewer helpers, or leave --pairs out".into(),
            Self::NodeDown(_) => "start it, or leave it out".into(),
        }
    }
}
