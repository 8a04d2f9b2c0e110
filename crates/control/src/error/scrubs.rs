//! Refusals of requests about scrubs.

use views::ScrubState;

use crate::error::ErrorKind;

/// The reason that a scrub is not started, stopped or shown.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the error messages document the variants")]
pub enum ScrubError {
    #[error("there is no scrub {0}")]
    NoSuchScrub(u64),
    #[error("scrub {0} is running, and it does not check parity")]
    ScrubRuns(u64),
    #[error("scrub {scrub} has ended already: it is {state}")]
    ScrubEnded { scrub: u64, state: ScrubState },
}

impl ScrubError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSuchScrub(_) => ErrorKind::NotFound,
            Self::ScrubRuns(_) | Self::ScrubEnded { .. } => ErrorKind::Conflict,
        }
    }

    pub(crate) fn next_step(&self) -> String {
        let step = match self {
            Self::NoSuchScrub(_) => "start one with `mend scrub`",
            Self::ScrubRuns(_) => {
                "wait until the scrub ends (`mend status`), or stop it with `mend scrub --stop`"
            }
            Self::ScrubEnded { .. } => "see the findings with `mend status --output json`",
        };
        step.into()
    }
}
