//! The failures of a client's request, in a form that a program can match.

use serde::{Deserialize, Serialize};

use crate::{JobError, PlanError};

/// Why a client's request failed. The texts inside are for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum RequestFailure {
    /// The request cannot start: it names something that does not exist, or something that is impossible at
    /// the moment.
    #[error("{detail}; {next_step}")]
    Refused {
        /// The obstacle.
        detail: String,
        /// A suggestion for the user.
        next_step: String,
    },
    /// A block was replaced since the client found it.
    #[error("{detail}")]
    Replaced {
        /// The replaced block.
        detail: String,
    },
    /// More blocks are lost than the code can rebuild.
    #[error("{detail}")]
    TooMuchLost {
        /// The lost blocks.
        detail: String,
    },
    /// Planning failed for another reason.
    #[error("{detail}")]
    NoPlan {
        /// The reason.
        detail: String,
    },
    /// The blocks contradict each other, and the wrong one cannot be identified.
    #[error("{detail}")]
    Contradiction {
        /// A description of the contradiction.
        detail: String,
    },
    /// Nodes failed and could not be replaced; a later attempt may succeed.
    #[error("{detail}")]
    Nodes {
        /// The failed nodes and their failures.
        detail: String,
    },
    /// The client itself cannot continue.
    #[error("{detail}")]
    Client {
        /// The reason.
        detail: String,
    },
    /// The blocks of a put do not belong together, so a helper has computed or stored a wrong one.
    #[error("{detail}")]
    StoredWrong {
        /// The failed check, and the helpers of which at least one is at fault.
        detail: String,
    },
    /// The stored blocks could not be recorded in the catalog.
    #[error("{detail}")]
    Unrecorded {
        /// The error of the catalog's storage.
        detail: String,
    },
    /// The request was cancelled, before or after it began.
    #[error("it was cancelled")]
    CalledOff,
}

impl From<&JobError> for RequestFailure {
    fn from(error: &JobError) -> Self {
        let detail = error.to_string();
        match error {
            JobError::Plan { error: PlanError::Decode { .. }, .. } => Self::TooMuchLost { detail },
            JobError::Plan { .. } => Self::NoPlan { detail },
            JobError::Contradiction { .. } => Self::Contradiction { detail },
            JobError::NoRequestor { .. }
            | JobError::NoProgress { .. }
            | JobError::StoreNotReady { .. }
            | JobError::Unproven { .. } => Self::Nodes { detail },
            JobError::StoredWrong { .. } => Self::StoredWrong { detail },
            JobError::Client { .. } => Self::Client { detail },
            JobError::Cancelled => Self::CalledOff,
        }
    }
}
